"""Project files on the command line: run with one, check it, edit the targets of its hook, authorise its files."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from beforehand.config import read_project
from beforehand.settings import ProjectSettings
from beforehand.workspace import Authority
from cli.command import beforehand, endpoint, says

HOOK = 'def transform(input):\n    return {**input["request"], "system": "seen in " + input["loop"]["name"]}\n'
PROJECT = """# mine
model = "openai:m"
workspace = "agent"
hooks_dir = "rules"

[[loops]]
name = "researcher"
"""
RULE = '{"target": "stream", "regex": "secret", "actions": [{"type": "replace", "with": "*"}]}'
BLOCK = '\n[pre_llm_hook]\nsource = "lib/x.py:transform"\nscope = "main"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent" / "lib").mkdir(parents=True)
    (tmp_path / "rules").mkdir()
    (tmp_path / "agent" / "lib" / "x.py").write_text(HOOK)
    (tmp_path / "beforehand.toml").write_text(PROJECT)
    return tmp_path


Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, run_here: Callable[..., Any]) -> Command:
    """The command in this process, with the folder as working directory."""
    monkeypatch.chdir(folder)

    def run(*args: str) -> CompletedProcess[str]:
        done = run_here(*args)
        return CompletedProcess(args, done.code, done.out, done.err)

    return run


def refused(done: CompletedProcess[str], why: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert why in done.stderr


# --- run ---


def test_a_run_takes_a_project(folder: Path) -> None:
    (folder / "rules" / "a.json").write_text(RULE)
    with endpoint(says("the secret")) as there:
        (folder / "beforehand.toml").write_text(f'base_url = "{there.url}"\n{PROJECT}{BLOCK}')
        done = beforehand("run", "Hi", "--project", ".", "--plain", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "the *\n"), done.stderr
    assert there.requests[0]["messages"][0] == {"role": "system", "content": "seen in main"}


def test_the_command_line_counts_instead_of_the_file(folder: Path) -> None:
    (folder / "beforehand.toml").write_text(f'base_url = "http://127.0.0.1:9/v1"\ninstructions = "Be brief."\n{PROJECT}')
    with endpoint(says("hello")) as there:
        done = beforehand(
            "run", "Hi", "--project", "beforehand.toml", "--base-url", there.url, "--model", "openai:other", "--instructions",
            "Be long.", cwd=folder,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert there.requests[0]["model"] == "other"
    assert there.requests[0]["messages"][0]["content"] == "Be long."


def test_the_number_of_turns_of_the_command_line_leaves_the_other_limits(folder: Path) -> None:
    (folder / "beforehand.toml").write_text(f"{PROJECT}\n[limits]\ncontext_tokens = 1\n[recovery]\nauto_retry = false\n")
    with endpoint(says("hello")) as there:
        done = beforehand("run", "Hi", "--project", ".", "--base-url", there.url, "--max-turns", "1", cwd=folder)
    assert done.returncode == 5
    assert there.requests == []


def test_a_run_needs_a_model_from_somewhere(folder: Path) -> None:
    refused(beforehand("run", "Hi", cwd=folder), "no model: give --model openai:NAME, or --project with a project file")
    (folder / "beforehand.toml").write_text("")
    refused(beforehand("run", "Hi", "--project", ".", cwd=folder), "the field 'model' is missing")
    refused(beforehand("run", "Hi", "--project", "agent", cwd=folder), "there is no project file in agent")


# --- hooks ---


def test_the_hooks_of_a_project_are_listed_in_the_order_they_are_asked(folder: Path) -> None:
    (folder / "beforehand.toml").write_text(PROJECT + BLOCK + '[[tools]]\nname = "wipe"\nrestricted = true\n')
    (folder / "rules" / "a.json").write_text(RULE)
    (folder / "tools.py").write_text('from beforehand import tool\n@tool\ndef wipe() -> str:\n    """Delete."""\n    return ""\n')
    done = beforehand("hooks", "--project", ".", "--tools", "tools.py", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    rows = done.stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [["6", "before_provider_call"], ["9", "on_chunk"], ["12", "before_tool_call"]]
    told = ["pre_llm_hook", "1", "loops main", "closed: lets nothing pass; timeout 60 s", "beforehand.toml:9"]
    assert rows[0].split("  ")[1:] == told
    assert "tools.restricted" in rows[2]
    assert "tools wipe" in rows[2]


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ('scope = "main"\ntimeout_ms = 2500\n', ["loops main", "closed: lets nothing pass; timeout 2.5 s"]),
        ('scope = "loops"\nloops = ["a", "b"]\n', ["loops a, b", "closed: lets nothing pass; timeout 3 s"]),
        ('scope = "loops"\nloops = ["a"]\ninclude_main = true\ntimeout_ms = 5000\n',
         ["loops main, a", "closed: lets nothing pass; timeout 3 s"]),
        (None, ["nothing: it is not in the file", "closed: lets nothing pass"]),
    ],
)  # fmt: skip
def test_a_request_hook_is_listed_with_its_loops_and_its_own_time_limit(
    folder: Path, command: Command, block: str | None, told: list[str]
) -> None:  # fmt: skip
    there = "" if block is None else f'[pre_llm_hook]\nsource = "lib/x.py:transform"\n{block}'
    (folder / "beforehand.toml").write_text(f"{PROJECT}\n[limits]\nexecution_timeout_ms = 3000\n{there}")
    done = command("hooks", "--project", ".")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split("  ")[3:5] == told


# --- check ---


def test_a_right_project_is_described_with_its_rules(folder: Path, command: Command) -> None:
    (folder / "beforehand.toml").write_text(PROJECT + BLOCK)
    (folder / "rules" / "a.json").write_text(RULE)
    done = command("check", ".")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "beforehand.toml: model openai:m, inner loops: researcher, tools declared: none",
        "pre_llm_hook lib/x.py:transform, at most 60 s",
        "  Main",
        "not targets: researcher",
        "rules/a.json:1: stream → 9 on_chunk: Replace(text=)",
        "1 rule in 1 file, nothing wrong",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('modle = "x"', "error: beforehand.toml:1:1: modle: unknown field 'modle', did you mean 'model'?"),
        (PROJECT + BLOCK.replace("x.py", "none.py"), "its file cannot be read in"),
        ("model = ", "error: beforehand.toml:1:9: this is not TOML"),
        ('model = "gpt"', "error: beforehand.toml:1:1: model: no adapter for model 'gpt': write \"openai:gpt\""),
        ('[[loops]]\nname = "a"\nmodel = "opneai:x"', "error: beforehand.toml:3:1: loops[0].model: no adapter for"),
        ('model = "openai:m"\nbase_url = "localhost"', "error: beforehand.toml:1:1: model: "),
    ],
)
def test_a_wrong_project_is_code_2(folder: Path, command: Command, text: str, said: str) -> None:
    (folder / "beforehand.toml").write_text(text)
    done = command("check", ".")
    assert (done.returncode, done.stderr) == (2, "")
    assert said in done.stdout


def test_wrong_rules_of_a_right_project_are_code_2(folder: Path, command: Command) -> None:
    (folder / "rules" / "a.json").write_text('{"target": "tol"}')
    done = command("check", "beforehand.toml")
    assert done.returncode == 2
    assert "error: rules/a.json:1:2: target: there is no target 'tol'" in done.stdout


def test_right_rules_of_a_wrong_project_do_not_say_that_nothing_is_wrong(folder: Path, command: Command) -> None:
    file = folder / "beforehand.toml"
    file.write_text(re.sub("model = .*", 'model = "gpt:x"', file.read_text(), count=1))
    done = command("check", ".")
    assert done.returncode == 2
    assert "nothing wrong in them" in done.stdout


def test_the_schema_of_project_files(folder: Path, command: Command) -> None:
    import jsonschema_rs

    done = command("schema", "project")
    validator = jsonschema_rs.validator_for(json.loads(done.stdout))
    assert validator.is_valid({"model": "openai:m", "pre_llm_hook": {"source": "lib/x.ts", "timeout_ms": 1000}})
    nulls = {"model": None}, {"limits": {"max_turns": None}}
    for wrong in (*nulls, {"modle": 1}, {"pre_llm_hook": {"source": "lib/x.ts", "timeout_ms": 999}}, {"loops": [{"name": "A"}]}):
        assert not validator.is_valid(wrong)


def test_what_the_schema_gives_as_a_default_may_be_written_down(folder: Path, command: Command) -> None:
    """Editors offer it."""
    fields = json.loads(command("schema", "project").stdout)["$defs"]["ProjectSettings"]["properties"]
    given = {name: field["default"] for name, field in fields.items() if "default" in field}
    assert {"limits", "code_execution", "recovery", "context", "loops", "tools"} <= given.keys()
    file = folder / "other.json"
    file.write_text(json.dumps(given))
    assert read_project(file).settings == ProjectSettings()


# --- targets ---


def test_a_new_hook_starts_with_main_and_rows_come_and_go(folder: Path, command: Command) -> None:
    def rows(*args: str) -> list[str]:
        done = command("targets", *args)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    source = "lib/x.py:transform, at most 60 s"
    assert rows() == ["no pre_llm_hook: `beforehand targets --source lib/policy.ts:transform` makes one for Main"]
    assert (folder / "beforehand.toml").read_text() == PROJECT
    assert rows("--source", "lib/x.py:transform") == [source, "  Main", "not targets: researcher"]
    assert (folder / "beforehand.toml").read_text() == PROJECT + BLOCK
    assert rows("add", "later", "researcher") == [source, "  Main", "  later  (not declared yet)", "  researcher"]
    assert rows("remove", "main")[1:] == ["  later  (not declared yet)", "  researcher", "not targets: main"]
    assert rows("all", "--timeout-ms", "5000") == ["lib/x.py:transform, at most 5 s", "  All loops (including future ones)"]
    assert rows("--timeout-ms", "none") == [source, "  All loops (including future ones)"]
    assert rows() == [source, "  All loops (including future ones)"]
    assert (folder / "beforehand.toml").read_text() == (PROJECT + BLOCK).replace('scope = "main"', 'scope = "all"')
    assert rows("set", "main") == [source, "  Main", "not targets: researcher"]
    assert (folder / "beforehand.toml").read_text() == PROJECT + BLOCK


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["add", "Bad"], "pre_llm_hook.loops[0]: expected a loop's name"),
        (["add", "main"], "'main' is a target already"),
        (["add", "Main"], '"Main" is written main'),
        (["add", "all"], '"all" goes with no other row'),
        (["add"], "`targets add` needs a name"),
        (["all", "main"], "\"all\" goes with no other row, so not with 'main'"),
        (["remove", "main"], "a hook has at least one target"),
        (["remove", "x"], "'x' is no target: the targets are main"),
        (["ad", "x"], "there is no edit 'ad': did you mean 'add'?"),
        (["qqq"], "there is no edit 'qqq': use add, remove, all, set"),
        (["--timeout-ms", "999"], "expected a whole number from 1000 to 300000, got 999"),
        (["--timeout-ms", "1.5"], "expected a whole number from 1000 to 300000, got '1.5'"),
        (["--timeout-ms", "5_000"], "expected a whole number from 1000 to 300000, got '5_000'"),
        (["--timeout-ms", "\u0665\u0660\u0660\u0660"], "expected a whole number from 1000 to 300000, got"),
        (["--timeout-ms", " 5000"], "expected a whole number from 1000 to 300000, got ' 5000'"),
        (["--source", "../x.ts"], "pre_llm_hook.source: the path '../x.ts' has a `..`: paths stay inside the workspace"),
        (["--source", "/etc/x.ts:main"], "pre_llm_hook.source: the path '/etc/x.ts' is absolute: paths begin at the workspace"),
        (["--source", ".beforehand/x.py"], "pre_llm_hook.source: the path '.beforehand/x.py' belongs to the runtime"),
        (["--source", "out.py"], "pre_llm_hook.source: the path 'out.py' leads out of the workspace through a symlink"),
        (["--source", "lib/x.txt"], "'lib/x.txt' names no lambda"),
        (["--source", ""], "the hook has no source"),
        (["add", "a", "--source", "lib/x.txt"], "'lib/x.txt' names no lambda"),
        (["add", "a", "--project", "agent"], "there is no project file in agent"),
        (["add", "a", "--project", "nowhere"], "there is no project file nowhere"),
    ],
)
def test_an_invalid_draft_writes_nothing(folder: Path, command: Command, args: list[str], why: str) -> None:
    (folder / "beforehand.toml").write_text(PROJECT + BLOCK)
    (folder / "agent" / "out.py").symlink_to(folder / "elsewhere.py")
    refused(command("targets", *args), why)
    assert (folder / "beforehand.toml").read_text() == PROJECT + BLOCK


def test_all_is_not_narrowed_by_adding_to_it(folder: Path, command: Command) -> None:
    text = PROJECT + BLOCK.replace('scope = "main"\n', "")
    (folder / "beforehand.toml").write_text(text)
    refused(command("targets", "add", "x"), "the hook runs in all loops, 'x' among them")
    assert (folder / "beforehand.toml").read_text() == text


def test_a_source_that_is_not_there_yet_is_noted(folder: Path, command: Command) -> None:
    done = command("targets", "--source", "lib/new.py:f")
    assert done.returncode == 0
    assert done.stderr == (
        "note: there is no file lib/new.py in agent yet; until there is, no request leaves where the hook runs\n"
    )


def test_a_hook_needs_a_workspace(folder: Path, command: Command) -> None:
    (folder / "beforehand.toml").write_text('model = "openai:m"\n')
    refused(command("targets", "--source", "lib/x.py"), "the field 'workspace' is missing")


ADDS = """
import sys
from pathlib import Path
from beforehand.cli.targets import edit_targets
sys.stdin.readline()
for n in range(5):
    edit_targets(Path("."), "add", (f"{sys.argv[1]}{n}",), None, None)
