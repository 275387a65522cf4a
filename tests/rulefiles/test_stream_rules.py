"""What stream rules do to each other, and when they do it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Hold, Limits, hook, tool
from beforehand.messages import Text, Thinking
from beforehand.rules import RuleSet
from beforehand.testing import FunctionModel, text, thinking, tool_call
from rulefiles.kit import Rule, Said, Screen, rules_of, run


def stream(regex: str | None, *actions: dict[str, Any], **more: Any) -> Rule:
    rule = {"target": "stream", "chunks": ["content"], **more, "actions": list(actions)}
    return rule if regex is None else {**rule, "regex": regex}


STOP = {"type": "interrupt"}
RETRY = {"type": "interrupt", "resend": True}
LOG = {"type": "log", "message": "{{label}}:{{match}}"}


def cover(text: str = "***") -> dict[str, Any]:
    return {"type": "replace", "with": text}


def stages(rules: RuleSet) -> int:
    return sum(hook.seam == "on_chunk" for hook in rules.hooks)


def test_neighbours_of_one_order_and_policy_are_one_stage(tmp_path: Path) -> None:
    many = [stream(f"sk{i}-[a-z]+", STOP) for i in range(20)] + [stream(f"x{i}", cover()) for i in range(20)]
    rules = rules_of(tmp_path, *many)
    assert stages(rules) == 1
    assert rules.hooks[0].where == f"{tmp_path / 'rules.json'}:2 and 39 more"

    apart = [
        stream("a", STOP),
        stream("b", STOP, order=1),
        stream("c", STOP, order=1, onError="open"),
        stream("d", STOP, loops=["x"]),
    ]
    assert stages(rules_of(tmp_path, *apart)) == 4


async def test_a_later_rule_sees_what_an_earlier_one_made_of_the_text(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(
        tmp_path, stream("secret", cover("word")), stream("word", LOG, label="late"), stream("my word", STOP), voice=said
    )
    result, _, _ = await run(rules, [text("", chunks=["my sec", "ret"])])
    assert result.stop_reason == "interrupted"
    assert said.texts == ["late:word"]


async def test_an_earlier_refusal_cannot_be_covered_up_by_a_later_rule(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, stream("secret", STOP), stream(r"my \w+", cover()))
    result, _, _ = await run(rules, [text("my secret")])
    assert result.stop_reason == "interrupted"


async def test_observers_hide_nothing_from_each_other_and_keep_nothing_back(tmp_path: Path) -> None:
    said, shown = Said(), []
    rules = rules_of(
        tmp_path,
        stream("error", LOG, label="a"),
        stream(r"error code \d+!", LOG, label="b"),
        stream("[a-z ]+", LOG, label="c"),
        voice=said,
    )

    def watch(event: Any) -> None:
        if event.type == "message_update":
            shown.append(event.delta)

    chunks = ["err", "or co", "de 5", "!"]
    await run(rules, [text("", chunks=chunks)])
    model = FunctionModel(lambda request: text("", chunks=chunks))
    await Agent(model=model, hooks=rules.hooks, listeners=[watch]).run("go")

    assert shown == chunks
    assert sorted(said.texts[: len(said.texts) // 2]) == ["a:error", "b:error code 5!", "c:error code "]


async def test_of_rules_that_replace_the_leftmost_match_wins_and_the_earlier_rule_on_ties(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path, stream("bc", cover("1")), stream("ab", cover("2")), stream("abc", cover("3")), stream("d+", cover("4"))
    )
    result, _, _ = await run(rules, [text("", chunks=["a", "b", "c", "dd", "d bc"])])
    assert result.text == "2c4 1"


@pytest.mark.parametrize("order", [[STOP, RETRY], [RETRY, STOP]])
async def test_resends_combine_by_or_in_whatever_order_rules_interrupt(order: list[dict[str, Any]], tmp_path: Path) -> None:
    for target in ({"target": "stream", "chunks": ["content"]}, {"target": "chat", "roles": ["assistant"]}):
        rules = rules_of(tmp_path, *[{**target, "regex": "bad", "maxTriggers": 1, "actions": [action]} for action in order])
        result, model, _ = await run(rules, [text("bad"), text("good")])
        assert result.text == "good"
        assert len(model.requests) == 2
        assert [about["firings"] for about in rules.describe()] == [1, 1]


@pytest.mark.parametrize("actions", [[RETRY, STOP], [STOP, RETRY], [{"type": "queue-resend"}, STOP]])
@pytest.mark.parametrize("target", [{"target": "stream"}, {"target": "chat", "roles": ["assistant"]}])
async def test_within_one_rule_a_plain_interrupt_never_cancels_a_resend(target: Rule, actions: list[Any], tmp_path: Path) -> None:
    rules = rules_of(tmp_path, {**target, "regex": "bad", "actions": actions})
    result, _, _ = await run(rules, [text("bad"), text("good")])
    assert [message.text for message in result.messages] == ["go", "good"]


async def test_all_rules_about_a_message_fire_though_one_interrupts(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(
        tmp_path,
        {"target": "chat", "roles": ["assistant"], "actions": [STOP]},
        {"target": "chat", "roles": ["assistant"], "label": "x", "actions": [{"type": "log", "message": "{{content}}"}]},
        {"target": "chat", "roles": ["user"], "actions": [{"type": "log", "message": "no"}], "maxTriggers": 0},
        voice=said,
    )
    result, _, _ = await run(rules, [text("bad")])
    assert said.texts == ["bad"]
    assert [message.text for message in result.messages] == ["go"]


async def test_max_triggers_on_a_stream_counts_matches_and_a_spent_rule_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, stream("ab", cover("1"), maxTriggers=2), stream("a", cover("2")))
    result, _, _ = await run(rules, [text("", chunks=["a", "b ab a", "b a"])])
    assert result.text == "1 1 2b 2"
    assert [(about["state"], about["firings"]) for about in rules.describe()] == [("spent", 2), ("active", 2)]


async def test_max_triggers_counts_for_all_runs_of_an_agent(tmp_path: Path) -> None:
    said = Said()
    rules = rules_of(
        tmp_path,
        {"target": "chat", "roles": ["user"], "maxTriggers": 2, "actions": [{"type": "log", "message": "{{content}}"}]},
        voice=said,
    )
    agent = Agent(model=FunctionModel(lambda request: text("ok")), hooks=rules.hooks)
    for prompt in ("one", "two", "three"):
        await agent.run(prompt)
    assert said.texts == ["one", "two"]


async def test_a_rule_spent_by_one_run_lets_go_of_what_it_keeps_back_in_another(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, stream("secret", cover(), maxTriggers=1))
    reached, go_on = asyncio.Event(), asyncio.Event()
    shown: list[str] = []

    class Slow(FunctionModel):
        async def stream(self, request: Any, call: Any = None) -> Any:
            async for event in FunctionModel(lambda r: text("", chunks=["my sec", "ret"])).stream(request):
                yield event
                if not reached.is_set():
                    reached.set()
                    await go_on.wait()

    def watch(event: Any) -> None:
        if event.type == "message_update":
            shown.append(event.delta)

    waiting = asyncio.create_task(Agent(model=Slow(lambda r: None), hooks=rules.hooks, listeners=[watch]).run("a"))
    await reached.wait()
    assert shown == ["my "]
    first, _, _ = await run(rules, [text("a secret")])
    go_on.set()
    second = await waiting

    assert (first.text, second.text) == ("a ***", "my secret")


async def test_streams_of_many_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, stream("sk-[a-z]+", cover()))

    def reply(request: Any) -> Any:
        name = request.messages[-1].text
        return text("", chunks=["key s", "k-ab", f" of {name}"])

    agent = Agent(model=FunctionModel(reply), hooks=rules.hooks)
    results = await asyncio.gather(*[agent.run(f"run{i}", run_id=f"same-prefix-of-{i}") for i in range(50)])
    assert [result.text for result in results] == [f"key *** of run{i}" for i in range(50)]
    assert len(rules.hooks[0].fn._channels) == 0


async def test_each_channel_is_a_text_of_its_own(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, {"target": "stream", "regex": "ab", "actions": [cover()]})

    @tool
    async def note(x: str) -> str:
        """Note."""
        return x

    first = [
        thinking("", chunks=["a"]),
        text("", chunks=["b a"]),
        tool_call("note", chunks=['{"x":"', "a", 'b"}']),
        tool_call("note", {"x": "b"}),
    ]
    result, model, screen = await run(rules, [first, text("done")], tools=[note])

    reply = result.messages[1]
    assert (reply.thinking, reply.text) == ("a", "b a")
    assert [call.arguments for call in reply.tool_calls] == ['{"x":"***"}', '{"x":"b"}']
    assert screen.arguments == ['{"x":"***"}', '{"x":"b"}']
    assert [message.text for message in model.requests[1].messages[-2:]] == ["***", "b"]


@pytest.mark.parametrize("limit", [13, 16, 64, 4096])
async def test_the_bound_of_the_run_is_kept(limit: int, tmp_path: Path) -> None:
    secret = "sk-" + "a" * 200
    whole = f"see {secret} there"
    pieces = [whole[i : i + 5] for i in range(0, len(whole), 5)]
    for action, stop in ((cover("*"), "completed"), (STOP, "interrupted")):
        rules = rules_of(tmp_path, stream("sk-[a-z]+", action), stream("sk-[a-z]+b", cover("?")))
        result, _, screen = await run(rules, [text("", chunks=pieces)], limits=Limits(max_hold=limit))
        assert result.stop_reason == stop
        assert "a" not in "".join(screen.ever).replace("there", "").replace("see", "")


async def test_a_stage_whose_text_was_touched_behind_its_back_fails_closed(tmp_path: Path) -> None:
    from beforehand.seams import Chunk

    (hook,) = rules_of(tmp_path, stream("secret", STOP)).hooks

    class Run:
        run_id = "r"

    assert hook(Chunk(Run(), "text", "my sec", "my sec", 0, False, "m")) == Hold(3)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="kept back 3 characters and got 3 more, but 9 are pending"):
        hook(Chunk(Run(), "text", "ret", "my secret", 0, False, "m"))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="lost its place"):
        hook(Chunk(Run(), "text", "ret", "my secret", 5, False, "another"))  # type: ignore[arg-type]


async def test_a_python_hook_that_holds_and_a_rule_work_in_one_guard(tmp_path: Path) -> None:
    @hook.on_chunk(order=-1)
    def by_words(chunk: Any) -> Any:
        return None if chunk.final else Hold(len(chunk.pending) - chunk.pending.rfind(" ") - 1)

    rules = rules_of(tmp_path, stream("one two", cover()))
    screen = Screen()
    model = FunctionModel(lambda request: text("", chunks=["o", "ne t", "wo thr", "ee"]))
    result = await Agent(model=model, hooks=[by_words, *rules.hooks], listeners=[screen]).run("go")
    assert result.text == "*** three"
    assert screen.ever == ["*** ", "three"]


async def test_an_interrupt_says_which_rule_and_where(tmp_path: Path) -> None:
    result, _, _ = await run(rules_of(tmp_path, stream("secret", STOP, label="stop-on-secret")), [text("a secret")])
    reason = f"rule 'stop-on-secret' ({tmp_path / 'rules.json'}:2)"
    assert result.reason == reason
    (record,) = result.decisions
    assert (record.hook, record.where, record.seam, record.verdict, record.reason) == (
        "stop-on-secret",
        f"{tmp_path / 'rules.json'}:2",
        "on_chunk",
        "Interrupt",
        reason,
    )


async def test_the_record_names_the_rule_of_a_shared_stage_that_decided(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path, stream("one", cover("1"), label="a"), stream("two", cover("2"), label="b"), stream("three", STOP, label="c")
    )
    (hook,) = rules.hooks
    assert (hook.name, hook.where) == ("a, b, c", f"{tmp_path / 'rules.json'}:2 and 2 more")

    result, _, _ = await run(rules, [text("", chunks=["one ", "two ", "three"])])

    assert [(record.hook, record.where.rpartition(":")[2], record.verdict) for record in result.decisions] == [
        ("a", "2", "Replace"),
        ("b", "3", "Replace"),
        ("c", "4", "Interrupt"),
    ]


async def test_all_passes_of_a_stage_together_keep_the_bound_of_the_run(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, stream("sk-[a-z]+", cover("*")), stream("zz[ -y]+!", STOP))
    whole = "see zz 0123456789 sk-aaaaaaaaaaaaaa"
    result, _, screen = await run(rules, [text("", chunks=list(whole))], limits=Limits(max_hold=20))
    assert result.stop_reason == "interrupted"  # more than its share may not be kept back, so the refusal counts
    assert "zz" not in "".join(screen.ever)


async def test_an_interrupted_user_message_ends_the_run_though_there_is_a_history_and_a_wish_to_resend(tmp_path: Path) -> None:
    for wish in ([RETRY], [{"type": "queue-resend"}, STOP]):
        rules = rules_of(tmp_path, {"target": "chat", "roles": ["user"], "regex": "bad", "actions": wish})
        model = FunctionModel(lambda request: text("ok"))
        talk = Agent(model=model, hooks=rules.hooks).conversation()
        await talk.run("good")
        result = await talk.run("bad")
        assert result.stop_reason == "interrupted"
        assert len(model.requests) == 1


async def test_reasoning_that_was_kept_back_until_the_end_is_stored_before_the_text_that_came_after_it(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, {"target": "stream", "regex": "sk-[a-z]+", "actions": [{"type": "interrupt"}]})
    result, _, screen = await run(rules, [[thinking("I ask"), text("You ask")]])
    assert result.messages[-1].content == (Thinking("I ask"), Text("You ask"))
    assert sorted("".join(screen.ever)) == sorted("I askYou ask")


@pytest.mark.parametrize("on_error", ["closed", "open"])
async def test_where_nothing_may_be_kept_back_a_rule_that_has_to_fails(on_error: str, tmp_path: Path) -> None:
    rule = {"target": "stream", "regex": "sk-[a-z]+", "onError": on_error, "actions": [{"type": "interrupt"}]}
    reply = [text("", chunks=["a s", "k", " b"])]

    result, _, screen = await run(rules_of(tmp_path, rule), reply, limits=Limits(max_hold=0), check=False)

    assert {record.verdict for record in result.decisions} == {"failed" if on_error == "closed" else "failed_open"}
    assert "".join(screen.ever) == ("" if on_error == "closed" else "a sk b")
    assert result.stop_reason == ("error" if on_error == "closed" else "completed")


async def test_a_stage_bears_the_name_of_the_rule_that_spoke_only_while_that_is_heard(tmp_path: Path) -> None:
    rule = {"target": "stream", "actions": [{"type": "replace", "with": "*"}]}
    rules = rules_of(tmp_path, {**rule, "label": "r1", "regex": "k1"}, {**rule, "label": "r2", "regex": "k2"})
    (stage,) = rules.hooks
    assert stage.name == "r1, r2"
    result, _, _ = await run(rules, [text("", chunks=["a k2 b", " c"])])
    assert [record.hook for record in result.decisions] == ["r2"]
    assert stage.name == "r1, r2"
