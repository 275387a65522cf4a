"""A run's records as the steps of a story: who asked, who decided and why, what ran, what could not be taken back by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ..frozen import Frozen
from ..seams import BY_NAME
from .chain import Record
from .pastrecords import MALFORMED, unreadable
from .withheld import is_withheld

STEPS: dict[str, str] = {
    "run": "agent, loop, model, provider, prompts, tools, hooks, follows (the run before it), history (how many messages), "
    "parent_call, queued (what waited already)",
    "resumed": "changed (what of tools and hooks is not as it was), pid",
    "turn": "number, cause, took (what was in the queues)",
    "took": "took (what was in the queues)",
    "queued": "origin (steer, follow_up), text: a message begins to wait in the queues",
    "cleared": "messages (how many): they were taken out of the queues again",
    "instructions": "text, error",
    "compacting": "messages (how many), tokens (of the next request)",
    "decision": "hook, where, seam, verdict, reason, duration (seconds), digest, done (requests, characters, tools), "
    "ahead (what was still ahead), effects, on_error, changed (the fields replaced), "
    "console (what a lambda wrote meanwhile), partial (about a call's progress)",
    "passed": "seam, hooks: they were asked and let the value pass",
    "skipped": "seam, hooks: they were not asked any more, after a refusal that is final at once",
    "note": "verdict, reason: the core itself mended something",
    "request": "model, provider, endpoint, for (turn, compaction, direct), messages (how many), tools (names), digest",
    "released": "of (text, thinking, tool_call), text, chars",
    "retracted": "chars: they were shown, and no longer count",
    "says": "text, thinking, origin, stop_reason, error, tokens (in and out)",
    "asks": "name, args, text (where the arguments are no JSON object), origin: the model asks for a call",
    "reply": "error, interrupt, aborted, resend: how a request ended that did not simply end",
    "direct": "for, text, error",
    "message": "role, origin, text, is_error: a message enters the history",
    "begins": "name, args, replay (safe, never), by (tool, owner), key, parent: the body of a tool is about to run",
    "outcome": "name, outcome, text (as the model reads it), is_error, duration (seconds), by (who refused or answered), reason, "
    "parent",
    "ask": "name, args, original_args (where others), prompt, options, digest, hook",
    "answer": "answer (approve, deny, edit), reason, args, digest, by",
    "settled": "text, is_error, by: a person says what became of the call",
    "withdrawn": "why",
    "shadow": "difference (newly_blocked and so on), seam, hook, where, decided, would, digest: hooks in the shadow differ",
    "suspended": "calls (ids)",
    "failed": "error",
    "retried": "verdict, reason, failures (how many in a row): the turn that failed is tried again",
    "end": "stop_reason, reason, error, turns, calls, tokens (in and out), cost",
}
"""Every kind of step with its fields, beside those that all have: n, at, seconds, turn, kind, and call where it is about one."""


class Step(Frozen):
    """One step. `n` is the record it comes from, `at` its time (microseconds since 1970), `seconds` since the run began."""

    n: int
    at: int
    seconds: float
    kind: str
    turn: int
    call: str | None
    data: dict[str, Any]

    def flat(self) -> dict[str, Any]:
        """One JSON object. Fields that say nothing (`None`) are left out."""
        around = {"n": self.n, "at": self.at, "seconds": self.seconds, "turn": self.turn, "kind": self.kind, "call": self.call}
        return {name: value for name, value in {**around, **self.data, **around}.items() if value is not None}


Told = tuple[str, str | None, dict[str, Any]]
"""A step as it is made: its kind, its call, its fields."""


def steps(records: Sequence[Record]) -> Iterator[Step]:
    """The steps of a run, in the order of its records. Raises `JournalUnreadable`, naming the record that cannot be read."""
    story = _Story()
    began = records[0].at if records else 0
    for record in records:
        try:
            told = story.tell(record.kind, record.data)
            for _, call, _ in told:
                if call is not None and type(call) is not str:
                    raise TypeError("the id of its call is no text")
        except MALFORMED as error:
            raise unreadable(record, error) from None
        seconds = (record.at - began) / 1e6
        for kind, call, data in told:
            yield Step(record.n, record.at, seconds, kind, story.turn, call, data)


class _Story:
    """Remembers what later records are about: whose call it is, and who refused it."""

    def __init__(self) -> None:
        self.turn = 0
        self._refused: dict[str, tuple[str, str | None]] = {}
        """By call: who refused it or answered for it, and why."""
        self._steered: tuple[str, str | None] = ("a hook", None)
        self._results: dict[str, dict[str, Any]] = {}
        self._tellers: dict[str, Callable[[dict[str, Any]], list[Told]]] = {
            name: getattr(self, f"_{name}") for name in (
                "run", "resumed", "turn", "ruling", "reply", "message", "intent", "outcome", "ask", "answer", "settled", "note",
                "request", "took", "queued", "cleared", "released", "suspended", "failed", "retried", "end", "direct",
                "instructions", "shadow",
            )
        }  # fmt: skip

    def tell(self, kind: str, data: dict[str, Any]) -> list[Told]:
        if isinstance(turn := data.get("turn"), int):
            self.turn = turn
        teller = self._tellers.get(kind)
        if teller is None:  # it is told as it is recorded
            return [(kind, None, {name: value for name, value in data.items() if name not in ("turn", "message")})]
        return teller(data)

    # --- the run and its turns ---

    def _run(self, data: dict[str, Any]) -> list[Told]:
        base = data["base"]
        return [("run", None, {
            "agent": data["agent"], "loop": data.get("loop", "main"), "model": data["model"], "provider": data["provider"],
            "prompts": [text_of(m) for m in data["prompts"]], "tools": list(data["tools"]), "hooks": list(data["hooks"]),
            "follows": base.get("after"), "history": len(base["messages"]) if "messages" in base else None,
            "parent_call": data.get("parent_call"), "queued": [text_of(m) for m in data.get("queued", ())] or None,
        })]  # fmt: skip

    def _resumed(self, data: dict[str, Any]) -> list[Told]:
        return [("resumed", None, {"changed": data["changed"], "pid": data["pid"]})]

    def _turn(self, data: dict[str, Any]) -> list[Told]:
        self.turn = data["number"]
        took = [text_of(m) for m in data.get("took", ())]
        return [("turn", None, {"number": data["number"], "cause": data["cause"], "took": took or None})]

    def _took(self, data: dict[str, Any]) -> list[Told]:
        return [("took", None, {"took": [text_of(m) for m in data["took"]]})]

    def _queued(self, data: dict[str, Any]) -> list[Told]:
        return [("queued", None, {"origin": data["message"].get("origin"), "text": text_of(data["message"])})]

    def _cleared(self, data: dict[str, Any]) -> list[Told]:
        return [("cleared", None, {"messages": len(data["numbers"])})]

    def _suspended(self, data: dict[str, Any]) -> list[Told]:
        return [("suspended", None, {"calls": [pending["call_id"] for pending in data["pending"]]})]

    def _instructions(self, data: dict[str, Any]) -> list[Told]:
        return [("instructions", None, _text_or_error(data))]

    def _failed(self, data: dict[str, Any]) -> list[Told]:
        return [("failed", None, {"error": f"{data['type']}: {data['text']}"})]

    def _retried(self, data: dict[str, Any]) -> list[Told]:
        return [("retried", None, {name: data[name] for name in ("verdict", "reason", "failures")})]

    def _end(self, data: dict[str, Any]) -> list[Told]:
        usage, error = data["usage"], data.get("error")
        return [("end", None, {
            "stop_reason": data["stop_reason"], "reason": data.get("reason"), "turns": data["turns"], "calls": data.get("calls"),
            "error": None if error is None else f"{error['type']}: {error['text']}",
            "tokens": [usage["input_tokens"], usage["output_tokens"]], "cost": data["cost"] or None,
        })]  # fmt: skip

    # --- decisions ---

    def _ruling(self, data: dict[str, Any]) -> list[Told]:
        seam, call = data["seam"], data.get("call")
        decisions = data.get("decisions", ())
        if call is not None:
            self._hear(seam, call, data, decisions)
        changed = list(data.get("changes", ()))
        told = [self._decision(decision, seam, call, changed, data.get("partial")) for decision in decisions]
        passed, skipped = silent(data)
        if passed:
            told.append(("passed", call, {"seam": seam, "hooks": passed}))
        if skipped:
            told.append(("skipped", call, {"seam": seam, "hooks": skipped}))
        return told

    def _hear(self, seam: str, call: str, data: dict[str, Any], decisions: Sequence[dict[str, Any]]) -> None:
        """Remember who had a call refused or answered, if somebody did."""
        heard = [(verdict, hook) for verdict, hook, _ in data.get("heard", ())]
        order = [name for name in ("Block", "Interrupt", "Steer", "Answer") if any(v["is"] == name for v, _ in heard)]
        if order:
            verdict, hook = next((v, h) for v, h in heard if v["is"] == order[0])
            self._refused[call] = hook, verdict.get("reason") or verdict.get("feedback")
            if order[0] == "Steer":
                self._steered = self._refused[call]
        elif failed := next((d for d in decisions if d["verdict"] == "failed"), None):
            self._refused[call] = failed["hook"], failed.get("reason")

    def _decision(
        self, decision: dict[str, Any], seam: str, call: str | None, changed: list[str], partial: bool | None = None
    ) -> Told:
        """`partial`: it is about a call's progress, which the model never reads."""
        seam = decision.get("seam", seam)
        requests, characters, tools = decision["reversible"]
        spec = BY_NAME.get(seam)
        return ("decision", call, {
            "hook": decision["hook"], "where": decision["where"], "seam": seam, "verdict": decision["verdict"],
            "reason": decision.get("reason"), "duration": decision["duration"], "digest": decision.get("digest"),
            "done": {"requests": requests, "characters": characters, "tools": tools},
            "ahead": (spec.irreversible or None) if spec is not None and not partial else None,
            "effects": decision.get("effects"), "on_error": decision.get("on_error"), "console": decision.get("console"),
            "changed": changed if changed and decision["verdict"] == "Replace" else None,
            "partial": partial,
        })  # fmt: skip

    def _note(self, data: dict[str, Any]) -> list[Told]:
        return [("note", data.get("call"), {"verdict": data["verdict"], "reason": data.get("reason")})]

    def _shadow(self, data: dict[str, Any]) -> list[Told]:
        names = ("seam", "hook", "where", "decided", "would", "digest")
        return [("shadow", data["call_id"], {"difference": data["kind"], **{name: data.get(name) for name in names}})]

    # --- requests ---

    def _request(self, data: dict[str, Any]) -> list[Told]:
        names = ("model", "provider", "endpoint", "messages", "tools", "digest")
        return [("request", None, {"for": data["kind"], **{name: data[name] for name in names}})]

    def _released(self, data: dict[str, Any]) -> list[Told]:
        return [("released", None, {"of": data["kind"], "text": data["text"], "chars": data["chars"]})]

    def _direct(self, data: dict[str, Any]) -> list[Told]:
        return [("direct", None, {"for": data["kind"], **_text_or_error(data)})]

    def _reply(self, data: dict[str, Any]) -> list[Told]:
        told = [self._decision(decision, "on_chunk", None, []) for decision in data.get("decisions", ())]
        error, interrupt = data.get("error"), data.get("interrupt")
        fields = {
            "error": None if error is None else f"{error['type']}: {error['text']}",
            "interrupt": None if interrupt is None else interrupt.get("reason") or "interrupted",
            "aborted": data.get("aborted"),
            "resend": data.get("resend"),
        }
        if any(value is not None for value in fields.values()):
            told.append(("reply", None, fields))
        return told

    def _message(self, data: dict[str, Any]) -> list[Told]:
        if "of" in data:  # the result of a call, as it was settled
            result = self._results[data["of"]]
            fields = {"role": "tool", "origin": "tool", "text": text_of(result), "is_error": result.get("is_error")}
            return [("message", data["of"], fields)]
        role, origin = data["role"], data.get("origin")
        if role != "assistant":
            call = data.get("tool_call_id")
            return [("message", call, {"role": role, "origin": origin, "text": text_of(data), "is_error": data.get("is_error")})]
        usage = data["usage"]
        said = {
            "text": text_of(data), "thinking": text_of(data, "thinking") or None, "origin": origin,
            "stop_reason": data["stop_reason"], "error": data.get("error"),
            "tokens": [usage["input_tokens"], usage["output_tokens"]],
        }  # fmt: skip
        calls = [part for part in data["content"] if part["type"] == "tool_call"]
        silent_reply = calls and not said["text"] and not said["thinking"] and not said["error"]
        told: list[Told] = [] if silent_reply else [("says", None, said)]
        return told + [("asks", part["id"], {"name": part["name"], "origin": origin, **_arguments(part)}) for part in calls]

    # --- calls and people ---

    def _intent(self, data: dict[str, Any]) -> list[Told]:
        return [("begins", data["call"], {name: data.get(name) for name in ("name", "args", "replay", "by", "key", "parent")})]

    def _outcome(self, data: dict[str, Any]) -> list[Told]:
        call, outcome, result = data["call"], data["outcome"], data["result"]
        self._results[call] = result
        by, reason = (None, None)
        if outcome in ("blocked", "steered", "answered"):
            by, reason = self._refused.get(call, (None, None))
        elif outcome == "cancelled":
            by, reason = self._steered
        return [("outcome", call, {
            "name": data["name"], "outcome": outcome, "text": text_of(result), "is_error": result["is_error"],
            "duration": data["duration"], "by": by, "reason": reason, "parent": data.get("parent"),
        })]  # fmt: skip

    def _ask(self, data: dict[str, Any]) -> list[Told]:
        original = data["original_args"] if data["original_args"] != data["args"] else None
        return [("ask", data["call_id"], {
            "name": data["name"], "args": data["args"], "original_args": original, "prompt": data["prompt"],
            "options": data["options"] or None, "digest": data["args_digest"], "hook": data["hook"],
        })]  # fmt: skip

    def _answer(self, data: dict[str, Any]) -> list[Told]:
        answer = data["answer"]
        if answer["is"] == "Deny":
            self._refused[data["call"]] = data["by"] if data["by"] == "nobody" else "a person", answer.get("reason")
        return [("answer", data["call"], {
            "answer": answer["is"].lower(), "reason": answer.get("reason"), "args": answer.get("args"),
            "digest": data["digest"], "by": data["by"],
        })]  # fmt: skip

    def _settled(self, data: dict[str, Any]) -> list[Told]:
        result = data["result"]
        fields = {"text": text_of(result), "is_error": result.get("is_error"), "by": data.get("by")}
        return [("settled", data["call"], fields)]


