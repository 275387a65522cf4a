"""`beforehand try`: what each rule would have done in a recorded conversation, and what the reader would have seen.

The hooks are the real ones, asked in the real order about the recorded values. Nothing is sent and no tool runs, so what
would have come after an interrupt or a refused call is not known: the recording is played on as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from beforehand.decisions import Answer, Ask, Block, Decision, Drop, End, Hold, Interrupt, Queue, Replace, Resend, Verdict
from beforehand.errors import Stop
from beforehand.frozen import EMPTY_DICT, Frozen
from beforehand.hooks.group import narrowed
from beforehand.hooks.hook import Hook
from beforehand.hooks.registry import HookSet
from beforehand.limits import Limits
from beforehand.messages import NO_USAGE, AssistantMessage, Message, Options, Request, ToolCall, ToolMessage
from beforehand.seams import (
    CallDraft, CallOutcome, Context, FinishedTurn, IncomingMessage, OutgoingRequest, PendingCall, ProviderCall, RequestPlan,
    RunInfo, RunStart, TurnStart,
)  # fmt: skip
from beforehand.signals import AbortSignal
from beforehand.stream.guard import Guard, Interrupted

from .ruleset import RuleSet

if TYPE_CHECKING:
    from .recording import Step

ORIGINS: dict[str, Any] = {"user": "prompt", "system": "prompt", "assistant": "model", "tool": "tool", "custom": "prompt"}


class Happened(Frozen):
    """One thing a rule would have done: where in the recording, which rule, at which seam, and what."""

    place: str
    rule: str
    where: str
    seam: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule} ({self.where}) {self.what}"


class TrialReport(Frozen):
    """What a trial came to. `shown` has what the reader would have seen of each reply, `None` for one that was stopped."""

    happened: tuple[Happened, ...]
    shown: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        lines = [str(one) for one in self.happened] or ["no rule would have fired"]
        for place, text in self.shown:
            seen = "nothing, the reply was stopped" if text is None else repr(text) if text else "no text"
            lines.append(f"{place}: the reader would have seen {seen}")
        return "\n".join(lines)


def try_rules(rule_set: RuleSet, recording: str | Path) -> TrialReport:
    """Play a recording (a `.jsonl` transcript or a `.sse` stream) past a set of rules, whose counters stay as they are."""
    from .recording import read_recording  # here, because reading a wire format loads the HTTP client

    return _Trial(rule_set).play(read_recording(Path(recording)))


class _Model:
    name, provider, endpoint = "recorded", "recorded", "recording"


class _Trial:
    def __init__(self, rule_set: RuleSet) -> None:
        self.happened: list[Happened] = []
        self.shown: list[tuple[str, str | None]] = []
        self.place = ""
        self.where_seam = ""
        self.rules = rule_set.fresh(self._said)
        self.hooks = HookSet(self.rules.hooks)
        self.history: list[Message] = []
        self.state = SimpleNamespace(
            run_id="trial",
            loop="main",
            turn=0,
            usage=NO_USAGE,
            elapsed=0.0,
            cost=0.0,
            deps=None,
            calls={},
            decisions=[],
            hooks=self.hooks,
            plan=SimpleNamespace(recovery=None),
            journal=None,
            signal=AbortSignal(),
            limits=Limits(),
        )
        self.run = RunInfo(self.state, None)
        self.calls: dict[str, PendingCall] = {}

    def _said(self, action: str, text: str, where: str) -> None:
        rule = next((r for r in self.rules.rules if r.where == where), None)
        self.happened.append(
            Happened(self.place, rule.name if rule else "", where, self.where_seam, f"would log [{action}] {text}")
        )

    def play(self, steps: Sequence[Step]) -> TrialReport:
        begun = False
        for step in steps:
            self.place = step.place
            message = step.message
            if not begun and message.role == "user":
                begun = True
                self._ask("before_run", RunStart(self.run, (message,), self._view()))
            if isinstance(message, AssistantMessage):
                self._reply(step, message)
            elif isinstance(message, ToolMessage):
                self._result(message)
            else:
                self._incoming(message)
        return TrialReport(tuple(self.happened), tuple(self.shown))

    # --- asking ---

    def _ask(self, seam: str, context: Any, hooks: Sequence[Hook] | None = None) -> tuple[Any, Verdict | None]:
        """Ask the hooks of a seam as a run would: the context with replacements made, and the refusal or answer."""
        self.where_seam = seam
        settled: Verdict | None = None
        for hook in getattr(self.hooks, seam) if hooks is None else hooks:
            returned = hook.fn(context)
            decisions: Sequence[Decision] = () if returned is None else [returned] if isinstance(returned, Decision) else returned
            for decision in decisions:
                if not isinstance(decision, Hold):
                    self.happened.append(Happened(self.place, hook.name, hook.where, seam, _in_words(decision, seam, context)))
                if isinstance(decision, Replace):
                    fields = {name: value for name, value in decision.fields().items() if name in context.__struct_fields__}
                    context = msgspec.structs.replace(context, **fields)
                elif isinstance(decision, Verdict) and not isinstance(decision, Hold):
                    settled = settled or decision
            if isinstance(settled, Interrupt) and seam in ("on_chunk", "on_message"):
                break
        return context, settled

    def _view(self) -> Any:
        return tuple(self.history)

    def _incoming(self, message: Message) -> Message | None:
        context = IncomingMessage(self.run, message, ORIGINS[message.role], 0, self._view())
        context, verdict = self._ask("on_message", context)
        if verdict is None:
            self.history.append(context.message)
        return None if verdict is not None else context.message

    # --- a reply ---

    def _reply(self, step: Step, message: AssistantMessage) -> None:
        self.state.turn += 1
        self._ask("before_turn", TurnStart(self.run, self.state.turn, self._view(), ()))
        self._request()
        shown = self._streamed(step)
        judged: Message | None = None
        if shown is not None:
            message = _with_texts(message, shown)
            judged = self._incoming(message)
        kept = judged if isinstance(judged, AssistantMessage) else None
        self.shown.append((step.place, None if kept is None else kept.text))
        if kept is not None:
            for call in kept.tool_calls:
                self._call(kept, call)
        self._ask("finish_turn", FinishedTurn(self.run, self.state.turn, kept, (), Context("", self._view(), ()), self._view()))

    def _request(self) -> None:
        request = Request("", self._view(), (), Options())
        model: Any = _Model()
        self._ask("prepare_request", RequestPlan(self.run, Context("", self._view(), ()), model, "off"))
        context, _ = self._ask("before_provider_call", ProviderCall(self.run, request, model, ()))
        self._ask("authorize_request", OutgoingRequest(self.run, context.request, model.endpoint, model, "turn"))

    def _streamed(self, step: Step) -> dict[tuple[str, str | None], str] | None:
        """What the stages let pass of each channel, or `None` if one of them interrupts."""
        shown: dict[tuple[str, str | None], str] = {}
        guard = Guard(
            self.hooks.on_chunk, self.run, f"trial-{self.state.turn}", ask=self._stage, fail=_fail, max_hold=Limits().max_hold
        )
        try:
            for kind, text, call_id in step.deltas:
                shown[kind, call_id] = shown.get((kind, call_id), "") + _now(guard.feed(kind, text, call_id))
            for kind, call_id in guard.open_channels():
                shown[kind, call_id] = shown.get((kind, call_id), "") + _now(guard.feed(kind, "", call_id, final=True))
        except Interrupted:
            return None
        return shown

    async def _stage(self, hook: Hook, chunk: Any) -> Any:
        self.where_seam = "on_chunk"
        returned = hook.fn(chunk)
        decisions: Sequence[Decision] = () if returned is None else [returned] if isinstance(returned, Decision) else returned
        changes: dict[str, Any] = {}
        verdict: Verdict | None = None
        for decision in decisions:
            if not isinstance(decision, Hold):
                self.happened.append(
                    Happened(self.place, hook.name, hook.where, "on_chunk", _in_words(decision, "on_chunk", chunk))
                )
            if isinstance(decision, Replace):
                changes = decision.fields()
            elif isinstance(decision, Verdict):
                verdict = decision
        return SimpleNamespace(changes=changes, verdict=verdict)

    # --- its calls ---

    def _call(self, message: AssistantMessage, call: ToolCall) -> None:
        batch = tuple([each.name for each in message.tool_calls])
        shared: tuple[Any, ...] = (self.run, call.name, None, call.args, call.arguments, call.id, message, self._view(), batch)
        draft, _ = self._ask("prepare_tool_call", CallDraft(*shared), self.hooks.for_tool("prepare_tool_call", call.name))
        pending = PendingCall(*shared, original_args=call.args)
        pending = msgspec.structs.replace(pending, args=draft.args)
        self._ask("before_tool_call", pending, narrowed(self.hooks.for_tool("before_tool_call", call.name), pending))
        self.calls[call.id] = pending

    def _result(self, message: ToolMessage) -> None:
        call = self.calls.get(message.tool_call_id)
        if call is None:
            shared: tuple[Any, ...] = (self.run, message.tool_name, None, EMPTY_DICT, "{}", message.tool_call_id, None, (), ())
            call = PendingCall(*shared, original_args=EMPTY_DICT)
        outcome = CallOutcome(
            self.run,
            call=call,
            outcome="failed" if message.is_error else "ran",
            content=message.content,
            is_error=message.is_error,
        )
        outcome, _ = self._ask("after_tool_call", outcome, self.hooks.for_tool("after_tool_call", message.tool_name))
        self._incoming(msgspec.structs.replace(message, content=outcome.content))


async def _fail(hook: Any, chunk: Any, why: str) -> None:
    raise Interrupted(Interrupt(why))


def _now(work: Any) -> str:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return str(done.value)
    raise Stop("a rule waited for something")


def _with_texts(message: AssistantMessage, shown: dict[tuple[str, str | None], str]) -> AssistantMessage:
    """The reply as the reader has it: with what the stages let pass in each channel."""
    parts: list[Any] = []
    told: set[tuple[str, str | None]] = set()
    for part in message.content:
        kind = str(part.__struct_config__.tag)
        key = (kind, part.id if isinstance(part, ToolCall) else None)
        if key not in shown:
            parts.append(part)
        elif key not in told:
            told.add(key)
            field = "arguments" if isinstance(part, ToolCall) else "text"
            parts.append(msgspec.structs.replace(part, **{field: shown[key]}))
    return msgspec.structs.replace(message, content=tuple(parts))


def _in_words(decision: Decision, seam: str, context: Any) -> str:
    match decision:
        case Interrupt(resend=resend):
            return "would stop it" + (" and ask the model again" if resend else "")
        case Block(reason=reason):
            what = f"the call of {context.name}" if seam == "before_tool_call" else "it"
            return f"would refuse {what}: {reason or 'no reason given'}"
        case Answer(value=value):
            return f"would answer {value!r}"
        case Ask(prompt=prompt):
            return f"would ask a person: {prompt}"
        case End(reason=reason):
            return f"would end the run: {reason or 'no reason given'}"
        case Queue(message=message):
            return f"would queue a message: {message if isinstance(message, str) else f'{message.role}: {message.text!r}'}"
        case Resend():
            return "would ask the model once more"
        case Replace():
            return f"would change the {_CHANGED.get(seam, 'value')}"
        case Drop():
            return "would drop the text"
    return f"would decide {decision!r}"


_CHANGED = {
    "on_chunk": "text", "on_message": "message", "prepare_tool_call": "arguments", "after_tool_call": "result",
    "before_run": "messages",
    "prepare_request": "model", "before_provider_call": "request",
}  # fmt: skip
