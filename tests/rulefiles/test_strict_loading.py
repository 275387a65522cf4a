# ruff: noqa: E501 - what is said is compared word for word, and stands on one line as it is printed
"""Every kind of mistake, in every kind of file: refused with file, line, field and the expected form. Nothing is half loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beforehand import ConfigError
from beforehand.rules import RuleFileError, load_rules, rules_folder

JSON: dict[str, tuple[str, list[str]]] = {
    "no JSON": ("{\n  target: chat\n}", ["2:3: this is not JSON: object keys must be strings"]),
    "ends too early": ('{\n  "target": "chat",', ["2:20: this is not JSON: the text ends too early"]),
    "empty": ("", ["1:1: this is not JSON: the file is empty"]),
    "something after the end": ('{"target": "chat"}\n}', ["2:1: this is not JSON: trailing characters"]),
    "a field twice": (
        '{\n  "target": "chat",\n  "label": "a",\n  "label": "b"\n}',
        ["4:3: label: the field stands here a second time"],
    ),
    "far too deep": ("[" * 100_000 + "]" * 100_000, ["1:1: it is nested too deeply"]),
    "no target": (
        '{\n  "label": "x"\n}',
        ["1:1: the field 'target' is missing: expected one of 'chat', 'stream', 'tool', 'request', 'turn', 'run'"],
    ),
    "a misspelt target field": (
        '{"tagret": "chat"}',
        [
            "1:1: the field 'target' is missing (there is 'tagret'): expected one of 'chat', 'stream', 'tool', 'request', 'turn', 'run'"
        ],
    ),
    "an unknown target": (
        '{\n  "target": "streem"\n}',
        [
            "2:3: target: there is no target 'streem', did you mean 'stream'? Expected one of 'chat', 'stream', 'tool', 'request', 'turn', 'run'"
        ],
    ),
    "a target of a wrong type": (
        '{"target": 7}',
        ["1:2: target: there is no target 7: expected one of 'chat', 'stream', 'tool', 'request', 'turn', 'run'"],
    ),
    "an unknown field": (
        '{\n  "target": "chat",\n  "max_triggers": 2\n}',
        ["3:3: max_triggers: unknown field 'max_triggers', did you mean 'maxTriggers'?"],
    ),
    "a field nobody has": (
        '{"target": "run",\n"xyzzy": 2}',
        [
            "2:1: xyzzy: unknown field 'xyzzy': the fields of target run are target, label, enabled, regex, patternsFrom, maxTriggers, "
            "loops, order, timeoutMs, onError, actions"
        ],
    ),
    "a misplaced field": (
        '{\n  "target": "stream",\n  "roles": ["user"]\n}',
        ["3:3: roles: 'roles' is a field of target chat, not of stream"],
    ),
    "a misplaced field of an action": (
        '{"target": "chat", "actions": [\n  {"type": "log",\n   "resend": true}]}',
        ["3:4: actions[0].resend: 'resend' is a field of action interrupt, not of log"],
    ),
    "a message on an interrupt": (
        '{"target": "chat", "actions": [\n {"type": "interrupt", "message": "x"}]}',
        [
            "2:24: actions[0].message: 'message' is a field of action debug and info and log and queue-message and warn, not of interrupt"
        ],
    ),
    "an unknown role": (
        '{"target": "chat",\n"roles": ["user",\n"asistant"]}',
        ["3:1: roles[1]: 'asistant' is not one of 'assistant', 'reasoning', 'system', 'tool', 'user', did you mean 'assistant'?"],
    ),
    "an unknown chunk type": (
        '{"target": "stream",\n "chunks": ["text"]}',
        ["2:13: chunks[0]: 'text' is not one of 'content', 'finish', 'reasoning', 'tool_call_delta'"],
    ),
    "an unknown event": (
        '{"target": "tool",\n "event": "Before"}',
        ["2:2: event: 'Before' is not one of 'after', 'before', 'error', did you mean 'before'?"],
    ),
    "an unknown action": (
        '{"target": "chat", "actions": [\n{"type": "interupt"}]}',
        [
            "2:2: actions[0].type: there is no action 'interupt', did you mean 'interrupt'? Expected one of 'log', 'warn', 'info', "
            "'debug', 'interrupt', 'queue-message', 'queue-resend', 'replace'"
        ],
    ),
    "an action without a type": (
        '{"target": "run", "actions": [{}]}',
        ["1:31: actions[0]: the field 'type' is missing: expected one of 'log', 'warn', 'info', 'debug', 'block', 'replace'"],
    ),
    "an action that is a string": (
        '{"target": "run", "actions": ["log"]}',
        ["1:31: actions[0]: expected an action (an object with 'type'), got 'log'"],
    ),
    "an action no seam of the target takes": (
        '{"target": "chat", "actions": [{"type": "block"}]}',
        [
            "1:33: actions[0].type: 'block' decides nothing here: no seam of this target takes it; it is allowed at tool (before), request, run"
        ],
    ),
    "an action its event does not take": (
        '{"target": "tool", "actions": [{"type": "ask", "prompt": "?"}]}',
        ["1:33: actions[0].type: 'ask' decides nothing at event 'after': it is allowed at tool (before)"],
    ),
    "wrong types everywhere": (
        '{"target": "chat", "label": 1, "enabled": "no", "roles": "user", "regex": [],\n'
        ' "maxTriggers": -1, "order": "first", "timeoutMs": 0, "onError": "ignore", "loops": [], "actions": {}}',
        [
            "1:20: label: expected a string, got 1",
            "1:32: enabled: expected true or false, got 'no'",
            "1:49: roles: expected a list, got 'user': put it in [ ]",
            "1:66: regex: expected a string, got a list",
            "2:2: maxTriggers: expected a whole number of at least 0, got -1",
            "2:21: order: expected a whole number, got 'first'",
            "2:39: timeoutMs: expected a whole number of at least 1, got 0",
            "2:55: onError: 'ignore' is not one of 'abort', 'closed', 'open'",
            "2:76: loops: expected a list that is not empty: leave the field out if it should not count",
            "2:89: actions: expected a list, got an object",
        ],
    ),
    "null is no value": ('{"target": "chat", "label": null}', ["1:20: label: expected a string, got null"]),
    "a number that is a truth value": (
        '{"target": "chat", "maxTriggers": true}',
        ["1:20: maxTriggers: expected a whole number of at least 0, got true"],
    ),
    "a number that is too large": ('{"target": "chat", "order": 99999999999999999999}', ["1:20: order: the number is too large"]),
    "an empty regex": (
        '{"target": "chat", "regex": ""}',
        ["1:20: regex: expected a string that is not empty: leave the field out if there is nothing to say"],
    ),
    "a look-ahead": (
        '{"target": "chat",\n "regex": "a(?=b)"}',
        [
            "2:2: regex: RE2 refuses a look-ahead at character 2 ('(?=b)'): RE2 has none: match the text around it too, and name the part "
            "to replace with a group"
        ],
    ),
    "a back-reference": (
        r'{"target": "chat", "regex": "(a)\\1"}',
        [r"1:20: regex: RE2 refuses a back-reference at character 4 ('\\1'): RE2 has none: repeat what the group holds"],
    ),
    "a pattern and a set of patterns": (
        '{"target": "chat", "regex": "a",\n "patternsFrom": "x.toml"}',
        ["2:2: patternsFrom: a rule has either 'regex' or 'patternsFrom': write two rules"],
    ),
    "patterns from nowhere": (
        '{"target": "chat", "patternsFrom": "x.toml"}',
        ["1:20: patternsFrom: FOLDER/x.toml:1:1: the file cannot be read: No such file or directory"],
    ),
    "a pattern on a finish chunk": (
        '{"target": "stream", "chunks": ["finish"], "regex": "a"}',
        [
            "1:22: chunks: a finish chunk carries no text that a pattern could be found in: add 'content', or leave the pattern out"
        ],
    ),
    "an argument that is no pointer": (
        '{"target": "tool", "event": "before", "args": {"path": {"equals": 1}}}',
        ["1:48: args.path: 'path' is no JSON pointer: write '/path'"],
    ),
    "an argument without a condition": (
        '{"target": "tool", "event": "before", "args": {"/path": {}}}',
        ["1:48: args['/path']: expected a condition: 'regex', 'equals', 'min' or 'max'"],
    ),
    "an argument with an unknown condition": (
        '{"target": "tool", "args": {"/n": {"maximum": 3}}}',
        ["1:36: args['/n'].maximum: unknown field 'maximum', did you mean 'max'?"],
    ),
    "a range that is empty": (
        '{"target": "tool", "args": {"/n": {"min": 3, "max": 2}}}',
        ["1:36: args['/n'].min: no number is both at least 3 and at most 2"],
    ),
    "a pattern of an argument": (
        '{"target": "tool", "args": {"/n": {"regex": "(?!a)"}}}',
        [
            "1:36: args['/n'].regex: RE2 refuses a negative look-ahead at character 1 ('(?!a)'): RE2 has none: match the text around it too, "
            "and name the part to replace with a group"
        ],
    ),
    "a replacement without an argument": (
        '{"target": "tool", "event": "before", "actions": [{"type": "replace", "with": "x"}]}',
        ["1:51: actions[0]: the field 'argument' is missing: which argument is to be replaced?"],
    ),
    "an argument where there is none": (
        '{"target": "chat", "actions": [{"type": "replace", "with": "x", "argument": "a"}]}',
        ["1:65: actions[0].argument: only a tool call has arguments: 'argument' goes with target 'tool' and event 'before'"],
    ),
    "a replacement that is no text": (
        '{"target": "chat", "actions": [{"type": "replace", "with": 3}]}',
        ["1:52: actions[0].with: expected a string"],
    ),
    "a replacement of nothing": (
        '{"target": "chat", "actions": [{"type": "replace"}]}',
        ["1:32: actions[0]: the field 'with' is missing"],
    ),
    "a reply that is no text": (
        '{"target": "request", "actions": [{"type": "answer", "result": {"a": 1}}]}',
        ["1:54: actions[0].result: the answer to a request is the model's reply: expected a string"],
    ),
    "an option out of range": (
        '{"target": "request", "actions": [{"type": "set-options", "options": {"temperature": 3, "maxTokens": 5}}]}',
        [
            "1:71: actions[0].options.temperature: expected a number from 0 to 2, got 3",
            "1:89: actions[0].options.maxTokens: unknown field 'maxTokens', did you mean 'max_tokens'?",
        ],
    ),
    "a role nobody can speak in": (
        '{"target": "chat", "actions": [{"type": "queue-message", "role": "system"}]}',
        ["1:58: actions[0].role: 'system' is not one of 'assistant', 'reasoning', 'tool', 'user'"],
    ),
    "several rules, each with its own": (
        '[\n {"target": "chat"},\n 3,\n {"target": "chat", "x": 1},\n {"target": "chat", "regex": "("}\n]',
        [
            "3:2: [1]: expected a rule (an object with 'target'), got 3",
            "4:21: [2].x: unknown field 'x': the fields of target chat are target, label, enabled, regex, patternsFrom, maxTriggers, loops, "
            "order, timeoutMs, onError, roles, actions",
            "5:21: [3].regex: RE2 refuses a parenthesis that is never closed at character 1 ('('): a literal one is written \\(",
        ],
    ),
    "a mistake of form beside one in a pattern": (
        '{"target": "chat", "regex": "(", "x": 1}',
        [
            "1:34: x: unknown field 'x': the fields of target chat are target, label, enabled, regex, patternsFrom, maxTriggers, loops, "
            "order, timeoutMs, onError, roles, actions",
            "1:20: regex: RE2 refuses a parenthesis that is never closed at character 1 ('('): a literal one is written \\(",
        ],
    ),
}

YAML: dict[str, tuple[str, list[str]]] = {
    "no YAML": ("target: chat\n  roles: [", ["2:8: this is not YAML: mapping values are not allowed here"]),
    "a tab": (
        "target: chat\nactions:\n\t- type: log\n",
        ["3:1: this is not YAML: found character '\\t' that cannot start any token"],
    ),
    "a control character": ("target: chat\nlabel: \x07", ["2:8: this is not YAML: the character U+0007 may not stand in it"]),
    "two documents": ("target: chat\n---\ntarget: chat\n", ["2:1: this is not YAML: but found another document"]),
    "an impossible escape": ('target: "\\UFFFFFFFF"', ["1:12: this is not YAML:"]),
    "a field twice": ("target: chat\nlabel: a\nlabel: b\n", ["3:1: label: the field stands here a second time"]),
    "a date": (
        "target: chat\nlabel: 2024-01-01\n",
        ["2:8: YAML reads '2024-01-01' as a date, which is not taken here: put it in quotes"],
    ),
    "an anchor": ("- &a\n  target: chat\n- *a\n", ["1:3: rule files take no anchors and aliases: write it out"]),
    "a merge key": ("target: chat\n<<: {label: x}\n", ["2:1: rule files take no merge keys (<<): write the fields out"]),
    "a tag": ("target: !!python/name:os.system x\n", ["1:9: YAML reads 'x' as python/name:os.system, which is not taken here"]),
    "a number in base 60": (
        "target: chat\nmaxTriggers: 1:30\n",
        ["2:14: YAML reads '1:30' as a number in another notation, which is not taken here"],
    ),
    "a misspelt role": ("target: chat\nroles:\n  - user\n  - asistant\n", ["4:5: roles[1]: 'asistant' is not one of"]),
    "a yes that is no string": ("target: chat\nlabel: yes\n", ["2:1: label: expected a string, got true"]),
    "half a character": ('target: chat\nlabel: "\\ud800"\n', ["2:1: label: the string holds half a character"]),
    "nothing": ("# nothing here\n", ["1:1: expected a rule (an object with 'target'), got null"]),
    "too deep": ("target: " + "[" * 150 + "]" * 150, ["1:109: it is nested too deeply"]),
    "far too deep": ("[" * 5000, ["it is nested too deeply"]),
}

TOML: dict[str, tuple[str, list[str]]] = {
    "no TOML": ('target = "chat"\nroles = [', ["2:10: this is not TOML: Invalid value"]),
    "a bad value": (
        'target = "chat"\norder = 1x\n',
        ["2:10: this is not TOML: Expected newline or end of document after a statement"],
    ),
    "a key twice": ('target = "chat"\ntarget = "tool"\n', ["2:16: this is not TOML: Cannot overwrite a value"]),
    "a date": (
        'target = "chat"\nlabel = 2024-01-01\n',
        ["2:1: 2024-01-01 is a date or a time, which is not taken here: put it in quotes"],
    ),
    "no number": ('target = "chat"\norder = nan\n', ["2:1: nan is no finite number"]),
    "a misspelt action": (
        'target = "chat"\n\n[[actions]]\ntype = "lgo"\n',
        ["4:1: actions[0].type: there is no action 'lgo', did you mean 'log'?"],
    ),
    "several rules": (
        '[[rules]]\ntarget = "chat"\n\n[[rules]]\ntarget = "chat"\n[[rules.actions]]\ntype = "log"\n[[rules.actions]]\ntype = "wrn"\n',
        ["9:1: [1].actions[1].type: there is no action 'wrn', did you mean 'warn'?"],
    ),
    "inside an inline table": (
        'target = "tool"\nactions = [\n  {type = "log"}, # fine\n  {type = "log", massage = "x"},\n]\n',
        ["4:18: actions[1].massage: unknown field 'massage', did you mean 'message'?"],
    ),
    "a quoted key": (
        'target = "tool"\n[args."/a.b"]\nregexp = "x"\n',
        ["3:1: args['/a.b'].regexp: unknown field 'regexp', did you mean 'regex'?"],
    ),
}


def complaints(folder: Path) -> list[str]:
    with pytest.raises(RuleFileError) as refused:
        load_rules([folder])
    return [str(problem).removeprefix(f"{folder}/").replace(str(folder), "FOLDER") for problem in refused.value.problems]


@pytest.mark.parametrize("name", JSON)
def test_a_mistake_in_json_is_refused_word_for_word(name: str, tmp_path: Path) -> None:
    text, wanted = JSON[name]
    (tmp_path / "r.json").write_text(text)

    assert complaints(tmp_path) == [f"r.json:{line}" for line in wanted]


@pytest.mark.parametrize(("suffix", "name"), [("yaml", name) for name in YAML] + [("toml", name) for name in TOML])
def test_a_mistake_in_yaml_or_toml_is_refused_at_its_place(suffix: str, name: str, tmp_path: Path) -> None:
    text, wanted = (YAML if suffix == "yaml" else TOML)[name]
    (tmp_path / f"r.{suffix}").write_text(text)

    said = complaints(tmp_path)

    assert len(said) == len(wanted)
    for line, part in zip(said, wanted, strict=True):
        assert line.startswith(f"r.{suffix}:")
        assert part in line


@pytest.mark.parametrize("data", [b'{"target": "chat",\n "label": "\xff"}', b'{"target": "chat", "label": "\xc3\n"}'])
def test_a_file_that_is_not_utf_8_is_refused_at_the_byte(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(data)
    line, column = (2, 12) if b"\xff" in data else (1, 30)
    assert complaints(tmp_path) == [f"r.json:{line}:{column}: the file is not UTF-8 here"]


def test_mistakes_of_all_files_are_reported_at_once_and_nothing_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"target": "chat"}')
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.yaml").write_text("target: cat")
    (tmp_path / "d.toml").write_text('target = "chat"\nlabel = 1')

    said = complaints(tmp_path)

    assert [line.partition(":")[0] for line in said] == ["b.json", "c.yaml", "d.toml"]
    with pytest.raises(RuleFileError, match="3 mistakes in rule files, so none was loaded"):
        load_rules([tmp_path])


def test_a_disabled_rule_is_checked_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"target": "chat", "enabled": false, "regex": "("}')
    assert len(complaints(tmp_path)) == 1


def test_a_file_that_is_not_there_or_no_rule_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(RuleFileError) as refused:
        load_rules([tmp_path / "gone", tmp_path / "notes.txt"])
    assert [problem.message for problem in refused.value.problems] == [
        "there is no such file or folder: rules were expected there",
        "rule files end in .json, .yaml, .yml, .toml",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"target": "chat"}')
    (tmp_path / "r.json").chmod(0)
    assert complaints(tmp_path) == ["r.json:1:1: the file cannot be read: Permission denied"]


RULE = '{"target": "chat", "actions": [{"type": "log"}]}'


@pytest.mark.parametrize("how", ["pipe", "device"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(how: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    if how == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(RuleFileError, match=r"a\.json:1:1: this is no regular file: a pipe or a device is not read"):
        load_rules([tmp_path])


def test_a_file_that_nobody_can_have_written_is_refused_for_its_size(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(RuleFileError, match=r"a\.json:1:1: the file is larger than 16 MiB: no rule file is"):
        load_rules([tmp_path])


@pytest.mark.parametrize("name", ["a\nb.json", "a\x1b[31m.json"])
def test_a_file_name_that_cannot_be_printed_is_refused_on_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(RULE)
    with pytest.raises(RuleFileError, match="the name of this file holds characters that cannot be printed") as refused:
        load_rules([tmp_path])
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("path", ["", " "])
def test_an_empty_path_is_refused_and_does_not_mean_where_one_happens_to_be(path: str) -> None:
    with pytest.raises(RuleFileError, match="the path is empty: expected a rule file or a folder of them"):
        load_rules([path])


def test_links_to_files_and_folders_are_followed_and_broken_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.json").write_text(RULE)
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "b.json").symlink_to(tmp_path / "real" / "a.json")
    assert len(load_rules([tmp_path / "folder"]).rules) == len(load_rules([tmp_path / "b.json"]).rules) == 1
    (tmp_path / "c.json").symlink_to("nowhere")
    (tmp_path / "d.json").symlink_to("d.json")
    with pytest.raises(RuleFileError) as refused:
        load_rules([tmp_path])
    assert [Path(problem.file).name for problem in refused.value.problems] == ["c.json", "d.json"]


@pytest.mark.parametrize("name", ["a.JSON", "a.jsonc", "rules"])
def test_a_file_that_is_not_read_is_a_warning_that_is_logged(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / name).write_text(RULE)
    assert load_rules([tmp_path]).rules == ()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("not read" in line or "there is no rule file in this folder" in line for line in said)


def test_a_folder_of_python_files_is_no_folder_of_rules(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "guard.py").write_text("")
    with pytest.raises(RuleFileError, match=r"guard\.py:1:1: this file is not read: .* name a Python file with hooks itself"):
        load_rules([tmp_path])
    (tmp_path / "a.json").write_text(RULE)
    assert len(load_rules([tmp_path]).rules) == 1
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("guard.py" in line and "not read" in line for line in said)


def test_the_error_is_a_configuration_error_and_has_the_problems_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('[{"target": "chat",\n"rolls": []}]')
    with pytest.raises(ConfigError) as refused:
        load_rules([tmp_path])
    (problem,) = refused.value.problems  # type: ignore[attr-defined]
    assert (problem.file, problem.line, problem.column, problem.field) == (str(tmp_path / "r.json"), 2, 1, "[0].rolls")


SAME = {
    "r.json": '[{"target": "tool", "tools": ["a"], "event": "before", "args": {"/n": {"min": 1.5}}, "actions": [{"type": "block", "reason": "no"}]},'
    ' {"target": "chat", "label": "x"}]',
    "r.yaml": "- target: tool\n  tools: [a]\n  event: before\n  args:\n    /n: {min: 1.5}\n  actions:\n    - {type: block, reason: 'no'}\n- {target: chat, label: x}\n",
    "r.yml": '- {target: tool, tools: [a], event: before, args: {"/n": {min: 1.5}}, actions: [{type: block, reason: "no"}]}\n- target: chat\n  label: x\n',
    "r.toml": '[[rules]]\ntarget = "tool"\ntools = ["a"]\nevent = "before"\nargs = {"/n" = {min = 1.5}}\n[[rules.actions]]\ntype = "block"\n'
    'reason = "no"\n[[rules]]\ntarget = "chat"\nlabel = "x"\n',
}


@pytest.mark.parametrize("name", SAME)
def test_json_yaml_and_toml_say_the_same(name: str, tmp_path: Path) -> None:
    for file in ("r.json", name):
        (tmp_path / file).write_text(SAME[file])
    one, other = load_rules([tmp_path / "r.json"]), load_rules([tmp_path / name])
    assert [rule.definition for rule in one.rules] == [rule.definition for rule in other.rules]
    assert [hook.seam for hook in one.hooks] == ["on_message", "before_tool_call"]


def test_a_hook_says_where_its_rule_begins(tmp_path: Path) -> None:
    for name, text in SAME.items():
        (tmp_path / name).write_text(text)
    wheres = {name: [rule.line for rule in load_rules([tmp_path / name]).rules] for name in SAME}
    assert wheres == {"r.json": [1, 1], "r.yaml": [1, 8], "r.yml": [1, 2], "r.toml": [1, 9]}


# --- folders -------------------------------------------------------------------------------------


def test_configuration_wins_over_the_environment_and_ours_over_the_old_name(tmp_path: Path) -> None:
    for name in ("configured", "ours", "old"):
        (tmp_path / name).mkdir()
    environ = {"BEFOREHAND_HOOKS_DIR": str(tmp_path / "ours"), "LLM_CHAT_HOOKS_DIR": str(tmp_path / "old")}

    assert rules_folder(tmp_path / "configured", environ) == tmp_path / "configured"
    assert rules_folder(None, environ) == tmp_path / "ours"
    assert rules_folder("  ", {"BEFOREHAND_HOOKS_DIR": " ", "LLM_CHAT_HOOKS_DIR": f" {tmp_path / 'old'} "}) == tmp_path / "old"
    assert rules_folder(None, {}) is None


@pytest.mark.parametrize(
    ("configured", "environ", "said"),
    [
        ("gone", {}, "hooks_dir names the folder gone, which does not exist"),
        (None, {"BEFOREHAND_HOOKS_DIR": "gone"}, "BEFOREHAND_HOOKS_DIR names the folder gone, which does not exist"),
        (None, {"LLM_CHAT_HOOKS_DIR": __file__}, "which is not a folder"),
        ("gone", {"LLM_CHAT_HOOKS_DIR": "/"}, "hooks_dir names the folder gone"),
    ],
)
def test_a_folder_that_is_not_there_is_an_error_that_says_who_named_it(
    configured: str | None, environ: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        rules_folder(configured, environ)
    assert said in str(refused.value)


def test_files_are_read_in_the_order_of_their_names_and_folders_in_them_are_not(tmp_path: Path) -> None:
    for name in ("b.json", "a.yaml", "C.toml", ".h.json"):
        body = 'target = "chat"\nlabel = "C.toml"' if name == "C.toml" else f'{{"target": "chat", "label": "{name}"}}'
        (tmp_path / name).write_text(body)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "d.json").write_text("nonsense")
    (tmp_path / "readme.md").write_text("nonsense")
    (tmp_path / "hooks.py").write_text("nonsense")
    assert [about["label"] for about in load_rules([tmp_path]).describe()] == [".h.json", "C.toml", "a.yaml", "b.json"]


def test_an_empty_folder_has_no_rules(tmp_path: Path) -> None:
    assert load_rules([tmp_path]).hooks == ()


def test_duplicate_labels_are_told_apart_by_file(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('{"target": "chat", "label": "same"}')
    rules = load_rules([tmp_path])
    assert [(about["label"], about["file"]) for about in rules.describe()] == [
        ("same", str(tmp_path / n)) for n in ("a.json", "b.json")
    ]
    assert len({hook.where for hook in rules.hooks}) == 2
