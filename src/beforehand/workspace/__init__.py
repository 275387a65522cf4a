"""Lambdas: hooks written in a workspace folder, by someone whom the agent's owner need not trust."""

from .authority import Authority
from .bridge import Bridge
from .files import Workspace, split_source
from .gates import Gates
from .lambdas import Lambda
from .paths import PathRefused
from .reach import Approvals

__all__ = ["Approvals", "Authority", "Bridge", "Gates", "Lambda", "PathRefused", "Workspace", "split_source"]
