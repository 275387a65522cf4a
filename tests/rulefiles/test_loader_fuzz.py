"""Mangled rule files: an error with a position or a valid set, never another exception, never a part of a set."""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from beforehand.rules import RuleFileError, load_rules, rules_json_schema
from beforehand.documents.json_places import read_json
from beforehand.documents.places import Malformed
from beforehand.documents.toml_places import read_toml
from beforehand.rules.validate import mistakes
from beforehand.documents.yaml_places import read_yaml

GOOD: list[dict[str, Any]] = [
    {"target": "stream", "chunks": ["content"], "regex": "sk-[a-z]+", "actions": [{"type": "replace", "with": "***"}]},
    {
        "label": 'é\n"q"',
        "target": "chat",
        "roles": ["user"],
        "maxTriggers": 2,
        "actions": [{"type": "interrupt", "resend": True}],
    },
    {
        "target": "tool",
        "event": "before",
        "tools": ["a*"],
        "args": {"/n/0~1": {"min": 1.5, "max": 2}},
        "order": -1,
        "actions": [{"type": "block", "reason": "no {{name}}"}, {"type": "queue-message", "role": "tool", "message": "x"}],
    },
    {
        "target": "request",
        "onError": "open",
        "timeoutMs": 5,
        "loops": ["main"],
        "actions": [
            {"type": "set-options", "options": {"stop": ["a"], "temperature": 1}},
            {"type": "hide-tools", "tools": ["x"]},
        ],
    },
    {"target": "turn", "enabled": False, "actions": [{"type": "end"}]},
    {"target": "run"},
]

TEXTS = {
    "json": json.dumps(GOOD, indent=1, ensure_ascii=False),
    "yaml": yaml.safe_dump(GOOD, allow_unicode=True, sort_keys=False),
    "toml": "\n".join(
        [
            '[[rules]]\ntarget = "chat"\nlabel = "é \\"q\\""\nroles = ["user"] # c',
            '[[rules.actions]]\ntype = "log"\nmessage = """a\nb"""',
            "[[rules]]\ntarget = 'tool'\nevent = 'before'\nargs.'/n' = {min = 1.5, max = 2}\nactions = [\n{type = 'block'},\n]\n",
        ]
    ),
}
SCRAPS = [
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    ":",
    ",",
    "\n",
    "- ",
    "  ",
    "\t",
    "#",
    "\\",
    "\\u",
    "\\ud800",
    "\x00",
    "\ufeff",
    "é",
    "\U0001f600",
    "null",
    "1e999",
    "-",
    "&a",
    "*a",
    "<<: ",
    "!!set ",
    "--- ",
    "[[x]]",
    "= ",
    '"""',
    "2024-01-01",
    "target",
    "chat",
    "(",
    "(?=a)",
    "true",
    "999999999999999999999",
]

edits = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.one_of(st.sampled_from(SCRAPS), st.text(max_size=3))), max_size=6
)


def mangled(text: str, changes: list[tuple[float, int, str]]) -> str:
    for place, gone, scrap in changes:
        at = int(place * len(text))
        text = text[:at] + scrap + text[at + gone :]
    return text


