"""`patternsFrom`: secrets as a gitleaks configuration describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beforehand import tool
from beforehand.rules import RuleFileError, check
from beforehand.rules.gitleaks import entropy
from beforehand.testing import text, tool_call
from rulefiles.kit import Said, rules_of, run

CONFIG = """
title = "some rules"

[[allowlists]]
stopwords = ["example"]

[[allowlists]]
targetRules = ["aws-key"]
stopwords = ["a"]

[[rules]]
id = "aws-key"
description = "An access key"
regex = '''\\b(AKIA[A-Z0-9]{16})\\b'''
keywords = ["AKIA"]

[[rules]]
id = "named-secret"
regex = '''(?i)secret\\s*=\\s*"([a-z0-9]{8,})"(;?)'''
secretGroup = 1
entropy = 3.0
keywords = ["secret"]

[[rules]]
id = "pin"
regex = '''pin=(?:([0-9]+)|([a-z][0-9]))'''

[[rules]]
id = "pkcs12"
path = '''\\.p12$'''

[[rules]]
id = "token"
regex = '''tok-[a-z0-9]{6,}'''
[rules.allowlist]
regexes = ['''tok-0+''']
[[rules.allowlists]]
condition = "AND"
paths = ['''docs/''']
regexes = ['''tok-''']
"""

KEY = "AKIA" + "Q3EXMPL7ABCD2345"


def write(folder: Path, config: str = CONFIG) -> Path:
    (folder / "secrets").mkdir(parents=True, exist_ok=True)
    file = folder / "secrets" / "gitleaks.toml"
    file.write_text(config)
    return file


def cover(**more: Any) -> dict[str, Any]:
    return {
        "target": "stream",
        "patternsFrom": "secrets/gitleaks.toml",
        "actions": [{"type": "replace", "with": "[{{rule}}]"}],
        **more,
    }


@pytest.mark.parametrize(
    ("whole", "shown"),
    [
        (f"key {KEY} here", "key [aws-key] here"),
        (f"x{KEY} is no key", f"x{KEY} is no key"),
        ('SECRET = "a1b2c3d4e5f6";', 'SECRET = "[named-secret]";'),
        ('secret = "aaaaaaaaaaaa"', 'secret = "aaaaaaaaaaaa"'),  # not random enough
        ('secret = "a1b2example3"', 'secret = "a1b2example3"'),  # a word that marks examples
        ("tok-abc123 tok-0000000", "[token] tok-0000000"),
        ("pin=4711; pin=x1", "pin=[pin]; pin=[pin]"),  # without a secretGroup, the first group that took part
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
async def test_secrets_are_covered_and_examples_are_not(whole: str, shown: str, size: int, tmp_path: Path) -> None:
    write(tmp_path)
    chunks = [whole[i : i + size] for i in range(0, len(whole), size)]

    result, _, screen = await run(rules_of(tmp_path, cover()), [text("", chunks=chunks)])

    assert result.text == shown
    assert "".join(screen.ever) == shown


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_a_secret_in_what_another_pattern_wants_to_see_around_its_own_is_covered_too(size: int, tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [[rules]]
        id = "login"
        regex = '''user=\\w+ password=(\\w+) pin=\\d+'''
        [[rules]]
        id = "user"
        regex = '''user=(\\w+)'''
        [[rules]]
        id = "pin"
        regex = '''pin=(\\d+)'''
        """,
    )
    whole = "user=bob password=hunter2 pin=4711."
    chunks = [whole[i : i + size] for i in range(0, len(whole), size)]

    result, _, screen = await run(rules_of(tmp_path, cover()), [text("", chunks=chunks)])

    assert result.text == "user=[user] password=[login] pin=[pin]."
    assert "".join(screen.ever) == result.text


async def test_patterns_serve_every_target(tmp_path: Path) -> None:
    write(tmp_path)
    said, ran = Said(), []

    @tool
    async def post(body: str) -> str:
        """Post."""
        ran.append(body)
        return f"posted, your key is {KEY}"

    rules = rules_of(
        tmp_path,
        cover(target="tool", event="after"),
        cover(target="tool", event="before", tools=["post"], actions=[{"type": "block", "reason": "{{rule}} in the arguments"}]),
        cover(target="chat", roles=["user"], actions=[{"type": "log", "message": "{{rule}} {{match_1}}"}]),
        voice=said,
    )
    replies = [[tool_call("post", {"body": f"k={KEY}"}), tool_call("post", {"body": "hello"})], text("done")]
    _, model, _ = await run(rules, replies, f"my {KEY}", tools=[post])

    assert ran == ["hello"]
    assert [message.text for message in model.requests[1].messages[-2:]] == [
        "aws-key in the arguments",
        "posted, your key is [aws-key]",
    ]
    assert said.texts == [f"aws-key {KEY}"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("x = ", "gitleaks.toml:1:5: this is not TOML"),
        ("x = 1", "gitleaks.toml:1:1: this is no gitleaks configuration: it has no [[rules]]"),
        ("[[rules]]\nregex = 'a'", "gitleaks.toml:1:1: a gitleaks rule needs an 'id'"),
        (
            "[[rules]]\nid = 'a'\nregex = 'a'\n[[rules]]\nid = 'a'\nregex = 'b'",
            "gitleaks.toml:4:1: a second gitleaks rule has the id 'a'",
        ),
        ("[[rules]]\nid = 'a'\nregex = 5", "gitleaks.toml:3:1: 'regex' must be a string"),
        ("[[rules]]\nid = 'a'\nregex = 'x(?=y)'", "gitleaks.toml:3:1: rule 'a': RE2 refuses a look-ahead"),
        ("[[rules]]\nid = 'a'\nregex = 'a'\nentropy = 'much'", "gitleaks.toml:4:1: 'entropy' must be a number"),
        ("[[rules]]\nid = 'a'\nregex = 'a'\nsecretGroup = 3", "gitleaks.toml:3:1: rule 'a': RE2 refuses there is no group 3"),
        ("[[rules]]\nid = 'a'\nregex = 'a'\nkeywords = [1]", "gitleaks.toml:4:1: 'keywords' must be a list of strings"),
        ("[[rules]]\nid = 'a'\nregex = 'a'\n[rules.allowlist]\nregexes = ['(']", "gitleaks.toml:5:1: "),
        ("[[rules]]\nid = 'a'\npath = 'a'", "gitleaks.toml:1:1: this gitleaks configuration has no rule with a regex"),
    ],
)
def test_a_mistake_in_the_patterns_names_both_files(config: str, why: str, tmp_path: Path) -> None:
    write(tmp_path, config)
    with pytest.raises(RuleFileError) as refused:
        rules_of(tmp_path, cover())
    (problem,) = refused.value.problems
    assert (problem.field, problem.line) == ("[0].patternsFrom", 2)
    assert f"secrets/{why}" in problem.message


def test_what_cannot_be_used_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path)
    rules_of(tmp_path, cover())
    report = check([tmp_path])
    assert report.ok
    assert [warning.message for warning in report.warnings] == [
        "the gitleaks rule 'pkcs12' is about file names, which no text has: it is left out"
    ]


def test_entropy_is_in_bits_per_character() -> None:
    assert [round(entropy(text), 3) for text in ("", "aaaa", "abab", "abcd")] == [0.0, 0.0, 1.0, 2.0]
