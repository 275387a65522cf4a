"""Runs a recorded scenario on our own core, and writes down what happens in the recording's form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from beforehand import Agent, BeforehandError, Hook, Limits, Replace, RunResult, Tool, ToolContext, tool
from conformance import projection
from conformance.clock import run as run_scenario
from conformance.projection import labels, roles
from conformance.provider import RecordedModel, Script
from conformance.recording import Entry, Outcome, Recording
from conformance.words.drives import CHANGES_TOOLS, DRIVES, NEVER_ENDS
from conformance.words.hooks import ALL_NINE, HOOKS, LISTENERS, NOT_INSTALLED, Hear, React
from conformance.words.tools import body_of, changes_tools, reshape

SEAMS = {
    "prepareRequest": "prepare_request", "transformContext": "transform_context", "convertToLlm": "convert_to_llm",
    "getApiKey": "get_api_key", "beforeToolCall": "before_tool_call", "afterToolCall": "after_tool_call",
    "finishTurn": "finish_turn", "prepareNextTurnWithContext": "prepare_next_turn", "prepareNextTurn": "prepare_next_turn",
}  # fmt: skip
"""pi's hooks and the seams they stand for."""

DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_call": "toolcall_delta"}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def replay(recording: Recording) -> Scenario:
    """Run a scenario, without waiting for anything."""
    scenario = Scenario(recording)
    run_scenario(scenario.run())
    return scenario


