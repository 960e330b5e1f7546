"""What a client may do at a node that requires tokens (§4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from hbroker._native import (
    ControlEvent,
    LinkUpEvent,
    RightsChangedEvent,
    RightsRequestedEvent,
    SessionClaimedEvent,
)
from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol.events import TokenRefused
from hbroker.protocol.node import Node
from hbroker.protocol.packets import Body, Reason, body_of, pack
from hbroker.protocol.sessions.client_rights import NO_RIGHTS
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.timers import SECOND
from hbroker.rights.rights import BlockRights, Rights
from hbroker.rights.verified import InvalidToken, VerifiedToken
from tests.protocol.sole_node import HERE, HOME, OFFSET_US, ScriptedCore

READER = Rights((BlockRights(read=("home/#",)),))
WRITER = Rights((BlockRights(write=("home/+",), retain=True),))
SHARER = Rights((BlockRights(read=("home/#",), share=True),), ("oven",), named_client="oven")
SELF_NAMED = Rights((BlockRights(write=("home/+",)),), ("oven",))
"""Of who has appended the client id to his token himself."""
BEGIN_S = (100 * SECOND + OFFSET_US) // SECOND
TOKENS = {
    b"reader": VerifiedToken(READER, None, ()),
    b"again": VerifiedToken(READER, None, ()),
    b"writer": VerifiedToken(WRITER, None, ()),
    b"sharer": VerifiedToken(SHARER, None, ()),
    b"self-named": VerifiedToken(SELF_NAMED, None, ()),
    b"short": VerifiedToken(READER, BEGIN_S + 10, ()),
}


class TokenCore(ScriptedCore):
    """A core that notes the rights of associations. Those in `gone` are not there any more."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[int, int] = {}
        self.gone: set[int] = set()
        self.claims: list[tuple[int, int, bool]] = []
        self.outside: list[tuple[Body | None, int]] = []

    def allow_session(self, session: int, rights: int) -> None:
        self.claims.append((session, rights, True))

    def refuse_session(self, session: int, client: Any, rights: int) -> None:
        self.claims.append((session, rights, False))

    def has_association(self, association: int) -> bool:
        return association not in self.gone

    def set_rights(
        self, association: int, key: int, blocks: Sequence[tuple[Sequence[str], bool]], is_empty: bool
    ) -> bool:
        assert is_empty == (key == NO_RIGHTS.key)
        if association in self.gone:
            return False
        self.keys[association] = key
        return True

    def send_to(
        self, address: Any, packet: bytes, token: bytes = b"", pad_to: int = 0, rights: int = 0
    ) -> None:
        self.outside.append((body_of(packet), rights))


class TokenNode:
    """A root that requires tokens."""

    def __init__(self) -> None:
        self.core = TokenCore()
        self.verified: list[bytes] = []
        self.believed = set(TOKENS)
        settings = NodeSettings("root", "", HOME)
        self.node = Node(
            settings,
            self.core,
            Random(1),
            incarnation=1,
            unix_offset_us=OFFSET_US,
            verify_token=self._verify,
        )
        self.now = 100 * SECOND
        self.node.start(self.now)

    def _verify(self, token: bytes, now: float) -> VerifiedToken:
        self.verified.append(token)
        if token not in self.believed:
            raise InvalidToken("nobody has signed it")
        found = TOKENS[token]
        if found.expires_at is not None and now > found.expires_at:
            raise InvalidToken("it has expired")
        return found

    def show(self, association: int, token: bytes) -> int:
        """A client shows a token. Returns the key of its rights."""
        self.node.handle_event(self.now, RightsRequestedEvent(association, HERE, token))
        return self.core.keys[association]

    def tell(self, body: Body, key: int, link: int | None = 1) -> Body | None:
        """Hands the node a packet. Returns the answer."""
        before = len(self.core.sent), len(self.core.outside)
        self.node.handle_event(self.now, ControlEvent(link, HERE, pack(body), True, key))
        if link is None:
            ((answer, rights),) = self.core.outside[before[1] :]
            assert rights == key
            return answer
        return self.core.sent[before[0]][1]

    def link_up(self, key: int) -> None:
        self.node.handle_event(self.now, LinkUpEvent(1, HERE, 5, True, key))

    def subscribe(self, key: int, filter: str, *, link: int | None = 1, **fields: Any) -> pb.SubAck:
        ack = self.tell(pb.Subscribe(request=1, filter=filter, **fields), key, link)
        assert isinstance(ack, pb.SubAck)
        return ack

    def pass_time(self, seconds: float) -> None:
        end = self.now + round(seconds * SECOND)
        while (due := self.node.poll_timeout()) is not None and due <= end:
            self.now = max(self.now, due)
            self.node.handle_timeout(self.now)
        self.now = end

    def refused(self) -> list[tuple[str, int]]:
        events = iter(self.node.poll_event, None)
        return [(event.why, event.suppressed) for event in events if isinstance(event, TokenRefused)]


