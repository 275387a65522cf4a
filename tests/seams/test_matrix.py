"""Every cell of (seam x decision): a declared decision does what it says, any other is refused loudly.

A declared cell needs a proof (`proofs_*.py`) that shows its effect beside a run without it; a cell that becomes declared
without one fails here, and so does a proof of something that no seam declares.
"""

from __future__ import annotations

import pytest

import seams.proofs_calls
import seams.proofs_replies
import seams.proofs_requests
import seams.proofs_runs  # noqa: F401 - the proofs enter themselves
from beforehand import Replace
from beforehand.decisions import Decision, Effect, Verdict
from beforehand.seams import BY_NAME, SEAMS, SeamSpec
from seams.cells import CELLS, COLUMNS, DECLARED, EFFECTS, FIELDS, VERDICTS
from seams.proofs import PROOFS
from seams.refusals import REFUSALS, let_pass
from seams.stage import at


@pytest.mark.parametrize(("seam", "column"), CELLS, ids=lambda value: value)
async def test_a_decision_counts_where_it_is_declared_and_is_refused_elsewhere(seam: str, column: str) -> None:
    if (seam, column) in DECLARED:
        assert (seam, column) in PROOFS, f"{column} is declared at {seam}, and nothing proves that it works"
        await PROOFS[seam, column]()
        return
    for watched in (True, False):
        _, said = await REFUSALS[seam](at(seam, COLUMNS[column]()), watched)
        assert "guard" in said, "it names the hook"
        assert seam in said, "and the seam"
        assert [form for form in allowed(BY_NAME[seam], column) if form not in said] == [], (
            f"and what may be returned, but said: {said}"
        )


def allowed(spec: SeamSpec, column: str) -> list[str]:
    """What the refusal has to name: every decision the seam takes, or every field if only the field was wrong."""
    fields = list(spec.verdicts.get(Replace, ()))
    if column.startswith("Replace.") and fields:
        return fields
    return [kind.__name__ for kind in (*spec.verdicts, *spec.effects)] + [f"{field}=" for field in fields] + ["None"]


@pytest.mark.parametrize("seam", BY_NAME)
async def test_a_hook_that_says_nothing_lets_everything_pass(seam: str) -> None:
    await let_pass(seam, at(seam, None))
    await let_pass(seam, at(seam, lambda _: []))


def test_every_declared_cell_has_a_proof_and_every_proof_a_cell() -> None:
    assert sorted(DECLARED - PROOFS.keys()) == []
    assert sorted(PROOFS.keys() - DECLARED) == []


def test_every_seam_has_a_refusal_to_prove() -> None:
    assert list(REFUSALS) == [spec.name for spec in SEAMS]


def test_the_columns_are_all_the_decisions_there_are() -> None:
    assert set(VERDICTS) | {Replace} == set(Verdict.__subclasses__())
    assert set(EFFECTS) == set(Effect.__subclasses__())
    assert {Verdict, Effect} == set(Decision.__subclasses__())
    assert set(FIELDS) == set(Replace.__struct_fields__)
