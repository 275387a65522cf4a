"""A run cut at any record and resumed comes to what it would have come to without the cut."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from beforehand import Approve, Deny, Edit
from beforehand.errors import UsageError
from beforehand.journal import verify
from beforehand.testing import finish, text

from journal.cutting import all_records, cut, done_by, parents, settled_rulings, uncertain
from journal.stories import KEY, STORIES, Act, Play, Story, call, came_to

ASKED_AGAIN = {"get_api_key", "on_chunk"}

FAILED_BEFORE_THE_LAST_RULING = Story(
    replies=[[text("half"), call("work"), finish("length")], [text("I will"), call("fail")]],
    acts=[Act("before_run", 0, 2, None, "user", "open"), Act("prepare_tool_call", 2, 0, None, "user", "abort")],
    mode="parallel", listened=False, inherit=False, dynamic=True, answers=[Approve()] * 3, max_turns=2,
)  # fmt: skip
"""A hook about a call fails, and the run ends with that; but hooks are asked about the call's result before it does."""

WRONG_ARGUMENTS_THAT_NOBODY_LOOKED_AT = Story(
    replies=[[text("I will"), call("child")]], acts=[], mode="parallel", listened=False, inherit=False, dynamic=True,
    answers=[Approve()] * 3, max_turns=2,
)  # fmt: skip
"""Without hooks the body's own decoder is the first to read the arguments: what is wrong there has not begun."""


ANSWERED_AND_BLOCKED = Story(
    replies=[[text("never sent")]],
    acts=[Act("authorize_request", 1, choice, None, "user", "closed") for choice in (0, 1)],
    mode="parallel", listened=False, inherit=False, dynamic=False, answers=[Approve()] * 3, max_turns=2,
)  # fmt: skip
"""Of a hook's answer and another one's block the block counts: there is no reply."""


A_SCRIPT_WHOSE_CALLS_WAIT = Story(
    replies=[[text("I will"), call("work"), call("script")]],
    acts=[
        Act("before_provider_call", 0, 0, 0, "user", "closed"), Act("before_tool_call", 1, 3, None, "tool", "open"),
        Act("transform_context", 1, 5, None, "tool", "closed"), Act("authorize_request", 3, 1, 2, "custom", "closed"),
        Act("convert_to_llm", 1, 6, 2, "assistant", "abort"),
    ],
    mode="sequential", listened=False, inherit=False, dynamic=False,
    answers=[Edit({"x": 2}), Deny("no"), Edit({"x": "no"})], max_turns=6,
)  # fmt: skip
"""A `safe` body is run again after each answer to what it calls: that is no effect done twice."""


async def check_every_cut(story: Story, folder: Path, cuts: list[int] | None = None, raw: bool = True) -> None:
    """Without `raw` a run that has done nothing yet may be refused: what hooks have not let pass is not on record."""
    whole = Play(story, folder / "whole.db", [], raw)
    expected = came_to(await whole.begin())
    event(expected["stop_reason"])
    records, of = all_records(folder / "whole.db"), parents(folder / "whole.db")
    assert verify(whole.agent.plan.journal) == []
    await whole.agent.aclose()
    assert KEY.encode() not in b"".join(r.body for r in records)
    for k in range(1, len(records) + 1) if cuts is None else sorted({1 + n % len(records) for n in cuts}):
        path = folder / f"{k}.db"
        kept = records[:k]
        cut(kept, of, path).close()
        again = Play(story, path, kept, raw)
        where = f"cut after record {k}: {kept[-1].kind} {kept[-1].n} of {kept[-1].run_id}"
        if expected["error"] and any(r.kind == "end" and r.run_id == "R" for r in kept):
            continue  # what failed is tried again
        try:
            came = came_to(await again.go_on())
        except UsageError:
            assert not raw and not any(r.kind in ("request", "intent") for r in kept), where
            continue
        _, over = done_by(kept)
        unknown = uncertain(kept)
        assert not [key for key in again.effects if key in over or key in unknown], f"{where}: done twice"
        if not unknown:
            assert not Counter(again.effects) - Counter(whole.effects), f"{where}: done more often"
            assert set(whole.effects) == set(again.effects) | over & set(whole.effects), where
            for name, value in expected.items():
                assert came[name] == value, f"{where}: {name}: {came[name]} {value}"
            settled = settled_rulings(kept)
            for what, times in whole.asked.items():
                if what[1] not in ASKED_AGAIN:
                    assert again.asked[what] + settled[what] == times, (
                        f"{where}: asked about {what}: {times}, {settled[what]} on record, {again.asked[what]}"
                    )
            for turn, counters in again.counters.items():
                assert counters == whole.counters[turn], f"{where}: counters in turn {turn}: {counters} {whole.counters[turn]}"
        assert verify(again.agent.plan.journal) == [], where
        await again.agent.aclose()


@example(FAILED_BEFORE_THE_LAST_RULING, list(range(60)), True)
@example(FAILED_BEFORE_THE_LAST_RULING, list(range(60)), False)
@example(ANSWERED_AND_BLOCKED, list(range(60)), False)
@example(WRONG_ARGUMENTS_THAT_NOBODY_LOOKED_AT, list(range(60)), True)
@example(A_SCRIPT_WHOSE_CALLS_WAIT, list(range(60)), True)
@given(STORIES, st.lists(st.integers(0, 10_000), min_size=8, max_size=8), st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_run_cut_at_any_record_comes_to_what_it_would_have_come_to(story: Story, cuts: list[int], raw: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_every_cut(story, Path(folder), None if os.environ.get("EVERY_CUT") else cuts, raw))
