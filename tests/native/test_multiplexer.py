"""Clients of client pools over real sockets, at a real node: each is a client of its own (§§3.1, 6.4)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from random import Random

import pytest

from hbroker._native import NativeError
from hbroker.protocol.results import Published, Subscribed, TakenOver
from tests.native.multiplexers import gateway_up
from tests.product.node import Node, node_up

KIB = 1024


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with node_up() as node:
        yield node


def test_each_pool_client_receives_its_subscriptions(node: Node) -> None:
    with gateway_up(node.address) as gateway:
        members = [gateway.open() for _ in range(8)]
        for number, member in enumerate(members):
            gateway.subscribe(member, f"pool/{number}/#")
        for number in range(len(members)):
            gateway.publish(f"pool/{number}/x", str(number).encode())
        gateway.run_until(lambda: all(member.messages for member in members))
        gateway.run_until(
            lambda: (
                sum(isinstance(o, Published) and not o.reason for o in gateway.first.results) == len(members)
            )
        )
        assert [member.payloads() for member in members] == [[b"%d" % n] for n in range(len(members))]
        assert gateway.first.payloads() == []
        assert gateway.pool.counters()["members"] == 1 + len(members)


def test_a_message_that_is_not_handled_delays_the_publishers_acknowledgement(node: Node) -> None:
    with gateway_up(node.address) as gateway:
        member = gateway.open()
        gateway.subscribe(member, "held/#")
        gateway.handles = False
        gateway.publish("held/x", b"1")
        gateway.run_until(lambda: bool(member.messages))
        assert not gateway.first.results[1:], "nobody has handled it"
        (message,) = member.messages
        gateway.pool.handled([(member.number, message.copy_id)])
        gateway.run_until(lambda: any(isinstance(o, Published) for o in gateway.first.results))


def test_another_pool_takes_a_session_over_and_gets_the_queued_messages(node: Node) -> None:
    session = Random(os.urandom(8)).getrandbits(63) + 1
    with gateway_up(node.address) as other, gateway_up(node.address) as publisher:
        with gateway_up(node.address) as gateway:
            gateway.subscribe(gateway.open(session, expiry_s=60), "taken/#", qos=2)
        # The first gateway is gone without a LEAVE. To the node its session is still connected, or offline.
        for number in range(20):
            publisher.publish("taken/x", str(number).encode(), qos=2)
        publisher.run_until(lambda: publisher.pool.counters()["inflight"] == 20)
        member = other.open(session, expiry_s=60)
        other.subscribe(member, "taken/#", qos=2)
        assert any(isinstance(o, Subscribed) and o.resumed for o in member.results)
        other.run_until(lambda: len(member.messages) >= 20)
        publisher.run_until(
            lambda: sum(isinstance(o, Published) and not o.reason for o in publisher.first.results) == 20
        )
        for _ in range(10):
            other.turn()
        assert member.payloads() == [b"%d" % number for number in range(20)], "once each, in order"


def test_a_pool_client_whose_session_is_taken_over_is_told(node: Node) -> None:
    session = Random(os.urandom(8)).getrandbits(63) + 1
    with gateway_up(node.address) as gateway, gateway_up(node.address) as other:
        member, bystander = gateway.open(session, expiry_s=60), gateway.open()
        gateway.subscribe(member, "told/#")
        gateway.subscribe(bystander, "told/#")
        later = other.open(session, expiry_s=60)
        other.subscribe(later, "told/#")
        gateway.run_until(lambda: any(isinstance(o, TakenOver) for o in member.results))
        assert not any(isinstance(o, TakenOver) for o in bystander.results)


def test_a_retained_message_is_for_the_requesting_subscription_also_within_one_pool_client(
    node: Node,
) -> None:
    with gateway_up(node.address) as gateway:
        gateway.publish("kept/x", b"1", retain=True)
        gateway.run_until(lambda: any(isinstance(o, Published) for o in gateway.first.results))
        for _ in range(3):
            subscription = gateway.subscribe(gateway.first, "kept/#")
            gateway.run_until(lambda: bool(gateway.first.messages))
            assert [message.subscriptions for message in gateway.first.messages] == [[subscription]]
            gateway.first.messages.clear()


def test_pool_clients_that_close_end_their_sessions() -> None:
    with node_up() as node, gateway_up(node.address) as gateway:
        for _ in range(3):
            members = [gateway.open(expiry_s=60) for _ in range(10)]
            for member in members:
                gateway.subscribe(member, "come/#")
            gateway.publish("come/x", b"1")
            gateway.run_until(
                lambda: all(client.messages for client in gateway.clients.values() if client.number)
            )
            for member in members:
                gateway.close(member)
            gateway.run_until(lambda: gateway.pool.counters()["members"] == 1)
        status = node.status()
        assert status["sessions_offline"] == 0
        assert status["subscriptions"] == 0, "they ended their sessions"


def test_a_session_has_one_pool_client(node: Node) -> None:
    with gateway_up(node.address) as gateway:
        member = gateway.open(7)
        with pytest.raises(NativeError):
            gateway.open(7)
        gateway.close(member)
        gateway.pool.member(member.number).listen(1, "nobody/hears", 0)  # without effect
        gateway.subscribe(gateway.open(7), "a/#")


def test_an_idle_pool_client_takes_less_than_4_kib() -> None:
    # In a process of its own. In this one, memory of earlier tests would count as well.
    measured = subprocess.run(
        [sys.executable, "-m", "tests.native.pool_memory"], capture_output=True, text=True, check=True
    )
    assert float(measured.stdout) < 4 * KIB, f"{measured.stdout} bytes"
