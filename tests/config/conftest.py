import json

import pytest

from beforehand.config import ProjectFileError, read_project
from beforehand.sandbox import close_spares


@pytest.fixture(autouse=True)
async def no_spares_are_left():
    yield
    await close_spares()


class Folder:
    """A project folder whose file a test writes."""

    def __init__(self, root):
        self.root = root
        (root / "agent" / "lib").mkdir(parents=True)
        (root / "rules").mkdir()
        self.lambda_("def transform(input):\n    return {**input['request'], 'system': 'seen'}\n")

    def lambda_(self, code, name="x.py"):
        (self.root / "agent" / "lib" / name).write_text(code)

    def toml(self, text):
        (self.root / "beforehand.toml").write_text(text)
        return self.root / "beforehand.toml"

    def json(self, value):
        (self.root / "beforehand.json").write_text(value if isinstance(value, str) else json.dumps(value))
        return self.root / "beforehand.json"

    def settings(self):
        return read_project(self.root).settings

    def mistakes(self):
        """Each as line, field and sentence."""
        with pytest.raises(ProjectFileError) as raised:
            read_project(self.root)
        return [f"{p.line}: {p.field}: {p.message}" for p in raised.value.problems]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)
