"""Runs a transcript: commands, `----`, and their output (after the test data of etcd's raft).

A block has one or more command lines, a line `----`, and the expected output up to an empty line. One network
runs for the whole file; its nodes are real ones with the native core. Write the actual output to the file
with `HBROKER_REWRITE=1`, and review the diff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.events import Unproved
from hbroker.protocol.packets import Body, address_of, reason_name
from tests.protocol.native import NativeNetwork
from tests.protocol.world import World

__all__ = ["replay"]

_SEPARATOR = "----"


def replay(path: Path) -> tuple[str, str]:
    """The text of the file, and the text with the actual output."""
    text = path.read_text()
    script = _Script()
    blocks = []
    for comment, commands in _blocks(text):
        output = [line for command in commands for line in script.run(command)]
        blocks.append("\n".join([*comment, *commands, _SEPARATOR, *(output or ["(nothing)"])]))
    return text, "\n\n".join(blocks) + "\n"


def _blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    for block in text.strip().split("\n\n"):
        head = block.split(f"\n{_SEPARATOR}")[0].splitlines()
        yield [line for line in head if line.startswith("#")], [x for x in head if not x.startswith("#")]


class _Script:
    """The commands, on one simulated network."""

    def __init__(self) -> None:
        self._world = World(network=NativeNetwork)

    def run(self, command: str) -> list[str]:
        verb, *arguments = command.split()
        action: Callable[..., list[str]] = getattr(self, f"_do_{verb.replace('-', '_')}")
        return action(*arguments)

    # Nodes

    def _do_root(self, name: str = "root", join_key: str = "") -> list[str]:
        self._world.start_root(name, join_key.encode())
        return self._settle(0.1)

    def _do_node(self, name: str, subtree: str, policy: str = "fence", join_key: str = "") -> list[str]:
        self._world.start_node(name, subtree, LeasePolicy(policy), join_key.encode())
        return self._settle(0.5)

    def _do_kill(self, name: str) -> list[str]:
        self._world.kill(name)
        return self._settle(0)

    def _do_restart(self, name: str) -> list[str]:
        self._world.restart(name)
        return self._settle(3)

    def _do_leave(self, name: str) -> list[str]:
        self._world.leave(name)
        return self._settle(0.5)

    def _do_part(self, one: str, other: str) -> list[str]:
        nodes = self._world.nodes
        self._world.network.part(nodes[one].settings.listen, nodes[other].settings.listen)
        return self._settle(0)

    def _do_heal(self) -> list[str]:
        self._world.network.heal()
        return self._settle(0)

    def _do_advance(self, seconds: str) -> list[str]:
        return self._settle(float(seconds))

    # Clients

    def _do_subscribe(self, client: str, filter: str) -> list[str]:
        """Discovers the responsible nodes, and subscribes at each of them."""
        acks = sorted(self._world.subscribe(client, filter), key=lambda ack: (ack.hops, ack.node))
        return [*map(_discovery_line, acks), f"stored by {self._world.storing(filter)}"]

    def _do_subscribe_many(self, client: str, pattern: str, first: str, last: str) -> list[str]:
        for number in range(int(first), int(last) + 1):
            self._world.subscribe(client, pattern.replace("{}", str(number)))
        return []

    def _do_discover(self, client: str, filter: str, mode: str = "recursive", to: str = "root") -> list[str]:
        request = pb.Subscribe(filter=filter, mode=_mode(mode))
        return sorted(map(_line, self._world.ask(client, request, to)))

    def _do_subscribe_at(self, client: str, node: str, filter: str) -> list[str]:
        to = self._world.nodes[node].settings.listen
        return list(map(_line, self._world.tell(client, to, pb.Subscribe(filter=filter))))

    def _do_unsubscribe_at(self, client: str, node: str, filter: str) -> list[str]:
        to = self._world.nodes[node].settings.listen
        return list(map(_line, self._world.tell(client, to, pb.Unsubscribe(filter=filter))))

    def _do_disconnect(self, client: str, node: str) -> list[str]:
        self._world.tell(client, self._world.nodes[node].settings.listen, pb.Leave())
        return []

    def _do_resolve(self, client: str, topic: str, mode: str = "recursive", to: str = "root") -> list[str]:
        return list(map(_line, self._world.ask(client, pb.PubConnect(topic=topic, mode=_mode(mode)), to)))

    def _do_join(self, client: str, node: str, subtree: str) -> list[str]:
        """Sends a JOIN outside of a session, from a host that is not a node."""
        address = address_of(self._world.client(client, is_node=True).core.address)
        return list(map(_line, self._world.ask(client, pb.Join(node=node, subtree=subtree, address=address))))

    def _do_heard(self, client: str) -> list[str]:
        """The unsolicited packets that a client has received (request 0)."""
        heard = self._world.client(client).heard
        packets = [(self._world.name_at(source), body) for source, _, body in heard if _is_unsolicited(body)]
        heard.clear()
        return sorted(f"{name}: {_line(body)}" for name, body in packets)

    # The state of the network

    def _do_owner(self, *topics: str) -> list[str]:
        return [f"{topic}: {', '.join(self._world.owners(topic)) or 'nobody'}" for topic in topics]

    def _do_stored(self, node: str) -> list[str]:
        return self._world.nodes[node].core.filters()

    def _do_count(self, node: str) -> list[str]:
        return [f"{len(self._world.nodes[node].core.subscriptions)} subscriptions"]

    def _do_retain(self, node: str, topic: str, payload: str = "") -> list[str]:
        self._world.nodes[node].core.publish(topic, payload.encode(), 0, True)
        return []

    def _do_retained(self, node: str) -> list[str]:
        return sorted(t for t in self._world.nodes[node].core.messages if not t.startswith("$"))

    def _do_drops(self, node: str) -> list[str]:
        """The drops counted by the control, not by the core."""
        running = self._world.nodes[node]
        drops = running.node.status(self._world.network.now)["drops"]
        assert isinstance(drops, dict)
        of_core = running.core.counters()
        own = {reason: number - of_core.get(f"drop.{reason}", 0) for reason, number in drops.items()}
        return [f"{reason}: {number}" for reason, number in sorted(own.items()) if number]

    def _settle(self, seconds: float) -> list[str]:
        self._world.advance(seconds)
        lines = []
        for name in self._world.nodes:
            for node_event in self._world.events(name):
                if isinstance(node_event, Unproved) or not node_event.subtree.startswith("$SYS"):
                    lines.append(f"{name}: {_notice_line(node_event)}")
        return lines


def _mode(mode: str) -> pb.Mode:
    return pb.MODE_REFERRAL if mode == "referral" else pb.MODE_RECURSIVE


def _is_unsolicited(body: Body) -> bool:
    return isinstance(body, pb.SubAck) and body.request == 0


def _discovery_line(ack: pb.SubAck) -> str:
    stores = "responsible" if ack.responsible else "passes it on"
    return f"{ack.node} at hop {ack.hops}: {stores}, to {sorted({c.node for c in ack.passed_to})}"


def _line(body: Body) -> str:
    match body:
        case pb.PubAccept() if body.reason:
            return f"{body.node}: {reason_name(body.reason)} for {body.ttl_s} s"
        case pb.PubAccept():
            cuts = [cut.subtree for cut in body.zone.cuts]
            zone = f"'{body.zone.subtree}' serial {body.zone.serial} scope '{body.zone.scope}' cuts {cuts}"
            return f"{body.node} owns it, {body.hops} hops: {zone}, {body.subscriptions} subscriptions"
        case pb.Referral():
            return f"{body.node} refers to {body.next.node} for '{body.next.subtree}'"
        case pb.JoinAck() if body.reason:
            holder = f", held by {body.holder.node}" if body.holder.node else ""
            return f"{body.node}: {reason_name(body.reason)}{holder}"
        case pb.JoinAck():
            return f"{body.node} invites to '{body.subtree}', epoch {body.epoch}"
        case pb.SubAck() if body.reason:
            return f"{body.node}: {reason_name(body.reason)}"
        case pb.SubAck():
            state = "active" if body.active else "responsible" if body.responsible else "not responsible"
            return f"{body.filter} {state}, to {sorted({cut.node for cut in body.passed_to})}"
        case _:
            return type(body).__name__


def _notice_line(node_event: object) -> str:
    text = type(node_event).__name__
    for name in ("subtree", "parent", "node", "holder"):
        value = getattr(node_event, name, None)
        if value:
            text += f" {name}={value}"
    reason = getattr(node_event, "reason", None)
    return text if reason is None else f"{text} {reason_name(reason)}"