"""


def test_of_edits_by_several_processes_none_is_lost(folder: Path) -> None:
    (folder / "beforehand.toml").write_text(PROJECT + BLOCK)
    command = [sys.executable, "-c", ADDS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    editors = [subprocess.Popen([*command, name], cwd=folder, **pipes) for name in "abc"]
    for editor in editors:
        assert editor.stdin is not None
        editor.stdin.write("\n")
        editor.stdin.flush()
    for editor in editors:
        editor.communicate()
    assert [editor.returncode for editor in editors] == [0, 0, 0]
    hook = read_project(folder).settings.pre_llm_hook
    assert hook is not None
    assert sorted(hook.loops) == [f"{name}{n}" for name in "abc" for n in range(5)]


# --- authorize ---


def test_a_file_is_authorised_as_it_is_until_it_changes(folder: Path, command: Command) -> None:
    digest = hashlib.sha256(HOOK.encode()).hexdigest()
    done = command("authorize", "lib/x.py")
    assert (done.returncode, done.stdout) == (0, f"authorised lib/x.py as it is now (sha256 {digest[:12]})\n")
    authority = Authority(folder / "agent")
    assert authority.is_authorized("lib/x.py", HOOK.encode())
    assert command("authorize", "--list").stdout == "lib/x.py  authorised\n"
    (folder / "agent" / "lib" / "x.py").write_text(HOOK + "#")
    assert command("authorize", "--list").stdout == "lib/x.py  CHANGED since it was authorised\n"
    assert command("authorize", "lib/x.py", "--revoke").stdout == "lib/x.py: no longer authorised\n"
    assert command("authorize", "lib/x.py", "--revoke").stdout == "lib/x.py was not authorised\n"
    assert not authority.is_authorized("lib/x.py", HOOK.encode())


def test_protection_is_set_and_shown(folder: Path, command: Command) -> None:
    done = command("authorize", "--protect", "read_only", "lib/x.py")
    assert (done.returncode, done.stdout) == (0, "protection of lib/x.py: read_only\n")
    assert Authority(folder / "agent").protection("lib/x.py") == "read_only"
    assert command("authorize", "--list").stdout == "lib/x.py  -  read_only\n"
    command("authorize", "--protect", "none", "lib/x.py")
    assert command("authorize", "--list").stdout.startswith("nothing in ")


def test_a_path_from_here_and_a_workspace_by_name_will_do(folder: Path, command: Command) -> None:
    (folder / "beforehand.toml").unlink()
    done = command("authorize", "agent/lib/x.py", "--workspace", "agent")
    assert done.stdout.startswith("authorised lib/x.py as it is now")
    assert Authority(folder / "agent").is_authorized("lib/x.py", HOOK.encode())


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "name the files"),
        (["lib/none.py"], "there is no file lib/none.py in"),
        (["lib/x.py", "lib/none.py"], "there is no file lib/none.py in"),
        (["../x.py"], "paths stay inside the workspace"),
        (["notes.txt"], "'notes.txt' holds no lambda"),
        (["lib/x.py", "notes.txt"], "'notes.txt' holds no lambda (.py, .ts, .js), and authority is for code alone: nothing"),
        (["lib/x.py", "lib/huge.py"], "'lib/huge.py' has more than 5,000,000 bytes: nothing was changed"),
        (["lib/x.py", "--protect", "locked"], "--protect locked: expected none, no_delete, read_only"),
        (["lib/x.py", "--protect", "none", "--revoke"], "--revoke goes without --protect"),
        (["lib/x.py", "--list"], "--list goes without files"),
        (["--list", "--project", "agent"], "there is no project file in agent"),
        (["--list", "--workspace", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_authorised_changes_nothing(folder: Path, command: Command, args: list[str], why: str) -> None:
    (folder / "agent" / "notes.txt").write_text("hello")
    (folder / "agent" / "lib" / "huge.py").write_bytes(b"#" * 5_000_001)
    refused(command("authorize", *args), why)
    assert not (folder / "agent.authority.json").exists()


def test_a_project_without_a_workspace_has_nothing_to_authorise(folder: Path, command: Command) -> None:
    (folder / "beforehand.toml").write_text('model = "openai:m"\n')
    refused(command("authorize", "--list"), "beforehand.toml names no workspace")