def load(data: bytes, suffix: str) -> tuple[int | None, list[tuple[int, int]]]:
    """How many rules are loaded, or the places of the mistakes."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"r.{suffix}").write_bytes(data)
        (Path(folder) / "z.json").write_text('{"target": "run"}')
        try:
            return len(load_rules([folder]).rules), []
        except RuleFileError as error:
            problems = error.problems
        assert {problem.file for problem in problems} == {str(Path(folder) / f"r.{suffix}")}
        assert all(problem.message for problem in problems)
        return None, [(problem.line, problem.column) for problem in problems]


def check(data: bytes, suffix: str) -> None:
    loaded, places = load(data, suffix)
    if loaded is None:
        breaks = "\r\n|[\r\n\x85\u2028\u2029]" if suffix == "yaml" else "\n"
        lines = re.split(breaks, data.decode("utf-8", "replace"))
        assert places
        assert all(1 <= line <= len(lines) and column >= 1 for line, column in places)
    else:
        value = {"json": msgspec.json.decode, "yaml": lambda d: yaml.safe_load(d), "toml": lambda d: tomllib.loads(d.decode())}[
            suffix
        ](data)
        value = value["rules"] if isinstance(value, dict) and list(value) == ["rules"] else value
        rules = value if isinstance(value, list) else [value]
        assert loaded == 1 + sum(rule.get("enabled", True) for rule in rules)


@pytest.mark.parametrize("suffix", ["json", "yaml", "toml"])
@given(changes=edits)
@example(changes=[])
def test_a_mangled_file_is_an_error_with_a_place_or_a_whole_set(suffix: str, changes: list[tuple[float, int, str]]) -> None:
    check(mangled(TEXTS[suffix], changes).encode("utf-8", "surrogatepass"), suffix)


@pytest.mark.parametrize("suffix", ["json", "yaml", "toml"])
@given(data=st.binary(max_size=40))
def test_any_bytes_at_all_are_an_error_with_a_place_or_a_whole_set(suffix: str, data: bytes) -> None:
    check(data, suffix)


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.floats(-1, 3),
    st.sampled_from(["", "user", "log", "chat", "before", "x", "content"]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["type", "message", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
FIELDS = [
    "target",
    "label",
    "enabled",
    "regex",
    "maxTriggers",
    "roles",
    "chunks",
    "tools",
    "event",
    "args",
    "actions",
    "order",
    "timeoutMs",
    "onError",
    "loops",
]


@given(
    good=st.sampled_from(GOOD),
    changed=st.dictionaries(st.sampled_from([*FIELDS, "extra"]), values, max_size=2),
    gone=st.sets(st.sampled_from(FIELDS), max_size=1),
)
def test_the_json_schema_and_the_loader_agree_on_the_form(good: dict[str, Any], changed: dict[str, Any], gone: set[str]) -> None:
    rule = {name: value for name, value in {**good, **changed}.items() if name not in gone or name == "target"}
    if any(isinstance(rule.get(name), float) for name in ("maxTriggers", "order", "timeoutMs")):
        return  # JSON Schema takes 2.0 for a whole number
    valid = jsonschema_rs.validator_for(rules_json_schema()).is_valid(rule)
    if rule.get("target") in ("tool", "turn") and not valid and not mistakes(rule, ()):
        with pytest.raises(RuleFileError, match="at event"):  # what an event does not take is no matter of form here
            load_one(rule)
    else:
        assert valid == (mistakes(rule, ()) == [])


def load_one(rule: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "r.json").write_text(json.dumps(rule))
        load_rules([folder])


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    found = {path}
    for step, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found |= paths_of(item, (*path, step))
    return found


documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=12,
)


@given(value=documents, indent=st.sampled_from([None, 0, 3]), ascii_only=st.booleans())
def test_every_member_of_a_json_text_has_its_place(value: Any, indent: int | None, ascii_only: bool) -> None:
    document = read_json(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    assert document.value == value
    assert document.places.keys() == paths_of(value)
    assert document.twice == ()


@given(changes=edits)
def test_json_is_refused_exactly_where_msgspec_refuses_it(changes: list[tuple[float, int, str]]) -> None:
    text = mangled(TEXTS["json"], changes)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    try:
        wanted = msgspec.json.decode(data)
    except msgspec.DecodeError:
        with pytest.raises(Malformed):
            read_json(text)
    else:
        document = read_json(text)
        assert document.value == wanted
        assert document.places.keys() >= paths_of(wanted)


plain = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-99, 99), st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=4)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab. é'\"", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=st.dictionaries(st.text("ab.é", min_size=1, max_size=3), plain, max_size=3))
def test_every_member_of_a_toml_text_has_its_place(value: dict[str, Any]) -> None:
    text = "\n".join([f"{key_of(name)} = {inline(item)} # c" for name, item in value.items()])
    document = read_toml(text)
    assert document.value == value
    assert document.places.keys() == paths_of(value)
    lines = {name: number for number, name in enumerate(value, 1)}
    assert all(document.places[(name,)].line == line for name, line in lines.items())


def key_of(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join([f"{key_of(name)} = {inline(item)}" for name, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[ " + ",\n ".join([inline(item) for item in value]).replace("\n", "") + " ]"
    return json.dumps(value, ensure_ascii=False)


@given(value=plain, flow=st.sampled_from([True, False, None]))
def test_every_member_of_a_yaml_text_has_its_place(value: Any, flow: bool | None) -> None:
    document = read_yaml(yaml.safe_dump(value, allow_unicode=True, default_flow_style=flow, sort_keys=False))
    assert document.value == value
    assert document.places.keys() == paths_of(value)
