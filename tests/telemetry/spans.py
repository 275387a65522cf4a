"""Spans as tests look at them: what was recorded, as a tree, and whether every span that began has ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from beforehand import DecisionRecord
from beforehand.otel import OpenTelemetry

Tree = list[tuple[str, "Tree"]]


class _Open(SpanProcessor):
    """Which spans have begun and not ended, and the order in which all began."""

    def __init__(self) -> None:
        self.spans: dict[int, str] = {}
        self.order: dict[int, int] = {}

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self.spans[span.context.span_id] = span.name
        self.order[span.context.span_id] = len(self.order)

    def on_end(self, span: ReadableSpan) -> None:
        assert span.context is not None
        del self.spans[span.context.span_id]


class Recorder:
    """A tracer provider that keeps its spans, and the listeners that write to it."""

    def __init__(self) -> None:
        self.provider, self._exporter, self._open = TracerProvider(), InMemorySpanExporter(), _Open()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.provider.add_span_processor(self._open)
        self.tracer = self.provider.get_tracer("test")

    def listener(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(self.provider, **options)

    @property
    def open(self) -> list[str]:
        return list(self._open.spans.values())

    @property
    def spans(self) -> list[ReadableSpan]:
        """Every span that has ended, in the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: self._open.order[id_of(span)])

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def call(self, call_id: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if attributes(span).get("gen_ai.tool.call.id") == call_id]
        return span

    def tree(self) -> Tree:
        return _below(None, self.spans)

    def text(self) -> str:
        """All that an exporter would write down."""
        return "".join([span.to_json() for span in self.spans])


def _below(parent: int | None, spans: list[ReadableSpan]) -> Tree:
    return [(span.name, _below(id_of(span), spans)) for span in spans if parent_of(span) == parent]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def status(span: ReadableSpan) -> tuple[str, str | None, str | None]:
    """Status, error type and description."""
    return span.status.status_code.name, attributes(span).get("error.type"), span.status.description


def decisions(spans: Iterable[ReadableSpan]) -> list[dict[str, Any]]:
    """The decision events of these spans, in the order in which they were made, each with the name of its span."""
    found = [(event.timestamp, span.name, dict(event.attributes or {})) for span in spans for event in span.events]
    return [{"span": name, **values} for _, name, values in sorted(found, key=lambda item: item[0])]


def as_event(record: DecisionRecord) -> dict[str, Any]:
    """What a decision's event must say of it."""
    done = record.reversible
    said = {
        "hook": record.hook, "where": record.where, "seam": record.seam, "verdict": record.verdict, "reason": record.reason,
        "digest": record.digest, "duration": record.duration, "reversible.requests_sent": done.requests_sent,
        "reversible.characters_released": done.characters_released, "reversible.tools_run": done.tools_run,
    }  # fmt: skip
    return {f"beforehand.decision.{name}": value for name, value in said.items() if value is not None}
