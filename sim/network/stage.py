"""Carries out a plan's actions, and reports them to the checks.

An action that does not apply any more, such as one for a process that has ended, is skipped.
"""

from __future__ import annotations

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.protocol.wills.client_will import Will

from . import actions, operators
from .attacker import Attacker
from .checks.applications import Sent
from .checks.deliveries import Deliveries
from .checks.wills import TrackedWill
from .hosts import ClientHost, NodeHost
from .invariants import Bounds, Ownership
from .plan import SECOND
from .processes import Processes
from .world import World

__all__ = ["Stage"]


class Stage:
    """The processes of one run, on which a plan's actions are carried out. `messages`: the number
    published."""

    def __init__(
        self,
        world: World,
        processes: Processes,
        ownership: Ownership,
        deliveries: Deliveries,
        bounds: Bounds,
        attacker: Attacker | None,
    ) -> None:
        self._world = world
        self._processes = processes
        self._ownership = ownership
        self._deliveries = deliveries
        self._bounds = bounds
        self._attacker = attacker
        self._heirs: dict[str, str] = {}
        """By subtree, the node that is to claim it once it has been taken back."""
        self._full_since: dict[str, int] = {}
        """By node, when its disk was last filled."""
        self.messages = 0

    # Change

    def carry_out(self, action: actions.Action) -> None:
        """Carries out an action."""
        if isinstance(action, actions.DISTURBANCES):
            self._deliveries.successions.disturb()
        if isinstance(action, (*actions.FAILURES, actions.Exhaust, actions.Falter, actions.Succeed)):
            self._deliveries.message_totals.disturb()
        if isinstance(action, actions.NodeAction):
            self._carry_out_for_node(action)
        elif isinstance(action, actions.DiskAction):
            self._carry_out_for_disk(action)
        elif isinstance(action, actions.ProcessAction):
            self._carry_out_for_process(action)
        elif isinstance(action, actions.PathAction):
            self._take_for_path(action)
        elif (client := self._processes.client(action.client)) is not None:
            self._carry_out_for_client(client, action)

    def start_node(self, name: str) -> NodeHost:
        """Starts a node's first process."""
        node = self._processes.start_node(name)
        self._bounds.count(node)
        return node

    def start_client(self, name: str, *, begins_clean: bool = False) -> ClientHost:
        """Starts a client process. If its session is persistent, it makes the subscriptions of an earlier
        run."""
        client = self._processes.start_client(name, begins_clean=begins_clean)
        self._bounds.count(client)
        for interest in self._deliveries.start(name, client):
            self._subscribe(client, interest.filter, interest.qos, interest.group, interest.queue)
        return client

    def publish(self, name: str, client: ClientHost, action: actions.Publish) -> Sent | None:
        """Publishes a message; None: there was no room."""
        payload = _payload(f"{name} {self.messages} ", action.size)
        client.catch_up()
        expires = action.expiry is not None
        sequence = client.engine.publish(
            action.topic,
            payload,
            action.qos,
            action.retain,
            published_at_us=client.clock() if expires else 0,
            expiry_s=action.expiry,
        )
        if sequence is None:
            return None
        self.messages += 1
        message = client.publisher, sequence
        now = self._world.now
        dies_at = None if action.expiry is None else now + action.expiry * SECOND
        sent = Sent(name, message, action.topic, action.qos, action.retain, payload, now, dies_at=dies_at)
        self._deliveries.publish(sent)
        self._world.drive(client)
        return sent

    def claim_for_heir(self, subtree: str) -> None:
        """A subtree was taken back: its heir claims it, if there is one."""
        heir = self._processes.node(self._heirs.pop(subtree, ""))
        if heir is not None:
            operators.Operator(self._world, operators.move(subtree, None, heir))

    def end_if_left(self, node: NodeHost) -> None:
        """Ends the process of a node that has left and that is not to be restarted."""
        name = node.settings.name
        if node.control.has_stopped and (node.control.has_left or name in self._processes.left):
            self._processes.left.add(name)
            self._crash(name)

    def end_if_store_failed(self, node: NodeHost) -> None:
        """Ends the process of a node whose store has failed."""
        if node.has_lost_store and self._processes.is_alive(node.settings.name):
            self._crash(node.settings.name)

    # Kinds of actions

    def _carry_out_for_node(self, action: actions.NodeAction) -> None:
        node = self._processes.node(action.node)
        match action:
            case actions.Join() if action.node not in self._processes.hosts:
                self.start_node(action.node)
            case actions.Leave() if node is not None:
                self._processes.left.add(action.node)
                node.leave()
            case actions.Dismiss() if node is not None:
                operators.Operator(self._world, operators.dismissal(node))
            case actions.Move() if node is not None:
                holder = self._processes.holder(action.subtree)
                if holder is not node:
                    operators.Operator(self._world, operators.move(action.subtree, holder, node))
            case _:
                pass

    def _take_for_path(self, action: actions.PathAction) -> None:
        match action:
            case actions.Part():
                self._processes.apart.append(action.hosts)
            case actions.Heal():
                self._processes.apart.remove(action.hosts)
            case actions.Replay():
                host = None if self._attacker is None else self._attacker.attack(action.kind)
                if host is not None:
                    self._bounds.count(host)

    def _carry_out_for_disk(self, action: actions.DiskAction) -> None:
        host = self._processes.hosts.get(action.node)
        if not isinstance(host, NodeHost):
            return
        is_alive = self._processes.is_alive(action.node)
        match action:
            case actions.FillDisk() | actions.Exhaust():
                self._full_since[action.node] = self._world.now
                host.files.fill(action.free_bytes)
            case actions.FailDisk():
                host.files.fail()
            case actions.FailSync():
                host.files.fail_to_sync()
            case actions.FlipBit() if is_alive:
                host.files.flip_bit()
                self._crash(action.node, with_machine=True)
            case actions.MendDisk():
                host.files.mend()
            case actions.LosePower() if is_alive:
                self._crash(action.node, with_machine=True)
            case actions.Falter() if is_alive:
                self._deliveries.expect_next_owner(host, self._full_since.get(action.node))
                self._crash(action.node, with_machine=action.with_machine)
            case _:
                pass

    def _carry_out_for_process(self, action: actions.ProcessAction) -> None:
        host = self._processes.hosts.get(action.host)
        if host is None:
            return
        is_alive = self._processes.is_alive(action.host)
        match action:
            case actions.Stop() if is_alive:
                host.stop()
            case actions.Suspend() if is_alive and not host.is_stopped:
                host.suspend()
            case actions.Continue() if is_alive and host.is_stopped and host.suspended_at is None:
                host.resume()
            case actions.Wake() if is_alive and host.suspended_at is not None:
                host.resume()
            case actions.Crash() if is_alive:
                self._crash(action.host)
            case actions.Restart() if not is_alive:
                self._restart(action)
            case actions.Succeed() if is_alive and isinstance(host, NodeHost):
                self._heirs |= dict.fromkeys(host.claims, action.heir)
                self._deliveries.expect_next_owner(host)
                self._processes.left.add(action.host)
                self._crash(action.host)
            case _:
                pass

    def _carry_out_for_client(self, client: ClientHost, action: actions.ClientAction) -> None:
        match action:
            case actions.Roam():
                self._processes.roam(client)
            case actions.Subscribe():
                self._subscribe(client, action.filter, action.qos, action.group, action.queue)
            case actions.Depart():
                client.leave(end_session=action.ends_session)
                self._end_client(client, ends_session=action.ends_session, is_crash=False)
            case actions.SetWill():
                self._set_will(client, action)
            case actions.Unsubscribe():
                for subscription in self._deliveries.unsubscribe(client, action.filter):
                    client.unsubscribe(subscription)
            case actions.Publish():
                self.publish(action.client, client, action)
            case actions.Impersonate():
                impostor = self._processes.start_impostor(client)
                self._bounds.count(impostor)
                impostor.publish_many(action.topic, action.qos, action.count, retain=action.retain)

    # Processes

    def _crash(self, name: str, *, with_machine: bool = False) -> None:
        host = self._processes.hosts[name]
        if isinstance(host, ClientHost):
            self._end_client(host, ends_session=False, is_crash=True)
        elif isinstance(host, NodeHost):
            self._processes.kill(name, with_machine=with_machine)
            self._deliveries.end_owner(host)

    def _end_client(self, client: ClientHost, *, ends_session: bool, is_crash: bool) -> None:
        client.kill()
        self._deliveries.end(client, ends_session=ends_session, is_crash=is_crash)

    def _set_will(self, client: ClientHost, action: actions.SetWill) -> None:
        """Registers a will. A will never waits for longer than the expiry of its session (§6.6)."""
        session_options = client.control.session_options
        payload = _payload(f"{action.client}'s will, {self._world.now} ", 40)
        publish = pb.Publish(topic=action.topic, payload=payload, qos=pb.Qos.Name(action.qos))
        delay = min(action.delay, session_options.expiry_s) * SECOND
        self._deliveries.wills.add(
            TrackedWill(
                action.client, client.session, action.topic, action.qos, payload, delay, self._world.now
            )
        )
        client.set_will(Will(publish, action.delay))

    def _restart(self, action: actions.Restart) -> None:
        name, remembers = action.host, action.remembers
        before = self._processes.hosts[name]
        if isinstance(before, ClientHost):
            self.start_client(name, begins_clean=not remembers)
        elif (
            isinstance(before, NodeHost)
            and name not in self._processes.left
            and not before.files.fails_to_sync
        ):
            if not remembers:
                self._ownership.forget(before)
            step_us = action.clock_step_s * SECOND
            self._bounds.count(self._processes.restart_node(name, remembers=remembers, clock_step_us=step_us))

    def _subscribe(self, client: ClientHost, filter: str, qos: int, group: str, queue: actions.Queue) -> None:
        client.catch_up()
        options = Options(
            qos=qos, overflow=queue.overflow, queue_messages=queue.messages, queue_bytes=queue.bytes
        )
        subscription = client.control.subscribe(client.clock(), filter, options, group=group)
        self._deliveries.subscribe(client, subscription, filter, qos, group, queue)
        self._bounds.subscribed()
        self._world.drive(client)


def _payload(head: str, size: int) -> bytes:
    """A payload of `size` bytes that no other message has, and whose parts all differ. 0: an empty one."""
    counted = (f"{number:08}" for number in range(size // 8 + 1))
    return (head + "".join(counted)).encode()[: max(size, len(head))] if size else b""
