"""Lambdas: hooks written in a workspace folder, by someone whom the agent's owner need not trust."""

from .authority import Authority
from .bridge import Bridge
from .codetools import CodeTools, code_tools
from .files import Workspace, split_source
from .gates import Gates
from .lambdas import Lambda
from .paths import PathRefused
from .reach import Approvals

__all__ = [
    "Approvals", "Authority", "Bridge", "CodeTools", "Gates", "Lambda", "PathRefused", "Workspace", "code_tools", "split_source",
]  # fmt: skip