class Scenario:
    """One recorded scenario under way: an agent built from its words, a conversation with it, and the trace so far.

    What the recordings call agent.state and we do not have (`error_message`, `streaming`, pending calls) is put together from
    events, as pi does it.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.trace: list[Entry] = []
        self.requests: list[Entry] = []
        self.tool_runs: dict[str, int] = {}
        self.error_message: str | None = None
        self.streaming: list[Any] = []
        self.calls: dict[str, Any] = {}
        self.running_from = 0
        self.results: list[RunResult] = []
        script = Script(recording.script, self._requested, never_ends=recording.drive == NEVER_ENDS)
        self.models = {"cheap": RecordedModel("cheap", "scripted", script), "strong": RecordedModel("strong", "other", script)}
        self.agent = Agent(
            model=self.models["cheap"],
            instructions="SYS",
            tools=[self._tool(about) for about in recording.tools],
            hooks=self._hooks(),
            limits=Limits(max_turns=None),
            thinking_level=recording.options.get("thinkingLevel", "off"),
            tool_mode=recording.options.get("toolExecution", "parallel"),
        )
        self.talk = self.agent.conversation(follow_up_mode=recording.options.get("followUpMode", "one-at-a-time"))
        self.first = projection.leading("SYS", self.agent.plan.tools)
        self.talk.subscribe(self._heard)
        for phrase in recording.hooks:
            if phrase in LISTENERS:
                self.talk.subscribe(self._listener(LISTENERS[phrase]))

    async def run(self) -> None:
        await DRIVES[self.recording.drive](self)
        self.took = asyncio.get_running_loop().time()
        plan = self.talk.plan
        self.outcome = Outcome(
            trace=self.trace,
            requests=self.requests,
            transcript=[self.first, *map(projection.whole, self.talk.messages)],
            tool_runs=self.tool_runs,
            final_state={
                "isStreaming": self.talk.is_running,
                "errorMessage": self.error_message,
                "pendingToolCalls": self.pending(),
                "hasQueuedMessages": bool(self.talk.queued),
                "thinkingLevel": plan.options.thinking_level,
                "model": plan.model.name,
            },
        )

    def note(self, **entry: Any) -> None:
        self.trace.append(entry)

    # --- what the caller, a hook, a tool or a listener does ---

    async def prompt(self, what: Any) -> None:
        said = f'prompt("{what}")' if isinstance(what, str) else "prompt(messages)"
        self.note(action=said)
        await self._settle(said, self.talk.run(what, check=False))

    async def go_on(self) -> None:
        self.note(action="continue()")
        await self._settle("continue()", self.talk.continue_run(check=False))

    async def _settle(self, said: str, run: Any) -> None:
        try:
            self.results.append(await run)
        except BeforehandError as error:
            self.note(settled=said, ok=False, error=str(error), isStreaming=self.talk.is_running)
        else:
            self.note(settled=said, ok=True, isStreaming=self.talk.is_running)

    def steer(self, text: str) -> None:
        self.note(action="steer", text=text)
        self.talk.steer(text)

    def follow_up(self, text: str) -> None:
        self.note(action="followUp", text=text)
        self.talk.follow_up(text)

    def abort(self) -> None:
        self.note(action="abort")
        self.talk.abort()

    def use(self, **changes: Any) -> None:
        """Change the agent for later runs of this conversation."""
        self.agent = self.agent.replace(**changes)
        self.talk.plan = self.agent.plan

    def use_gate(self, gate: Callable[[Any], Any]) -> None:
        others = [hook for hook in self.agent.hooks if hook.seam != "before_tool_call"]
        self.use(hooks=[*others, Hook(seam="before_tool_call", fn=gate)])

    def state_roles(self) -> list[str]:
        return roles(self.talk.messages)

    def pending(self) -> list[str]:
        return list(self.calls)

    # --- tools and requests ---

    def added_tool(self) -> Tool:
        """The tool that some scenarios bring in later."""
        return self._tool({"name": "added", "behaviour": "returns 'added-ok'", "parameters": PATH})

    def _tool(self, about: Entry) -> Tool:
        name = about["name"]
        body = body_of(about["behaviour"])
        if self.recording.drive == CHANGES_TOOLS and name == "write":
            body = changes_tools  # the change is to come while the run is under way
        self.tool_runs[name] = 0

        async def observed(ctx: ToolContext, **args: Any) -> Any:
            self.tool_runs[name] += 1
            self.note(tool=name, phase="begin", id=ctx.call_id, args=args)
            try:
                value = await body(self, ctx, args)
            except Exception as error:
                self.note(tool=name, phase="throw", id=ctx.call_id, error=str(error))
                raise
            self.note(tool=name, phase="end", id=ctx.call_id)
            return value

        shim = reshape if about["behaviour"].startswith("prepareArguments:") else None
        mode = about.get("executionMode")
        return tool(observed, name=name, description="", parameters=about["parameters"], mode=mode, prepare_arguments=shim)

    def _requested(self, model: RecordedModel, request: Any, call: Any) -> None:
        entry = projection.request(model.script.calls, model, request, call.key)
        self.requests.append(entry)
        self.note(
            provider=entry["call"], model=entry["model"], reasoning=entry["reasoning"], apiKey=entry["apiKey"],
            roles=roles(request.messages),
        )  # fmt: skip

    # --- hooks ---

    def _hooks(self) -> list[Hook]:
        """All of pi's hooks, each writing down what it was given. Of the two before a turn only one is ever called."""
        phrases = {p.partition(":")[0]: HOOKS[p] for p in self.recording.hooks if self._is_about_a_hook(p)}
        absent = {found[1] for phrase in self.recording.hooks if (found := NOT_INSTALLED.fullmatch(phrase))}
        absent.add("prepareNextTurn" if "prepareNextTurnWithContext" not in absent else "prepareNextTurnWithContext")
        present = [name for name in SEAMS if name not in absent]
        return [Hook(seam=SEAMS[name], name=name, fn=self._hook(name, phrases.get(name))) for name in present]

    @staticmethod
    def _is_about_a_hook(phrase: str) -> bool:
        return phrase not in LISTENERS and phrase != ALL_NINE and not NOT_INSTALLED.fullmatch(phrase)

    def _hook(self, name: str, react: React | None) -> Callable[..., Any]:
        calls = 0

        def observed(*given: Any) -> Any:
            nonlocal calls
            context = given[0]
            if name == "afterToolCall" and context.partial:
                return None  # a progress report; pi shows those to no hook
            calls += 1
            self.note(hook=name, **GIVEN[name](*given))
            if react is not None:
                return react(self, context, calls)
            return Replace(messages=context.messages) if name == "convertToLlm" else None

        return observed

    # --- events ---

    def _listener(self, hear: Hear) -> Callable[[Any], None]:
        return lambda event: hear(self, event)

    def _heard(self, event: Any) -> None:
        if event.parent_call_id is None and event.type in EVENTS:
            self._reduce(event)
            self.note(event=event.type, **EVENTS[event.type](self, event))

    def _reduce(self, event: Any) -> None:
        """What an event does to the state that the recordings look at."""
        kind = event.type
        if kind == "agent_start":
            self.error_message, self.running_from = None, len(self.talk.messages)
        elif kind == "message_start":
            self.streaming.append(event.message)
        elif kind == "message_end":
            self.streaming.pop()
        elif kind == "tool_execution_start":
            self.calls[event.call_id] = event.args
        elif kind == "tool_execution_end":
            del self.calls[event.call_id]
        elif kind == "turn_end":
            self.error_message = getattr(event.message, "error", None)


