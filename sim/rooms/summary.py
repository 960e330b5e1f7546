"""The result of a run, by room, by node and in total, beside what the nodes counted.

A node's count of messages is in its status (`hbroker tree`), which is read before and after the run. Besides
the run's messages, it counts the node's own messages, which are numbered, so that they can be subtracted;
what other clients published in the meantime, mainly gateways at the owner of `$gateway`; and one for each
fragment of a large message after the first (docs/protocol.md §7.5).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .delivery_counters import CounterSums
from .plan import Stream
from .play import Result

__all__ = ["NodeCounters", "Statuses", "Summary", "is_clean", "summarise"]

Statuses: TypeAlias = Sequence[Mapping[str, Any]]
"""Nodes' statuses as in `hbroker tree --json`, each with the id of its message: `run`, `own`."""


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """The counters of one node.

    `sums`: over the streams whose topics it owned at the beginning. The other values are what it counted
    itself during the run; None: it reported nothing, or was restarted. `messages_in`: what it took in, less
    its own messages. `others`: of these, messages that are not of the run.
    """

    name: str
    subtree: str
    sums: CounterSums
    messages_in: int | None = None
    messages_out: int | None = None
    others: int | None = None
    drops: dict[str, int] = field(default_factory=dict)
    cpu_s: float | None = None

    def to_json(self) -> dict[str, object]:
        """All fields, ready for JSON."""
        return {
            "node": self.name,
            "subtree": self.subtree,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "others": self.others,
            "drops": self.drops,
            "cpu_s": self.cpu_s,
            **self.sums.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers. `asked_per_s`, `achieved_per_s`: messages a second that were due, and that were
    handed to the network, while the devices played."""

    result: Result
    total: CounterSums
    rooms: dict[str, CounterSums]
    nodes: list[NodeCounters]
    devices_by_room: dict[str, int]
    asked_per_s: float
    achieved_per_s: float

    def to_json(self) -> dict[str, object]:
        """All fields, ready for JSON."""
        result, plan = self.result, self.result.plan
        return {
            "scenario": plan.scenario.name,
            "seed": plan.scenario.seed,
            "devices": plan.devices,
            "connected": result.connected,
            "clients": len(plan.clients),
            "native": sum(client.is_native for client in plan.clients),
            "streams": len(plan.streams),
            "expected_per_s": plan.rate,
            "asked_per_s": self.asked_per_s,
            "achieved_per_s": self.achieved_per_s,
            "seconds": result.effort.seconds,
            "connect_s": result.connect_s,
            "busy": result.effort.busy,
            "loop_busy": result.effort.loop_busy,
            "starved": result.effort.starved,
            "lateness": result.lateness.to_json(),
            "interrupted": result.was_interrupted,
            "lost_connections": result.troubles.lost_connections,
            "retried_connections": result.troubles.retried_connections,
            "refusals": dict(result.troubles.refusals),
            "failed": result.troubles.failed,
            "foreign": result.counters.foreign,
            "is_clean": is_clean(self),
            "total": self.total.to_json(),
            "rooms": [
                {"room": room, "devices": self.devices_by_room.get(room, 0), **sums.to_json()}
                for room, sums in self.rooms.items()
            ],
            "nodes": [node.to_json() for node in self.nodes],
        }


def is_clean(summary: Summary) -> bool:
    """Whether the network kept its promises, and every device could connect."""
    result = summary.result
    return not summary.total.broken and not summary.total.rejected and not result.troubles.failed


def summarise(result: Result, before: Statuses, after: Statuses) -> Summary:
    """The numbers of a run, from the statuses of the nodes before and after it."""
    counters, plan = result.counters, result.plan
    by_room = _group_by(plan.streams, [stream.room for stream in plan.streams])
    rooms = {room: counters.sums(streams) for room, streams in by_room}
    devices: dict[str, int] = defaultdict(int)
    for client in plan.clients:
        devices[client.room] += client.is_device
    total = counters.sums(plan.streams)
    played = result.played
    return Summary(
        result,
        total,
        rooms,
        _nodes(result, before, after),
        dict(devices),
        played.asked / result.due_s if result.due_s else 0.0,
        played.published / max(result.effort.seconds, 1e-9),
    )


def _nodes(result: Result, before: Statuses, after: Statuses) -> list[NodeCounters]:
    earlier = {str(status["name"]): status for status in before}
    later = {str(status["name"]): status for status in after}
    grouped = dict(_group_by(result.plan.streams, result.owners))
    names = [*later, *(name for name in grouped if name not in later)]
    accounts = []
    for name in names:
        sums = result.counters.sums(grouped.get(name, ()))
        status, former = later.get(name), earlier.get(name)
        subtree = str(status.get("subtree", "")) if status else ""
        if status is None or former is None or former.get("run") != status.get("run"):
            accounts.append(NodeCounters(name, subtree, sums))
            continue
        messages_in = _increase(former, status, "messages_in") - _increase(former, status, "own")
        accounts.append(
            NodeCounters(
                name, subtree, sums, messages_in, _increase(former, status, "messages_out"),
                messages_in - sums.published, _drops(former, status), _increase(former, status, "cpu_s"),
            )
        )  # fmt: skip
    return accounts


def _increase(former: Mapping[str, Any], status: Mapping[str, Any], key: str) -> Any:
    return (status.get(key) or 0) - (former.get(key) or 0)


def _drops(former: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, int]:
    before, after = former.get("drops") or {}, status.get("drops") or {}
    grown = {reason: count - before.get(reason, 0) for reason, count in after.items()}
    return {reason: count for reason, count in grown.items() if count}


def _group_by(streams: Sequence[Stream], keys: Sequence[str]) -> list[tuple[str, list[Stream]]]:
    groups: dict[str, list[Stream]] = defaultdict(list)
    for stream, key in zip(streams, keys, strict=True):
        groups[key].append(stream)
    return sorted(groups.items())
