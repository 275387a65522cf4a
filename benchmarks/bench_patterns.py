"""What pattern rules cost on a stream: µs for each chunk of 20 characters, with 0, 10 and all 221 secret rules.

    python benchmarks/bench_patterns.py [file with prose]

CPU time of the process, best of several rounds; "first" is the first round, in which RE2 still builds its states.
The text is the same every 500 chunks, so a chunk costs the same early and late unless the work grows.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from patterns.secret_rules import RULES  # noqa: E402  # beside the tests that use it

from beforehand.stream.patterns import PatternSet, Rule, Scanner  # noqa: E402

SIZE = 20
TEN = [
    *("github-pat", "aws-access-token", "anthropic-api-key", "openai-api-key", "slack-bot-token"),
    *("stripe-access-token", "private-key", "jwt", "gcp-api-key", "npm-access-token"),
]
OWN = [
    Rule(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}", "mail"),
    Rule(r"\b\d{3}-\d{2}-\d{4}\b", "ssn"),
    Rule(r"\b(?:\d[ -]?){13,16}\b", "card"),
    Rule(r"sk-[A-Za-z0-9]{8,}", "key"),
    Rule(r"\b\d{1,3}(?:\.\d{1,3}){3}\b", "ip"),
    Rule(r"(?i)password\s*[:=]\s*(\S+)", "password", group=1),
    Rule(r"\+?\d[\d ()-]{8,}\d", "phone"),
    Rule(r"https?://\S+", "url"),
    Rule(r"(?i)confidential", "word"),
    Rule(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", "iban"),
]


def stream(patterns: PatternSet, chunks: list[str]) -> tuple[float, Scanner]:
    scanner = patterns.scanner()
    began = time.process_time()
    for chunk in chunks:
        scanner.feed(chunk)
    return time.process_time() - began, scanner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prose", nargs="?", type=Path, help="a text file of at least 10,000 characters")
    prose = parser.parse_args().prose
    text = prose.read_text(encoding="utf-8") if prose else "\n".join(topics.values())
    text = (text * (10_000 // len(text) + 1))[:10_000]

    heads = ("compiled ms", "chunks", "total ms", "µs a chunk", "first ms", "bytes examined a byte")
    print("rules".ljust(12), *[head.rjust(max(9, len(head))) for head in heads])
    ten = [rule for rule in RULES if rule.id in TEN]
    for name, rules in (("0", []), ("10 secret", ten), ("10 other", OWN), ("221 secret", RULES)):
        began = time.process_time()
        patterns = PatternSet(rules)
        compiled = (time.process_time() - began) * 1e3
        for count in (500, 4000):
            chunks = [text[i % len(text) : i % len(text) + SIZE] for i in range(0, count * SIZE, SIZE)]
            first, _ = stream(patterns, chunks)
            rounds = [stream(patterns, chunks) for _ in range(7)]
            best, scanner = min(rounds, key=lambda r: r[0])
            examined = scanner.examined / len("".join(chunks).encode())
            values = (compiled, count, best * 1e3, best / count * 1e6, first * 1e3, examined)
            figures = [f"{value:.{digits}f}" for value, digits in zip(values, (0, 0, 1, 2, 1, 1), strict=True)]
            print(name.ljust(12), *[value.rjust(max(9, len(head))) for value, head in zip(figures, heads, strict=True)])


if __name__ == "__main__":
    main()
