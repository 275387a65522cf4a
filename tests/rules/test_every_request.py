"""No request leaves without passing its gate, whoever makes it and whatever class of model would send it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from beforehand import Agent, Answer, AssistantMessage, Block, Hook, Model, Replace, RequestBlocked, Text
from beforehand.models.base import NO_CALL_INFO, Finish, TextDelta
from beforehand.testing import ScriptedModel, text
from rules.reached import END, LOOK, Reached
from seams.refusals import OLD
from seams.stage import Stage, at, play


async def test_every_request_passes_its_gate_and_says_of_which_kind_it_is() -> None:
    kinds: list[tuple[str, str]] = []
    watch = Hook(seam="authorize_request", fn=lambda out: kinds.append((out.kind, out.model.name)))
    stage = Stage(watch, messages=OLD, replies=[text("A summary."), text("All done.")])
    await stage.talk.compact(keep=2)
    await stage.run()
    assert kinds == [("compaction", "scripted"), ("turn", "scripted")]
    assert stage.requests == 2


async def test_a_compaction_whose_request_is_refused_loses_nothing() -> None:
    stage = Stage(Hook(seam="authorize_request", fn=lambda _: Block("Not today.")), messages=OLD, replies=[text("A summary.")])
    with pytest.raises(RequestBlocked, match=r"Not today\."):
        await stage.talk.compact(keep=2)
    assert (stage.requests, list(stage.talk.messages)) == (0, OLD)


async def test_a_compaction_whose_request_a_hook_answers_uses_its_summary() -> None:
    stage = Stage(
        Hook(seam="authorize_request", fn=lambda _: Answer("By the hook.")), messages=OLD, replies=[text("By the model.")]
    )
    await stage.talk.compact(keep=2)
    assert (stage.requests, stage.history[0][1].endswith("By the hook.")) == (0, True)


async def test_a_model_class_of_ones_own_cannot_send_what_the_gate_refused() -> None:
    sent: list[Any] = []

    class Eager(Model):
        async def stream(self, request: Any, call: Any = NO_CALL_INFO) -> AsyncIterator[Any]:
            sent.append(request)
            yield TextDelta("Sent.")
            yield Finish()

    control = await Agent(model=Eager()).run("Begin")
    refused = await Agent(model=Eager(), hooks=[Hook(seam="authorize_request", fn=lambda _: Block("No."))]).run("Begin")
    assert (control.text, refused.text, refused.stop_reason, len(sent)) == ("Sent.", "", "blocked", 1)


async def test_a_hook_can_hide_a_tool_and_never_grant_one() -> None:
    """A tool that only the request tells of is no tool of the run."""
    reached = Reached()
    grant = Hook(
        seam="before_provider_call",
        fn=lambda call: Replace(request=msgspec.structs.replace(call.request, tools=(reached.look.spec,))),
    )
    seen: list[Any] = []
    watch = Hook(seam="before_provider_call", fn=lambda call: seen.append(call.enabled_tools), order=1)
    agent = Agent(model=ScriptedModel([LOOK, END]), hooks=[grant, watch])
    result = await agent.run("Begin")
    assert reached.bodies == []
    assert "not enabled" in result.messages[2].text
    assert seen == [(), ()]


async def test_an_answer_in_the_models_place_passes_the_gates_of_text_and_messages() -> None:
    reply = AssistantMessage((Text("My PIN is 1234."),))
    chunks: list[tuple[str, bool]] = []

    def mask(chunk: Any) -> Replace:
        chunks.append((chunk.pending, chunk.final))
        return Replace(text=chunk.pending.replace("1234", "****"))

    def stress(incoming: Any) -> Replace | None:
        if incoming.message.role != "assistant":
            return None
        return Replace(message=msgspec.structs.replace(incoming.message, content=(Text(incoming.message.text + "!"),)))

    stage = await play(at("authorize_request", Answer(reply)), at("on_chunk", mask), at("on_message", stress))
    assert chunks == [("My PIN is 1234.", True)]
    assert stage.shown == stage.result.text == "My PIN is ****.!"
