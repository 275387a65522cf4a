"""`beforehand resume`: go on with a recorded run, with the timeline of what happens from there on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..answering import answer_waiting
from ..assembly import ADAPTERS
from ..conversation import Conversation
from ..decisions import HumanAnswer, PendingApproval
from ..durable import load, refuse_changes
from ..errors import ConfigError
from ..eventstream import EventStream
from ..hooks.group import each_of
from ..journal.chain import Record
from ..journal.codec import read
from ..journal.fingerprint import differences
from ..journal.reading import find_run
from ..journal.store import Store
from ..keys import place_of
from ..models.scripted import ScriptedModel
from .approvals import person, read_answer
from .asking import Asker
from .run import Job, play


async def resume_job(job: Job, beginning: str, answers: Sequence[str], *, strict: bool, anyway: bool) -> int:
    """Go on with the run whose id begins so. Returns the exit code, raises what made it fail.

    What the run began with must be there again, so that no guard is lost by a forgotten option, unless `anyway`.
    """
    journal: Store = job.journal
    run_id = await journal.reading(find_run, journal, beginning)
    given = _answers(answers)
    records = await journal.reading(journal.records, run_id)
    start = records[0].data
    if not job.model:
        named: Any = f"{start['provider']}:{start['model']}"
        if start["provider"] not in ADAPTERS:
            if not (await journal.reading(load, journal, run_id)).finished:
                raise ConfigError(f"no adapter for model {named!r}, which the run began with: give --model, or go on in Python")
            named = ScriptedModel(())  # nothing is asked of it
        job = job._replace(model=named)
    if not job.instructions:
        job = job._replace(instructions=start.get("system") or "")

    async def begin(talk: Conversation, asker: Asker, events: Sequence[str]) -> EventStream:
        recorded = await journal.reading(load, journal, run_id)
        if not recorded.finished:
            if strict and (given or asker.can_ask):  # no answer counts for a run that does not go on
                refuse_changes(recorded, talk.plan.tools, talk.plan.hooks.current)
            elif not (anyway or strict):  # --strict says all that differs, missing or changed
                _refuse_to_lose(run_id, start, talk.plan)
            if job.base_url is None and job.project is None:
                _refuse_another_endpoint(run_id, records, talk.plan)
        for call_id, answer in given.items():
            await answer_waiting(journal, run_id, call_id, answer, person())
        if asker.can_ask:
            await _ask_the_rest(journal, run_id, asker)
        return talk.stream_recorded(run_id, None, strict=strict, events=events)

    return await play(job, begin, run_id)


def _refuse_to_lose(run_id: str, start: Mapping[str, Any], plan: Any) -> None:
    """`ConfigError` where hooks or tools of the run were not given again."""
    hooks = each_of(plan.hooks.current.hooks)
    gone = [said.removesuffix(" is gone") for said in differences(dict(start), plan.tools, hooks) if said.endswith(" is gone")]
    if gone:
        raise ConfigError(
            f"run {run_id} began with what is not here: {'; '.join(gone)}. Give the --tools, --hooks and --project that it "
            "began with, or --anyway to go on without"
        )


def _refuse_another_endpoint(run_id: str, records: Sequence[Record], plan: Any) -> None:
    """`ConfigError` where the conversation would go to another endpoint than before, and nobody has said so."""
    before = [record.data["endpoint"] for record in records if record.kind == "request"]
    if before and (now := place_of(plan.model.endpoint)) not in before:
        raise ConfigError(
            f"run {run_id} was sent to {before[-1]}, and would now go to {now}: say where with --base-url (an "
            "address is not taken from the record)"
        )


def _answers(words: Sequence[str]) -> Mapping[str, HumanAnswer]:
    """Each `--answer CALL=approve`, `CALL=deny REASON`, `CALL=edit JSON`."""
    answers: dict[str, HumanAnswer] = {}
    for word in words:
        call_id, equals, said = word.partition("=")
        if not equals or not said.strip():
            raise ConfigError(f"--answer {word!r}: expected CALL=approve, CALL=deny REASON or CALL=edit JSON")
        if call_id in answers:
            raise ConfigError(f"--answer names call {call_id!r} twice")
        verb, *rest = said.split(maxsplit=1)
        answers[call_id] = read_answer([verb, *rest])
    return answers


async def _ask_the_rest(journal: Store, run_id: str, asker: Asker) -> None:
    """Ask whoever sits here what nobody has answered. After Ctrl-C the rest stays open."""
    recorded = await journal.reading(load, journal, run_id)
    for call_id, written in recorded.past.pending.items():
        answer = await asker(read(written, PendingApproval))
        if asker.stopped:
            raise KeyboardInterrupt
        await answer_waiting(journal, run_id, call_id, answer, person())
