"""Tool calls put together from an OpenAI-compatible reply, whose pieces come in more shapes than the protocol has.

Servers number the pieces or not, give ids never, once or with every piece, cut names or repeat them. What comes out
keeps the contract of `ToolCallDelta`: calls are numbered 0, 1, 2 in the order of their first deltas, and the first delta
of a call has its whole name. For that a call is announced with its first piece of arguments, or when the next call begins.
"""

from __future__ import annotations

import msgspec

from .base import ModelEvent, ToolCallDelta
from .openai_wire import UNDECODABLE

_decode = msgspec.json.Decoder().decode


class WireFunction(msgspec.Struct, gc=False):
    """The `function` of a piece. `arguments` is the next part of a JSON text."""

    name: str | None = None
    arguments: str | None = None


class WireCall(msgspec.Struct, gc=False):
    """One piece of one call, as the wire has it."""

    index: int | None = None
    id: str | None = None
    function: WireFunction | None = None


_NO_FUNCTION = WireFunction()


class _Call:
    __slots__ = ("arguments", "id", "name", "number")

    def __init__(self) -> None:
        self.number = -1  # until it is announced
        self.id: str | None = None
        self.name = ""
        self.arguments: list[str] = []


class CallAssembler:
    """The tool calls of one reply so far."""

    __slots__ = ("_announced", "_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._announced = 0

    @property
    def count(self) -> int:
        return len(self._calls)

    def take(self, pieces: list[WireCall], events: list[ModelEvent], whole: bool) -> None:
        """Append the deltas of `pieces`, the list of one chunk; `whole` says that each is a call of its own."""
        for position, piece in enumerate(pieces):
            function = piece.function or _NO_FUNCTION
            call = None if whole else self._find(piece, function.name, position)
            if call is None:
                if not (piece.id or function.name or function.arguments):
                    continue
                call = self._begin(piece.index, events)
            announced = call.number >= 0
            late_id = None
            if piece.id and call.id is None:
                call.id = piece.id
                late_id = piece.id if announced else None
            if function.name and not announced and function.name != call.name:  # the same name again is no more of it
                call.name += function.name
            if function.arguments:
                call.arguments.append(function.arguments)
            if announced:
                if function.arguments or late_id:
                    events.append(ToolCallDelta(call.number, late_id, None, function.arguments or ""))
            elif call.arguments and call.name:
                self._announce(call, events)

    def close(self, events: list[ModelEvent], *, cut: bool) -> None:
        """The reply is complete: announce what was held back. A call without arguments gets `{}`, unless `cut` short."""
        for call in self._calls:
            nothing = not call.arguments and not cut
            if nothing:
                call.arguments.append("{}")
            if call.number < 0:
                self._announce(call, events)
            elif nothing:
                events.append(ToolCallDelta(call.number, None, None, "{}"))

    def _find(self, piece: WireCall, name: str | None, position: int) -> _Call | None:
        """The call that `piece` continues; `None` if it begins one."""
        if piece.index is not None:
            call = self._by_index.get(piece.index)
            if call is not None and name and piece.id and call.id and piece.id != call.id:
                return None  # some servers number every call 0: another id together with a name is another call
            return call
        if not self._calls:
            return None
        last = self._calls[-1]
        if piece.id:
            for call in self._calls:
                if call.id == piece.id:
                    return call
            return last if last.id is None and not name else None
        if not name:
            return last
        if position == 0 and name == last.name and not _is_complete(last.arguments):
            return last  # neither number nor id, but the name again before its arguments were complete
        return None

    def _begin(self, index: int | None, events: list[ModelEvent]) -> _Call:
        if self._calls and self._calls[-1].name and self._calls[-1].number < 0:
            self._announce(self._calls[-1], events)
        call = _Call()
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _announce(self, call: _Call, events: list[ModelEvent]) -> None:
        call.number = self._announced
        self._announced += 1
        events.append(ToolCallDelta(call.number, call.id, call.name, "".join(call.arguments)))


def _is_complete(arguments: list[str]) -> bool:
    try:
        _decode("".join(arguments))
    except UNDECODABLE:
        return False
    return True
