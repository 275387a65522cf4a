"""Records, and the chain that makes a change to any of them visible.

Each record carries the hash of the one before it in its run; the first record of a run carries that of the first record
of the run opened before. The number of records and the last hash stand beside the chain, so that a missing end shows too.
With a key the hashes are HMACs: then not even somebody who can rewrite the whole file can make it look untouched.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec

from ..frozen import Frozen

FORMAT = 1
"""The version of records and their chain, part of every hash. How a file lays them out has one of its own (`layout`)."""

KINDS: dict[str, str] = {
    "run": "what the run was started with: prompts, history before, tools, hooks, model, parent call",
    "resumed": "another process, or another attempt, goes on with it; what differs from the run's start, and its hooks then",
    "turn": "a turn begins: its number, why, and the queued messages it took",
    "took": "queued messages that a turn took later",
    "queued": "a message came into the queues while the run went on",
    "cleared": "queued messages that nobody took were taken back: their numbers",
    "ruling": "the hooks of one seam were asked: their names, decisions, effects and what came of it. With `partial`: those at "
    "13 decided something about a call's progress",
    "note": "something the core itself mended",
    "instructions": "the text that dynamic instructions gave, or how they failed",
    "compacting": "old messages are to become a summary: how many, and how long the next request would have been",
    "request": "a request is about to leave: its digest, model, kind",
    "released": "text that was shown while its reply still came in",
    "retracted": "text that was shown and no longer counts",
    "reply": "what came of a request: the message as stored, or how it failed; what it cost if nothing of it was kept",
    "direct": "the answer to a request beside the conversation, or how it failed",
    "message": "a message entered the history",
    "intent": "a tool is about to run: its final arguments, their digest, its replay policy",
    "outcome": "what became of a call, and the result as the model will read it",
    "ask": "a call waits for a person: the question, the final arguments and their digest",
    "answer": "what a person answered about a call, bound to that digest",
    "settled": "a person said what became of a call whose outcome was not known",
    "withdrawn": "a question that nobody has to answer any more",
    "shadow": "hooks in the shadow would have decided otherwise",
    "suspended": "the run waits for a person",
    "failed": "the run cannot go on for now; what follows until `end` only closes it. Which queued messages its turn was to take",
    "retried": "a failed turn is tried again: what failed is part of the run's past",
    "end": "the run is over: why, its usage and cost",
}
"""Every kind of record."""


class Record(Frozen, gc=False):
    """One record: the `n`th (from 1) of its run. `at` is in microseconds since 1970 (UTC), `body` is JSON."""

    run_id: str
    n: int
    at: int
    kind: str
    body: bytes
    hash: bytes = b""

    @property
    def data(self) -> Any:
        """The body, decoded."""
        return _decode(self.body)


_decode = msgspec.json.Decoder().decode  # once: a decoder for each body takes as long as a short body


def link(before: bytes, record: Record, key: bytes | None = None) -> bytes:
    """The hash of a record that follows the one with hash `before`: SHA-256, or its HMAC with a key. 32 bytes."""
    return chained(before, key, record.run_id, record.n, record.at, record.kind, record.body)


def follows(before: bytes, record: Record, key: bytes | None = None) -> bool:
    """Whether a record is as it was written, after one with the hash `before`."""
    return record.hash != b"" and link(before, record, key) == record.hash


def chained(before: bytes, key: bytes | None, run_id: str, n: int, at: int, kind: str, body: bytes) -> bytes:
    """`link` for a record that is not made yet."""
    try:
        content = before + f"{FORMAT}\n{run_id}\n{n}\n{at}\n{kind}\n".encode() + body
    except TypeError:  # what is no bytes was put there by somebody else: no record has this hash
        return b""
    return hashlib.sha256(content).digest() if key is None else hmac.digest(key, content, "sha256")


def seal(key: bytes | None, *parts: object) -> bytes:
    """A signature over what stands beside the chain. Empty without a key."""
    return b"" if key is None else hmac.digest(key, repr(parts).encode(), "sha256")
