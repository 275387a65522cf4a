"""What the page on agents says of limits, events and stop reasons is what the code says."""

from __future__ import annotations

import re
from typing import get_args

from beforehand import Limits
from beforehand.events import Event, StopReason

from .pages import ROOT

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


def test_every_limit_is_there_with_its_default() -> None:
    table = PAGE.partition("<!-- limits -->")[2].partition("<!-- /limits -->")[0]
    shown = re.findall(r"^\| `(\w+)` \| ([\w.]+) \|", table, re.MULTILINE)
    limits = Limits()
    assert shown == [(name, str(getattr(limits, name)).removesuffix(".0")) for name in limits.__struct_fields__]


def test_every_stop_reason_is_there() -> None:
    table = PAGE.partition("## How a run ends")[2].partition("\n\n`result.reason`")[0]
    assert set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)))) == set(get_args(StopReason))


def test_every_event_is_there() -> None:
    kinds = {cls.type for cls in Event.__subclasses__() if isinstance(cls.type, str)}
    assert kinds
    assert kinds <= set(re.findall(r"`(\w+)`", PAGE))
