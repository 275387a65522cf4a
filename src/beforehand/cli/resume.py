"""`beforehand resume`: go on with a recorded run, with the timeline of what happens from there on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..answering import answer_waiting
from ..conversation import Conversation
from ..decisions import HumanAnswer, PendingApproval
from ..durable import load
from ..errors import ConfigError
from ..eventstream import EventStream
from ..journal.codec import read
from ..journal.reading import find_run
from ..journal.store import Store
from .approvals import person, read_answer
from .asking import Asker
from .run import Job, play


async def resume_job(job: Job, beginning: str, answers: Sequence[str], strict: bool) -> int:
    """Go on with the run whose id begins so. Returns the exit code, raises what made it fail."""
    journal: Store = job.journal
    run_id = find_run(journal, beginning)
    given = _answers(answers)
    start = journal.records(run_id)[0].data
    if not job.model:
        job = job._replace(model=f"{start['provider']}:{start['model']}")
    if not job.instructions:
        job = job._replace(instructions=start.get("system") or "")

    async def begin(talk: Conversation, asker: Asker, events: Sequence[str]) -> EventStream:
        for call_id, answer in given.items():
            await answer_waiting(journal, run_id, call_id, answer, person())
        if asker.can_ask:
            await _ask_the_rest(journal, run_id, asker)
        return talk.stream_recorded(run_id, None, strict=strict, events=events)

    return await play(job, begin, run_id)


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
    for call_id, written in load(journal, run_id).past.pending.items():
        answer = await asker(read(written, PendingApproval))
        if asker.stopped:
            raise KeyboardInterrupt
        await answer_waiting(journal, run_id, call_id, answer, person())
