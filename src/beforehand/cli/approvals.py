"""`beforehand approvals` and `settle`: what waits for a person, and what a person says about it."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Any

import msgspec

from ..answering import answer_waiting, settle_call
from ..decisions import Approve, Deny, Edit, HumanAnswer
from ..errors import ConfigError
from ..journal.reading import Uncertain, Waiting, find_run, needs_people
from ..journal.store import Store
from ..tools import ToolResult
from .lines import Lines, json_lines, local_time
from .terminal import safe, to_resume, word

FORMS = "approve, deny [REASON], or edit JSON"


def show_waiting(journal: Store, *, as_json: bool, plain: bool) -> None:
    """List every call that waits for a person, and every one of which nobody knows what became of it."""
    questions, lost = needs_people(journal)
    if as_json:
        json_lines(
            [
                *({"waits_for": "approval", **_data(q)} for q in questions),
                *({"waits_for": "settlement", **_data(u)} for u in lost),
            ]
        )
        return
    with Lines(plain) as lines:
        for question in questions:
            _question(lines, question)
        for call in lost:
            _uncertain(lines, call)
        if not questions and not lost:
            lines.add("Nothing waits for a person.")


def _data(item: Waiting | Uncertain) -> dict[str, Any]:
    return {"call_id": item.call_id, **{name: getattr(item, name) for name in item.__struct_fields__}}


def _question(lines: Lines, question: Waiting) -> None:
    pending = question.pending
    lines.add(lines.painted(f"{word(question.run_id)} {word(pending.call_id)}", "1;33"))
    lines.add(f"  {lines.one_line(pending.hook)} asks: {lines.one_line(pending.prompt)}")
    lines.add(f"  would run: {lines.one_line(pending.name)} {_shown(pending.args)}")
    if pending.original_args != pending.args:
        lines.add(f"  the model wrote: {_shown(pending.original_args)}")
    if pending.options:
        lines.add(f"  options: {lines.one_line(', '.join(pending.options))}")
    lines.add(lines.painted(f"  digest {pending.args_digest}; asked {local_time(question.asked)}", "2"))


def _uncertain(lines: Lines, call: Uncertain) -> None:
    lines.add(lines.painted(f"{word(call.run_id)} {word(call.call_id)}", "1;31"))
    lines.add(f"  outcome not known: {lines.one_line(call.name)} {_shown(call.args)}")
    settle = f"beforehand settle {word(call.run_id)} {word(call.call_id)}"
    lines.add(f"  its process ended while it ran. Find out, then: {settle} --result TEXT or --failed TEXT")
    lines.add(lines.painted(f"  key {lines.one_line(call.key)}; begun {local_time(call.begun)}", "2"))


def _shown(args: Any) -> str:
    """All of the arguments, every space of them: who answers for them must see what will run."""
    return safe(msgspec.json.encode(args).decode())


# --- answering -----------------------------------------------------------------------------------


async def answer(journal: Store, words: Sequence[str]) -> None:
    """Record the answer that these words give: RUN CALL approve, deny or edit, and what belongs to it."""
    if len(words) < 3:
        raise ConfigError(f"--answer needs RUN CALL and {FORMS}")
    run, call_id, *said = words
    run_id = await journal.reading(find_run, journal, run)
    given = read_answer(said)
    resumed = await answer_waiting(journal, run_id, call_id, given, by=person())
    verb = {Approve: "approved", Deny: "declined", Edit: "approved with other arguments"}[type(given)]
    with Lines(True) as lines:
        lines.add(f"{lines.one_line(call_id)} is {verb}. {_next(resumed, journal)}")


def read_answer(words: Sequence[str]) -> HumanAnswer:
    """An answer in the words of the command line. Raises `ConfigError` saying what was expected."""
    verb, rest = words[0].lower(), " ".join(words[1:]).strip()
    if verb == "approve":
        if rest:
            raise ConfigError(f"approve takes nothing more, and {rest!r} was given: expected {FORMS}")
        return Approve()
    if verb == "deny":
        return Deny(rest or None)
    if verb != "edit":
        raise ConfigError(f"{words[0]!r} is no answer: expected {FORMS}")
    try:
        args = msgspec.json.decode(rest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"edit needs the arguments as a JSON object: {error}") from None
    if not isinstance(args, dict):
        raise ConfigError(f"edit needs the arguments as a JSON object, not {rest[:40]!r}")
    return Edit(args)


async def settle(journal: Store, run: str, call_id: str, result: str | None, failed: str | None) -> None:
    """Record what became of a call that was cut short."""
    text = failed if result is None else result
    if text is None or (result is not None and failed is not None):
        raise ConfigError("say what became of the call: either --result TEXT or --failed TEXT")
    run_id = await journal.reading(find_run, journal, run)
    resumed = await settle_call(journal, run_id, call_id, ToolResult(text, is_error=result is None), by=person())
    with Lines(True) as lines:
        lines.add(f"{lines.one_line(call_id)} is settled. {_next(resumed, journal)}")


def _next(run_id: str, journal: Store) -> str:
    return f"Go on, where no worker does: {to_resume(run_id, journal)}."


def person() -> str:
    """Who sits at this terminal, as the record names them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "a person"
