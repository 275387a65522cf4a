"""`beforehand runs`: the runs of a journal, and how they stand. `beforehand export` and `verify`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import ConfigError, nearest
from ..journal.queued import untaken
from ..journal.pastrecords import read_past
from ..journal.reading import STATES, RunSummary, find_run, in_families, summaries
from ..journal.store import Store
from ..journal.trusted import history_before
from ..journal.unfinished import WHY
from ..journal.verify import verify
from ..messages import Message, is_sendable
from ..models.openai_wire import encode_message, encode_system
from .lines import Lines, json_lines, local_time
from .terminal import complain, print_json, safe, word

COLUMNS = ("run", "begun", "agent", "state", "turns", "calls", "prompt")
CODES = {"completed": "32", "error": "31", "unfinished": "31", "unreadable": "31", "suspended": "33", "running": "36"}
PROMPT_WIDTH = 60
UNTAKEN_SHOWN = 10


def show_runs(journal: Store, *, states: Sequence[str], since: int, as_json: bool, plain: bool) -> None:
    """List the runs, those made inside calls below the runs whose calls these are."""
    for state in states:
        if state not in STATES:
            near = nearest(state, STATES)
            raise ConfigError(f"--state {state!r} is none: {f'did you mean {near}?' if near else 'one of ' + ', '.join(STATES)}")
    found = summaries(journal, states=states, since=since)
    if as_json:
        json_lines(found)
        return
    with Lines(plain) as lines:
        if not found:
            lines.add("No run is recorded." if not states and not since else "No run is like that.")
            return
        families = in_families(found)
        codes = [CODES.get(run.state, "") for _, run in families]
        lines.table(COLUMNS, [_row(run) for _, run in families], codes, [depth for depth, _ in families])


def tell_of_untaken(journal: Store, where: str) -> None:
    """Say which runs were submitted and are not recorded, because no worker has taken them. `where` is the journal's address."""
    found = untaken(journal, where)
    if found:
        shown = [f"{word(run_id)} (for {agent})" for run_id, agent in found[:UNTAKEN_SHOWN]]
        more = f" and {len(found) - UNTAKEN_SHOWN} more" if len(found) > UNTAKEN_SHOWN else ""
        complain(f"note: {len(found)} submitted, not taken by a worker yet: {', '.join(shown)}{more}")


def _row(run: RunSummary) -> tuple[str, ...]:
    state: str = run.state
    if run.state == "suspended":
        state = f"suspended ({run.waiting} waiting)" if run.waiting else "suspended (answered: resume it)"
    if run.state == "ended" and run.why:
        state = f"ended ({run.why.partition(':')[0]})"
    prompt = run.prompt if len(run.prompt) <= PROMPT_WIDTH else f"{run.prompt[: PROMPT_WIDTH - 3]}..."
    return run.run_id, local_time(run.started), run.agent, state, str(run.turns), str(run.calls), prompt


# --- export --------------------------------------------------------------------------------------


def export_run(journal: Store, beginning: str, out: Path | None, raw: bool) -> None:
    """Write the conversation up to the end of a run, a message a line, as a chat completion request would hold it."""
    if out is not None and _is_of(journal, out):
        raise ConfigError(f"-o {out} is the journal itself, which would be lost: name another file")
    run_id = find_run(journal, beginning)
    records = journal.records(run_id)
    if raw:
        lines = [
            b'{"run_id":%b,"n":%d,"at":%d,"kind":%b,"hash":"%b","body":%b}'
            % (_encode(run_id), r.n, r.at, _encode(r.kind), r.hash.hex().encode(), r.body)
            for r in records
        ]
    else:
        past = read_past(records)
        lines = _encoded([*history_before(journal, past.start), *past.messages])
        if system := past.start.get("system"):
            lines.insert(0, encode_system(system))
    if out is None:
        print_json(lines)
    else:
        out.write_bytes(b"".join([line + b"\n" for line in lines]))


def _is_of(journal: Store, out: Path) -> bool:
    """Whether this is a journal's file, by whatever name, or one of those beside it."""
    own = [Path(f"{journal.path}{end}") for end in ("", "-wal", "-shm", "-locks")]
    return Path(os.path.realpath(out)) in own or any([out.exists() and file.exists() and out.samefile(file) for file in own])


def _encode(text: str) -> bytes:
    return msgspec.json.encode(text)


def _encoded(messages: Sequence[Message]) -> list[bytes]:
    lines = [encode_message(message) for message in messages if is_sendable(message)]
    if (left_out := len(messages) - len(lines)) > 0:
        complain(f"note: {left_out} messages are left out that no request holds: failed replies, the application's own (--raw)")
    return lines


# --- verify --------------------------------------------------------------------------------------


def verify_journal(journal: Store) -> int:
    """Say what is not as it was written, a line for each run. Returns the exit code."""
    faults = verify(journal)
    for fault in faults:
        print(safe(str(fault)))
    if faults:
        return 1
    runs = journal.runs()
    kind = "signed, and every record is" if journal.signed else "every record is"
    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
    print(f"{count}, {sum(run.records for run in runs)} records: {kind} as it was written.")
    with contextlib.closing(journal.contents()) as contents:
        times = contents.facts().get("unfinished", 0)
    if isinstance(times, int) and times > 0:  # nothing seals it
        print(f"{times} time{'s' * (times > 1)} what was being written was not whole, {WHY}: it was dropped.")
    return 0
