"""`Ask` on the terminal: shows exactly what would run, and takes yes, no or other arguments."""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from ..decisions import Approve, Deny, Edit, HumanAnswer, PendingApproval
from ..detach import in_thread
from .terminal import safe
from .timeline import Timeline, answered_row

NOBODY = "Nobody could be asked: standard input is not a terminal."


class Asker:
    """An `on_ask` handler. The answers go into `timeline`; `stopping` is set when nobody shall be asked any more."""

    def __init__(self, timeline: Timeline, stopping: asyncio.Event) -> None:
        self._timeline, self._stopping = timeline, stopping
        self._one_at_a_time = asyncio.Lock()

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask."""
        return sys.stdin is not None and sys.stdin.isatty()

    @property
    def stopped(self) -> bool:
        """Whether nobody shall be asked any more."""
        return self._stopping.is_set()

    async def __call__(self, question: PendingApproval) -> HumanAnswer:
        answer: HumanAnswer = Deny(NOBODY)
        who = "nobody"
        if self.can_ask:
            async with self._one_at_a_time:
                who, answer = "you", await self._ask(question)
        self._timeline.add(answered_row(who, question, answer))
        return answer

    async def _ask(self, question: PendingApproval) -> HumanAnswer:
        _say(f"\n{question.hook} asks: {question.prompt}")
        _say(f"  {question.name} {msgspec.json.encode(question.args).decode()}")
        if question.options:
            _say(f"  options: {', '.join(question.options)}")
        while True:
            said = await self._line("  run it? [y]es, [n]o, [e]dit: ")
            choice = None if said is None else said.strip().lower()
            if choice in ("y", "yes"):
                return Approve()
            if choice is None:
                return Deny("Nobody approved this call: it was not run.")
            if choice in ("n", "no"):
                return Deny((await self._line("  why (the model reads it; Enter for no reason): ") or "").strip() or None)
            if choice in ("e", "edit") and (edit := await self._edited()) is not None:
                return edit

    async def _edited(self) -> Edit | None:
        text = await self._line("  arguments as JSON: ") or ""
        try:
            return Edit(msgspec.json.decode(text, type=dict[str, object]))
        except msgspec.DecodeError as error:
            _say(f"  that is no JSON object: {error}")
            return None

    async def _line(self, prompt: str) -> str | None:
        """The next line somebody types; `None` at the end of input, and when the run is stopped meanwhile."""
        sys.stderr.write(prompt)
        sys.stderr.flush()
        # Past Python's own buffer, whose lock a thread left waiting would hold while the process ends.
        typed = in_thread(os.read, sys.stdin.fileno(), 65_536)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({typed, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return typed.result().decode(errors="replace") or None if typed.done() else None
        finally:
            stopped.cancel()
            typed.cancel()


def _say(text: str) -> None:
    print(safe(text), file=sys.stderr, flush=True)
