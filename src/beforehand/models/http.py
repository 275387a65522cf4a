"""HTTP for model adapters: time limits, retries, keys, one session per event loop, and transport failures by type.

aiohttp is imported on first use. Nothing here reads `~/.netrc`: a key for a model comes from the caller, a hook or an
environment variable, never from a file nobody named.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit


from ..errors import AuthenticationError, ConfigError, InvalidResponse, ModelError, NetworkError
from ..frozen import Frozen
from ..keys import Secrets as Secrets

if TYPE_CHECKING:
    import aiohttp
    import yarl

SHOWN = 200  # characters of a foreign answer that an error message repeats
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Failure(NamedTuple):
    """An error to raise, and whether the same request could succeed if it were sent again."""

    error: ModelError
    again: bool


class Timeouts(Frozen, frozen=True):
    """Time limits in seconds; `None` lifts one. `first_byte` and `between_chunks` measure silence, `total` one attempt."""

    connect: float | None = 10
    first_byte: float | None = 120
    between_chunks: float | None = 60
    total: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ConfigError(f"Timeouts({name}={seconds!r}): expected seconds above 0, or None for no limit")


class Retries(Frozen, frozen=True):
    """How often and how patiently a request is tried again before anything of its reply was yielded.

    `attempts` counts the first one. Waits grow from `base` by doubling up to `max` seconds, each shortened by up to
    half when `jitter` is on. `sleep`, `random` and `clock` (epoch seconds) are there to be replaced in tests.
    """

    attempts: int = 3
    base: float = 0.5
    max: float = 30.0
    jitter: bool = True
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        if self.attempts < 1 or not self.base >= 0 or not self.max >= 0:
            raise ConfigError("Retries: attempts counts the first one and is at least 1; base and max are seconds")

    def wait(self, attempt: int, failure: ModelError) -> float | None:
        """Seconds to wait after failed attempt number `attempt`, `None` to give up.

        An endpoint that asks for more patience than `max` gets none: the caller learns `retry_after` at once.
        """
        if attempt >= self.attempts:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.max else None
        wait = min(self.max, self.base * 2.0 ** min(attempt - 1, 60))
        return wait * (0.5 + self.random() / 2) if self.jitter else wait


# --- addresses and keys --------------------------------------------------------------------------


def checked_base_url(base_url: str) -> str:
    """`base_url` without a trailing slash. Raises `ConfigError`; never repeats credentials found in it."""
    try:
        url = urlsplit(base_url)
        labels, _ = (url.hostname or "").removesuffix(".").split("."), url.port  # reading the port checks it
    except ValueError:
        raise ConfigError("base_url is not an address: expected something like https://api.openai.com/v1") from None
    if url.username is not None or url.password is not None:
        raise ConfigError("base_url holds a user name or a password: pass the key as api_key= or set OPENAI_API_KEY")
    if url.scheme not in ("http", "https") or not all(0 < len(label) < 64 for label in labels):
        raise ConfigError(f"base_url {base_url!r} needs a scheme and a host, like https://api.openai.com/v1")
    if re.search(r"[?#\s\x00-\x1f\x7f]", base_url):
        raise ConfigError(
            "base_url may have no query, no fragment and no space: only scheme, host and path, like https://host/v1"
        )
    return base_url.rstrip("/")


def key_problem(key: str) -> str | None:
    """Why `key` cannot be sent in a header, in words that do not contain it; `None` if it can."""
    for position, character in enumerate(key):
        if not "!" <= character <= "~":
            what = "a line break" if character in "\r\n" else "a space" if character == " " else "no visible ASCII character"
            return f"the API key has {what} at position {position + 1} of {len(key)}: was it copied with something around it?"
    return None


class HiddenText(str):
    """Text whose `repr` does not show it: what a traceback with local variables prints of a key."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def checked_key(key: str, source: str) -> HiddenText:
    """`key` if it can be sent. Raises `AuthenticationError`: nothing was sent."""
    if problem := key_problem(key):
        raise AuthenticationError(f"no request was sent: {problem} (the key came from {source})")
    return HiddenText(key)


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Extra headers as a plain dict. Raises `ConfigError` naming the header, never its value."""
    checked = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a header name")
        if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
            raise ConfigError(f"the value of header {name!r} must be printable ASCII")
        if name.lower() in ("content-length", "content-type", "transfer-encoding", "host", "connection"):
            raise ConfigError(f"header {name!r} is set by the adapter and cannot be given")
        checked[name] = value
    return checked


def is_secret_header(name: str) -> bool:
    """Whether a header of this name looks like a credential."""
    return _SECRET_HEADER.search(name) is not None


def secret_values(headers: Mapping[str, str]) -> list[str]:
    """The values of those headers that look like credentials, and the token after a scheme such as `Bearer`."""
    values = [value for name, value in headers.items() if is_secret_header(name)]
    return values + [value.split(" ", 1)[1] for value in values if " " in value]


def shown(text: str, secrets: Secrets) -> str:
    """The first `SHOWN` characters of a foreign text as one line, secrets hidden before it is cut."""
    start = secrets.hide(text)[: 20 * SHOWN]
    line = " ".join("".join([c if c.isprintable() else " " for c in start]).split())
    return line if len(line) <= SHOWN else line[:SHOWN] + "..."


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds an endpoint asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date. Never negative."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - now
            except (ValueError, TypeError, OverflowError):
                continue
        if seconds == seconds and seconds != float("inf"):  # neither NaN nor infinite
            return max(0.0, seconds)
    return None


# --- sessions ------------------------------------------------------------------------------------


class Sessions:
    """One aiohttp session per running event loop, opened on first use and closed with its loop at the latest."""

    def __init__(self, timeouts: Timeouts, url: str) -> None:
        self._timeouts = timeouts
        self._address = url
        self._url: yarl.URL | None = None
        # A session holds its loop, so weak keys would keep no loop from living on: `_abandon_dead` lets go of it.
        self._open: dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[None, None]]] = {}

    async def get(self) -> aiohttp.ClientSession:
        """The session of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._open.get(loop)
        if found is not None and not found[0].closed:
            return found[0]
        self._abandon_dead()
        session = _open_session(self._timeouts, self._address)
        keeper = _close_with_loop(session)
        self._open[loop] = (session, keeper)
        await anext(keeper)
        return session

    @property
    def url(self) -> yarl.URL:
        """The address, parsed once."""
        if self._url is None:
            from yarl import URL

            try:
                self._url = URL(self._address)
            except ValueError:
                raise ConfigError(f"{self._address} is not an address that can be reached over HTTP") from None
        return self._url

    async def aclose(self) -> None:
        """Close this loop's session. Those of loops that run in other threads are theirs to close."""
        self._abandon_dead()
        open_here = self._open.pop(asyncio.get_running_loop(), None)
        if open_here is not None:
            await open_here[1].aclose()

    def _abandon_dead(self) -> None:
        for loop, (session, _) in list(self._open.items()):
            if loop.is_closed():
                self._open.pop(loop, None)
                _abandon(session)

    def __del__(self) -> None:
        self._abandon_dead()