# --- pieces --------------------------------------------------------------------------------------


def silent(ruling: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The hooks of a recorded ruling that were asked and decided nothing, and those that were not asked any more."""
    names = list(ruling["hooks"])
    decided = [decision["hook"] for decision in ruling.get("decisions", ())]
    asked = len(ruling["took"]) if "took" in ruling else len(names)
    if decided and names[asked : asked + 1] == decided[-1:]:  # it failed, and nobody was asked after it
        asked += 1
    passed, skipped = names[:asked], names[asked:]
    for name in decided:
        if name in passed:
            passed.remove(name)
    return passed, skipped


def text_of(message: dict[str, Any], kind: str = "text") -> str:
    """The text of a message or a result as it is recorded; what is no text is named in brackets."""
    content = "[withheld]" if is_withheld(message) else message.get("content", "")
    if isinstance(content, str):
        return content if kind == "text" else ""
    return "".join([_part(part, kind) for part in content])


def _part(part: dict[str, Any], kind: str) -> str:
    if part["type"] == kind:
        return str(part["text"])
    return "[image]" if part["type"] == "image" and kind == "text" else ""


def _arguments(part: dict[str, Any]) -> dict[str, Any]:
    try:
        args = msgspec.json.decode(part["arguments"])
    except (msgspec.MsgspecError, RecursionError):
        args = None
    return {"args": args} if isinstance(args, dict) else {"text": part["arguments"]}


def _text_or_error(data: dict[str, Any]) -> dict[str, Any]:
    """What was given where a text was wanted, or how it failed."""
    error = data.get("error")
    return {"text": data["text"]} if error is None else {"error": f"{error['type']}: {error['text']}"}
