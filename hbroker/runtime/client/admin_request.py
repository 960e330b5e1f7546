"""Sends one order to a node and waits until it is done: `hbroker leave`, `hbroker move` (docs/protocol.md
§5.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from hbroker._native import Credentials, Endpoint
from hbroker._proto import packet_pb2 as pb
from hbroker.errors import Refused, Unreachable
from hbroker.protocol.admin.client import AdminClient
from hbroker.protocol.packets import Address, Reason
from hbroker.runtime.address import listen_for
from hbroker.runtime.client.dispatcher import new_endpoint
from hbroker.runtime.client.identity import Identity, random_id
from hbroker.runtime.control_loop import ControlLoop, clock

__all__ = ["give_order"]

_UNREACHABLE = Reason.REASON_OWNER_UNREACHABLE


def give_order(
    address: Address,
    order: pb.Order,
    *,
    join_key: bytes = b"",
    credentials: Credentials | None = None,
    timeout: float,
    on_under_way: Callable[[], None] = lambda: None,
) -> None:
    """Returns once the node has carried the order out. `credentials`: with which the datagrams are sealed;
    None: they are not. `on_under_way` is called when the node answers that the order is under way.

    Raises Refused with the node's explanation, and Unreachable if the order is not done after `timeout`
    seconds.
    """
    endpoint = new_endpoint(listen_for(address), replace(Identity.of(), credentials=credentials))
    try:
        ordering = AdminClient(endpoint, Random(random_id()), address, order, join_key)
        ordering.start(clock())
        _wait(endpoint, ordering, clock() + round(timeout * 1e6), on_under_way)
    finally:
        endpoint.shutdown()
    answer = ordering.answer
    if answer is None:
        raise Unreachable(f"{order.node} does not answer within {timeout:g} s", _UNREACHABLE)
    if answer.reason != Reason.REASON_SUCCESS:
        raise Refused(answer.text, answer.reason)
    if not answer.done:
        why = f": {answer.text}" if answer.text else ""
        raise Unreachable(f"{order.node} is still at it after {timeout:g} s{why}", _UNREACHABLE)


def _wait(endpoint: Endpoint, ordering: AdminClient, deadline: int, on_under_way: Callable[[], None]) -> None:
    control_loop = ControlLoop(endpoint, ordering)
    is_under_way = False
    while not ordering.has_ended and clock() < deadline:
        control_loop.run_iteration(clock())
        if ordering.answer is not None and not is_under_way and not ordering.has_ended:
            is_under_way = True
            on_under_way()
        now = clock()
        due = ordering.poll_timeout()
        if due is not None:
            endpoint.wait(max(0, min(due, deadline) - now) / 1e6)