async def _close_with_loop(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """Closes `session` when its loop shuts down: `asyncio.run` finalises the async generators that are still open.

    Without it, a program that never calls `aclose()` would end in warnings about unclosed transports.
    """
    try:
        yield
    finally:
        await session.close()


def _open_session(timeouts: Timeouts, url: str) -> aiohttp.ClientSession:
    import aiohttp

    return aiohttp.ClientSession(
        # No pool limit: how many runs are at work is the caller's decision, and a run that waits for a connection would
        # look like an endpoint that does not answer.
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=timeouts.total, connect=timeouts.connect, sock_read=timeouts.first_byte),
        proxy=_proxy_for(url),
    )


def _proxy_for(url: str) -> str | None:
    """The proxy the environment names for `url`.

    Asked once a session. aiohttp's own `trust_env` asks again for every request, in a thread (two hops, 70 microseconds
    each), and would also add an `Authorization` header out of `~/.netrc`.
    """
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.netloc):
        return None
    scheme, separator, _ = proxy.partition("://")
    if separator and scheme.lower() not in ("http", "https"):
        raise NetworkError(f"{url}: the environment names a {scheme} proxy, and only http proxies are supported; see no_proxy")
    return proxy if separator else f"http://{proxy}"


def _abandon(session: aiohttp.ClientSession) -> None:
    """Let go of a session whose loop is closed: nothing can be awaited there, and no transport can say goodbye.

    The sockets are closed by hand, since a transport left to the garbage collector warns about itself. That needs
    private names (asyncio has no public way to close a transport of a dead loop); without them the warning is all.
    """
    connector = session.connector
    session.detach()
    pool = getattr(connector, "_conns", {})
    protocols = [protocol for idle in pool.values() for protocol, *_ in idle] + list(getattr(connector, "_acquired", ()))
    pool.clear()  # or the connector would warn
    for transport in [protocol.transport for protocol in protocols if protocol.transport is not None]:
        inner = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None) or transport
        with suppress(RuntimeError):  # "Event loop is closed", raised once it is marked as closing
            transport.close()
        with suppress(RuntimeError, AttributeError):  # the same, raised once the socket is closed; or other private names
            inner._call_connection_lost(None)


