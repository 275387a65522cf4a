"""The page about rule files: its examples load, and its tables say what is so."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from beforehand.rules import load_rules
from beforehand.rules.schema import RULES
from beforehand.rules.templates import COMMON, KNOWN
from rulefiles.test_every_action_everywhere import ACTIONS, CELLS, PROOFS

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```(json|yaml|toml)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("suffix", "text"), EXAMPLES)
def test_an_example_loads_without_a_warning(suffix: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "gitleaks.toml").write_text("[[rules]]\nid = 'a'\nregex = 'a'")
    (tmp_path / f"example.{suffix}").write_text(text)
    rules = load_rules([tmp_path])
    assert rules.hooks
    assert rules.warnings == ()


def rows(heading: str) -> list[list[str]]:
    """The first table after a heading, without the line under its head."""
    lines = PAGE.partition(f"\n{heading}\n")[2].splitlines()
    table = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table if not line.startswith("|---")]


def test_the_table_of_actions_is_the_one_that_is_tested() -> None:
    head, *body = rows("## Actions")
    columns = {name: [cell for cell in CELLS if cell in CELL_NAMES[name]] for name in head[2:]}
    said = set()
    for row in body:
        for action in re.findall(r"`([\w-]+)`", row[0]):
            for name, text in zip(head[2:], row[2:], strict=True):
                said |= {(cell, action) for cell in columns[name] if text and (text != "after" or cell.endswith("after"))}
    assert said == set(PROOFS)
    assert {action for _, action in said} == set(ACTIONS)


CELL_NAMES = {
    "chat": ["chat"],
    "stream": ["stream"],
    "tool before": ["tool before"],
    "tool after, error": ["tool after", "tool error"],
    "request": ["request"],
    "turn": ["turn before", "turn after"],
    "run": ["run"],
}


def test_the_table_of_fields_has_all_of_them() -> None:
    said = {field: targets for field, targets, _, _ in [[row[0].strip("`"), *row[1:]] for row in rows("## A rule")[1:]]}
    fields = {field for rule in RULES.values() for field in rule.__struct_encode_fields__} | {"target"}
    assert set(said) == fields
    for field, targets in said.items():
        owners = {target for target, rule in RULES.items() if field in rule.__struct_encode_fields__}
        assert targets.startswith("all") or field == "target" or set(targets.split(", ")) == owners


def test_the_table_of_variables_has_all_of_them() -> None:
    said = {row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in rows("## Templates")[1:]}
    for target in RULES:
        known = {name for (of, _), names in KNOWN.items() if of == target for name in names}
        assert known <= said[target]
        assert said[target] <= known | {"regex", "finish", *COMMON}
