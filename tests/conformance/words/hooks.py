"""What the recordings say about hooks and listeners, as code: each phrase has one entry here.

A phrase without an entry is a `KeyError`, so that a recording cannot be run as something that it does not say.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from beforehand import Block, Context, Continue, CustomMessage, End, Replace, UserMessage

if TYPE_CHECKING:
    from conformance.runner import Scenario

React = Callable[["Scenario", Any, int], Any]
"""What a hook does: gets the scenario, the seam's context and the number of this call, and returns a decision or nothing."""


def throw(text: str) -> React:
    def react(*_: Any) -> Any:
        raise RuntimeError(text)

    return react


def on(number: int, react: React) -> React:
    """Only at its `number`th call."""
    return lambda scenario, context, call: react(scenario, context, call) if call == number else None


def returns(decision: Any) -> React:
    return lambda scenario, context, call: decision


def env(decision: Block) -> React:
    """The decision, for a call about the file `.env`."""
    return lambda scenario, call, number: decision if call.args.get("path") == ".env" else None


# --- hooks that do more than return something ------------------------------------------------------


def _two_blocks_without_reason(scenario: Scenario, call: Any, number: int) -> Block:
    return Block() if call.call_id == "c1" else Block("")


def _steer_then_block(scenario: Scenario, call: Any, number: int) -> Block:
    scenario.steer("S1")
    return Block("no", terminate=True)


def _follow_up_then_block(scenario: Scenario, call: Any, number: int) -> Block:
    scenario.follow_up("F1")
    return Block("no", terminate=True)


def _change_args_in_place(scenario: Scenario, call: Any, number: int) -> None:
    call.args["opt"]["n"] = 2
    call.args["path"] = 42


def _change_message_in_place(scenario: Scenario, call: Any, number: int) -> None:
    call.message.tool_calls[0].arguments = '{"path":"mutated"}'


def _drop_secrets(scenario: Scenario, view: Any, number: int) -> Replace:
    return Replace(messages=[m for m in view.messages if "secret" not in m.text])


def _convert_memos(scenario: Scenario, view: Any, number: int) -> Replace:
    kept = [m for m in view.messages if not (isinstance(m, CustomMessage) and m.kind == "notification")]
    return Replace(messages=[UserMessage(f"memo:{m.text}") if isinstance(m, CustomMessage) else m for m in kept])


def _strong_and_high(scenario: Scenario, plan: Any, number: int) -> Replace:
    return Replace(model=scenario.models["strong"], thinking_level="high")


def _strong(scenario: Scenario, plan: Any, number: int) -> Replace:
    return Replace(model=scenario.models["strong"])


def _note_strong_low(scenario: Scenario, turn: Any, number: int) -> Replace:
    return Replace(add_messages=[UserMessage("NOTE")], model=scenario.models["strong"], thinking_level="low")


def _other_context(scenario: Scenario, plan: Any, number: int) -> Replace:
    return Replace(context=Context("ALT", [UserMessage("ALT-USER")], plan.context.tools))


def _steer_and_summarise(scenario: Scenario, turn: Any, number: int) -> Replace:
    scenario.steer("S1")
    return Replace(context=Context(turn.context.system, [UserMessage("SUMMARY")], turn.context.tools))


def _other_tools(scenario: Scenario, turn: Any, number: int) -> Replace:
    return Replace(context=msgspec.structs.replace(turn.context, tools=(scenario.added_tool(),)))


def _steer(scenario: Scenario, plan: Any, number: int) -> None:
    scenario.steer("S1")


def _abort(scenario: Scenario, context: Any, number: int) -> None:
    scenario.abort()


def _abort_c1(scenario: Scenario, call: Any, number: int) -> None:
    if call.call_id == "c1":
        scenario.abort()


def _abort_and_throw(scenario: Scenario, view: Any, number: int) -> None:
    scenario.abort()
    raise RuntimeError("cancelled by hook")


def _steer_twice_and_abort(scenario: Scenario, turn: Any, number: int) -> None:
    scenario.steer("S1")
    scenario.steer("S2")
    scenario.abort()


def _numbered_key(scenario: Scenario, asked: Any, number: int) -> Replace:
    return Replace(key=f"key-{asked.provider}-{number}")


def _note_state(scenario: Scenario, call: Any, number: int) -> None:
    scenario.note(
        state_roles=scenario.state_roles(), pending=scenario.pending(), streaming=len(scenario.streaming), at=call.call_id
    )


def _note_roles(scenario: Scenario, call: Any, number: int) -> None:
    scenario.note(state_roles=scenario.state_roles(), at=call.call_id)


def _late_gate(scenario: Scenario, view: Any, number: int) -> None:
    def gate(call: Any) -> Block:
        scenario.note(hook="beforeToolCall(replacement)")
        return Block("late gate")

    scenario.use_gate(gate)


def _next_run_strong(scenario: Scenario, turn: Any, number: int) -> None:
    scenario.use(model=scenario.models["strong"], thinking_level="high")


