"""Runs on more than one machine: submitted from anywhere, carried by any number of workers, lost by none.

DBOS queues them and hands them out; what a run has decided and done is in the journal, on which every worker goes on.
"""

from .engine import Engine
from .limits import QueueLimits

__all__ = ["Engine", "QueueLimits"]
