"""`Agent`: an immutable plan, safe to share between any number of conversations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, NoReturn

from .assembly import listed, make_plan, watch
from .conversation import Conversation
from .decisions import HumanAnswer
from .emitter import Emitter, Listener
from .errors import FrozenError, UsageError
from .eventstream import EventStream
from .hooks.hook import Hook
from .limits import Limits
from .messages import Message, Options, Price, ThinkingLevel
from .models.base import Model
from .results import RunResult
from .plan import Instructions, OnAsk, Plan
from .prompts import Prompt
from .subagent import delegate
from .tools import Tool

_LIMITS, _OPTIONS = Limits(), Options()  # frozen, so that all agents may share them


class Agent:
    """A model with instructions, tools, hooks and limits. Nothing about it changes after it is made.

    `model` is a name such as "openai:gpt-4o-mini" (with `base_url` for any compatible endpoint) or a `Model`.
    `instructions` are text, or text and functions of the run whose text is appended for each request. `hooks` are hooks,
    objects with decorated methods, or paths: of Python files, rule files, or folders of rule files. Without a path for
    rules, the folder that BEFOREHAND_HOOKS_DIR (or LLM_CHAT_HOOKS_DIR) names is loaded. `on_ask` answers `Ask` while the
    run waits; without it the run suspends. `prices` by model name make `run.cost`. `journal` is the path of a file in which
    every run is recorded, so that `resume` can go on with it; `durability`, `journal_key` and `journal_raw` are as in
    `beforehand.journal.Journal`. Raises a `ConfigError` for anything
    that can never work.
    """

    __slots__ = ("_listeners", "_settings", "plan")
    plan: Plan
    _listeners: Emitter
    _settings: dict[str, Any]

    def __init__(
        self,
        *,
        model: str | Model,
        base_url: str | None = None,
        api_key: str | None = None,
        instructions: str | Instructions | list[str | Instructions] = "",
        tools: Iterable[Tool | Callable[..., Any]] = (),
        hooks: Iterable[Hook | Any] = (),
        limits: Limits = _LIMITS,
        options: Options = _OPTIONS,
        thinking_level: ThinkingLevel | None = None,
        tool_mode: str = "parallel",
        listeners: Iterable[Listener] = (),
        on_ask: OnAsk | None = None,
        prices: Mapping[str, Price] | None = None,
        name: str = "agent",
        journal: Any = None,
        durability: str = "full",
        journal_key: bytes | None = None,
        journal_raw: bool = False,
    ) -> None:
        settings = {
            "limits": limits, "options": options, "thinking_level": thinking_level, "tool_mode": tool_mode, "on_ask": on_ask,
            "prices": prices, "name": name, "journal": journal, "durability": durability, "journal_key": journal_key,
            "journal_raw": journal_raw,
        }  # fmt: skip
        tools, hooks = tuple(listed(tools, "tools")), tuple(listed(hooks, "hooks"))
        listeners = tuple(listed(listeners, "listeners"))
        plan = make_plan(
            model=model,
            base_url=base_url,
            api_key=api_key,
            instructions=instructions,
            tools=tools,
            hooks=hooks,
            settings=settings,
        )
        keep = {
            "model": model, "base_url": base_url, "api_key": api_key, "instructions": instructions, "tools": tools,
            "hooks": hooks, "listeners": listeners, **settings,
        }  # fmt: skip
        for slot, value in (("plan", plan), ("_listeners", Emitter(listeners)), ("_settings", keep)):
            object.__setattr__(self, slot, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenError(f"an Agent does not change: make another with agent.replace({name}=...)")

    def __repr__(self) -> str:
        plan = self.plan
        tools, hooks = [tool.name for tool in plan.tools], [hook.name for hook in self.hooks]
        return f"Agent({plan.name!r}, model={plan.model!r}, {tools=}, {hooks=})"

    def replace(self, **changes: Any) -> Agent:
        """Another agent that differs in these arguments."""
        return Agent(**{**self._settings, **changes})

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Every hook, in the order of registration."""
        return self.plan.hooks.current.hooks  # type: ignore[no-any-return]

    def get_json_hooks(self) -> list[dict[str, Any]]:
        """The rules loaded from rule files: label, target, source file and line, state ("active" or "spent"), firings."""
        rules = self.plan.hooks.rules
        return [] if rules is None else rules.describe()

    @contextlib.asynccontextmanager
    async def watch_rules(self) -> AsyncIterator[None]:
        """While this is open, edited rule files are loaded anew.

        Runs that start afterwards take the new set, runs in flight keep theirs. An edit with a mistake changes nothing and
        is logged. `ConfigError` if this agent has no rule files.
        """
        watcher = watch(self)
        task = asyncio.ensure_future(watcher.run())
        try:
            yield
        finally:
            watcher.stop()
            await task

    # --- running ---

    def conversation(
        self, messages: Iterable[Message] = (), *, steering_mode: str = "one-at-a-time", follow_up_mode: str = "one-at-a-time"
    ) -> Conversation:
        """A talk with its own history and queues. The modes say how many queued messages one turn takes: one, or "all"."""
        return Conversation(self.plan, messages, self._listeners, steering_mode, follow_up_mode)

    async def run(
        self, prompt: Prompt, *, check: bool = True, run_id: str | None = None, deps: Any = None, limits: Limits | None = None
    ) -> RunResult:
        """Answer one prompt, in a conversation of its own.

        Raises a `RunError` with `.result` when the run ends in an error, unless `check=False`: then it is `result.error`.
        """
        return await self.conversation().run(prompt, check=check, run_id=run_id, deps=deps, limits=limits)

    def run_sync(
        self, prompt: Prompt, *, check: bool = True, run_id: str | None = None, deps: Any = None, limits: Limits | None = None
    ) -> RunResult:
        """`run` for code without an event loop. Closes its own connections, and no other loop's."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UsageError("run_sync() was called inside a running event loop: use `await agent.run(...)` there")

        async def once() -> RunResult:
            try:
                return await self.run(prompt, check=check, run_id=run_id, deps=deps, limits=limits)
            finally:
                await self.aclose()

        return asyncio.run(once())

    async def resume(
        self, run_id: str, answers: Mapping[str, HumanAnswer] | None = None, *, check: bool = True, deps: Any = None,
        strict: bool = False,
    ) -> RunResult:  # fmt: skip
        """Go on with a run from the journal, in this process or another one than it began in.

        What is recorded is not done again: hooks are not asked twice, replies not paid twice, finished tools not run twice.
        `answers` by call id are a person's; a waiting call without one is refused, but with `answers=None` it stays open.
        A finished run gives its recorded result. One that ended in an error tries again what failed. If tools or hooks have
        changed since it began, that is logged, or with `strict=True` a `RunChanged` error. Raises `UnknownRun`, `RunBusy`.
        """
        return await self.conversation().resume_recorded(run_id, answers, check=check, deps=deps, strict=strict)

    def stream_resume(
        self, run_id: str, answers: Mapping[str, HumanAnswer] | None = None, *, deps: Any = None, strict: bool = False,
        events: Iterable[str] = (),
    ) -> EventStream:  # fmt: skip
        """`resume` as an async iterator of events, from where the record ends."""
        return self.conversation().stream_recorded(run_id, answers, deps=deps, strict=strict, events=events)

    def stream(
        self,
        prompt: Prompt,
        *,
        run_id: str | None = None,
        deps: Any = None,
        limits: Limits | None = None,
        events: Iterable[str] = (),
    ) -> EventStream:
        """`run` as an async iterator of events. Leaving the loop aborts the run; its error is raised at the end."""
        return self.conversation().stream(prompt, run_id=run_id, deps=deps, limits=limits, events=events)

    def as_tool(self, name: str, description: str, *, inherit: bool = True, events: bool = False) -> Tool:
        """This agent as a tool with one argument, `prompt`.

        The calling agent's hooks at 8 to 13 govern it too, before its own; `inherit=False` waives that. `events=True`
        passes its events on to the caller's listeners, with `parent_call_id` set.
        """
        return delegate(self, name, description, inherit=inherit, events=events)

    # --- closing ---

    async def aclose(self) -> None:
        """Close the model's connections, and the journal. The agent can be used again afterwards."""
        await self.plan.model.aclose()
        if self.plan.journal is not None:
            await asyncio.to_thread(self.plan.journal.close)

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


__all__ = ["Agent", "Plan"]
