"""Keys have no place in what is stored or shown: how those that are known are found in texts, addresses and parameters."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

SHORTEST = 8
"""Characters of the shortest key that is hidden: a shorter one is a placeholder, or a word like any other."""

_SECRET = re.compile(
    r"(api|access|secret|private|auth|session|signing)[-_]?(key|token)s?$|^(key|token)$|[-_](token|pat)$"
    r"|secret|passw(or)?d|authorization|credential|bearer",
    re.IGNORECASE,
)


class Secrets:
    """Texts that must not be seen, and the forms in which an endpoint may echo them.

    One of less than `shortest` characters is a placeholder, or a word like any other: to hide it would only garble texts.
    """

    __slots__ = ("_forms",)

    def __init__(self, values: Iterable[str], shortest: int = 4) -> None:
        from urllib.parse import quote  # deferred: it costs every import of the package

        forms: set[str] = set()
        for value in map(str, values):
            if len(value) >= shortest:
                forms.add(value)
                with contextlib.suppress(UnicodeEncodeError):  # a variable of the environment may hold anything
                    escaped = msgspec.json.encode(value).decode()[1:-1]
                    forms |= {escaped, escaped.replace("/", "\\/"), quote(value, safe="")}
        self._forms = sorted(forms, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """`text` with every secret replaced by `***`."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, "***")
        return text

    def hide_in(self, value: Any) -> Any:
        """A copy of JSON-shaped `value` with every secret in it, keys included, replaced."""
        try:
            return self._hidden(value)
        except RecursionError:
            return "(nested too deeply to be shown)"

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(k): self._hidden(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._hidden(v) for v in value]
        return value

    def __repr__(self) -> str:
        return f"Secrets({len(self._forms)} hidden forms)"


def hidden(text: str, values: Iterable[str | None]) -> str:
    """`text` with each of these keys, in whatever form an endpoint may echo it, replaced by `***`."""
    return Secrets([value for value in values if value], SHORTEST).hide(text)


def of_environment() -> list[str]:
    """The values of environment variables that are named like keys."""
    return [value for name, value in os.environ.items() if _is_secret(name)]


def of_address(address: str) -> list[str]:
    """What an address holds beside the place it names: user, password, and the values of its query."""
    from urllib.parse import parse_qsl, unquote, urlsplit

    try:
        parts = urlsplit(address)
    except ValueError:
        return []
    user = [found for text in parts.netloc.rpartition("@")[0].split(":") for found in (text, unquote(text))]
    return [*user, *[value for _, value in parse_qsl(parts.query)]]


def place_of(address: str) -> str:
    """An address without user, password and query."""
    if "://" not in address or not ("@" in address or "?" in address):
        return address
    place = address.partition("?")[0]
    scheme, _, rest = place.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def holds_key(params: Any) -> bool:
    """Whether JSON-shaped data has a text under a name that keys have."""
    if isinstance(params, Mapping):
        return any([(isinstance(v, str) and _is_secret(str(k))) or holds_key(v) for k, v in params.items()])
    return isinstance(params, list | tuple) and any([holds_key(value) for value in params])


def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None
