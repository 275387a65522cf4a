"""Authority over files: given by the owner for a content, taken away by any write, out of a lambda's reach."""

import json
import os
import subprocess
import sys
import threading

import pytest

from beforehand import Agent, ConfigError
from beforehand.testing import ScriptedModel, text
from beforehand.workspace import Authority, Lambda, PathRefused

CODE = b"def main(c):\n    return None\n"


@pytest.fixture
def authority(place):
    (place / "lib" / "x.py").write_bytes(CODE)
    return Authority(place)


def test_nothing_is_authorised_until_the_owner_says_so(authority):
    assert not authority.is_authorized("lib/x.py", CODE)
    authority.authorize("lib/x.py")
    assert authority.is_authorized("lib/x.py", CODE)


def test_authority_holds_for_every_name_of_the_file_and_in_every_process(authority, place):
    (place / "link.py").symlink_to("lib/x.py")
    authority.authorize("./lib/x.py")
    assert Authority(place).is_authorized("lib/x.py", CODE)
    assert Authority(place / "." / "lib" / "..").is_authorized("link.py", CODE)


def test_any_other_content_is_not_authorised(authority, place):
    authority.authorize("lib/x.py")
    for content in (CODE + b"\n", CODE[:-1], b"", CODE.replace(b"None", b"True")):
        assert not authority.is_authorized("lib/x.py", content)


def test_authority_is_about_one_path(authority, place):
    authority.authorize("lib/x.py")
    (place / "lib" / "copy.py").write_bytes(CODE)
    assert not authority.is_authorized("lib/copy.py", CODE)


def test_a_grant_and_a_revocation_are_seen_by_those_who_had_asked_before(authority, place):
    other = Authority(place)
    assert not other.is_authorized("lib/x.py", CODE)
    authority.authorize("lib/x.py")
    assert other.is_authorized("lib/x.py", CODE)
    assert authority.revoke("lib/x.py")
    assert not other.is_authorized("lib/x.py", CODE)
    assert not authority.revoke("lib/x.py")


def test_authority_lies_beside_the_workspace_and_goes_when_there_is_nothing_to_say(authority, place):
    digest = authority.authorize("lib/x.py")
    book = place.parent / "agent.authority.json"
    assert json.loads(book.read_text()) == {"files": {"lib/x.py": {"sha256": digest}}}
    authority.revoke("lib/x.py")
    assert json.loads(book.read_text()) == {"files": {}}
    assert sorted(p.name for p in place.parent.iterdir()) == ["agent", "agent.authority.json"]


async def test_a_lambda_cannot_reach_what_authorises_a_workspace_inside_its_own(place):
    (place / "inner").mkdir()
    (place / "inner" / "y.py").write_bytes(CODE)
    Authority(place / "inner").authorize("y.py")
    (place / "alias.json").symlink_to("inner.authority.json")
    (place / "lib" / "x.py").write_text(
        "async def main(c):\n"
        "    said = []\n"
        "    for path in ('inner.authority.json', 'alias.json', './inner.authority.json', '../agent.authority.json'):\n"
        "        try:\n"
        "            await adf.fs_write(path=path, content='{}')\n"
        "        except Exception as error:\n"
        "            said.append(str(error))\n"
        "    return [{'type': 'block', 'reason': '|'.join(said)}]\n"
    )
    gate = Lambda("lib/x.py", seam="before_run", workspace=place, timeout=60)
    result = await Agent(model=ScriptedModel([text("no")]), hooks=[gate]).run("Hello")
    said = (result.reason or "").split("|")
    assert [line.partition(":")[0] for line in said] == ["INVALID_INPUT"] * 4
    assert Authority(place / "inner").is_authorized("y.py", CODE)


def test_protection_is_separate_from_authority(authority, place):
    assert authority.protection("lib/x.py") == "none"
    authority.protect("lib/x.py", "read_only")
    assert authority.protection("lib/x.py") == "read_only"
    assert not authority.is_authorized("lib/x.py", CODE)
    authority.authorize("lib/x.py")
    authority.revoke("lib/x.py")
    assert authority.protection("lib/x.py") == "read_only"
    authority.protect("lib/x.py", "no_delete")
    assert authority.protection("lib/x.py") == "no_delete"
    authority.protect("lib/x.py", "none")
    assert authority.protection("lib/x.py") == "none"