# --- what is written down of a hook's context and of an event --------------------------------------


def _view(view: Any) -> Entry:
    return {"roles": roles(view.messages)}


def _call(call: Any) -> Entry:
    return {
        "id": call.call_id, "name": call.name, "args": call.args,
        "assistant_stop": call.message and projection.stop_of(call.message), "context_roles": roles(call.context),
    }  # fmt: skip


def _turn(turn: Any) -> Entry:
    return {"stopReason": turn.message and projection.stop_of(turn.message), "toolResults": labels(turn.tool_results)}


GIVEN: dict[str, Callable[..., Entry]] = {
    "prepareRequest": lambda plan: {
        "model": plan.model.name, "thinkingLevel": plan.thinking_level, "roles": roles(plan.context.messages),
    },
    "transformContext": _view,
    "convertToLlm": _view,
    "getApiKey": lambda asked: {"provider_id": asked.provider},
    "beforeToolCall": _call,
    "afterToolCall": lambda done: {
        "id": done.call_id, "name": done.name, "args": done.args, "result": projection.result(done), "isError": done.is_error,
    },
    "finishTurn": lambda turn: {
        **_turn(turn), "newMessages": labels(turn.new_messages), "context_roles": roles(turn.context.messages),
    },
    "prepareNextTurnWithContext": lambda turn: {**_turn(turn), "got_signal": turn.run.signal is not None},
    "prepareNextTurn": lambda turn, *more: {"got_signal": turn.run.signal is not None, "nargs": 1 + len(more)},
}  # fmt: skip

EVENTS: dict[str, Callable[[Scenario, Any], Entry]] = {
    "agent_start": lambda scenario, event: {},
    "turn_start": lambda scenario, event: {},
    "message_start": lambda scenario, event: projection.begun(event.message),
    "message_update": lambda scenario, event: {"update": DELTAS[event.kind], "delta": event.delta},
    "message_end": lambda scenario, event: projection.whole(event.message),
    "tool_execution_start": lambda scenario, event: {
        "id": event.call_id, "name": event.name, "args": event.args, "pending": scenario.pending(),
    },
    "tool_execution_update": lambda scenario, event: {
        "id": event.call_id, "name": event.name, "args": scenario.calls[event.call_id],
        "partial": projection.result(event.partial), "pending": scenario.pending(),
    },
    "tool_execution_end": lambda scenario, event: {
        "id": event.call_id, "name": event.name, "result": projection.result(event.result), "isError": event.is_error,
        "pending": scenario.pending(),
    },
    "turn_end": lambda scenario, event: {
        "message": projection.label(event.message), "toolResults": labels(event.tool_results),
    },
    "agent_end": lambda scenario, event: {
        "messages": labels(event.messages), "in_history": labels(scenario.talk.messages[scenario.running_from :]),
    },
}  # fmt: skip