# --- failures of the transport -------------------------------------------------------------------


def transport_errors() -> tuple[type[Exception], ...]:
    """What aiohttp raises. For an `except` clause, which asks only once something was raised."""
    import aiohttp

    return (aiohttp.ClientError, OSError)


def transport_failure(error: Exception, endpoint: str, timeouts: Timeouts, secrets: Secrets) -> Failure:
    """A transport's exception as ours. The original is not chained: it holds the request's headers, the key among them.

    Silence is no reason to ask again: the endpoint may still be at work on the request, and charge for both.
    """
    import aiohttp
    from aiohttp.http_exceptions import ContentEncodingError

    what = shown(str(error) or type(error).__name__, secrets)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return _unreachable(f"{endpoint}: no connection within {timeouts.connect} s; check address, proxy and network")
    if isinstance(error, TimeoutError):
        limits = {"first byte": timeouts.first_byte, "between chunks": timeouts.between_chunks, "total": timeouts.total}
        listed = ", ".join(f"{name} {seconds:g} s" for name, seconds in limits.items() if seconds is not None)
        line = f"{endpoint}: too long a silence or too long a reply ({listed}); raise Timeouts if it is only slow"
        return Failure(NetworkError(line), again=False)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _unreachable(f"{endpoint}: the host name was not found; check base_url ({what})")
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch):
        line = f"{endpoint}: no secure connection; check the certificate and that the port speaks TLS ({what})"
        return Failure(NetworkError(line), again=False)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        line = f"{endpoint}: the proxy answered {error.status} when asked for a tunnel; check the proxy and its credentials"
        return Failure(NetworkError(line, status=error.status), again=error.status >= 500)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _unreachable(f"{endpoint}: no connection; check that it runs and that base_url is right ({what})")
    if isinstance(error, aiohttp.ClientResponseError):
        return Failure(InvalidResponse(f"{endpoint}: the answer is not HTTP; check base_url ({what})"), again=False)
    if isinstance(error.__cause__, ContentEncodingError):
        return Failure(InvalidResponse(f"{endpoint}: the answer cannot be decompressed ({what})"), again=False)
    return cut(endpoint, what)


def cut(endpoint: str, what: str = "") -> Failure:
    """The line went dead before the reply was complete."""
    return _unreachable(f"{endpoint}: the connection was cut before the reply was complete{f' ({what})' if what else ''}")


def _unreachable(line: str) -> Failure:
    return Failure(NetworkError(line), again=True)
