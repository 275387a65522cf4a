# ruff: noqa: E501 - what is said is compared word for word, and stands on one line as it is printed
"""The recorded cases that are quirks of the other system: what happens here instead, each by the case's name."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from beforehand.rules import RuleFileError
from rulefiles.player import CASES, Played, load, play

QUIRKS = {name for name, case in CASES.items() if case["quirk"]}

REFUSED: dict[str, list[tuple[str, str]]] = {
    "load-02-invalid-json-skipped-others-kept": [("bad.json:1:1", "this is not JSON")],
    "load-04-missing-target-unknown-target-disabled": [
        ("a.json:2:3: [0]", "the field 'target' is missing"),
        ("a.json:6:5: [1].target", "there is no target 'invalid'"),
        ("a.json:15:5: [3].event", "'nope' is not one of 'after', 'before', 'error'"),
    ],
    "load-05-null-element-keeps-earlier-drops-later-in-file": [
        ("a.json:6:3: [1]", "expected a rule (an object with 'target'), got null")
    ],
    "load-06-invalid-regex-drops-rest-of-file": [("a.json:9:5: [1].regex", "a parenthesis that is never closed at character 1")],
    "load-08-enabled-string-false-is-enabled": [("a.json:4:3: enabled", "expected true or false, got 'false'")],
    "load-09-directory-named-json-and-bom": [("bom.json:1:1", "byte order mark"), ("d.json:1:1", "this is a folder")],
    "load-13-scalar-top-level": [
        ("n.json:1:1", "expected a rule (an object with 'target'), got 42"),
        ("nul.json:1:1", "expected a rule (an object with 'target'), got null"),
        ("s.json:1:1", "expected a rule (an object with 'target'), got 'chat'"),
    ],
    "stream-07-unknown-chunk-type-fails-open": [
        (
            "a.json:4:5: chunks[0]",
            "'contents' is not one of 'content', 'finish', 'reasoning', 'tool_call_delta', did you mean 'content'?",
        )
    ],
    "chat-07-unknown-role-plus-regex-any-role": [("a.json:4:5: roles[0]", "did you mean 'assistant'?")],
    "chat-16-queue-unknown-role-becomes-assistant": [
        ("a.json:9:7: actions[0].role", "'system' is not one of 'assistant', 'reasoning', 'tool', 'user'")
    ],
    "chat-21-unknown-action-stops-remaining": [("a.json:12:7: actions[1].type", "there is no action 'nonexistent'")],
    "chat-24-template-prototype-leak": [("a.json:12:7: actions[1].type", "there is no action 'toString'")],
    "chat-28-nonstring-regex-crashes-caller": [("a.json:6:3: regex", "expected a string, got 5")],
    "tool-13-tools-string-never-matches": [("a.json:5:3: tools", "expected a list, got 'fetch_page': put it in [ ]")],
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_meant_is_refused_at_load_with_every_mistake_and_its_place(name: str, tmp_path: Path) -> None:
    with pytest.raises(RuleFileError) as refused:
        load(CASES[name], tmp_path / "hooks")

    said = [str(problem).removeprefix(f"{tmp_path / 'hooks'}/") for problem in refused.value.problems]
    assert len(said) == len(REFUSED[name])
    for line, (place, why) in zip(said, REFUSED[name], strict=True):
        assert line.startswith(place)
        assert why in line


HI = {"role": "user", "content": "hi", "origin": "user"}
ASKED = [{"role": "user", "content": "hi"}]


async def replay(name: str, folder: Path) -> Played:
    return await play(CASES[name], folder / "hooks")


async def test_load_10_the_first_user_message_is_seen(tmp_path: Path) -> None:
    played = await replay("load-10-lazy-load-misses-first-user-message", tmp_path)
    assert played.log == [(logging.INFO, "saw one"), (logging.INFO, "saw two")]


async def test_stream_05_a_regex_filters(tmp_path: Path) -> None:
    played = await replay("stream-05-regex-silently-ignored", tmp_path)
    assert played.log == []
    assert played.shown == ["good morning"]


@pytest.mark.parametrize(
    "name", ["stream-08-interrupt-openai-stores-partial-as-complete", "stream-11-interrupt-provider-ignoring-signal-completes"]
)
async def test_stream_08_and_11_an_interrupted_reply_is_discarded(name: str, tmp_path: Path) -> None:
    played = await replay(name, tmp_path)
    assert played.history == [HI]
    assert played.shown == [""]
    assert played.stops == ["interrupted"]


async def test_stream_09_nothing_is_processed_after_an_interrupt(tmp_path: Path) -> None:
    played = await replay("stream-09-interrupt-coalesced-chunks-not-stopped", tmp_path)
    assert played.log == [(logging.INFO, "Hello")]
    assert played.history == [HI]


async def test_stream_13_each_retry_sends_the_same_history(tmp_path: Path) -> None:
    played = await replay("stream-13-interrupt-resend-openai-partial-in-next-request", tmp_path)
    assert played.requests == [ASKED, ASKED]
    assert played.history == [HI, {"role": "assistant", "content": "fresh", "origin": "model"}]
    assert played.resends == 1


async def test_stream_16_an_interrupt_amid_arguments_leaves_no_dangling_call(tmp_path: Path) -> None:
    played = await replay("stream-16-interrupt-mid-tool-arguments", tmp_path)
    assert played.history == [HI]
    assert played.tool_calls == {"fetch_page": []}
    assert played.stops == ["interrupted"]


async def test_chat_04_max_triggers_counts_firings(tmp_path: Path) -> None:
    played = await replay("chat-04-maxTriggers-counts-nonmatching-messages", tmp_path)
    assert played.log == [(logging.INFO, "hit error")]


async def test_chat_08_the_retry_carries_the_original_messages_and_the_queued_one(tmp_path: Path) -> None:
    played = await replay("chat-08-queue-then-interrupt-resend", tmp_path)
    nudge = {"role": "user", "content": "Please try to answer the question."}
    assert played.requests == [[{"role": "user", "content": "q"}], [{"role": "user", "content": "q"}, nudge]]
    assert [entry["content"] for entry in played.history] == ["q", nudge["content"], "42"]
    assert played.resends == 1


async def test_chat_19_an_interrupted_user_message_ends_the_run_with_no_request(tmp_path: Path) -> None:
    played = await replay("chat-19-user-hook-resend-before-send-has-no-effect", tmp_path)
    assert played.requests == []
    assert played.stops == ["interrupted"]


async def test_chat_20_resends_are_capped_and_the_stop_says_so(tmp_path: Path) -> None:
    played = await replay("chat-20-assistant-resend-loop-uncapped", tmp_path)
    assert len(played.requests) == 4
    assert played.resends == 3
    assert played.stops == ["resend_limit"]


async def test_chat_25_what_a_user_writes_is_never_expanded(tmp_path: Path) -> None:
    played = await replay("chat-25-default-dump-expands-user-placeholders", tmp_path)
    said = "inject {{label}} {{target}}"
    dump = f'[json-hook L] chat: {{"label":"L","target":"chat","role":"user","content":"{said}","match":"{said}"}}'
    assert played.log == [(logging.INFO, dump)]


async def test_chat_27_inline_flags_work(tmp_path: Path) -> None:
    played = await replay("chat-27-regex-case-sensitive-inline-flags-rejected", tmp_path)
    assert played.log == [(logging.INFO, "inline")]


async def test_chat_29_rules_outlive_a_conversation_and_the_listing_is_true(tmp_path: Path) -> None:
    played = await replay("chat-29-chat-clear-leaves-stale-infos", tmp_path)
    assert played.log == [(logging.INFO, "saw one"), (logging.INFO, "saw two")]
    assert played.hooks == [{"label": "ghost", "target": "chat"}]


TEMPLATES = {
    "tool-01-after-default-result-object": 'fetch_page returned PAGE BODY name=fetch_page args={"url":"http://x"}',
    "tool-02-before-args-object": 'before fetch_page {"url":"http://x"} {{result}}',
    "tool-06-default-dump-after": '[json-hook t] tool: {"label":"t","target":"tool","event":"after","name":"fetch_page","args":{"url":"http://x"},"result":"PAGE BODY"}',
}


@pytest.mark.parametrize("name", sorted(TEMPLATES))
async def test_tool_01_02_and_06_templates_show_name_arguments_and_result(name: str, tmp_path: Path) -> None:
    played = await replay(name, tmp_path)
    assert played.log == [(logging.INFO, TEMPLATES[name])]


async def test_tool_07_an_interrupt_before_a_tool_keeps_it_from_running(tmp_path: Path) -> None:
    played = await replay("tool-07-interrupt-before-does-not-block-tool", tmp_path)
    assert played.tool_calls == {"fetch_page": []}
    assert played.stops == ["interrupted"]
    assert [entry["role"] for entry in played.history] == ["user", "assistant", "tool"]


async def test_tool_09_a_message_queued_by_a_tool_rule_is_in_the_next_request(tmp_path: Path) -> None:
    played = await replay("tool-09-queue-message-waits-for-end-of-tool-loop", tmp_path)
    assert [entry["content"] for entry in played.requests[1]] == ["go", "", "PAGE BODY", "be brief"]


async def test_tool_10_malformed_arguments_are_told_to_the_model_and_the_error_rule(tmp_path: Path) -> None:
    played = await replay("tool-10-malformed-arguments-reject-send", tmp_path)
    assert played.log == [(logging.INFO, "err")]
    assert played.tool_calls == {"fetch_page": []}
    assert [entry["role"] for entry in played.history] == ["user", "assistant", "tool", "assistant"]
    assert played.stops == ["completed"]


def test_every_quirk_is_answered_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in QUIRKS if f'"{name}"' not in text} == set()
