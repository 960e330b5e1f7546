"""Requests of operators to all gateways, over the network: `hbroker clients` and `hbroker kick`.

A request is a message under `$gateway/requests/`. Every gateway receives it, and answers in pages under the
topic below `$gateway/replies/` that the request names. In a network with a join key a gateway accepts a
request only if it is authenticated with the key, is young, and has not been seen before. So a recorded
request cannot be replayed (compare docs/protocol.md §5.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hbroker._native import ConnectionStatus, topic_is_valid
from hbroker.addresses import format_address
from hbroker.gateway.connect.disconnect_handler import DisconnectHandler
from hbroker.gateway.connections.connection import Connection, State
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import WillMessage
from hbroker.gateway.outbox import OutboxMessage
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.records.record_authentication import REPLIES, REQUESTS, sign, verify
from hbroker.gateway.records.session_records import SessionRecord
from hbroker.protocol.timers import SECOND, TimerQueue
from hbroker.workspace import Workspace, name_of

__all__ = ["CLIENTS", "KICK", "AdminRequests", "Request"]

CLIENTS: Final = "clients"
KICK: Final = "kick"
_GOOD_FOR: Final = 60 * SECOND
_MOST_SEEN: Final = 100_000
_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    `reply`: the last level of the replies' topic, random. `at_us`: its time, since the Unix epoch. `client`:
    the name in the network of the client that it is about, which is listed only if it is connected; empty:
    all clients.
    """

    kind: str
    reply: str
    at_us: int
    client: str = ""

    @property
    def topic(self) -> str:
        """The topic of the request."""
        return f"{REQUESTS}{self.kind}"

    @property
    def reply_topic(self) -> str:
        """The topic of the replies."""
        return f"{REPLIES}{self.reply}"

    def body(self) -> dict[str, Any]:
        """The request as JSON."""
        return {"kind": self.kind, "reply": self.reply, "at_us": self.at_us, "client": self.client}

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Request | None:
        """The inverse of `body`; None: it is not a request."""
        match body:
            case {"kind": str(kind), "reply": str(reply), "at_us": int(at_us), "client": str(client)}:
                is_level = 16 <= len(reply) <= 64 and "/" not in reply and topic_is_valid(reply)
                return cls(kind, reply, at_us, client) if is_level else None
        return None


class AdminRequests:
    """Executes requests, and sends the replies page by page."""

    def __init__(
        self,
        context: GatewayContext,
        disconnect_handler: DisconnectHandler,
    ) -> None:
        self._context = context
        self._disconnect_handler = disconnect_handler
        self._handled_requests: TimerQueue[str] = TimerQueue()

    def handle_request(self, now: int, topic: str, payload: bytes) -> None:
        """Executes a request. Counts a message that is not a valid request."""
        body = verify(self._context.key, topic, payload)
        request = None if body is None else Request.parse(body)
        if request is None or request.topic != topic or not self._is_fresh(now, request):
            self._context.count("orders_dropped")
            return
        if request.kind == CLIENTS:
            self._answer(now, request, _paged(self._clients(request.client)), 0)
        elif request.kind == KICK:
            connection = self._context.connection_table.of_client(request.client)
            if connection is not None:
                self._context.count("kicked")
                self._disconnect_handler.disconnect(now, connection, Code.ADMINISTRATIVE_ACTION)
            entry = {"client": request.client, "kicked": connection is not None}
            self._answer(now, request, iter([[entry]]), 0)

    def _is_fresh(self, now: int, request: Request) -> bool:
        for _ in self._handled_requests.due(now):
            pass
        age = self._context.clock.unix_us(now) - request.at_us
        if (
            abs(age) > _GOOD_FOR
            or request.reply in self._handled_requests
            or len(self._handled_requests) >= _MOST_SEEN
        ):
            return False
        self._handled_requests.set(request.reply, now + 2 * _GOOD_FOR)
        return True

    def _answer(self, now: int, request: Request, pages: Iterator[list[dict[str, Any]]], number: int) -> None:
        """Sends one page, and the next one when that is distributed. So a long list does not fill the
        queues."""
        page = next(pages, None)
        body = {
            "gateway": self._context.settings.name,
            "page": number,
            "entries": page or [],
            "is_last": page is None,
        }
        payload = sign(self._context.key, request.reply_topic, body)

        def sent(now: int, is_distributed: bool) -> None:
            if page is not None and is_distributed:
                self._answer(now, request, pages, number + 1)

        message = WillMessage(request.reply_topic, payload, qos=1)
        self._context.outbox.enqueue(now, OutboxMessage(message, sent, until=now + _GOOD_FOR))

    def _clients(self, client: str) -> Iterator[dict[str, Any]]:
        """The clients of this gateway, and the offline sessions that it is responsible for; if one is named,
        only that one."""
        if client:
            connection = self._context.connection_table.of_client(client)
            if connection is not None and connection.state is State.OPEN:
                yield _connected_entry(connection, None)
            return
        statuses = {status.connection: status for status in self._context.native_api.connections(1_000_000)}
        for connection in self._context.connection_table.all():
            if connection.state is State.OPEN:
                yield _connected_entry(connection, statuses.get(connection.id))
        for record in self._context.records.offline():
            yield _offline_entry(record)


def _connected_entry(connection: Connection, status: ConnectionStatus | None) -> dict[str, Any]:
    event = connection.event
    return {
        "client": connection.client_id,
        "workspace": connection.workspace.name or None,
        "state": "connected",
        "user": connection.username,
        "address": format_address(event.peer),
        "version": event.version,
        "keep_alive_s": event.keep_alive_s,
        "since_us": connection.connected_at_us,
        "session_expiry_s": connection.expiry_s,
        "subscriptions": len(connection.subscriptions),
        "has_will": connection.will is not None,
        "messages_in": status.messages_in if status else None,
        "messages_out": status.messages_out if status else None,
        "queued": status.queued if status else None,
        "dropped": status.dropped if status else None,
    }


def _offline_entry(record: SessionRecord) -> dict[str, Any]:
    workspace = name_of(record.client)
    return {
        "client": record.client.removeprefix(Workspace(workspace).prefix),
        "workspace": workspace or None,
        "state": "offline",
        "since_us": record.offline_since_us,
        "session_expiry_s": record.expiry_s,
        "subscriptions": len(record.subscriptions),
        "has_will": record.will is not None,
    }


def _paged(entries: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    page: list[dict[str, Any]] = []
    for entry in entries:
        page.append(entry)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page
