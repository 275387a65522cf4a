"""Keys have no place in what is stored or shown: how those that are known are found in texts, addresses and parameters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

SHORTEST = 8
"""Characters of the shortest key that is hidden: a shorter one is a placeholder, or a word like any other."""

_SECRET = re.compile(
    r"(api|access|secret|private|auth|session|signing)[-_]?(key|token)s?$|^(key|token)$|[-_](token|pat)$"
    r"|secret|passw(or)?d|authorization|credential|bearer",
    re.IGNORECASE,
)


def hidden(text: str, values: Iterable[str | None]) -> str:
    """`text` with each of these keys, as it is or as an address or JSON would hold it, replaced by `***`."""
    from urllib.parse import quote  # deferred: it serves failures only

    for value in values:
        if value and len(value) >= SHORTEST:
            for form in (value, quote(value, safe=""), value.replace("\\", "\\\\").replace('"', '\\"')):
                text = text.replace(form, "***")
    return text


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
