"""Where the proofs of declared decisions are kept: one for each (seam, column)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Proof = Callable[[], Awaitable[None]]
PROOFS: dict[tuple[str, str], Proof] = {}


def proves(seam: str, column: str) -> Callable[[Proof], Proof]:
    """Enter a proof. Each shows the effect of a decision beside a run without it."""

    def enter(proof: Proof) -> Proof:
        assert (seam, column) not in PROOFS, f"two proofs of {column} at {seam}"
        PROOFS[seam, column] = proof
        return proof

    return enter
