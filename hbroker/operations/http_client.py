"""Operates a network by its HTTP API, for commands with `--url` (docs/http-api.md).

Each method does what the module of `hbroker.operations` of the same name does over the network itself, and
returns the same. So a command differs only in where it begins.
"""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from hbroker.errors import LocalError, Refused, Unreachable
from hbroker.operations.gateway_requests import Replies
from hbroker.protocol.packets import Reason

if TYPE_CHECKING:
    from hbroker.operations.node_statuses import Status
    from hbroker.operations.plans import MoveResult, NodeLoad
    from hbroker.topology.moves import Move

__all__ = ["HttpApi", "MoveOutcome"]

_POLL_S: Final = 0.2
_SILENT_S: Final = 45.0
"""A stream of events in which nothing comes for this long is broken: the API sends a comment every 15 s."""
_PAGE: Final = 1_000
_MOST_BYTES: Final = 1 << 28
_AWAY: Final = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_STATUS_KEYS: Final = {
    "messages_received": "messages_in",
    "messages_sent": "messages_out",
    "bytes_received": "bytes_in",
    "bytes_sent": "bytes_out",
    "dropped": "drops",
    "cpu_seconds": "cpu_s",
    "resident_bytes": "rss_bytes",
}
"""Of a node: the names in the API, and those in its status."""


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """How a move ended. `source`: the owner before. `error`: why it failed; None: it did not."""

    source: str
    error: str | None


