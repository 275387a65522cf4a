"""The journal: what a run decided and did, durable before it matters, so that nothing is done or decided twice."""

from .chain import FORMAT, Record
from .sqlite import Journal
from .verify import Fault, verify

__all__ = ["FORMAT", "Fault", "Journal", "Record", "verify"]
