"""OpenTelemetry: a span for each run, turn, request and tool call, and a span event for each decision (extra `[otel]`).

agent = Agent(model=..., listeners=[OpenTelemetry()])
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..errors import ConfigError
from ..observer import Observer, RunBegin, RunObserver

KEPT = 1_024
"""How many suspended runs are remembered, so that the span of one that goes on can link to the span it had before."""


class OpenTelemetry(Observer):
    """Traces every run of the agents it is given to as a listener, and of their sub-agents.

    Spans and attributes follow the semantic conventions for generative AI; what those have no name for is `beforehand.*`.
    `tracer_provider` is the one to use, without one the global one. `capture_content=True` also records instructions,
    prompts, replies, arguments and results, in the form that the hooks let pass. Keys are never recorded.
    Raises `ConfigError` if OpenTelemetry is not installed.
    """

    def __init__(self, tracer_provider: Any = None, *, capture_content: bool = False) -> None:
        try:
            from opentelemetry import trace

            from .trace import RunTrace
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("opentelemetry"):
                raise
            raise ConfigError('tracing needs OpenTelemetry: install the extra "otel" of beforehand') from None
        if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
            raise ConfigError(
                f"OpenTelemetry(tracer_provider=...) is a {type(tracer_provider).__name__}: expected a TracerProvider, or None"
            )
        if not isinstance(capture_content, bool):
            raise ConfigError(f"OpenTelemetry(capture_content={capture_content!r}): expected True or False")
        self._trace = RunTrace
        self._tracer = trace.get_tracer("beforehand", tracer_provider=tracer_provider)
        self._capture = capture_content
        self._suspended: OrderedDict[str, Any] = OrderedDict()

    def begin(self, run: RunBegin) -> RunObserver | None:
        before = self._suspended.pop(run.run_id, None)
        trace = self._trace(self._tracer, run, self._capture, before, self._keep)
        return trace if trace.exists else None

    def _keep(self, run_id: str, suspended: Any) -> None:
        self._suspended[run_id] = suspended
        while len(self._suspended) > KEPT:
            self._suspended.popitem(last=False)


__all__ = ["OpenTelemetry"]
