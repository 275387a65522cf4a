"""From what a model sent to arguments a tool can trust: decode, coerce, and say everything that is wrong.

`HintSchema` is made from type hints and decodes good arguments straight from JSON text; only when that fails does the slow
part run (`mend`), which repairs scalars and collects every problem. `JsonSchema` is written out by a tool's author. `signature`
reads what a body takes.
"""

from .hints import HintSchema
from .values import InvalidArguments, Rejected, Schema, plain, read_object, sendable, to_json
from .written import JsonSchema

__all__ = [
    "HintSchema", "InvalidArguments", "JsonSchema", "Rejected", "Schema", "plain", "read_object", "sendable", "to_json",
]  # fmt: skip
