"""`beforehand trace`: a recorded run as a timeline with every decision, or what each hook did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import JournalUnreadable
from ..journal.pastrecords import MALFORMED
from ..journal.reading import find_run
from ..journal.store import Store
from ..journal.steps import Step, steps
from ..journal.tally import HookTally, tally
from .lines import Lines, json_lines, seconds_text
from .terminal import word
from .timeline import TONES, Row, Tone, written

OUTCOME_TONES: dict[str, Tone] = {"ran": "ok", "answered": "changed"}
MISSING = "no outcome is on record: its process ended while it ran. `beforehand settle` says what became of it"


def show_trace(journal: Store, beginning: str, *, as_json: bool, plain: bool, full: bool) -> None:
    """Print the run whose id begins so."""
    run_id = find_run(journal, beginning)
    told = steps(journal.records(run_id))
    if as_json:
        json_lines(step.flat() for step in told)
        return
    inside = {row.run_id for row in journal.runs(run_id)}
    with Lines(plain, full) as lines:
        lines.add(lines.painted(f"run {lines.one_line(run_id)}", "1"))
        open_calls: dict[str, Step] = {}
        suspended = False
        for step in told:
            _follow(open_calls, step)
            suspended = step.kind == "suspended" or (suspended and step.kind in ("answer", "settled"))
            try:
                rows = rows_of(step, inside, run_id)
                for row in rows:
                    lines.row(f"{step.n:>5} {step.seconds:>9.3f}", row)
            except MALFORMED as error:
                raise JournalUnreadable(f"run {run_id}, record {step.n} ({step.kind}) cannot be shown: {error}") from None
        if open_calls and not suspended and not journal.is_going_on(run_id):
            for call_id, step in open_calls.items():
                lines.add(lines.one_line(f"{step.data['name']} [{call_id}]: {MISSING}"))


def _follow(open_calls: dict[str, Step], step: Step) -> None:
    """Keep the calls that have begun and have no outcome."""
    if step.kind == "begins" and step.call is not None:
        open_calls[step.call] = step
    elif step.kind in ("outcome", "settled"):
        open_calls.pop(step.call or "", None)


# --- rows ----------------------------------------------------------------------------------------


def rows_of(step: Step, inside: set[str], run_id: str) -> list[Row]:
    """The rows of one step. `inside` are the runs made inside calls of this one."""
    maker = _MAKERS.get(step.kind)
    if maker is None:
        return [Row("event", step.kind, _fields(step.data))]
    rows = maker(step, step.data)
    if step.kind == "begins" and (child := f"{run_id}/{step.call}") in inside:
        rows.append(Row("event", "its own run", f"beforehand trace {word(child)}", tone="quiet"))
    return rows


def _run(step: Step, data: dict[str, Any]) -> list[Row]:
    loop = "" if data["loop"] == "main" else f", in its loop {data['loop']},"
    rows = [Row("event", "run begins", f"agent {data['agent']}{loop} on {data['provider']}:{data['model']}")]
    if data["parent_call"] is not None:
        rows.append(Row("event", "inside the call", data["parent_call"]))
    if data["follows"] is not None:
        rows.append(Row("event", "follows the run", data["follows"]))
    elif data["history"]:
        rows.append(Row("event", "history before", _counted(data["history"], "message")))
    if data.get("queued"):
        rows.append(Row("event", "waiting already", "; ".join(data["queued"])))
    return rows


def _queued(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", f"{str(data['origin']).replace('_', '-')} waits", data["text"])]


def _cleared(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", "queues cleared", f"{_counted(data['messages'], 'message')} taken out again", tone="quiet")]


def _resumed(step: Step, data: dict[str, Any]) -> list[Row]:
    changed = data.get("changed") or []
    text = f"but not as it began: {'; '.join(changed)}" if changed else "as it began"
    return [Row("event", "run goes on", text, f"process {data.get('pid')}", "refused" if changed else "plain")]


def _turn(step: Step, data: dict[str, Any]) -> list[Row]:
    cause = f", because of {data['cause'].replace('_', '-')}" if data.get("cause") else ""
    return [Row("turn", f"turn {data['number']}{cause}")]


def _decision(step: Step, data: dict[str, Any]) -> list[Row]:
    verdict = {"failed": "failed", "failed_open": "FAILED OPEN, let pass"}.get(data["verdict"], data["verdict"])
    effects = "".join([f" + {effect}" for effect in data["effects"] or () if effect not in verdict])
    changed = f" {', '.join(data['changed'])}" if data["changed"] else ""
    reason = f": {data['reason']}" if data["reason"] else ""
    ahead = f"still ahead: {data['ahead']}; " if data["ahead"] else ""
    wrote = f"; wrote: {written(data['console'])}" if data["console"] else ""
    note = f"{ahead}done: {_done(data['done'])}; took {seconds_text(data['duration'])}; {data['where']}{wrote}"
    of_progress = " (progress)" if data["partial"] else ""
    text = f"{data['seam']}{of_progress}: {verdict}{changed}{effects}{reason}{_about(step)}"
    return [Row("hook", data["hook"], text, note, TONES.get(data["verdict"], "plain"))]


def _done(done: dict[str, int]) -> str:
    counts = ((done["requests"], "request"), (done["characters"], "character"), (done["tools"], "tool run"))
    return ", ".join([_counted(number, noun) for number, noun in counts if number]) or "nothing"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _passed(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("hook", "let it pass", f"{data['seam']}: {', '.join(data['hooks'])}{_about(step)}", tone="ok")]


def _skipped(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("hook", "not asked any more", f"{data['seam']}: {', '.join(data['hooks'])}{_about(step)}", tone="quiet")]


def _about(step: Step) -> str:
    """The call that a decision is about, if it is about one."""
    return "" if step.call is None else f" [{step.call}]"


def _request(step: Step, data: dict[str, Any]) -> list[Row]:
    tools = f", {_counted(len(data['tools']), 'tool')}" if data["tools"] else ""
    kind = "" if data["for"] == "turn" else f" for {data['for']}"
    text = f"{_counted(data['messages'], 'message')}{tools} to {data['model']} at {data['endpoint']}{kind}"
    return [Row("event", "request leaves", text, f"digest {data['digest'][:16]}")]


def _says(step: Step, data: dict[str, Any]) -> list[Row]:
    rows = []
    if data["thinking"]:
        rows.append(Row("event", "model thinks", data["thinking"], tone="quiet"))
    if data["error"]:
        rows.append(Row("event", f"reply failed ({data['stop_reason']})", data["error"], tone="refused"))
    elif data["text"] or not rows:
        cut = "" if data["stop_reason"] in ("stop", "tool_calls") else f" ({data['stop_reason']})"
        rows.append(Row("event", f"{data['origin']} says{cut}", data["text"]))
    return rows


def _asks(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", f"{data['origin']} asks for", f"{_call(data)} [{step.call}]")]


def _call(data: dict[str, Any]) -> str:
    args = data.get("args")
    shown = data.get("text", "") if args is None else ", ".join([f"{name}={_json(value)}" for name, value in args.items()])
    return f"{data['name']}({shown})"


def _reply(step: Step, data: dict[str, Any]) -> list[Row]:
    if data["error"]:
        return [Row("event", "request failed", data["error"], tone="refused")]
    if data["interrupt"]:
        return [Row("event", "reply interrupted", data["interrupt"], tone="refused")]
    return [Row("event", "reply cut", "the run was aborted", tone="refused")] if data["aborted"] else []


def _message(step: Step, data: dict[str, Any]) -> list[Row]:
    if data["role"] == "tool":
        return [Row("event", "model reads", f"{data['text']} [{step.call}]", tone="refused" if data["is_error"] else "ok")]
    title = "user says" if data["origin"] == "prompt" else f"{data['origin']} adds"
    return [Row("event", title, data["text"])]


def _released(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", "shown", f"{data['chars']} characters of {data['of']}: {data['text']}", tone="quiet")]


def _retracted(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", "taken back", f"{data['chars']} characters shown no longer count", tone="refused")]


def _begins(step: Step, data: dict[str, Any]) -> list[Row]:
    word = {"tool": "the tool's word", "owner": "the owner's word"}.get(data["by"], data["by"])
    again = {"safe": "may be run again", "never": "never run again"}.get(data["replay"], data["replay"])
    return [Row("code", data["name"], f"runs {_call(data)} [{step.call}]", f"{again} ({word}); key {data['key']}")]


def _outcome(step: Step, data: dict[str, Any]) -> list[Row]:
    by = f" by {data['by']}" if data["by"] else ""
    took = f"took {seconds_text(data['duration'])}" if data["duration"] else ""
    text = f"{data['outcome']}{by}: {data['text']} [{step.call}]"
    return [Row("code", data["name"], text, took, OUTCOME_TONES.get(data["outcome"], "refused"))]


def _ask(step: Step, data: dict[str, Any]) -> list[Row]:
    original = f"the model wrote {_json(data['original_args'])}; " if data["original_args"] is not None else ""
    note = f"{original}digest {data['digest'][:16]}"
    return [Row("person", f"{data['hook']} asks", f"“{data['prompt']}” {_call(data)} [{step.call}]", note, "changed")]


def _answer(step: Step, data: dict[str, Any]) -> list[Row]:
    what = {"approve": "approves", "deny": "declines", "edit": "approves with other arguments"}.get(
        data["answer"], data["answer"]
    )
    detail = f": {data['reason']}" if data["reason"] else f": {_json(data['args'])}" if data["args"] is not None else ""
    tone: Tone = "refused" if data["answer"] == "deny" else "changed"
    return [Row("person", data["by"], f"{what}{detail} [{step.call}]", f"bound to digest {data['digest'][:16]}", tone)]


def _settled(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("person", data["by"] or "a person", f"says what became of it: {data['text']} [{step.call}]", tone="changed")]


def _note(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", f"core: {data['verdict']}", data["reason"] or "", tone="changed")]


def _suspended(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", "run waits for a person", ", ".join(data["calls"]), tone="changed")]


def _failed(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", "run fails", data["error"], tone="refused")]


def _retried(step: Step, data: dict[str, Any]) -> list[Row]:
    return [Row("event", "turn is tried again", f"after {_counted(data['failures'], 'failure')} in a row", tone="quiet")]


def _direct(step: Step, data: dict[str, Any]) -> list[Row]:
    what = "summary" if data["for"] == "compaction" else "answer"
    if data.get("error"):
        return [Row("event", f"no {what}", data["error"], tone="refused")]
    return [Row("event", f"model gives the {what}", data["text"])]


def _shadow(step: Step, data: dict[str, Any]) -> list[Row]:
    who = f"{data['hook']} ({data['where']})" if data["hook"] else "no hook there"
    text = f"{data['seam']}: {data['difference'].replace('_', ' ')}: {data['would']}, not {data['decided']}{_about(step)}"
    return [Row("hook", "in the shadow", text, f"by {who}", "quiet")]


def _end(step: Step, data: dict[str, Any]) -> list[Row]:
    why = f": {data['error'] or data['reason']}" if data["error"] or data["reason"] else ""
    cost = f", cost {data['cost']:g}" if data["cost"] else ""
    size = f"{_counted(data['turns'], 'turn')}, {_counted(data['calls'] or 0, 'call')}"
    note = f"{size}, {data['tokens'][0]} tokens in, {data['tokens'][1]} out{cost}"
    return [
        Row("event", "run ends", f"{data['stop_reason']}{why}", note, "ok" if data["stop_reason"] == "completed" else "refused")
    ]


_MAKERS: dict[str, Callable[[Step, dict[str, Any]], list[Row]]] = {
    "run": _run, "resumed": _resumed, "turn": _turn, "decision": _decision, "passed": _passed, "skipped": _skipped,
    "request": _request, "says": _says, "asks": _asks, "reply": _reply, "message": _message, "released": _released,
    "retracted": _retracted, "begins": _begins, "outcome": _outcome, "ask": _ask, "answer": _answer, "settled": _settled,
    "note": _note, "suspended": _suspended, "failed": _failed, "end": _end, "queued": _queued, "cleared": _cleared,
    "retried": _retried, "direct": _direct, "shadow": _shadow,
}  # fmt: skip


def _fields(data: dict[str, Any]) -> str:
    return ", ".join([f"{name}: {value if isinstance(value, str) else _json(value)}" for name, value in data.items()])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# --- hooks ---------------------------------------------------------------------------------------

COLUMNS = ("seam", "hook", "calls", "p50", "p95", "verdicts", "defined at", "advice")


def show_hooks(journal: Store, beginning: str | None, *, since: int, as_json: bool, plain: bool) -> None:
    """Print what each hook did: in one run and those inside it, or in all that began `since`."""
    if beginning is None:
        chosen = [row.run_id for row in journal.runs() if row.first.at >= since]
    else:
        run_id = find_run(journal, beginning)
        chosen = [other for other in journal.ids(run_id) if other == run_id or other.startswith(f"{run_id}/")]
    found = tally(record for run_id in chosen for record in journal.records(run_id))
    if as_json:
        json_lines(_as_data(one) for one in found)
        return
    with Lines(plain) as lines:
        if not found:
            lines.add(f"No hook was registered in {len(chosen)} runs.")
            return
        rows = [
            (
                one.seam,
                one.hook,
                str(one.calls),
                _duration(one.p50),
                _duration(one.p95),
                _verdicts(one),
                one.where or "",
                one.advice or "",
            )
            for one in found
        ]
        lines.table(COLUMNS, rows, ["33" if one.advice else "" for one in found])


def _as_data(one: HookTally) -> dict[str, Any]:
    return {**{name: getattr(one, name) for name in one.__struct_fields__}, "advice": one.advice}


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else seconds_text(seconds)


def _verdicts(one: HookTally) -> str:
    return ", ".join([f"{number} {name}" for name, number in one.verdicts.items()]) or "-"