def test_protection_follows_a_file_through_links(authority, place):
    authority.protect("lib/x.py", "read_only")
    (place / "soft.py").symlink_to("lib/x.py")
    os.link(place / "lib" / "x.py", place / "hard.py")
    (place / "other.py").write_bytes(CODE)
    assert [authority.protection(p) for p in ("soft.py", "hard.py", "other.py", "new.py", "lib")] == [
        "read_only", "read_only", "none", "none", "none",
    ]  # fmt: skip


def test_a_file_can_be_gone_and_still_lose_what_it_had(authority, place):
    authority.authorize("lib/x.py")
    authority.protect("lib/x.py", "no_delete")
    (place / "lib" / "x.py").unlink()
    assert [(e.path, e.state, e.protection) for e in authority.entries()] == [("lib/x.py", "gone", "no_delete")]
    assert authority.revoke("lib/x.py")
    authority.protect("lib/x.py", "none")
    assert authority.entries() == ()


def test_the_list_says_what_has_changed_since(authority, place):
    (place / "lib" / "y.ts").write_text("export function main() {}")
    (place / "notes.txt").write_text("hello")
    authority.authorize("lib/x.py")
    authority.authorize("lib/y.ts")
    authority.protect("notes.txt", "no_delete")
    (place / "lib" / "y.ts").write_text("export function main() { return 1 }")
    assert [(e.path, e.state, e.protection) for e in authority.entries()] == [
        ("lib/x.py", "authorized", "none"), ("lib/y.ts", "changed", "none"), ("notes.txt", "", "no_delete"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"files": []}', '{"files": {"lib/x.py": {"sha": "1"}}}', '{"files": {}, "more": 1}', "\xff",
     '{"files": {"lib/x.py": {"protection": "maybe"}}}'],
)  # fmt: skip
def test_a_broken_book_grants_nothing_protects_everything_and_is_not_overwritten(authority, place, text, caplog):
    authority.authorize("lib/x.py")
    assert authority.is_authorized("lib/x.py", CODE)
    authority.file.write_bytes(text.encode("latin-1"))
    assert not authority.is_authorized("lib/x.py", CODE)
    assert authority.protection("lib/x.py") == "read_only"
    assert "agent.authority.json: it does not hold" in caplog.text
    for change in (authority.authorize, authority.revoke, lambda path: authority.protect(path, "none")):
        with pytest.raises(ConfigError, match="does not hold what `beforehand authorize` writes"):
            change("lib/x.py")
    with pytest.raises(ConfigError):
        authority.entries()
    assert authority.file.read_bytes() == text.encode("latin-1")


def test_what_cannot_be_authorised_or_protected_says_why(authority, place, tmp_path):
    (place / "notes.txt").write_text("hello")
    with pytest.raises(ConfigError, match=r"'notes.txt' holds no lambda \(.py, .ts, .js\)"):
        authority.authorize("notes.txt")
    with pytest.raises(FileNotFoundError):
        authority.authorize("lib/none.py")
    with pytest.raises(FileNotFoundError):
        authority.protect("lib/none.py", "read_only")
    with pytest.raises(ConfigError, match="the protection is 'locked': expected none, no_delete, read_only"):
        authority.protect("lib/x.py", "locked")
    (tmp_path / "out.py").write_bytes(CODE)
    (place / "out.py").symlink_to(tmp_path / "out.py")
    for path in ("../x.py", "/etc/passwd", "out.py", ".beforehand/meta.json", "C:/x.py"):
        for ask in (authority.authorize, authority.revoke, authority.protection, lambda p: authority.is_authorized(p, CODE)):
            with pytest.raises(PathRefused):
                ask(path)
    with pytest.raises(ConfigError, match="there is no folder"):
        Authority(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="has no folder around it"):
        Authority("/")


def test_grants_made_at_the_same_time_all_count(authority, place):
    names = [f"lib/n{i}.py" for i in range(24)]
    for name in names:
        (place / name).write_bytes(CODE)
    threads = [threading.Thread(target=Authority(place).authorize, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(authority.is_authorized(name, CODE) for name in names)


def test_a_grant_by_another_process_counts(authority, place):
    script = f"from beforehand.workspace import Authority; Authority({str(place)!r}).authorize('lib/x.py')"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert authority.is_authorized("lib/x.py", CODE)