@pytest.mark.parametrize("link", [None, 1])
def test_a_client_subscribes_where_its_token_lets_it(link: int | None) -> None:
    node = TokenNode()
    key = node.show(1, b"reader")
    node.link_up(key)
    for filter, group, expected in (
        ("home/#", "", Reason.REASON_SUCCESS),
        ("home/kitchen/+", "", Reason.REASON_SUCCESS),
        ("#", "", Reason.REASON_NOT_AUTHORIZED),
        ("attic", "", Reason.REASON_NOT_AUTHORIZED),
        ("home/#", "all", Reason.REASON_NOT_AUTHORIZED),
    ):
        ack = node.subscribe(key, filter, link=link, group=group)
        assert (ack.reason, ack.active) == (expected, expected == Reason.REASON_SUCCESS and link is not None)


def test_a_client_has_the_client_id_of_its_token() -> None:
    node = TokenNode()
    key = node.show(1, b"sharer")
    node.link_up(key)
    assert node.subscribe(key, "home/#", group="all", client="oven").active
    assert node.subscribe(key, "home/#", client="fridge").reason == Reason.REASON_NOT_AUTHORIZED


@pytest.mark.parametrize("link", [None, 1])
def test_a_client_with_some_right_finds_owners(link: int | None) -> None:
    node = TokenNode()
    for token, expected in ((b"reader", Reason.REASON_SUCCESS), (b"", Reason.REASON_NOT_AUTHORIZED)):
        key = node.show(1, token)
        node.link_up(key)
        accept = node.tell(pb.PubConnect(request=1, topic="elsewhere"), key, link)
        assert isinstance(accept, pb.PubAccept)
        assert accept.reason == expected


def test_a_will_needs_the_right_to_publish_it() -> None:
    node = TokenNode()
    key = node.show(1, b"writer")
    node.link_up(key)
    node.core.runs[1] = 7
    for topic, expected in (("home/oven", Reason.REASON_SUCCESS), ("attic", Reason.REASON_NOT_AUTHORIZED)):
        message = pb.Publish(topic=topic, publisher=7, sequence=1, retain=True).SerializeToString()
        ack = node.tell(pb.Will(request=1, publish=message), key)
        assert isinstance(ack, pb.WillAck)
        assert ack.reason == expected


def test_who_shows_no_valid_token_may_do_nothing_and_is_reported_once_in_a_second() -> None:
    node = TokenNode()
    for number, token in enumerate((b"", b"forged", b"forged")):
        assert node.show(number, token) == NO_RIGHTS.key
    assert node.refused() == [("the client has no token", 0)]
    node.pass_time(1)
    node.show(9, b"forged")
    assert node.refused() == [("nobody has signed it", 2)]
    assert node.subscribe(NO_RIGHTS.key, "home", link=None).reason == Reason.REASON_NOT_AUTHORIZED
    assert node.node.status(node.now)["counters"]["tokens_refused"] == 4  # type: ignore[index]


def test_equal_rights_are_one_and_a_token_is_verified_once() -> None:
    node = TokenNode()
    assert node.show(1, b"reader") == node.show(2, b"again") == node.show(3, b"reader") == READER.key
    assert node.verified == [b"reader", b"again"]


def test_a_token_gives_no_rights_after_its_last_second() -> None:
    node = TokenNode()
    key = node.show(1, b"short")
    node.link_up(key)
    node.subscribe(key, "home/#")
    node.pass_time(10.9)
    assert node.core.keys[1] == READER.key
    node.pass_time(0.1)
    assert node.core.keys[1] == NO_RIGHTS.key
    assert node.show(2, b"short") == NO_RIGHTS.key
    node.core.sent.clear()
    node.node.handle_event(node.now, RightsChangedEvent(1, 5, NO_RIGHTS.key))
    ((_, ack),) = node.core.sent
    assert isinstance(ack, pb.SubAck)
    assert (ack.request, ack.filter, ack.reason) == (0, "home/#", Reason.REASON_NOT_AUTHORIZED)
    assert not list(node.node.subscription_store)


