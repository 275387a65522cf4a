"""What is written down wrongly gets one clear line, the exit code of its error, and no traceback."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from beforehand.cli.terminal import reported
from cli.command import KEY, Reply, beforehand, endpoint, says

HOOK = "from beforehand import hook\n"
TOOL = "from beforehand import tool\n"


def one_line(told: CompletedProcess[str]) -> str:
    """The one line on stderr; nothing else was printed."""
    assert told.stdout == ""
    assert told.stderr.startswith("error: "), told.stderr
    assert told.stderr.count("\n") == 1, told.stderr
    return told.stderr.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("opnai:gpt-4o", "no adapter for model 'opnai:gpt-4o': did you mean \"openai:gpt-4o\"?"),
        ("gpt-4o", "no adapter for model 'gpt-4o': write \"openai:gpt-4o\""),
    ],
)
def test_an_unknown_model_prefix(model: str, advice: str) -> None:
    told = beforehand("run", "hi", "--model", model)
    assert told.returncode == 2
    assert one_line(told).startswith(advice)


def test_a_key_that_the_server_refuses() -> None:
    refusal = Reply(b'{"error": {"message": "Incorrect API key provided: %s"}}' % KEY.encode(), 401, "application/json")
    with endpoint(refusal) as server:
        told = beforehand("run", "hi", "--model", "openai:m", "--base-url", server.url, OPENAI_API_KEY=KEY)
    assert told.returncode == 6
    assert "check the key" in one_line(told)
    assert server.authorizations == [f"Bearer {KEY}"]
    assert KEY not in told.stderr


def test_an_endpoint_that_cannot_be_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        told = beforehand("run", "hi", "--model", "openai:m", "--base-url", url)
    assert told.returncode == 8
    assert url in one_line(told)


def test_an_endpoint_that_answers_with_a_web_page() -> None:
    with endpoint(Reply(b"<html><h1>It works!</h1></html>", 200, "text/html")) as server:
        told = beforehand("run", "hi", "--model", "openai:m", "--base-url", server.url)
    assert told.returncode == 5
    assert "check base_url" in one_line(told)


def test_a_base_url_that_is_none() -> None:
    told = beforehand("run", "hi", "--model", "openai:m", "--base-url", "localhost")
    assert told.returncode == 2
    assert "'localhost' needs a scheme and a host" in one_line(told)


@pytest.mark.parametrize("option", ["--hooks", "--tools"])
def test_a_file_that_is_missing(tmp_path: Path, option: str) -> None:
    told = beforehand("run", "hi", "--model", "openai:m", option, "nowhere.py", cwd=tmp_path)
    assert told.returncode == 2
    assert one_line(told).startswith("there is no file nowhere.py")


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("import re\nimport nothing_of_this_name\n", 2, "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("\n\nraise ValueError('first line\\nsecond line')\n", 3, "ValueError: first line second line"),
        ("import sys\nsys.exit()\n", 2, "SystemExit: the hooks file could not be imported"),
        ("x = 1\ndef broken(:\n", 2, "invalid syntax"),
        (HOOK + "@hook.before_tol_call\ndef f(call): ...\n", 2, "no seam 'before_tol_call': did you mean 'before_tool_call'?"),
        (HOOK + "@hook.before_tool_call\ndef f(): ...\n", 2, "takes (), but is called with one argument, the PendingCall"),
        (HOOK + "@hook.before_tool_call(on_error='ignore')\ndef f(call): ...\n", 2, "on_error='ignore' must be"),
    ],
)
def test_a_hook_file_that_cannot_be_used_is_named_with_its_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    (tmp_path / "rules.py").write_text(text)
    told = beforehand("run", "hi", "--model", "openai:m", "--hooks", "rules.py", cwd=tmp_path)
    assert told.returncode == 2
    said = one_line(told)
    assert f"rules.py:{line}" in said
    assert problem in said


def test_a_hook_file_without_hooks(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("x = 1\n")
    told = beforehand("run", "hi", "--model", "openai:m", "--hooks", "rules.py", cwd=tmp_path)
    assert told.returncode == 2
    assert one_line(told) == "rules.py defines no hooks: decorate functions with @hook.<seam>"


def test_a_tool_without_type_hints(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOL + "@tool\ndef add(a, b):\n    return a + b\n")
    told = beforehand("run", "hi", "--model", "openai:m", "--tools", "tools.py", cwd=tmp_path)
    assert told.returncode == 2
    said = one_line(told)
    assert "tools.py:2" in said
    assert "'a' has no type hint: annotate it" in said


def test_two_tools_of_one_name(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(TOOL + "@tool\ndef add(a: int) -> int:\n    return a\n")
    told = beforehand("run", "hi", "--model", "openai:m", "--tools", "one.py", "--tools", "two.py", cwd=tmp_path)
    assert told.returncode == 2
    said = one_line(told)
    assert "two tools are named 'add'" in said
    assert "one.py:2" in said
    assert "two.py:2" in said


def test_a_hook_that_raises_where_the_whole_run_depends_on_it(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(HOOK + "@hook.authorize_request\ndef budget(request):\n    raise KeyError('limit')\n")
    with endpoint(says("never")) as server:
        told = beforehand("run", "hi", "--model", "openai:m", "--base-url", server.url, "--hooks", "rules.py", cwd=tmp_path)
    assert told.returncode == 4
    assert told.stdout == ""
    assert "error: hook 'budget' at authorize_request (rules.py:2) raised KeyError: 'limit'\n" in told.stderr
    assert server.requests == []


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    told = beforehand("demo", "--svg", "nowhere/timeline.svg", cwd=tmp_path)
    assert told.returncode == 1
    assert one_line(told) == "nowhere/timeline.svg: No such file or directory"


def test_debug_shows_the_traceback_and_the_line_comes_last(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("import nothing_of_this_name\n")
    told = beforehand("run", "hi", "--model", "openai:m", "--hooks", "rules.py", "--debug", cwd=tmp_path)
    assert told.returncode == 2
    assert "Traceback (most recent call last)" in told.stderr
    assert told.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("args", [["run"], ["dance"], ["demo", "--loud"]])
def test_a_command_line_that_makes_no_sense_gets_usage_and_code_2(args: list[str]) -> None:
    told = beforehand(*args)
    assert told.returncode == 2
    assert "Traceback" not in told.stderr
    assert "--help" in told.stderr


@pytest.mark.parametrize(
    ("args", "code", "problem"),
    [
        (["run", "hi", "--model", "gpt-4o"], 2, "no adapter for model 'gpt-4o'"),
        (["demo", "--svg", "nowhere/timeline.svg"], 1, "nowhere/timeline.svg: No such file or directory"),
        (["hooks", "--hooks", "nowhere.py"], 2, "there is no file nowhere.py"),
    ],
)
def test_all_commands_report_the_same_way(run_here: Callable[..., Any], args: list[str], code: int, problem: str) -> None:
    told = run_here(*args)
    assert (told.code, told.out) == (code, "")
    assert told.err.startswith(f"error: {problem}")
    assert told.err.count("\n") == 1


def test_a_defect_is_reported_in_one_line_that_says_how_to_see_more(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported(debug=False):
        raise RuntimeError("two\nlines")
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said == "error: unexpected RuntimeError: two lines (a defect of this command: --debug shows where)\n"


def test_ctrl_c_outside_of_a_run_ends_with_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported(debug=False):
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == "error: interrupted\n"


@pytest.mark.parametrize(("debug", "lines"), [(False, 1), (True, 5)])
def test_warnings_of_the_package_are_lines_and_carry_a_traceback_only_to_debug(
    capsys: pytest.CaptureFixture[str], debug: bool, lines: int
) -> None:
    logger = logging.getLogger("beforehand")
    with reported(debug):
        try:
            raise ValueError("oops")
        except ValueError:
            logger.exception("a listener failed")
    said = capsys.readouterr().err
    assert "a listener failed" in said
    assert "ValueError: oops" in said
    assert len(said.splitlines()) == lines
    assert (logger.handlers, logger.propagate) == ([], True)


def test_each_mistake_of_rule_files_has_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"target": "tol"}')
    (tmp_path / "b.json").write_text('{"target": "chat", "rolls": []}')
    told = beforehand("hooks", "--hooks", ".", cwd=tmp_path)
    assert told.returncode == 2
    first, second = told.stderr.splitlines()
    assert first.startswith("error: a.json:1:")
    assert second.startswith("error: b.json:1:")
