"""Sessions in the API (docs/api.md): when messages are acknowledged, what a clean start discards,
takeover, wills."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import pytest

from hbroker import InvalidTopic, PayloadTooLarge, SessionTakenOver, Will, sync
from hbroker._native import Engine
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.results import Subscribed, TakenOver
from hbroker.protocol.sessions.options import session_id
from hbroker.runtime.client.delivery import options_of
from hbroker.runtime.client.dispatcher import config_of
from hbroker.runtime.client.identity import Identity
from tests.runtime.client.client_fakes import FakeEndpoint, Message, control_of

NUMBERS = count(1)


def message(*subscriptions: int, qos: int = 1, retained: bool = False) -> Message:
    return Message("a", b"x", qos, list(subscriptions), retained, 1, next(NUMBERS))


def is_same(got: object, given: object) -> bool:
    """Whether `got` is the very message that was given."""
    return got is given


@pytest.mark.parametrize("session_options", [{}, {"session_expiry": 5}, {"clean_start": True}])
def test_runs_with_the_same_session_id_begin_at_different_datagram_numbers(
    session_options: dict[str, Any],
) -> None:
    """§3.6: a late datagram for an earlier run acknowledges nothing of the next run."""
    numbers = {_first_number(Identity.of("a", **session_options)) for _ in range(8)}
    assert (len(numbers) > 1) == bool(session_options)


def _first_number(identity: Identity) -> int:
    engine = Engine(config_of(identity))
    engine.handle_timeout(0)
    engine.send(engine.connect(("127.0.0.1", 7)), pb.Packet(ping=pb.Ping()).SerializeToString())
    ((_, datagram),) = engine.poll_transmit()
    return pb.Datagram.FromString(datagram).header.number


def test_the_session_id_depends_on_the_client_id_only_for_sessions_that_can_be_resumed() -> None:
    assert Identity.of("a").session_options.session != Identity.of("a").session_options.session, (
        "two may have one name"
    )
    kept = Identity.of("a", session_expiry=1.2, session_key="k")
    assert (kept.session_options.session, kept.session_options.expiry_s) == (session_id("a", b"k"), 2)
    assert Identity.of("a", clean_start=True).session_options.session == session_id("a")
    assert Identity.of("a", session_expiry=math.inf).session_options.expiry_s == 0xFFFF_FFFF
    for wrong in ({"session_expiry": 5}, {"session_key": "k"}, {"clean_start": True}):
        with pytest.raises(ValueError, match="client_id"):
            Identity.of(None, **wrong)
    for seconds in (-1, math.nan):
        with pytest.raises(ValueError, match="seconds"):
            Identity.of("a", session_expiry=seconds)
    with pytest.raises(ValueError, match="acknowledge"):
        Identity.of("a", acknowledge="later")


def test_an_invalid_will_raises() -> None:
    with pytest.raises(InvalidTopic):
        Will("home/#")
    with pytest.raises(PayloadTooLarge):
        Will("a", b"x" * 1_100)
    with pytest.raises(ValueError, match="delay"):
        Will("a", delay=-1)
    with pytest.raises(ValueError, match="QoS"):
        Will("a", qos=3)
    registered = Will("a", "gone", 2, True, 0.5, 9, "t", 1, "r", b"c", [("k", "v")]).registered()
    assert registered.delay_s == 1
    assert registered.message == pb.Publish(
        topic="a",
        payload=b"gone",
        qos=pb.QOS_EXACTLY_ONCE,
        retain=True,
        expiry_s=9,
        content_type="t",
        payload_format=pb.PAYLOAD_FORMAT_UTF8,
        response_topic="r",
        correlation_data=b"c",
        user_properties=[pb.UserProperty(name="k", value="v")],
    )


def test_an_unknown_overflow_policy_raises() -> None:
    assert options_of({"qos": 1, "overflow": "end_session"}).overflow == pb.OVERFLOW_END_SESSION
    with pytest.raises(ValueError, match="drop_newest"):
        options_of({"overflow": "explode"})  # type: ignore[typeddict-item]


def test_a_message_counts_as_handled_when_the_next_one_is_requested(endpoint: FakeEndpoint) -> None:
    with (
        sync.connect("127.0.0.1", acknowledge="handled") as client,
        client.subscribe("a", qos=1) as messages,
    ):
        (id,) = messages._ids
        first, second, third = given = [message(id) for _ in range(3)]
        endpoint.give(*given)
        assert is_same(messages.next(5), first)
        assert endpoint.handled_ids == []
        assert is_same(messages.next(5), second)
        assert is_same(messages.next(5), third)
        assert endpoint.handled_ids == []  # in batches while more messages wait
        assert messages.next(0) is None
        assert endpoint.handled_ids == [(1, one.sequence) for one in given]


def test_a_message_for_two_subscriptions_counts_as_handled_when_both_have_handled_it(
    endpoint: FakeEndpoint,
) -> None:
    with sync.connect("127.0.0.1", acknowledge="handled") as client:
        one, other = client.subscribe("a", qos=1), client.subscribe("+", qos=1)
        given = message(*one._ids, *other._ids)
        endpoint.give(given)
        assert is_same(one.next(5), given)
        assert one.next(0) is None
        assert endpoint.handled_ids == []
        assert is_same(other.next(5), given)
        other.close()
        assert endpoint.handled_ids == [(1, given.sequence)]


def test_a_message_that_was_not_read_is_not_acknowledged(endpoint: FakeEndpoint) -> None:
    profile = {"client_id": "lamp", "session_expiry": 60.0, "acknowledge": "handled"}
    with sync.connect("127.0.0.1", **profile) as client:  # type: ignore[arg-type]
        messages = client.subscribe("a", qos=1)
        read, unread = message(*messages._ids), message(*messages._ids)
        endpoint.give(read, unread)
        assert is_same(messages.next(5), read)
    assert endpoint.handled_ids == [(1, read.sequence)]
    assert control_of(client).has_left


def test_with_explicit_acknowledgement_the_application_says_what_it_has_handled(
    endpoint: FakeEndpoint,
) -> None:
    profile = {"client_id": "lamp", "session_expiry": 60.0, "acknowledge": "explicit"}
    with sync.connect("127.0.0.1", **profile) as client:  # type: ignore[arg-type]
        one, other = client.subscribe("a", qos=1), client.subscribe("+", qos=1)
        first, both, last = message(*one._ids), message(*one._ids, *other._ids), message(*one._ids)
        endpoint.give(first, both, last)
        taken = [got for _ in range(3) if (got := one.next(5)) is not None]
        assert all(is_same(got, given) for got, given in zip(taken, (first, both, last), strict=True))
        assert endpoint.handled_ids == []
        client.acknowledge(taken[2])
        client.acknowledge(taken[1])
        assert endpoint.handled_ids == [(1, last.sequence)]
        client.acknowledge(taken[1])
        assert endpoint.handled_ids == [(1, last.sequence), (1, both.sequence)]
    client.acknowledge(taken[0])
    assert endpoint.handled_ids == [(1, last.sequence), (1, both.sequence)]


def test_only_a_client_with_explicit_acknowledgement_takes_them(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1") as client, pytest.raises(ValueError, match="explicit"):
        client.acknowledge()


def test_unread_messages_of_a_shared_subscription_are_given_back_when_it_ends(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1", acknowledge="handled") as client:
        member = client.subscribe("$share/g/a", qos=1)
        alone = client.subscribe("a", qos=1)
        read, unread = message(*member._ids), message(*member._ids)
        shared_and_plain = message(*member._ids, *alone._ids)
        endpoint.give(read, unread, shared_and_plain)
        assert is_same(member.next(5), read)
        assert is_same(alone.next(5), shared_and_plain)
        member.close()
        assert endpoint.handled_ids == [(1, read.sequence)]
        assert endpoint.given_back_ids == [(1, unread.sequence)]
        alone.close()
        assert endpoint.handled_ids == [(1, read.sequence), (1, shared_and_plain.sequence)]


def test_unread_messages_of_a_plain_subscription_are_acknowledged_when_it_ends(
    endpoint: FakeEndpoint,
) -> None:
    with sync.connect("127.0.0.1", acknowledge="handled") as client:
        messages = client.subscribe("a", "b", qos=1)
        read, unread = message(messages._ids[0]), message(messages._ids[1])
        endpoint.give(read, unread)
        assert is_same(messages.next(5), read)
        messages.close()
        assert endpoint.handled_ids == [(1, read.sequence), (1, unread.sequence)]
        assert endpoint.given_back_ids == []


def test_a_subscription_of_a_persistent_session_is_kept_unless_it_is_ended(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1", client_id="lamp", session_expiry=60) as client:
        with client.subscribe("a", qos=1):
            pass
        with client.subscribe("b", qos=1) as messages:
            messages.close(keep=False)
        ended = [type(result).__name__ for result in control_of(client).results]
        assert ended in ([], ["Unsubscribed"])
        assert control_of(client).filters == {}


def test_a_clean_start_discards_the_messages_of_the_former_session(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1", client_id="lamp", clean_start=True) as client:
        control = control_of(client)
        control.answer = lambda id: _after(endpoint, id)
        messages = client.subscribe("a", qos=1)
        control.answer = None
        (id,) = messages._ids
        got = messages.next(5)
        assert got is not None
        assert got.retained
        fresh = message(id)
        endpoint.give(fresh)
        assert is_same(messages.next(5), fresh)


def _after(endpoint: FakeEndpoint, id: int) -> Subscribed:
    """Messages of the former session and a retained message arrive before the SUBACK of the owner."""
    endpoint.give(message(id), message(id), message(id, retained=True))
    return Subscribed(id, ("root",))


def test_a_takeover_ends_the_client(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1", client_id="lamp", session_expiry=60) as client:
        messages = client.subscribe("a", qos=1)
        control_of(client).results.append(TakenOver())
        client._wake()
        with pytest.raises(SessionTakenOver, match="lamp"):
            messages.next(5)
        with pytest.raises(SessionTakenOver, match="lamp"):
            client.publish("a", qos=1)
        with pytest.raises(SessionTakenOver, match="lamp"):
            client.subscribe("b")
        client._thread.join(5)
        assert endpoint.is_shut, "its links would take the session back"


def test_connect_returns_once_the_will_is_registered(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1", will=Will("home/gone", "x")) as client:
        (will,) = control_of(client).wills
        assert will.message.topic == "home/gone"
