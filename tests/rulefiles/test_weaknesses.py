"""The eighteen weaknesses of the system this format comes from, each by its number. None of them is left."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, AssistantMessage, Limits, ToolMessage, tool
from beforehand.rules import RuleFileError, load_rules
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call
from rulefiles.kit import Said, rules_of, run

STOP = {"type": "interrupt"}


@tool
async def fetch(url: str = "") -> str:
    """Fetch."""
    return f"PAGE {url}"


async def test_w01_a_secret_split_over_chunks_is_seen_whole_and_nothing_of_it_shown(tmp_path: Path) -> None:
    _, _, screen = await run(
        rules_of(tmp_path, {"target": "stream", "regex": "password", "actions": [STOP]}), [text("", chunks=["my pass", "word"])]
    )
    assert screen.ever == ["my "]


def test_w02_a_field_that_would_do_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleFileError) as refused:
        rules_of(tmp_path, {"target": "stream", "roles": ["user"], "event": "before", "actions": [STOP]})
    assert [problem.field for problem in refused.value.problems] == ["[0].roles", "[0].event"]


@pytest.mark.parametrize(
    "rule",
    [
        {"target": "stream", "actions": [{"type": "interrupt", "resend": True}]},
        {"target": "chat", "roles": ["assistant"], "actions": [{"type": "queue-resend"}]},
        {"target": "tool", "actions": [{"type": "interrupt", "resend": True}]},
    ],
)
async def test_w03_resends_end_at_a_limit_for_the_run_and_at_one_for_the_rule(rule: dict[str, Any], tmp_path: Path) -> None:
    reply = [text("x"), tool_call("fetch")]
    reasons = {
        5: "5 resends were made, the most a run may have (Limits.max_resends)",
        3: f"3 resends were made for hook 'again' ({tmp_path / 'rules.json'}:2), the most a hook may have "
        "(Limits.max_resends_per_hook)",
    }
    rule = {**rule, "label": "again"}
    capped = {**rule, "maxTriggers": 2}
    for definition, each, resends in ((rule, None, 5), (rule, 3, 3), (capped, None, 2)):
        rules = rules_of(tmp_path, definition)
        model = FunctionModel(lambda request: reply if len(request.messages) < 40 else text("end"))
        limits = Limits(max_resends=5, max_resends_per_hook=each, max_turns=60)
        result = await Agent(model=model, hooks=rules.hooks, tools=[fetch], limits=limits).run("go", check=False)
        if resends in reasons:
            assert (result.stop_reason, result.reason) == ("resend_limit", reasons[resends])
        else:
            assert rules.describe()[0]["firings"] == 2
            assert result.stop_reason in ("completed", "max_turns")


async def test_w04_a_pattern_that_is_catastrophic_elsewhere_is_matched_in_no_time(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, {"target": "chat", "regex": "^(a+)+$", "actions": [{"type": "log"}]})
    await run(rules, [text("ok")], "a" * 5000 + "b")  # 28 letters took 14 seconds there, and each more doubles it
    assert rules.describe()[0]["firings"] == 0


async def test_w05_interrupted_text_is_not_stored_as_an_answer(tmp_path: Path) -> None:
    result, _, _ = await run(
        rules_of(tmp_path, {"target": "stream", "regex": "b", "actions": [STOP]}), [text("", chunks=["aa", "b"])]
    )
    assert [message.role for message in result.messages] == ["user"]


async def test_w06_nothing_that_was_already_received_is_processed_after_an_interrupt(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(tmp_path, {"target": "stream", "actions": [{"type": "log", "message": "{{text}}"}, STOP]}, voice=said)
    await run(rules, [text("", chunks=["one", "two", "three"])])
    assert said.texts == ["one"]


async def test_w07_a_call_can_be_refused_before_the_tool_runs(tmp_path: Path) -> None:
    _, model, _ = await run(
        rules_of(tmp_path, {"target": "tool", "event": "before", "actions": [{"type": "block", "reason": "use the cache"}]}),
        [tool_call("fetch"), text("done")],
        tools=[fetch],
    )
    assert model.requests[1].messages[-1].text == "use the cache"


async def test_w08_an_interrupt_amid_arguments_leaves_a_history_that_can_be_continued(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, {"target": "stream", "chunks": ["tool_call_delta"], "maxTriggers": 1, "actions": [STOP]})
    model = ScriptedModel([tool_call("fetch", chunks=['{"url":', '"u"}']), text("fine")])
    talk = Agent(model=model, tools=[fetch], hooks=rules.hooks).conversation()
    first = await talk.run("go")
    second = await talk.run("again")
    assert (first.stop_reason, second.text) == ("interrupted", "fine")
    assert [message.role for message in talk.messages] == ["user", "user", "assistant"]


@pytest.mark.parametrize("field", [{"target": "chat", "roles": ["asistant"]}, {"target": "stream", "chunks": ["contents"]}])
def test_w09_a_misspelt_filter_does_not_widen_to_everything(field: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RuleFileError, match="did you mean"):
        rules_of(tmp_path, field)


def test_w10_files_are_loaded_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"target": "chat"}, null]')
    (tmp_path / "b.json").write_text('{"target": "chat"}')
    with pytest.raises(RuleFileError, match="expected a rule"):
        load_rules([tmp_path])


async def test_w11_the_first_message_is_seen_and_the_listing_is_true(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(
        tmp_path,
        {
            "target": "chat",
            "roles": ["user"],
            "label": "x",
            "maxTriggers": 1,
            "actions": [{"type": "log", "message": "{{content}}"}],
        },
        voice=said,
    )
    assert (rules.describe()[0]["state"], rules.describe()[0]["firings"]) == ("active", 0)
    await run(rules, [text("ok")], "one")
    await run(rules, [text("ok")], "two")
    assert said.texts == ["one"]
    assert rules.describe() == [
        {"label": "x", "target": "chat", "file": str(tmp_path / "rules.json"), "line": 2, "state": "spent", "firings": 1},
    ]


async def test_w12_what_does_not_fire_is_not_counted(tmp_path: Path) -> None:
    said = Said()
    queue = {
        "target": "chat",
        "roles": ["user"],
        "actions": [{"type": "queue-message", "role": "user", "message": "a hit by a hook"}],
    }
    counted = {"target": "chat", "regex": "hit", "maxTriggers": 1, "actions": [{"type": "log", "message": "{{content}}"}]}
    await run(rules_of(tmp_path, queue, counted, voice=said), [text("a hit")], "nothing")
    assert said.texts == ["a hit"]


async def test_w13_a_plain_interrupt_does_not_cancel_a_resend_of_another_rule(tmp_path: Path) -> None:
    bad = {"target": "chat", "roles": ["assistant"], "regex": "bad", "maxTriggers": 1}
    rules = rules_of(tmp_path, {**bad, "actions": [STOP]}, {**bad, "actions": [{"type": "queue-resend"}]})
    result, _, _ = await run(rules, [text("bad"), text("good")])
    assert result.text == "good"


async def test_w14_a_synthetic_tool_message_has_a_call_and_an_id_of_its_own(tmp_path: Path) -> None:
    action = {"type": "queue-message", "role": "tool", "message": "21 degrees"}
    _, model, _ = await run(rules_of(tmp_path, {"target": "chat", "roles": ["user"], "actions": [action, action]}), [text("ok")])
    sent = model.requests[0].messages
    calls = [call.id for message in sent if isinstance(message, AssistantMessage) for call in message.tool_calls]
    assert len(set(calls)) == 2
    assert [message.tool_call_id for message in sent if isinstance(message, ToolMessage)] == calls


async def test_w15_objects_are_json_and_data_is_never_expanded(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(
        tmp_path,
        {"target": "tool", "event": "before", "actions": [{"type": "log", "message": "{{args}} {{toString}} {{__class__}}"}]},
        {"target": "chat", "roles": ["user"]},
        voice=said,
    )
    await run(rules, [tool_call("fetch", {"url": "{{name}}"}), text("ok")], "{{role}}", tools=[fetch])
    assert said.texts == [
        '[json-hook] chat: {"label":"","target":"chat","role":"user","content":"{{role}}","match":"{{role}}"}',
        '{"url":"{{name}}"} {{toString}} {{__class__}}',
    ]


def test_w16_a_regex_that_is_no_string_is_refused_at_load(tmp_path: Path) -> None:
    with pytest.raises(RuleFileError, match="expected a string, got 5"):
        rules_of(tmp_path, {"target": "chat", "regex": 5})


async def test_w17_a_message_can_be_redacted_or_refused_before_the_history_holds_it(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        {"target": "chat", "regex": "secret", "actions": [{"type": "replace", "with": "***"}]},
        {"target": "chat", "roles": ["user"], "regex": "forbidden", "actions": [STOP]},
    )
    result, model, _ = await run(rules, [text("the secret is out")], "a secret")
    assert [message.text for message in result.messages] == ["a ***", "the *** is out"]
    assert "secret" not in repr(model.requests)
    refused, model, _ = await run(rules, [text("ok")], "forbidden")
    assert (list(refused.messages), model.requests) == ([], [])


async def test_w18_what_a_rule_says_and_what_is_listed_tell_which_rule_and_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"target": "chat", "label": "watch", "roles": ["user"]}))
    rules = load_rules([tmp_path])
    with caplog.at_level(logging.INFO, "beforehand.rules"):
        await run(rules, [text("ok")])
    (record,) = caplog.records
    assert record.rule == f"{file}:1"  # type: ignore[attr-defined]
    assert record.getMessage().startswith("[json-hook watch] chat: ")
    assert rules.describe()[0]["file"] == str(file)
    assert [hook.where for hook in rules.hooks] == [f"{file}:1"]
