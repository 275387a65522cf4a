"""Texts that a pattern matches, made from its tree. Made secrets are never stored: they set off the scanners of others."""

from __future__ import annotations

import random
import string
from functools import cache

import re2

from beforehand.stream.regex import Alt, Atom, Group, Look, Node, Repeat, Seq

CHARACTERS = string.ascii_letters + string.digits + string.punctuation + " \n"


@cache
def fitting(atom: str) -> str:
    """The characters a pattern of one character matches; a plain letter or digit where it has a choice."""
    found = re2.compile(atom).findall(CHARACTERS)
    return "".join([c for c in found if c.isalnum()] or found)


def sample(node: Node, rng: random.Random) -> str:
    """A text the tree matches, conditions on the place aside."""
    match node:
        case Atom(text):
            return rng.choice(fitting(text))
        case Look():
            return ""
        case Group(item):
            return sample(item, rng)
        case Seq(items):
            return "".join([sample(x, rng) for x in items])
        case Alt(items):
            return sample(rng.choice(items), rng)
        case Repeat(item, low, high, _):
            most = low + 3 if high is None else min(high, low + 3)
            return "".join([sample(item, rng) for _ in range(rng.randint(low, most))])