def test_a_session_is_resumed_with_the_subscriptions_that_its_rights_allow() -> None:
    node = TokenNode()
    key = node.show(1, b"reader")
    node.link_up(key)
    node.subscribe(key, "home/#", session_expiry_s=60)
    node.link_up(node.show(2, b"again"))
    assert len(node.node.subscription_store) == 1
    node.link_up(node.show(3, b"writer"))
    assert not list(node.node.subscription_store)


def test_who_has_a_token_of_an_authority_that_is_not_believed_any_more_has_no_rights() -> None:
    node = TokenNode()
    node.show(1, b"reader")
    node.show(2, b"writer")
    node.believed.remove(b"reader")
    node.node.review_tokens(node.now)
    node.node.handle_timeout(node.now)
    assert node.core.keys == {1: NO_RIGHTS.key, 2: WRITER.key}


@pytest.mark.parametrize(
    ("token", "client", "may_go_on"),
    [
        (b"again", "", True),
        (b"sharer", "oven", True),
        (b"sharer", "fridge", False),
        (b"self-named", "oven", False),
        (b"self-named", "", False),
        (b"writer", "", False),
        (b"forged", "", False),
    ],
)
def test_who_goes_on_with_a_session_might_have_all_that_it_has(
    token: bytes, client: str, may_go_on: bool
) -> None:
    """Or the authority names the session's client in its token: then what it may not have any more ends."""
    node = TokenNode()
    key = node.show(1, b"reader")
    node.link_up(key)
    node.subscribe(key, "home/#", client=client, session_expiry_s=60)
    other = node.show(2, token)
    node.node.handle_event(node.now, SessionClaimedEvent(5, HERE, other))
    assert node.core.claims == [(5, other, may_go_on)]
    assert len(node.node.subscription_store) == 1


def test_no_client_joins() -> None:
    node = TokenNode()
    key = node.show(1, b"writer")
    join = pb.Join(request=1, node="n", subtree="home", incarnation=1)
    node.node.handle_event(node.now, ControlEvent(None, HERE, pack(join), True, key))
    assert node.core.outside == []
    assert node.node.status(node.now)["drops"] == {"not_authorized": 1}


def test_rights_of_ended_associations_are_forgotten_while_others_come() -> None:
    node = TokenNode()
    for number in range(1_000):
        node.show(number, b"reader")
        node.core.gone.add(number - 10)
    known = node.node._client_rights._associations
    assert set(range(990, 1_000)) <= set(known)
    assert len(known) < 30


def test_tokens_are_verified_again_in_rounds() -> None:
    node = TokenNode()
    for number in range(300):
        node.show(number, b"reader")
    node.believed.remove(b"reader")
    node.node.review_tokens(node.now)
    lost = []
    while READER.key in node.core.keys.values():
        assert node.node.poll_timeout() == 0
        node.node.handle_timeout(node.now)
        lost.append(sum(key == NO_RIGHTS.key for key in node.core.keys.values()))
    assert lost[0] < 100
    assert lost[-1] == 300


def test_a_will_is_withdrawn_with_the_right_to_publish_it() -> None:
    node = TokenNode()
    key = node.show(1, b"writer")
    node.link_up(key)
    node.core.runs[1] = 7
    message = pb.Publish(topic="home/oven", publisher=7, sequence=1).SerializeToString()
    node.tell(pb.Will(request=1, publish=message), key)
    assert len(node.node.wills) == 1
    node.node.handle_event(node.now, RightsChangedEvent(1, 5, NO_RIGHTS.key))
    assert len(node.node.wills) == 0


def test_a_subscription_that_is_handed_over_needs_the_rights_of_the_link_here() -> None:
    """The client has a link to the target under a token that allows less."""
    node = TokenNode()
    key = node.show(1, b"writer")
    node.link_up(key)
    subscription = Subscription(5, HERE, "home/#", 1, rights=READER.key)
    node.node.owner_subscriptions.install_state("home", [subscription])
    assert not list(node.node.subscription_store)


def test_orders_need_a_right() -> None:
    node = TokenNode()
    order = pb.Order(request=1, kind=pb.ORDER_KIND_LEAVE, node="root")
    ack = node.tell(order, node.show(1, b"writer"), None)
    assert isinstance(ack, pb.OrderAck)
    assert (ack.reason, "$SYS/#" in ack.text) == (Reason.REASON_NOT_AUTHORIZED, True)


def test_a_session_with_very_many_subscriptions_ends_with_its_rights() -> None:
    node = TokenNode()
    key = node.show(1, b"reader")
    node.link_up(key)
    for number in range(1_001):
        node.subscribe(key, f"home/{number}")
    node.node.handle_event(node.now, RightsChangedEvent(1, 5, node.show(2, b"writer")))
    assert not list(node.node.subscription_store)
