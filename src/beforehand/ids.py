"""Ids that come from outside, and become part of the ids of runs: a sub-agent's run is named after the call it is made in."""

from __future__ import annotations

import hashlib

MAX_CALL_ID = 128
"""Bytes of a call's id. Sub-agents may be nested, and every store has a longest key."""

MAX_RUN_ID = 1000
"""Bytes of the id of a run that is submitted: the queue and the journal of an engine can have it as a key."""


def short_id(wanted: str) -> str:
    """A call's id as every store can hold it and every terminal show it.

    One that is too long, or has other than printable characters, gets a digest of itself, so that two of them stay two.
    """
    if wanted.isascii() and wanted.isprintable() and len(wanted) <= MAX_CALL_ID:
        return wanted
    data = wanted.encode("utf-8", "surrogatepass")
    if wanted.isprintable() and len(data) <= MAX_CALL_ID:
        return wanted
    digest = hashlib.sha256(data).hexdigest()[:16]
    plain = "".join([c if c.isprintable() else "_" for c in wanted])
    return f"{plain.encode()[: MAX_CALL_ID - len(digest) - 1].decode(errors='ignore')}-{digest}"


def run_id_problem(run_id: object) -> str | None:
    """Why no journal can hold a run of this id, in words that follow it; `None` if one can."""
    if not isinstance(run_id, str) or not run_id or not run_id.isprintable():
        return ": expected a text of printable characters"
    if "/" in run_id:
        return " holds a slash, which parts a run from those inside its calls: take another sign"
    return None
