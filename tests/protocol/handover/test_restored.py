"""Subscriptions of a node's last run (docs/protocol.md §5.8), and how handovers change them (§5.4)."""

from __future__ import annotations

from random import Random

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.events import Diagnostics
from hbroker.protocol.handover.subtree_state import ReceivedState
from hbroker.protocol.ownership.epoch_clock import EpochClock
from hbroker.protocol.ownership.jurisdiction import Grant, Jurisdiction
from hbroker.protocol.requester import Requester
from hbroker.protocol.revocations import Revocations
from hbroker.protocol.sessions.client_rights import ClientRights
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.storage import AfterSync, Storage
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions
from tests.protocol.sole_node import HERE, HOME, ScriptedCore

SUBSCRIPTION = Subscription(7, HERE, "home/#", 1)
HANDED_OVER = Subscription(7, HERE, "home/#", 2)


@pytest.fixture
def restarted() -> OwnerSubscriptions:
    """A node's subscriptions at its second run, at time 0. Its client has a link to it again."""
    core = ScriptedCore()
    jurisdiction = Jurisdiction(core)
    jurisdiction.set_grant(Grant("home", 1, None, True, None))
    settings, storage = NodeSettings("kitchen", "home", HOME), Storage()
    shared = (
        core,
        jurisdiction,
        Diagnostics(),
        storage,
        AfterSync(storage),
        EpochClock(storage, 0),
        Random(1),
    )
    revocations = Revocations(core, storage, shared[2], {}, [], lambda blocks: None)
    context = NodeContext(
        settings, *shared, clock=lambda: 0, incarnation=1, unix_offset_us=0, revocations=revocations
    )
    owner_subscriptions = OwnerSubscriptions(
        context, lambda subscription, ended: None, ClientRights(context, None)
    )
    owner_subscriptions.restore(0, [SUBSCRIPTION])
    owner_subscriptions.handle_link_up(1, SUBSCRIPTION.session, 0)
    return owner_subscriptions


def held(owner_subscriptions: OwnerSubscriptions) -> list[int]:
    """The QoS of the subscriptions that are left after every client had the time to confirm."""
    owner_subscriptions.handle_timeout(timers.IDLE_TIMEOUT)
    return [subscription.qos for subscription in owner_subscriptions.subscription_store]


def test_a_restored_subscription_that_is_not_confirmed_ends(restarted: OwnerSubscriptions) -> None:
    restarted.handle_timeout(timers.IDLE_TIMEOUT - 1)
    assert len(restarted.subscription_store) == 1
    assert held(restarted) == []


def test_a_handover_that_fails_does_not_confirm_a_subscription(restarted: OwnerSubscriptions) -> None:
    restarted.prepare(HANDED_OVER)
    restarted.withdraw(HANDED_OVER.session, HANDED_OVER.key)
    assert len(restarted.subscription_store) == 1, "it was here before"
    assert held(restarted) == []


def test_a_handover_confirms_a_subscription(restarted: OwnerSubscriptions) -> None:
    restarted.prepare(HANDED_OVER)
    restarted.install_state("home", [HANDED_OVER])
    assert held(restarted) == [2]


def test_a_subscribe_of_the_client_confirms_the_subscription(restarted: OwnerSubscriptions) -> None:
    request = pb.Subscribe(request=1, filter=SUBSCRIPTION.filter, qos=pb.QOS_AT_LEAST_ONCE)
    restarted.handle_subscribe(Requester(HERE, session_link=1), request)
    assert held(restarted) == [1]


@pytest.mark.parametrize("is_handed_over", [True, False])
def test_a_subscription_that_is_not_part_of_a_handover_is_marked_as_interrupted(
    restarted: OwnerSubscriptions, is_handed_over: bool
) -> None:
    """A session that lives at this node may have ended at another owner (§6.4). When the subtree of that
    owner comes here, the client has to learn that its subscription did not exist all the time."""
    request = pb.Subscribe(
        request=1, filter=SUBSCRIPTION.filter, qos=pb.QOS_AT_LEAST_ONCE, session_expiry_s=60
    )
    restarted.handle_subscribe(Requester(HERE, session_link=1), request)
    restarted.handle_link_down(0, 1, "timeout")
    received = ReceivedState()
    if is_handed_over:
        received.subscriptions[SUBSCRIPTION.session, *SUBSCRIPTION.key] = SUBSCRIPTION
    restarted.resume("home/kitchen", received)
    kept = restarted.subscription_store.get(SUBSCRIPTION.session, SUBSCRIPTION.key)
    assert kept is not None
    assert kept.interrupted is not is_handed_over