@dataclass(frozen=True, slots=True)
class HttpApi:
    """The API at a URL, as `http://127.0.0.1:7780`. `token`: the text of a token; empty: none is shown.
    `timeout`: seconds for each request.

    All methods raise Unreachable if it does not answer, or the network does not answer it; Refused if it
    refuses because of a token; and LocalError for any other refusal.
    """

    url: str
    token: str
    timeout: float

    # Read

    def statuses(self) -> tuple[list[Status], list[str]]:
        """As `node_statuses.read_statuses`."""
        from hbroker.operations.node_statuses import in_order

        nodes = self._list("/v1/nodes")
        statuses = [{_STATUS_KEYS.get(key, key): value for key, value in node.items()} for node in nodes]
        silent = sorted(str(node["name"]) for node in nodes if node["is_silent"])
        return in_order([each for each in statuses if each["name"] not in silent]), silent

    def clients(self) -> Replies:
        """As `gateway_requests.ask_gateways` with CLIENTS."""
        replies = Replies()
        cursor: str | None = None
        while True:
            query = {"limit": str(_PAGE), **({} if cursor is None else {"cursor": cursor})}
            page = self._get("/v1/clients", query)
            for client in page["items"]:
                replies.entries.setdefault(str(client["gateway"]), []).append(client)
            replies.silent = sorted({*replies.silent, *page["silent"]})
            cursor = page["next"]
            if cursor is None:
                return replies

    def events(self, kind: str, until: float | None) -> Iterator[dict[str, Any]]:
        """What happens, of one kind, as `/v1/events` has it. `until`: a time by `time.monotonic`; None: it
        does not end."""
        parts = urlsplit(self._checked_url())
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection: HTTPConnection = HTTPSConnection(parts.netloc, timeout=self.timeout, context=context)
        else:
            connection = HTTPConnection(parts.netloc, timeout=self.timeout)
        with closing(connection):
            try:
                connection.request("GET", parts.path.rstrip("/") + "/v1/events", headers=self._headers())
                socket = connection.sock
                answer = connection.getresponse()
                if answer.status != HTTPStatus.OK:
                    raise _refusal(answer.status, answer.read(1 << 16))
            except (HTTPException, OSError) as error:
                raise self._unreachable(error) from None
            while True:
                left = _SILENT_S if until is None else until - time.monotonic()
                if left <= 0:
                    return
                socket.settimeout(min(left, _SILENT_S))
                try:
                    found, data = _next_event(answer)
                except TimeoutError:
                    if until is not None and time.monotonic() >= until:
                        return
                    raise self._unreachable("it sends nothing any more") from None
                except (HTTPException, OSError, ValueError) as error:
                    raise self._unreachable(error) from None
                if found == kind:
                    yield data

    # Change

    def kick(self, client: str, workspace: str) -> list[str]:
        """Disconnects an MQTT client. Returns the gateways that had it."""
        body = {"client": client, "workspace": workspace or None}
        had: list[str] = self._post("/v1/clients/disconnect", body)["gateways"]
        return had

    def move(self, subtree: str, node: str, say: Callable[[str], None]) -> MoveOutcome:
        """As `Orders.give_subtree`. `say` is called with each step."""
        move = self._post("/v1/moves", {"subtree": subtree, "node": node})
        told = 0
        while True:
            for step in move["steps"][told:]:
                say(step)
            told = len(move["steps"])
            if move["state"] != "running":
                return MoveOutcome(move["source"] or "", move["error"])
            time.sleep(_POLL_S)
            move = self._get(f"/v1/moves/{move['id']}", {})

    def planned_moves(self, topology: str) -> list[Move]:
        """As `plans.planned_moves`, for the text of a topology file."""
        plan = self._post("/v1/plans", {"topology": topology, "dry_run": True})
        return [_move_of(move) for move in plan["moves"]]

    def loads(self, topology: str, wait_s: float) -> tuple[float, list[NodeLoad]]:
        """What each node carries after a while, by the plan in the text of a topology file. Returns of how
        many seconds that is, and the loads."""
        from hbroker.operations.plans import NodeLoad
        from hbroker.protocol.status import PERIOD
        from hbroker.protocol.timers import SECOND

        time.sleep(wait_s)
        plan = self._post("/v1/plans", {"topology": topology, "dry_run": True})
        keys = ("node", "predicted", "load", "cpu_seconds", "messages_received", "messages_sent")
        return PERIOD / SECOND, [NodeLoad(*(load[key] for key in keys)) for load in plan["loads"]]

    def carry_out(
        self,
        topology: str,
        on_begin: Callable[[int, Move], None],
        on_end: Callable[[int, MoveResult], None],
    ) -> list[MoveResult]:
        """As `plans.carry_out`, of the moves that the API finds necessary for the text of a topology file."""
        plan = self._post("/v1/plans", {"topology": topology})
        begun = ended = 0
        while True:
            results = [_result_of(move) for move in plan["moves"]]
            states = [move["state"] for move in plan["moves"]]
            while ended < len(states) and states[ended] != "waiting":
                result = results[ended]
                if begun == ended:
                    on_begin(begun, _move_of(plan["moves"][begun]))
                    begun += 1
                if states[ended] == "running":
                    break
                on_end(ended, result)
                ended += 1
            if plan["state"] != "running":
                if plan["error"] and all(result.error is None for result in results):
                    raise LocalError(plan["error"])
                return results
            time.sleep(_POLL_S)
            plan = self._get(f"/v1/plans/{plan['id']}", {})

    def owner(self, topic: str) -> str | None:
        """The node that owns a topic; None: no node answers for it."""
        try:
            node: str = self._get("/v1/owner", {"topic": topic})["node"]
        except (LocalError, Refused, Unreachable):
            return None
        return node

    def leave(self, node: str) -> None:
        """As `Orders.leave`."""
        self._post(f"/v1/nodes/{quote(node, safe='')}/leave", {})

    # Requests

    def _list(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = self._get(path, {"limit": str(_PAGE), **({} if cursor is None else {"cursor": cursor})})
            items += page["items"]
            cursor = page["next"]
            if cursor is None:
                return items

    def _get(self, path: str, query: dict[str, str]) -> Any:
        return self._request("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._request("POST", path, json.dumps(body).encode())

    def _request(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Accept": "application/json", **self._headers()}
        if body is not None:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)}
        request = Request(self._checked_url() + path, body, headers, method=method)
        try:
            with urlopen(request, timeout=self.timeout, context=ssl.create_default_context()) as answer:
                return json.loads(answer.read(_MOST_BYTES))
        except HTTPError as error:
            raise _refusal(error.code, error.read(1 << 16)) from None
        except (URLError, HTTPException, OSError) as error:
            raise self._unreachable(getattr(error, "reason", error)) from None
        except ValueError as error:
            raise LocalError(f"{self.url} is no HTTP API of hbroker: {error}") from None

    def _checked_url(self) -> str:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise LocalError(f"{self.url!r} is no URL of http or https")
        return self.url.rstrip("/")

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _unreachable(self, why: object) -> Unreachable:
        return Unreachable(f"{self.url} does not answer: {why}", Reason.REASON_OWNER_UNREACHABLE)


def _next_event(lines: Iterable[bytes]) -> tuple[str, dict[str, Any]]:
    """The next event of a stream (WHATWG HTML §9.2.6): its kind, and its data, an object of JSON; of a
    comment the kind is empty. Raises ValueError for other data; ConnectionError when the stream has ended."""
    kind, data = "", []
    for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name == "event":
            kind = value.strip()
        elif name == "data":
            data.append(value)
        elif not name and not value:
            content = json.loads("\n".join(data)) if data else {}
            if not isinstance(content, dict):
                raise ValueError("no object")
            return kind, content
    raise ConnectionError("the stream has ended")


def _move_of(move: dict[str, Any]) -> Move:
    from hbroker.topology.moves import Move

    return Move(move["subtree"], move["source"], move["target"])


def _result_of(move: dict[str, Any]) -> MoveResult:
    from hbroker.operations.plans import MoveResult

    done = {"done": True, "failed": False}.get(move["state"])
    return MoveResult(move["subtree"], move["source"], move["target"], done, move["seconds"], move["error"])


def _refusal(status: int, body: bytes) -> LocalError | Refused | Unreachable:
    try:
        detail = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"HTTP status {status}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return Refused(detail, Reason.REASON_NOT_AUTHORIZED)
    if status in _AWAY:
        return Unreachable(detail, Reason.REASON_OWNER_UNREACHABLE)
    return LocalError(detail)
