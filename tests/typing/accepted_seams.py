"""A hook at every seam, without and with options, annotated as a strict user would. Nothing here ever runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from beforehand import (
    Answer, Ask, Block, Continue, Drop, End, Hold, Hook, Interrupt, Message, Queue, Replace, Resend, RunInfo, Steer, Usage,
    UserMessage, hook,
)  # fmt: skip
from beforehand.decisions import Decision
from beforehand.frozen import FrozenDict
from beforehand.seams import (
    CallDraft, CallOutcome, Chunk, Compaction, FinishedTurn, IncomingMessage, KeyRequest, MessagesView, NextTurn, OutgoingRequest,
    PendingCall, ProviderCall, RequestPlan, RunStart, SeamSpec, TurnStart,
)  # fmt: skip


@hook.before_run
def before_run(start: RunStart) -> Block | None:
    return Block("closed") if not start.messages else None


@hook.before_run()
def before_run_with(start: RunStart) -> Replace:
    return Replace(messages=[*start.messages, UserMessage("Hello")])


@hook.before_turn
def before_turn(turn: TurnStart) -> End | None:
    assert_type(turn.number, int)
    return End() if turn.run.elapsed > 5 else None


@hook.before_turn(order=-1, name="budget")
async def before_turn_with(turn: TurnStart) -> None: ...


@hook.prepare_request
def prepare_request(plan: RequestPlan) -> Replace:
    assert_type(plan.context.system, str)
    return Replace(model="openai:large", thinking_level="high", once=True)


@hook.prepare_request(loops=["main"])
def prepare_request_with(plan: RequestPlan) -> None: ...


@hook.transform_context
def transform_context(view: MessagesView) -> Replace:
    assert_type(view.estimate_tokens(), int)
    assert_type(view.messages, Sequence[Message])
    return Replace(messages=view.messages)


@hook.transform_context(timeout=1.5)
async def transform_context_with(view: MessagesView) -> Replace | None:
    return None


@hook.convert_to_llm
def convert_to_llm(view: MessagesView) -> Replace:
    return Replace(messages=view.messages)


@hook.convert_to_llm(order=1)
def convert_to_llm_with(view: MessagesView) -> None: ...


@hook.before_provider_call
def before_provider_call(call: ProviderCall) -> Replace:
    assert_type(call.enabled_tools, tuple[str, ...])
    return Replace(request=call.request)


@hook.before_provider_call(on_error="abort")
def before_provider_call_with(call: ProviderCall) -> None: ...


@hook.get_api_key
def get_api_key(request: KeyRequest) -> Replace:
    return Replace(key=f"key-for-{request.provider}")


@hook.get_api_key(timeout=2)
async def get_api_key_with(request: KeyRequest) -> Replace | None:
    return None


@hook.authorize_request
def authorize_request(outgoing: OutgoingRequest) -> Block | Answer | None:
    assert_type(outgoing.digest, str)
    return Answer("cached") if outgoing.kind == "turn" else Block("not outside a turn")


@hook.authorize_request(final=True)
def authorize_request_with(outgoing: OutgoingRequest) -> list[Decision]:
    return [Queue("noted"), Resend()]


@hook.on_chunk
def on_chunk(chunk: Chunk) -> Hold | Drop | Interrupt | Replace | None:
    if chunk.final:
        return Drop()
    if chunk.kind == "thinking":
        return Replace(text="", hold=0)
    return Interrupt("no", resend=True, keep="aborted") if chunk.released > 100 else Hold(3)


@hook.on_chunk(final=True, on_error="open")
def on_chunk_with(chunk: Chunk) -> None: ...


@hook.on_message
def on_message(incoming: IncomingMessage) -> Replace | None:
    return Replace(message=incoming.message) if incoming.origin == "model" else None


@hook.on_message(hold=True)
def on_message_with(incoming: IncomingMessage) -> Interrupt:
    return Interrupt()


@hook.prepare_tool_call
def prepare_tool_call(call: CallDraft) -> Replace:
    assert_type(call.args, FrozenDict)
    return Replace(args={**call.args, "limit": 10})


@hook.prepare_tool_call(tools=["search"])
def prepare_tool_call_with(call: CallDraft) -> None: ...


@hook.before_tool_call
def before_tool_call(call: PendingCall) -> Block | Ask | Steer | Answer | Interrupt | None:
    assert_type(call.args_digest, str)
    match call.name:
        case "pay":
            return Ask("Pay?", options=("yes", "no"))
        case "delete":
            return Block("No.", terminate=True)
        case "search":
            return Steer("Look in the index first.")
        case "now":
            return Answer("12:00")
        case _:
            return None


@hook.before_tool_call(tools=["book_*"], loops=None, order=2.5, timeout=None, on_error="closed", final=False, name=None)
async def before_tool_call_with(call: PendingCall) -> Sequence[Decision]:
    return (Block("Not now."), Queue(UserMessage("The system is closed.")))


@hook.after_tool_call
def after_tool_call(outcome: CallOutcome) -> Replace:
    assert_type(outcome.text, str)
    assert_type(outcome.usage, Usage | None)
    return Replace(content=outcome.text[:100], details=None, is_error=outcome.is_error, terminate=False)


@hook.after_tool_call(tools=("a", "b"))
def after_tool_call_with(outcome: CallOutcome) -> None: ...


@hook.finish_turn
def finish_turn(turn: FinishedTurn) -> End | Continue | None:
    return Continue() if turn.message is not None and turn.message.text == "" else None


@hook.finish_turn(order=1)
def finish_turn_with(turn: FinishedTurn) -> None: ...


@hook.after_turn
def after_turn(turn: FinishedTurn) -> None:
    assert_type(turn.new_messages, Sequence[Message])


@hook.after_turn(timeout=10)
async def after_turn_with(turn: FinishedTurn) -> None: ...


@hook.prepare_next_turn
def prepare_next_turn(turn: NextTurn) -> Replace | None:
    return Replace(add_messages=[UserMessage("Go on.")]) if turn.cause == "continue" else None


@hook.prepare_next_turn(order=1)
def prepare_next_turn_with(turn: NextTurn) -> None: ...


@hook.before_compaction
def before_compaction(compaction: Compaction) -> Answer | Block:
    return Answer("a summary") if compaction.tokens > 100 else Block("not yet")


@hook.before_compaction(on_error="abort")
def before_compaction_with(compaction: Compaction) -> None: ...


class Policy:
    """Hooks can be methods and callable objects."""

    @hook.before_tool_call(tools=["pay"])
    def gate(self, call: PendingCall) -> Block | None:
        return None

    def __call__(self, call: PendingCall) -> Block | None:
        return None


assert_type(before_run, Hook)
assert_type(before_tool_call_with, Hook)
assert_type(Policy().gate, Hook)
assert_type(before_run.spec, SeamSpec)
BY_HAND: Hook = Hook(seam="before_tool_call", fn=Policy(), tools=("pay",), on_error="open", where="policy.py:1")


def look(run: RunInfo) -> tuple[str, int, float, Usage]:
    return run.run_id, run.turn, run.cost, run.usage
