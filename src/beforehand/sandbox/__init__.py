"""Runs code that nobody vouches for: one function, one JSON argument, one JSON result, in a process of its own."""

from .contract import (
    JSON, METHODS, Bridge, BridgeRefused, Console, LambdaBroken, LambdaMissing, LambdaNotStarted, LambdaOutOfMemory,
    LambdaRaised, LambdaResultTooLarge, LambdaTimedOut, LambdaTooManyCalls, LambdaTooManyInside, LambdaUnsupported, Outcome,
    SandboxError, SandboxLimits, Source,
)  # fmt: skip
from .pool import call, check_language, close_spares

__all__ = [
    "JSON", "METHODS", "Bridge", "BridgeRefused", "Console", "LambdaBroken", "LambdaMissing", "LambdaNotStarted",
    "LambdaOutOfMemory", "LambdaRaised", "LambdaResultTooLarge", "LambdaTimedOut", "LambdaTooManyCalls",
    "LambdaTooManyInside", "LambdaUnsupported", "Outcome", "SandboxError", "SandboxLimits", "Source", "call",
    "check_language", "close_spares",
]  # fmt: skip