HOOKS: dict[str, React] = {
    "beforeToolCall: block path .env with reason 'protected path'": env(Block("protected path")),
    "beforeToolCall: {block:true} for c1; {block:true, reason:''} for c2": _two_blocks_without_reason,
    "beforeToolCall: block with reason 'no' and terminate": returns(Block("no", terminate=True)),
    "beforeToolCall: block+terminate when path is .env": env(Block("no", terminate=True)),
    "beforeToolCall: steer('S1'), then block+terminate": _steer_then_block,
    "beforeToolCall: {terminate:true} only": returns(Replace(terminate=True)),
    "prepareRequest: throw Error('boom')": throw("boom"),
    "transformContext: throw Error('boom')": throw("boom"),
    "convertToLlm: throw Error('boom')": throw("boom"),
    "prepareRequest: throw Error('boom') on its 2nd call": on(2, throw("boom")),
    "beforeToolCall: throw Error('gate broke')": throw("gate broke"),
    "afterToolCall: throw Error('post broke')": throw("post broke"),
    "prepareNextTurnWithContext: throw Error('next broke')": throw("next broke"),
    "prepareNextTurn: throw Error('next broke')": throw("next broke"),
    "beforeToolCall: set args.path=42 and args.opt.n=2 in place": _change_args_in_place,
    "beforeToolCall: set toolCall.arguments.path='mutated' in place": _change_message_in_place,
    "afterToolCall: content '[redacted]', isError true": returns(Replace(content="[redacted]", is_error=True)),
    "afterToolCall: content 'recovered', isError false": returns(Replace(content="recovered", is_error=False)),
    "beforeToolCall: always block with 'no'": returns(Block("no")),
    "transformContext: drop messages whose text contains 'secret'": _drop_secrets,
    "convertToLlm: drop role notification; turn role memo into a user message 'memo:<text>'": _convert_memos,
    "prepareRequest: on its 1st call return model 'strong' (provider 'other') and thinkingLevel 'high'; nothing later": on(
        1, _strong_and_high
    ),
    "prepareRequest: on its 1st call return context with messages [system 'ALT', user 'ALT-USER'] (same tools)": on(
        1, _other_context
    ),
    "finishTurn: {action:'end'}": returns(End()),
    "finishTurn: {action:'continue'} on its 1st call": on(1, returns(Continue())),
    "finishTurn: {action:'continue'} on its 2nd call": on(2, returns(Continue())),
    "finishTurn: {action:'continue'} always": returns(Continue()),
    "beforeToolCall: block+terminate": returns(Block("no", terminate=True)),
    "prepareNextTurnWithContext: {messages:[user 'NOTE'], model 'strong', thinkingLevel 'low'}": _note_strong_low,
    "prepareNextTurnWithContext: steer('S1'), return context [system, user 'SUMMARY']": _steer_and_summarise,
    "beforeToolCall: block when args.path is .env": env(Block("protected path")),
    "beforeToolCall: block when path is .env (c2)": env(Block("no")),
    "prepareRequest: steer('S1') on its 1st call": on(1, _steer),
    "beforeToolCall: abort() on c1": _abort_c1,
    "prepareRequest: abort()": _abort,
    "transformContext: abort(), throw Error('cancelled by hook')": _abort_and_throw,
    "afterToolCall: abort()": _abort,
    "getApiKey: return key-<provider>-<n>": _numbered_key,
    "prepareRequest: on its 3rd call swap to model 'strong' of provider 'other'": on(3, _strong),
    "beforeToolCall: record agent.state roles and pending calls": _note_state,
    "beforeToolCall: record agent.state roles": _note_roles,
    "transformContext: on its 1st call assign agent.beforeToolCall = gate that always blocks with 'late gate'": on(1, _late_gate),
    "finishTurn: set agent.state.model='strong', thinkingLevel='high'": _next_run_strong,
    "finishTurn: abort() on its 1st call": on(1, _abort),
    "finishTurn: on its 1st call steer S1, steer S2, abort()": on(1, _steer_twice_and_abort),
    "beforeToolCall: followUp('F1'), then block+terminate": _follow_up_then_block,
    "prepareNextTurnWithContext: on its 1st call return context with tools=[added] (returns 'added-ok') instead of [write]": on(
        1, _other_tools
    ),
    "finishTurn: throw Error('finish broke')": throw("finish broke"),
}

ALL_NINE = "all nine: record and return nothing (transformContext/convertToLlm pass through)"
NOT_INSTALLED = re.compile(r"(\w+): not installed")


# --- listeners -------------------------------------------------------------------------------------

Hear = Callable[["Scenario", Any], None]


def fail_at(kind: str) -> Hear:
    def hear(scenario: Scenario, event: Any) -> None:
        if event.type == kind:
            raise RuntimeError("listener broke")

    return hear


def abort_after(milliseconds: int, call_id: str) -> Hear:
    def hear(scenario: Scenario, event: Any) -> None:
        if event.type == "tool_execution_start" and event.call_id == call_id:
            asyncio.get_running_loop().call_later(milliseconds / 1000, scenario.abort)

    return hear


def _queue_at_first_reply(scenario: Scenario, event: Any) -> None:
    if event.type == "message_end" and event.message.role == "assistant" and event.turn == 1:
        scenario.follow_up("F1")
        scenario.follow_up("F2")
        scenario.steer("S1")


def _abort_at_first_delta(scenario: Scenario, event: Any) -> None:
    if event.type == "message_update" and event.delta == "abc":
        scenario.follow_up("F1")
        scenario.abort()


LISTENERS: dict[str, Hear] = {
    "event listener: throw Error('listener broke') on tool_execution_start": fail_at("tool_execution_start"),
    "event listener: throw Error('listener broke') on tool_execution_end": fail_at("tool_execution_end"),
    "event listener: at the first assistant message_end: followUp F1, followUp F2, steer S1": _queue_at_first_reply,
    "event listener: on the first text_delta: followUp('F1'), abort()": _abort_at_first_delta,
    "event listener: abort() 20 ms after tool_execution_start": abort_after(20, "c1"),
    "event listener: abort() 30 ms after c2's tool_execution_start": abort_after(30, "c2"),
    "event listener: abort() 20 ms after c1's tool_execution_start": abort_after(20, "c1"),
}
