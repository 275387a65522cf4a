# ruff: noqa: E501 - what is said is compared word for word, and stands on one line as it is printed
"""What `beforehand check` and `beforehand try` have to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from beforehand import ConfigError
from beforehand.rules import check, rules_json_schema, try_rules
from beforehand.messages import AssistantMessage, ToolMessage
from beforehand.rules.check import DECISIONS
from beforehand.rules.recording import read_recording
from beforehand.seams import BY_NAME
from rulefiles.kit import rules_of, write_rules
from rulefiles.test_every_action_everywhere import PROOFS, written

STREAMS = Path(__file__).parents[1] / "data" / "streams"


def checked(folder: Path, *rules: dict[str, Any]) -> str:
    return str(check([write_rules(folder, *rules)])).replace(f"{folder}/", "")


def test_a_check_prints_what_each_rule_becomes(tmp_path: Path) -> None:
    said = checked(
        tmp_path,
        {"target": "stream", "label": "watch"},
        {"target": "stream", "regex": "a", "actions": [{"type": "replace", "with": "b"}]},
        {
            "target": "tool",
            "event": "before",
            "actions": [{"type": "replace", "argument": "x", "with": 1}, {"type": "ask", "prompt": "?"}, {"type": "log"}],
        },
        {"target": "tool", "event": "error", "actions": [{"type": "interrupt"}, {"type": "queue-message", "message": "m"}]},
        {
            "target": "request",
            "actions": [{"type": "hide-tools", "tools": ["x"]}, {"type": "use-model", "model": "m"}, {"type": "warn"}],
        },
        {"target": "run", "enabled": False},
    )
    assert said.splitlines() == [
        "rules.json:2: 'watch' stream → 9 on_chunk: log; 10 on_message: log",
        "rules.json:3: stream → 9 on_chunk: Replace(text=)",
        "rules.json:4: tool → 11 prepare_tool_call: Replace(args=), log; 12 before_tool_call: Ask",
        "rules.json:5: tool → 13 after_tool_call: Interrupt, Queue; 10 on_message: Queue",
        "rules.json:6: request → 3 prepare_request: Replace(model=), warn; 6 before_provider_call: Replace(request=); "
        "8 authorize_request: warn; 12 before_tool_call: Block",
        "rules.json:7: run: disabled",
        "6 rules in 1 file, nothing wrong",
    ]


def test_a_check_prints_every_mistake_and_that_nothing_would_be_loaded(tmp_path: Path) -> None:
    said = checked(tmp_path, {"target": "chat"}, {"target": "chat", "regex": "("}, {"target": "cat"})
    assert said.splitlines()[1:] == [
        "error: rules.json:3:20: [1].regex: RE2 refuses a parenthesis that is never closed at character 1 ('('): a literal one is written \\(",
        "error: rules.json:4:2: [2].target: there is no target 'cat', did you mean 'chat'? "
        "Expected one of 'chat', 'stream', 'tool', 'request', 'turn', 'run'",
        "2 mistakes: nothing would be loaded",
    ]
    assert not check([tmp_path]).ok


@pytest.mark.parametrize(
    ("rule", "warning"),
    [
        (
            {"target": "chat", "actions": [{"type": "log", "message": "{{text}}"}]},
            "[0].actions[0].message: there is no variable {{text}} here, it stays as it is written",
        ),
        (
            {"target": "chat", "regex": "(a)", "actions": [{"type": "log", "message": "{{match_1}} {{match_2}}"}]},
            "there is no variable {{match_2}} here",
        ),
        (
            {"target": "tool", "event": "before", "actions": [{"type": "block", "reason": "{{nmae}}"}]},
            "{{nmae}} here, it stays as it is written, did you mean 'name'?",
        ),
        (
            {"target": "tool", "event": "before", "actions": [{"type": "answer", "result": {"a": ["{{x}}"]}}]},
            "[0].actions[0].result: there is no variable {{x}}",
        ),
        (
            {"target": "tool", "event": "before", "actions": [{"type": "block"}]},
            "without a 'reason' the model only reads 'Tool execution was blocked'",
        ),
        ({"target": "chat", "roles": []}, "[0].roles: an empty list means all of them"),
        (
            {"target": "stream", "regex": "a*"},
            "[0].regex: the pattern also fits no text at all; on a stream such a match never counts",
        ),
        ({"target": "run", "onError": "open"}, "[0].onError: if this rule fails, what it guards is let pass"),
        ({"target": "stream", "timeoutMs": 5}, "[0].timeoutMs: it does not count on a stream"),
    ],
)
def test_a_check_warns_of_what_is_allowed_and_probably_not_meant(rule: dict[str, Any], warning: str, tmp_path: Path) -> None:
    report = check([write_rules(tmp_path, rule)])
    assert report.ok
    assert warning in str(report.warnings[0])
    assert all(line.startswith("warning: ") for line in str(report).splitlines()[1:-1])


@pytest.mark.parametrize(
    "rule",
    [
        {
            "target": "chat",
            "regex": "(?P<x>a)",
            "actions": [{"type": "log", "message": "{{label}}{{role}}{{content}}{{match}}{{match_1}}{{match_x}}"}],
        },
        {
            "target": "tool",
            "args": {"/a": {"regex": "(b)"}},
            "actions": [{"type": "log", "message": "{{match_1}}{{name}}{{args}}{{result}}"}],
        },
        {"target": "stream", "actions": [{"type": "log", "message": "{{type}}{{text}}{{toolCallId}}{{finishReason}}"}]},
        {"target": "chat", "actions": [{"type": "log", "message": "{{match}} { {no} {{ spaced }}"}]},
    ],
)
def test_a_check_does_not_warn_of_variables_that_are_there(rule: dict[str, Any], tmp_path: Path) -> None:
    assert check([write_rules(tmp_path, rule)]).warnings == ()


def test_a_check_warns_of_labels_used_twice_and_of_files_that_are_not_read(tmp_path: Path) -> None:
    write_rules(tmp_path, {"target": "chat", "label": "x"}, name="a.json")
    write_rules(tmp_path, {"target": "run", "label": "x"}, name="b.json")
    write_rules(tmp_path, {"target": "run"}, name="C.JSON")
    said = [str(warning).replace(f"{tmp_path}/", "") for warning in check([tmp_path]).warnings]
    assert said == [
        "C.JSON:1:1: this file is not read: its name would have to end in .json",
        "b.json:2:1: label: a.json:2 has the label 'x' too: they are told apart by file and line",
    ]


@pytest.mark.parametrize(("cell", "action"), sorted(PROOFS))
def test_a_check_says_of_every_action_which_declared_decision_it_is(cell: str, action: str, tmp_path: Path) -> None:
    rule = written(cell, action)
    if (cell, action) == ("tool before", "replace"):
        rule["actions"][0]["argument"] = "x"
    (compiled,) = check([write_rules(tmp_path, rule)]).rules
    assert compiled.seams
    for number, seam, does in compiled.seams:
        spec = BY_NAME[seam]
        assert spec.number == number
        for decision in does:
            name = decision.partition("(")[0]
            declared = {kind.__name__ for kind in (*spec.verdicts, *spec.effects)}
            assert name in declared or name in ("log", "warn", "info", "debug")
    assert any(does for _, _, does in compiled.seams)


def test_every_decision_a_rule_can_be_is_declared_by_its_seam() -> None:
    for decisions in DECISIONS.values():
        for seam, name in decisions.items():
            assert name.partition("(")[0] in {kind.__name__ for kind in BY_NAME[seam].verdicts}


# --- the schema for editors ----------------------------------------------------------------------


def valid(document: Any) -> bool:
    return jsonschema_rs.validator_for(rules_json_schema()).is_valid(document)


def test_the_json_schema_takes_what_loads_and_refuses_what_does_not() -> None:
    rule = {"target": "chat", "actions": [{"type": "log"}]}
    assert valid(rule)
    assert valid([rule, rule])
    assert not valid({**rule, "rolls": []})
    assert not valid({**rule, "actions": [{"type": "block"}]})
    assert not valid(3)
    before = {"target": "tool", "event": "before", "actions": [{"type": "ask", "prompt": "?"}]}
    assert valid(before)
    assert not valid({**before, "event": "after"})
    assert not valid({name: value for name, value in before.items() if name != "event"})


def test_the_json_schema_says_what_things_are_for() -> None:
    schema = rules_json_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert set(schema["$defs"]) >= {"ChatRule", "StreamRule", "ToolRule", "RequestRule", "TurnRule", "RunRule", "BlockAction"}
    assert all(about.get("description") for about in schema["$defs"].values())


# --- trying rules out ----------------------------------------------------------------------------


def tried(folder: Path, recording: Path, *rules: dict[str, Any]) -> list[str]:
    rule_set = rules_of(folder / "hooks", *rules)
    report = try_rules(rule_set, recording)
    assert [about["firings"] for about in rule_set.describe()] == [0] * len(rules)
    return str(report).replace(f"{folder / 'hooks'}/", "").splitlines()


def transcript(folder: Path, *messages: dict[str, Any]) -> Path:
    file = folder / "talk.jsonl"
    file.write_text("\n".join([json.dumps(message) for message in messages]) + "\n\n")
    return file


TALK = (
    {"role": "system", "content": "be nice"},
    {"role": "user", "content": "my key is sk-123"},
    {
        "role": "assistant",
        "content": "calling",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "post", "arguments": '{"to": "x", "n": 500}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sent sk-999"},
    {"role": "assistant", "content": "all done, secret sk-7"},
)


def test_a_transcript_is_played_past_the_rules(tmp_path: Path) -> None:
    said = tried(
        tmp_path,
        transcript(tmp_path, *TALK),
        {"target": "chat", "label": "log", "roles": ["user"], "actions": [{"type": "log", "message": "{{content}}"}]},
        {"target": "stream", "label": "cover", "regex": r"sk-\d+", "actions": [{"type": "replace", "with": "***"}]},
        {
            "target": "tool",
            "label": "clamp",
            "event": "before",
            "args": {"/n": {"min": 100}},
            "actions": [{"type": "block", "reason": "too much"}],
        },
        {"target": "tool", "label": "redact", "regex": r"sk-\d+", "actions": [{"type": "replace", "with": "***"}]},
        {"target": "request", "label": "never", "regex": "sk-999", "actions": [{"type": "block"}]},
        {"target": "turn", "label": "end", "regex": "all done", "actions": [{"type": "end", "reason": "enough"}]},
    )
    assert said == [
        "line 2: log (rules.json:2) would log [log] my key is sk-123",
        "line 3: clamp (rules.json:4) would refuse the call of post: too much",
        "line 4: redact (rules.json:5) would change the result",
        "line 5: cover (rules.json:3) would change the text",
        "line 5: end (rules.json:7) would end the run: enough",
        "line 3: the reader would have seen 'calling'",
        "line 5: the reader would have seen 'all done, secret ***'",
    ]


@pytest.mark.parametrize(("more", "fires"), [({"regex": "sk-"}, True), ({"regex": "nowhere"}, False), ({"maxTriggers": 1}, True)])
def test_a_tool_that_a_rule_hides_would_not_run(tmp_path: Path, more: dict[str, Any], fires: bool) -> None:
    rule = {"target": "request", "label": "hide", **more, "actions": [{"type": "hide-tools", "tools": ["post"]}]}
    said = tried(tmp_path, transcript(tmp_path, *TALK), rule)
    refused = "line 3: hide (rules.json:2) would refuse the call of post: The tool post is not available here."
    assert (refused in said) is fires


def test_what_is_stopped_would_not_have_been_seen(tmp_path: Path) -> None:
    said = tried(
        tmp_path,
        transcript(tmp_path, *TALK),
        {"target": "stream", "label": "stop", "regex": "secret", "actions": [{"type": "interrupt", "resend": True}]},
    )
    assert said == [
        "line 5: stop (rules.json:2) would stop it and ask the model again",
        "line 3: the reader would have seen 'calling'",
        "line 5: the reader would have seen nothing, the reply was stopped",
    ]


def test_every_decision_is_put_into_words(tmp_path: Path) -> None:
    said = tried(
        tmp_path,
        transcript(tmp_path, *TALK),
        {"target": "run", "label": "1", "actions": [{"type": "block", "reason": "not today"}]},
        {
            "target": "chat",
            "label": "2",
            "roles": ["system"],
            "actions": [{"type": "replace", "with": "x"}, {"type": "queue-message", "message": "m"}],
        },
        {
            "target": "request",
            "label": "3",
            "maxTriggers": 1,
            "actions": [{"type": "use-model", "model": "m"}, {"type": "answer", "result": "hi"}],
        },
        {
            "target": "request",
            "label": "4",
            "maxTriggers": 1,
            "actions": [{"type": "set-options", "options": {"temperature": 0}}, {"type": "queue-resend"}],
        },
        {
            "target": "tool",
            "label": "5",
            "event": "before",
            "actions": [{"type": "replace", "argument": "n", "with": 1}, {"type": "ask", "prompt": "{{args}}?"}],
        },
        {"target": "turn", "label": "6", "event": "before", "maxTriggers": 1, "actions": [{"type": "end"}]},
        {"target": "chat", "label": "7", "roles": ["tool"], "actions": [{"type": "interrupt"}]},
    )
    assert [line.partition(" (rules.json:")[0] + line.partition(")")[2] for line in said[:-2]] == [
        "line 1: 2 would change the message",
        "line 1: 2 would queue a message: assistant: 'm'",
        "line 2: 1 would refuse it: not today",
        "line 3: 6 would end the run: no reason given",
        "line 3: 3 would change the model",
        "line 3: 4 would change the request",
        "line 3: 3 would answer 'hi'",
        "line 3: 4 would ask the model once more",
        "line 3: 5 would change the arguments",
        'line 3: 5 would ask a person: {"to":"x","n":500}?',
        "line 4: 7 would stop it",
    ]


def test_a_recording_no_rule_is_about(tmp_path: Path) -> None:
    assert tried(tmp_path, transcript(tmp_path, *TALK[:2]), {"target": "tool", "actions": [{"type": "log"}]}) == [
        "no rule would have fired"
    ]


def test_events_printed_by_a_run_are_a_transcript_too(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    ours = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "text": "hm"},
            {"type": "text", "text": "hello"},
            {"type": "tool_call", "id": "c", "name": "n", "arguments": "{}"},
        ],
    }
    lines = [
        {"type": "turn_start", "number": 1},
        {"type": "message_end", "message": {"role": "user", "content": "hi"}},
        {"type": "message_end", "message": ours},
    ]
    file.write_text("\n".join([json.dumps(line) for line in lines]))
    said = tried(
        tmp_path,
        file,
        {
            "target": "stream",
            "chunks": ["reasoning", "tool_call_delta"],
            "actions": [{"type": "log", "message": "{{type}} {{text}}"}],
        },
        {"target": "tool", "event": "before", "actions": [{"type": "log", "message": "{{name}}"}]},
    )
    assert [line.partition(") ")[2] for line in said] == [
        "would log [log] reasoning hm",
        "would log [log] tool_call_delta {}",
        "would log [log] n",
        "",
    ]


@pytest.mark.parametrize("name", sorted(path.name for path in STREAMS.glob("*.sse")))
def test_a_recorded_stream_is_played_chunk_by_chunk(name: str, tmp_path: Path) -> None:
    said = tried(
        tmp_path, STREAMS / name, {"target": "stream", "actions": [{"type": "log", "message": "{{type}}{{finishReason}}"}]}
    )
    kinds = [
        line.rpartition("] ")[2].replace("{{finishReason}}", "").replace("{{type}}", "finish")
        for line in said
        if "would log" in line
    ]
    assert len(kinds) > 1
    assert kinds[-1] in ("finishstop", "finishtool_calls")
    assert set(kinds[:-1]) <= {"content", "reasoning", "tool_call_delta"}


FRANCE = '{"country":"France"}'


@pytest.mark.parametrize(
    ("name", "text", "calls"),
    [
        ("anthropic-text-3.sse", "Hello! 👋", []),
        ("anthropic-tool-2.sse", None, [("get_exchange_rate", '{"from_currency": "USD", "to_currency": "EUR"}')]),
        ("google-text-2.sse", None, []),
        ("openai-responses-tool-1.sse", "", [("get_capital", FRANCE)]),
        ("openai-responses-tool-3.sse", "The capital of France is Paris.", []),
        ("openai-chat-text-1.sse", "The capital of Mexico is Mexico City.", []),
    ],
)
def test_streams_of_several_providers_are_read(name: str, text: str | None, calls: list[tuple[str, str]]) -> None:
    (step,) = read_recording(STREAMS / name)
    message = step.message
    assert isinstance(message, AssistantMessage)
    assert [(call.name, call.arguments) for call in message.tool_calls] == calls
    assert text is None or message.text == text
    assert "".join([piece for kind, piece, _ in step.deltas if kind == "text"]) == message.text


def test_reasoning_and_calls_of_a_google_stream_are_read(tmp_path: Path) -> None:
    parts = [{"text": "Hm.", "thought": True}, {"text": "Yes."}, {"functionCall": {"name": "go", "args": {"n": 1}}}]
    (tmp_path / "reply.sse").write_text(
        "".join([f"data: {json.dumps({'candidates': [{'content': {'parts': [part]}}]})}\n\n" for part in parts])
        + 'data: {"candidates": [{"finishReason": "STOP"}]}\n\n'
    )
    (step,) = read_recording(tmp_path / "reply.sse")
    assert list(step.deltas) == [("thinking", "Hm.", None), ("text", "Yes.", None), ("tool_call", '{"n":1}', "call_1")]


def test_a_transcript_in_the_form_of_anthropic_is_read(tmp_path: Path) -> None:
    lines = [
        {"role": "user", "content": [{"type": "text", "text": "Look it up."}, {"type": "image", "source": {}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "it is blue"}], "is_error": True},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]
    (tmp_path / "talk.jsonl").write_text("\n".join([json.dumps(line) for line in lines]))
    steps = read_recording(tmp_path / "talk.jsonl")
    assert [(step.place, step.message.role, step.message.text) for step in steps] == [
        ("line 1", "user", "Look it up."),
        ("line 2", "assistant", "Let me see."),
        ("line 3", "tool", "it is blue"),
        ("line 3", "user", "Well?"),
    ]
    call, result = steps[1].message, steps[2].message
    assert isinstance(call, AssistantMessage)
    assert (call.thinking, [(c.name, c.args) for c in call.tool_calls]) == ("Hm.", [("read", {"path": "a"})])
    assert isinstance(result, ToolMessage)
    assert (result.tool_name, result.is_error) == ("read", True)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("talk.jsonl", '{"role": "user", "content": "x"}\nnonsense', "talk.jsonl:2: this line is not JSON"),
        ("talk.jsonl", '{"content": "x"}', "talk.jsonl:1: expected a message with 'role'"),
        ("talk.jsonl", "[1]", "talk.jsonl:1: expected a message with 'role'"),
        ("talk.txt", "", "talk.txt: expected a transcript (.jsonl, one message a line) or a recorded stream (.sse)"),
        (
            "reply.sse",
            'data: {"choices": [{"delta": {"content": "x"}}]}\n\n',
            "reply.sse: this is no complete OpenAI-compatible stream",
        ),
        ("reply.sse", "<html>", "reply.sse: expected a recorded stream of OpenAI (chat completions or responses), Anthropic (messages)"),
        ("reply.sse", 'data: {"completion": "x"}\n\n', "reply.sse: expected a recorded stream of OpenAI"),
        ("reply.sse", "data: {broken\n\n", "reply.sse: the data of event 1 is not JSON"),
        ("reply.sse", 'data: {"type": "message_start"}\n\n', "reply.sse: the recorded stream stops before its end"),
        ("reply.sse", 'data: {"candidates": [{"content": {"parts": [{"text": "x"}]}}]}\n\n', "stops before its end"),
        (
            "reply.sse",
            'data: {"type": "message_start"}\n\ndata: {"type": "error", "error": {"message": "Overloaded"}}\n\n',
            "reply.sse: the recorded stream fails: Overloaded",
        ),
        (
            "reply.sse",
            'data: {"type": "response.created"}\n\n'
            'data: {"type": "response.failed", "response": {"error": {"message": "no"}}}\n\n',
            "reply.sse: the recorded stream fails: no",
        ),
        ("talk.jsonl", '{"role": "user", "content": [{"type": "audio"}]}', "talk.jsonl:1: a part of 'content' is 'audio', which is not read"),
        ("talk.jsonl", '{"role": "user", "content": [7]}', "talk.jsonl:1: a part of 'content' is 7, which is not read"),
        ("talk.jsonl", '{"role": "model", "parts": []}', "talk.jsonl:1: expected a message with 'role'"),
    ],
)
def test_a_recording_that_cannot_be_read_is_an_error_with_its_place(name: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError) as refused:
        try_rules(rules_of(tmp_path / "hooks", {"target": "chat"}), tmp_path / name)
    assert said in str(refused.value)


def test_a_recording_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the recording cannot be read: No such file"):
        try_rules(rules_of(tmp_path / "hooks", {"target": "chat"}), tmp_path / "gone.jsonl")
