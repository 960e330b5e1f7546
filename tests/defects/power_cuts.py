"""Plans in which a node with a store loses power while messages for a client that is offline are acknowledged
(docs/protocol.md §7.3). The plans of the soak rarely cut the power within the time that a sync takes."""

from __future__ import annotations

from random import Random
from typing import Final

from hbroker.sim.network.actions import (
    Action,
    Depart,
    FailSync,
    FlipBit,
    LosePower,
    MendDisk,
    Publish,
    Restart,
    Subscribe,
)
from hbroker.sim.network.plan import ROOT, SECOND, NodePlan, Plan
from tests.defects.calm import calm_plan

__all__ = ["after_failed_sync", "while_messages_wait", "with_flipped_bit"]

TOPIC: Final = "home/lamp"
EVERY: Final = SECOND // 100
DELAY: Final = 2_000
SIZE: Final = 1_000
"""So large that checkpoints are made before the power is cut."""
SYNC: Final = 50_000
"""Several messages arrive while one sync runs."""


def while_messages_wait(seed: int) -> Plan:
    """The owner's machine loses power in the middle of a stream of messages. Its next run has its files, and
    the client comes back."""
    return _with_cut(seed, LosePower)


def with_flipped_bit(seed: int) -> Plan:
    """The same. Before the power comes back, a bit of the owner's store is flipped."""
    return _with_cut(seed, FlipBit)


def after_failed_sync(seed: int) -> Plan:
    """A sync of the owner's store fails. It ends then, and starts again; later its machine loses power."""
    failed = 2 * SECOND + Random(seed).randrange(SECOND)
    cut = failed + SECOND
    return _plan(
        seed,
        cut,
        FailSync(failed, "a"),
        MendDisk(failed + SECOND // 5, "a"),
        Restart(failed + SECOND // 4, "a"),
        LosePower(cut, "a"),
        Restart(cut + SECOND // 10, "a"),
    )


def _with_cut(seed: int, fault: type[LosePower | FlipBit]) -> Plan:
    cut = 2 * SECOND + Random(seed).randrange(SECOND)
    return _plan(seed, cut, fault(cut, "a"), Restart(cut + SECOND // 10, "a"))


def _plan(seed: int, cut: int, *actions: Action) -> Plan:
    """The client is offline from the first second until two seconds after `cut`."""
    messages = (Publish(at, "p0", TOPIC, 1, SIZE) for at in range(SECOND, cut + SECOND, EVERY))
    client = (
        Subscribe(0, "s0", TOPIC, 1),
        Depart(SECOND, "s0", ends_session=False),
        Restart(cut + 2 * SECOND, "s0"),
    )
    nodes = NodePlan(ROOT, "", sync_us=500), NodePlan("a", "home", sync_us=SYNC, has_store=True)
    ordered = tuple(sorted((*client, *messages, *actions), key=lambda action: action.at))
    return calm_plan(seed, nodes, (ROOT, "a"), TOPIC, DELAY, ordered, {"s0": 3_600})
