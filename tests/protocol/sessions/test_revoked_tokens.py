"""A client whose token has a revoked block has no rights from then on (§4.6, §5.11)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._native import ControlEvent, LinkUpEvent, RightsChangedEvent, RightsRequestedEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.identity.revocation_list import RevocationAuthority, RevokedToken, short_id
from hbroker.identity.revoked_file import signed_record
from hbroker.protocol.events import TokenRefused
from hbroker.protocol.node import Node
from hbroker.protocol.packets import Body, Reason, pack
from hbroker.protocol.sessions.client_rights import NO_RIGHTS
from hbroker.protocol.timers import SECOND
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import attenuate, create, inspect, verify
from tests.identity.examples import AUTHORITY
from tests.protocol.sessions.test_client_rights import TokenCore
from tests.protocol.sole_node import HERE, HOME, OFFSET_US
from tests.rights.examples import raw

KEYS = [AUTHORITY.public_key]
BELIEVED = RevocationAuthority.of(AUTHORITY.public_key)
READER = Block(BlockRights(read=("home/#",)))
NARROWER = Block(BlockRights(read=("home/kitchen/#",)))


class CountingCore(TokenCore):
    """Notes which associations were given rights, also again."""

    def __init__(self) -> None:
        super().__init__()
        self.sets: list[int] = []

    def set_rights(
        self, association: int, key: int, blocks: Sequence[tuple[Sequence[str], bool]], is_empty: bool
    ) -> bool:
        self.sets.append(association)
        return super().set_rights(association, key, blocks, is_empty)


class RevokingNode:
    """A root that requires tokens, and the list of revoked tokens on its host."""

    def __init__(self) -> None:
        self.core = CountingCore()
        self.node = Node(
            NodeSettings("root", "", HOME),
            self.core,
            Random(1),
            incarnation=1,
            unix_offset_us=OFFSET_US,
            verify_token=lambda token, now: verify(token, KEYS, now),
            authorities=[BELIEVED],
        )
        self.now = 100 * SECOND
        self.node.start(self.now)
        self._records = b""
        self._count = 0

    def show(self, association: int, token: str) -> None:
        self.node.handle_event(self.now, RightsRequestedEvent(association, HERE, raw(token)))

    def tell(self, body: Body) -> None:
        """Hands the node a packet of the client with association 1."""
        self.node.handle_event(self.now, ControlEvent(1, HERE, pack(body), True, self.core.keys[1]))

    def has_rights(self, association: int) -> bool:
        return self.core.keys[association] != NO_RIGHTS.key

    def revoke(self, token: str, block: int = -1) -> None:
        """Appends to the list, and lets the node act until nothing is due."""
        self._count += 1
        id = short_id(inspect(token).revocation_ids[block])
        self._records += signed_record(AUTHORITY, RevokedToken(self._count, id, 0))
        self.node.revocations.take_file(BELIEVED.id, self._records)
        self.settle()

    def settle(self) -> None:
        while self.node.poll_timeout() == 0:
            self.node.handle_timeout(self.now)

    def counter(self, name: str) -> int:
        counters = self.node.status(self.now)["counters"]
        assert isinstance(counters, dict)
        return int(counters.get(name, 0))

    def refused(self) -> list[str]:
        events = iter(self.node.poll_event, None)
        return [event.why for event in events if isinstance(event, TokenRefused)]


def made() -> str:
    return create(AUTHORITY.key, READER)


def narrowed(token: str) -> str:
    return attenuate(token, NARROWER, KEYS, 0)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=3),
    st.booleans(),
)
def test_exactly_the_tokens_with_a_revoked_block_end(
    parents: list[int], revocations: list[tuple[int, int]], are_known: bool
) -> None:
    """`parents`: 0: the token is new; n: it is made of the token n before it. `are_known`: the clients show
    their tokens before they are revoked."""
    node, tokens = RevokingNode(), list[str]()
    for back in parents:
        tokens.append(narrowed(tokens[-back]) if 0 < back <= len(tokens) else made())
    chains = [inspect(token).revocation_ids for token in tokens]
    if are_known:
        for number, token in enumerate(tokens):
            node.show(number, token)
            assert node.has_rights(number)
    revoked = set()
    for which, block in revocations:
        token = tokens[which % len(tokens)]
        chain = inspect(token).revocation_ids
        node.revoke(token, block % len(chain))
        revoked.add(chain[block % len(chain)])
        for number, token in enumerate(tokens):
            if not are_known:
                node.show(number, token)
            assert node.has_rights(number) == revoked.isdisjoint(chains[number])


def test_a_client_loses_subscriptions_at_once_and_comes_back_in_vain() -> None:
    node, guest = RevokingNode(), narrowed(made())
    node.show(1, guest)
    node.show(2, made())
    node.revoke(guest)
    assert (node.has_rights(1), node.has_rights(2)) == (False, True)
    assert node.counter("tokens_revoked") == 1
    assert node.counter("tokens_refused") == 0
    for association in (3, 4):
        node.show(association, guest)
        assert not node.has_rights(association)
    assert node.refused() == ["revoked"]
    assert (node.counter("tokens_revoked"), node.counter("tokens_refused")) == (3, 2)
    assert node.node.status(node.now)["revoked_tokens"] == 1


def test_only_those_who_have_the_block_are_looked_at_again() -> None:
    node, token = RevokingNode(), made()
    others = [made() for _ in range(20)]
    for number, other in enumerate(others):
        node.show(number, other)
    for number in range(1_000, 1_200):
        node.show(number, token)
    set_before = len(node.core.sets)
    node.revoke(token)
    assert not any(node.has_rights(number) for number in range(1_000, 1_200))
    assert len(node.core.sets) - set_before == 200


def test_associations_are_forgotten_with_their_blocks() -> None:
    node, token = RevokingNode(), made()
    for number in range(100):
        node.show(number, token)
        node.core.gone.add(number - 3)
    rights = node.node._client_rights
    (holders,) = rights._holders.values()
    assert holders == set(rights._associations)
    assert len(holders) < 20
    node.revoke(token)
    assert not rights._holders


def test_who_is_no_child_gets_no_records() -> None:
    """Not even a client that has rights."""
    node, token = RevokingNode(), made()
    node.revoke(made())
    node.show(1, token)
    for body in (
        pb.Revoked(authority=BELIEVED.id, first=1),
        pb.Revoked(authority=BELIEVED.id, records=[b"\0" * 92]),
    ):
        node.core.sent.clear()
        node.tell(body)
        assert not node.core.sent
    drops = node.node.status(node.now)["drops"]
    assert drops == {"unexpected_packet": 2}


def test_a_subscription_ends_with_the_token() -> None:
    node, token = RevokingNode(), made()
    node.show(1, token)
    node.node.handle_event(node.now, LinkUpEvent(1, HERE, 5, True, node.core.keys[1]))
    node.tell(pb.Subscribe(request=1, filter="home/#"))
    assert len(node.node.subscription_store) == 1
    node.revoke(token)
    node.core.sent.clear()
    node.node.handle_event(node.now, RightsChangedEvent(1, 5, node.core.keys[1]))
    ((_, ack),) = node.core.sent
    assert isinstance(ack, pb.SubAck)
    assert (ack.filter, ack.reason) == ("home/#", Reason.REASON_NOT_AUTHORIZED)
    assert not list(node.node.subscription_store)
