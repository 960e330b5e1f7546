"""The network as a whole, its nodes and subtrees, events, alerts, health."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Annotated, Any, Final

from litestar import Controller, get
from litestar.datastructures import State
from litestar.params import Parameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from hbroker.addresses import format_address
from hbroker.http_api.context import PING_S, ApiContext, context_of
from hbroker.http_api.middleware.authentication import may_read
from hbroker.http_api.models.network import (
    Alert,
    AuditEvent,
    History,
    HotTopic,
    HotTopicList,
    Network,
    Node,
    Owner,
    Rates,
    Sample,
    Subtree,
)
from hbroker.http_api.paging import Cursor, Limit, Page, page_of
from hbroker.http_api.problems import NOT_FOUND, REFUSED, UNREACHABLE, Refusal
from hbroker.operations.live_network import Event, KnownNode, LiveNetwork, lag_s, number_of

__all__ = ["NetworkRoutes"]

_HUGE: Final = 1e300


class NetworkRoutes(Controller):
    """`/network`, `/nodes`, `/subtrees`, `/events`."""

    tags = ("network",)
    guards = (may_read,)

    @get("/network", responses=REFUSED)
    async def read_network(self, state: State) -> Network:
        """The network as a whole: sums over all nodes."""
        context = context_of(state)
        now, nodes, totals = time.monotonic(), context.live.nodes(), context.live.totals()
        return Network(
            root=format_address(context.access.root),
            nodes=len(nodes),
            silent=sorted(name for name, each in nodes.items() if each.is_silent(now)),
            rates=_rates(totals.rates),
            **totals.counts,
        )

    @get("/network/history", responses=REFUSED)
    async def read_history(self, state: State) -> History:
        """The sums of the last ten minutes, of every ten seconds, the oldest first. None are from before the
        API began."""
        now = time.monotonic()
        return History(
            items=[
                Sample(
                    age_s=round(now - each.at, 3),
                    sessions=each.counts["sessions"],
                    queued_messages=each.counts["queued_messages"],
                    rates=_rates(each.rates),
                )
                for each in context_of(state).live.history()
            ]
        )

    @get("/nodes", responses=REFUSED)
    async def list_nodes(self, state: State, limit: Limit = 100, cursor: Cursor = None) -> Page[Node]:
        """All nodes, by name."""
        page = page_of(context_of(state).live.nodes().values(), _name, limit, cursor)
        return Page(items=[_node(each) for each in page.items], next=page.next)

    @get("/nodes/{name:str}", responses=REFUSED | NOT_FOUND)
    async def read_node(self, state: State, name: str) -> Node:
        """One node."""
        return _node(_known(context_of(state).live, name))

    @get("/subtrees", responses=REFUSED)
    async def list_subtrees(self, state: State, limit: Limit = 100, cursor: Cursor = None) -> Page[Subtree]:
        """All subtrees that nodes own, by their prefix. Of two nodes that both name one, while it moves,
        both are listed."""
        subtrees = _subtrees(context_of(state).live.nodes().values())
        return page_of(subtrees, lambda each: f"{each.subtree}\0{each.node}", limit, cursor)

    @get("/topics", responses=REFUSED)
    async def list_hot_topics(self, state: State, limit: Limit = 20) -> HotTopicList:
        """The topics with the most messages, received and sent, the hottest first; and of each node all
        others together. Nodes without telemetry do not know them."""
        found = context_of(state).live.hot_topics()
        named = [
            _hot(node, topic, counts) for node, each in found.items() for topic, counts in each.topics.items()
        ]
        others = [_hot(node, None, each.others) for node, each in found.items() if each.others]
        hottest = heapq.nlargest(limit, named, key=lambda each: each.messages_received + each.messages_sent)
        return HotTopicList(items=hottest + others)

    @get("/owner", responses=REFUSED | UNREACHABLE)
    async def find_owner(
        self, state: State, topic: Annotated[str, Parameter(min_length=1, max_length=4_096)]
    ) -> Owner:
        """Which node owns a topic. It asks the nodes."""
        found = await context_of(state).ask(lambda client: client.resolve(topic, trace=True))
        return Owner(
            topic=found.topic,
            subtree=found.subtree,
            node=found.owner,
            address=format_address(found.address),
            epoch=found.epoch,
        )

    @get("/alerts", responses=REFUSED)
    async def list_alerts(self, state: State, limit: Limit = 100, cursor: Cursor = None) -> Page[Alert]:
        """The alerts of `hbroker analyze --follow` that stand now."""
        alerts = (_alert(each) for each in context_of(state).live.alerts())
        return page_of(alerts, lambda each: each.topic, limit, cursor)

    @get("/audit", responses=REFUSED)
    async def list_audit(
        self,
        state: State,
        limit: Limit = 100,
        cursor: Cursor = None,
        node: str | None = None,
        event: str | None = None,
    ) -> Page[AuditEvent]:
        """The last events of nodes and gateways, the oldest first: 1,000 at most, and none from before the
        API began. `/events` has them as they happen."""
        found = (_audit(each) for each in context_of(state).live.recent_events() if each.kind == "audit")
        chosen = (each for each in found if node in (None, each.node) and event in (None, each.event))
        return page_of(chosen, lambda each: f"{each.number:020}", limit, cursor)

    @get("/events", responses=REFUSED, media_type="text/event-stream")
    async def follow_events(
        self,
        state: State,
        last_event_id: Annotated[
            str | None,
            Parameter(
                header="Last-Event-ID", max_length=20, description="the last event that the client has seen"
            ),
        ] = None,
    ) -> ServerSentEvent:
        """What happens, as server-sent events: `audit`, `alert`, `move`, `node` (it has published its
        status), and `missed` (the reader was too slow)."""
        after = (
            int(last_event_id)
            if last_event_id and last_event_id.isascii() and last_event_id.isdigit()
            else None
        )
        return ServerSentEvent(_as_sent(context_of(state), after))


async def _as_sent(context: ApiContext, after: int | None) -> AsyncIterator[ServerSentEventMessage]:
    with context.live.reader(after) as reader:
        while not context.is_ending:
            event = await reader.next(PING_S)
            if event is None:
                yield ServerSentEventMessage(comment="waiting")
            else:
                yield ServerSentEventMessage(
                    id=event.number, event=event.kind, data=json.dumps(event.content)
                )


def _known(live: LiveNetwork, name: str) -> KnownNode:
    known = live.nodes().get(name)
    if known is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"no node is called {name!r}: GET /v1/nodes lists them")
    return known


def _name(known: KnownNode) -> str:
    return str(known.status["name"])


def _node(known: KnownNode) -> Node:
    status = known.status
    main = _text(status.get("subtree"))
    others = [each for each in _texts(status.get("subtrees")) if each != main and not each.startswith("$SYS")]
    return Node(
        name=_name(known),
        subtree=main,
        subtrees=([] if main is None else [main]) + others,
        parent=_text(status.get("parent")),
        address=str(status.get("address", "")),
        epoch=number_of(status, "epoch"),
        children=[each for each in _texts(status.get("children")) if not each.startswith("$SYS")],
        is_silent=known.is_silent(time.monotonic()),
        security="off" if status.get("security") == "off" else "on",
        subscriptions=number_of(status, "subscriptions"),
        sessions=number_of(status, "sessions"),
        sessions_offline=number_of(status, "sessions_offline"),
        publishers=number_of(status, "publishers"),
        wills=number_of(status, "wills"),
        messages_received=number_of(status, "messages_in"),
        messages_sent=number_of(status, "messages_out"),
        bytes_received=number_of(status, "bytes_in"),
        bytes_sent=number_of(status, "bytes_out"),
        queued_messages=number_of(status, "queued_messages"),
        queued_bytes=number_of(status, "queued_bytes"),
        dropped=_counts(status.get("drops")),
        cpu_seconds=_float(status.get("cpu_s")) or 0.0,
        resident_bytes=number_of(status, "rss_bytes"),
        rates=_rates(known.rates) if known.rates else None,
        lag_seconds=lag_s(known),
    )


def _subtrees(nodes: Any) -> Iterator[Subtree]:
    for known in nodes:
        node = _node(known)
        for subtree in node.subtrees:
            below = [each for each in node.children if subtree == "" or each.startswith(f"{subtree}/")]
            yield Subtree(subtree=subtree, node=node.name, address=node.address, delegated=below)


def _hot(node: str, topic: str | None, counts: dict[str, float]) -> HotTopic:
    return HotTopic(
        topic=topic,
        node=node,
        messages_received=counts.get("messages_in", 0.0),
        messages_sent=counts.get("messages_out", 0.0),
        bytes_received=counts.get("bytes_in", 0.0),
        bytes_sent=counts.get("bytes_out", 0.0),
    )


def _alert(content: dict[str, Any]) -> Alert:
    severity = content.get("severity")
    return Alert(
        topic=content["topic"],
        alert=str(content.get("alert", "")),
        role=str(content.get("role", "")),
        node=_text(content.get("node")),
        severity=severity if severity in ("warning", "critical") else None,
        value=_float(content.get("value")),
        threshold=_float(content.get("threshold")),
        window_start=_text(content.get("window_start")),
        window_s=_float(content.get("window_s")),
    )


def _audit(event: Event) -> AuditEvent:
    others = {name: value for name, value in event.content.items() if name not in ("node", "event")}
    return AuditEvent(
        number=event.number, node=event.content["node"], event=event.content["event"], fields=others
    )


def _rates(rates: dict[str, float]) -> Rates:
    return Rates(
        messages_received=rates.get("messages_in", 0.0),
        messages_sent=rates.get("messages_out", 0.0),
        bytes_received=rates.get("bytes_in", 0.0),
        bytes_sent=rates.get("bytes_out", 0.0),
        cpu_seconds=rates.get("cpu_s", 0.0),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _float(value: object) -> float | None:
    """A number that JSON has: no infinity."""
    return float(value) if isinstance(value, int | float) and -_HUGE < value < _HUGE else None


def _counts(values: object) -> dict[str, int]:
    """By name, without those that are 0."""
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if isinstance(value, int) and value}


def _texts(values: object) -> list[str]:
    return [each for each in values if isinstance(each, str)] if isinstance(values, list) else []
