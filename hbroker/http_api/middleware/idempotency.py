"""Idempotency keys: a request that is sent again has no second effect
(draft-ietf-httpapi-idempotency-key-header).

A client that gets no answer to a POST does not know whether it was carried out. It sends the request again
with the same `Idempotency-Key`. The second one gets the answer of the first:

    the first is under way             409, with Retry-After
    it was another request             422
    it was answered, but not by 5xx    the same answer, with `Idempotency-Replayed: true`
    it was answered with 5xx           it is carried out again

The keys of two callers have nothing to do with each other. An answer is kept for a day, in memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from hbroker.http_api.problems import Refusal
from hbroker.protocol.expiring_cache import ExpiringCache

__all__ = ["MOST_BODY_BYTES", "MOST_KEPT", "Idempotency"]

MOST_BODY_BYTES: Final = 16 << 20
"""The largest request."""
MOST_KEPT: Final = 10_000
_KEPT_US: Final = 86_400 * 1_000_000
_MOST_ANSWER: Final = 64 * 1_024
"""A larger answer is not kept: then the request is carried out again. No route that changes something has
one."""
_MOST_KEY: Final = 255
_HEADER: Final = b"idempotency-key"


@dataclass(slots=True)
class _Answer:
    """What a request was answered. `fingerprint`: of its body. `messages`: of ASGI; None: it is under way."""

    fingerprint: bytes
    messages: list[Message] | None = None


class Idempotency(ASGIMiddleware):
    """Keeps the answers of POST requests with a key."""

    scopes = (ScopeType.HTTP,)

    def __init__(self) -> None:
        self._answers: ExpiringCache[tuple[str, str, str], _Answer] = ExpiringCache(MOST_KEPT)
        self._under_way: dict[tuple[str, str, str], _Answer] = {}

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Answers a repeated request, or carries it out. Raises Refusal."""
        key = _key(scope)
        if key is None:
            await next_app(scope, receive, send)
            return
        body, replay = await _read(receive)
        place = (str(scope.get("auth", "")), scope["path"], key)
        fingerprint = sha256(body).digest()
        known = self._under_way.get(place) or self._answers.get(_now(), place)
        if known is not None:
            await _repeat(known, fingerprint, send)
            return
        answer = self._under_way[place] = _Answer(fingerprint)
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)
            await send(message)

        try:
            await next_app(scope, replay, keep)
        finally:
            del self._under_way[place]
        if _is_replayable(messages):
            answer.messages = messages
            self._answers.put(place, answer, _now() + _KEPT_US)


async def _repeat(known: _Answer, fingerprint: bytes, send: Send) -> None:
    if known.fingerprint != fingerprint:
        text = "this Idempotency-Key was sent with another request: make a new one for each"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, text)
    if known.messages is None:
        text = "the first request with this Idempotency-Key is under way"
        raise Refusal(HTTPStatus.CONFLICT, text, {"Retry-After": "1"})
    for message in known.messages:
        if message["type"] == "http.response.start":
            replayed = (b"idempotency-replayed", b"true")
            await send({**message, "headers": [*message["headers"], replayed]})
        else:
            await send(message)


def _key(scope: Scope) -> str | None:
    """The key of a request; None: it has none, or is no POST. Raises Refusal if it cannot be one."""
    if scope["method"] != "POST":  # type: ignore[typeddict-item]
        return None
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    given = headers.get(_HEADER)
    if given is None:
        return None
    if not 0 < len(given) <= _MOST_KEY:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"an Idempotency-Key has 1 to {_MOST_KEY} characters")
    return given.decode("latin-1")


async def _read(receive: Receive) -> tuple[bytes, Receive]:
    """The body of a request, and what gives it to the application."""
    parts: list[Any] = []
    left = MOST_BODY_BYTES
    while True:
        message: Any = await receive()
        parts.append(message)
        left -= len(message.get("body", b""))
        if left < 0:
            raise Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MOST_BODY_BYTES:,} bytes"
            )
        if not message.get("more_body"):
            break
    waiting = list(reversed(parts))

    async def replay() -> Any:
        return waiting.pop() if waiting else await receive()

    return b"".join(message.get("body", b"") for message in parts), replay


def _is_replayable(messages: list[Any]) -> bool:
    is_answered = bool(messages) and messages[0]["type"] == "http.response.start"
    if not is_answered or messages[0]["status"] >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return False
    return sum(len(message.get("body", b"")) for message in messages[1:]) <= _MOST_ANSWER


def _now() -> int:
    return time.monotonic_ns() // 1_000
