"""Rule files on the command line: run with them, check them, try them on a recording, and their schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import beforehand, endpoint, says

RULES = [
    {"label": "watch", "target": "chat", "roles": ["assistant"], "actions": [{"type": "warn", "message": "said {{content}}"}]},
    {"label": "no-keys", "target": "stream", "regex": "sk-[a-z]+", "actions": [{"type": "replace", "with": "***"}]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "all.json").write_text(json.dumps(RULES))
    return tmp_path


def test_a_run_takes_a_folder_of_rules_and_shows_what_they_log_in_the_timeline(folder: Path) -> None:
    with endpoint(says("the key is sk-abc today")) as there:
        done = beforehand("run", "Hi", "--model", "openai:m", "--base-url", there.url, "--hooks", "rules", "--plain", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the key is *** today\n"
    assert "rule warning" in done.stderr
    assert "said the key is *** today" in done.stderr
    assert "sk-abc" not in done.stderr


def test_right_rules_are_listed_with_what_they_become(folder: Path) -> None:
    done = beforehand("check", "rules", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "'no-keys' stream → 9 on_chunk: Replace(text=)" in done.stdout


def test_a_mistake_is_named_with_file_line_and_field_and_the_exit_code_says_so(folder: Path) -> None:
    (folder / "rules" / "bad.json").write_text('{"target": "tool", "event": "befor", "actions": [{"type": "block"}]}')
    done = beforehand("check", "rules", cwd=folder)
    assert done.returncode == 2
    assert "rules/bad.json:1" in done.stdout
    assert "before" in done.stdout
    assert "nothing would be loaded" in done.stdout


def test_a_recording_shows_what_the_reader_would_have_seen(folder: Path) -> None:
    (folder / "talk.jsonl").write_text(json.dumps({"role": "assistant", "content": "the key is sk-abc today"}) + "\n")
    done = beforehand("try", "rules", "--on", "talk.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "the reader would have seen 'the key is *** today'" in done.stdout


def test_the_schema_is_one_that_editors_can_use() -> None:
    done = beforehand("schema", "rules")
    schema = json.loads(done.stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["$defs"]
