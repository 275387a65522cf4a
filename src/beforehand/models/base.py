"""What the loop needs from a model: one method that turns a request into a stream of deltas.

Every adapter, real or scripted, is a `Model`. The loop authorises a request before it calls `stream`, so an adapter
cannot send anything that the gates have not seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

from ..frozen import Frozen
from ..messages import NO_USAGE, Image, MessageStop, Request, Usage


class TextDelta(Frozen, gc=False):
    """More visible text."""

    text: str


class ThinkingDelta(Frozen, gc=False):
    """More reasoning text. `signature`, where a provider proves its reasoning, replaces the one before."""

    text: str
    signature: str | None = None


class ToolCallDelta(Frozen, gc=False):
    """More of the tool call number `index` of this reply: `arguments` is the next piece of its JSON text.

    `id` and `name` come with the first delta of a call; an adapter whose endpoint sends no id leaves it `None`.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class ImageDelta(Frozen, gc=False):
    """A whole image made by the model."""

    image: Image


class Finish(Frozen, gc=False):
    """The reply is complete. A stream that ends without one was cut, which is an error."""

    stop_reason: MessageStop = "stop"
    usage: Usage = NO_USAGE


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | ImageDelta | Finish

Observe: TypeAlias = Callable[[str, dict[str, Any]], None]
"""Called with an opt-in event's type and its fields; never with a key."""


class CallInfo(Frozen):
    """What goes with a request but not into it: the key for this request, and who watches the wire."""

    key: str | None = None
    observe: Observe | None = None

    def __repr__(self) -> str:
        return f"CallInfo(key={'***' if self.key else None}, observe={self.observe!r})"


NO_CALL_INFO = CallInfo()


class Model:
    """Base of all adapters.

    Attributes: `name` (what the endpoint calls the model), `provider` (whose wire format and keys), `endpoint`
    (where requests go), `context_tokens` (its window, `None` if unknown), `streams` (False if replies come in one
    piece: `on_chunk` then fires once per channel, with the whole text).
    """

    name: str = "model"
    provider: str = "unknown"
    endpoint: str = "in-process"
    context_tokens: int | None = None
    streams: bool = True

    def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncIterator[ModelEvent]:
        """Send `request` and yield the reply, ending with `Finish`.

        Raises a `ModelError` of the fitting kind. Closing the iterator closes the connection.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement stream()")

    async def aclose(self) -> None:
        """Close connections. The model can be used again afterwards."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, endpoint={self.endpoint!r})"
