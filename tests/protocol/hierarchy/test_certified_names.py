"""With security, a node joins under the name, and for the subtrees, in its certificate alone (§5.5)."""

from __future__ import annotations

import pytest

from hbroker.identity.certificate import NodeCertificate
from hbroker.protocol.events import JoinDenied, Refused
from hbroker.protocol.packets import Address
from tests.protocol.world import World


def certificate(name: str, *subtrees: str) -> NodeCertificate:
    return NodeCertificate(name, subtrees or ("",), 0, 1 << 40, 1)


@pytest.mark.parametrize("in_certificate", ["kitchen", "attic", None])
def test_a_node_joins_under_the_name_in_its_certificate(in_certificate: str | None) -> None:
    world = World()
    certificates: dict[Address, NodeCertificate] = {}
    world.certificates = certificates.get
    world.start_root()
    kitchen = world.start_node("kitchen", "home/kitchen")
    if in_certificate is not None:
        certificates[kitchen.settings.listen] = certificate(in_certificate)
    world.advance(2)
    may_join = in_certificate == "kitchen"
    assert world.owners("home/kitchen/oven") == ["kitchen" if may_join else "root"]
    refused = [event.subtree for event in world.events("kitchen") if isinstance(event, Refused)]
    assert refused == ([] if may_join else ["$SYS/nodes/kitchen", "home/kitchen"])
    assert kitchen.node.has_stopped != may_join
    denied = [event for event in world.events("root") if isinstance(event, JoinDenied)]
    if may_join:
        assert not denied
    else:
        first = JoinDenied("$SYS/nodes/kitchen", "kitchen", kitchen.settings.listen, "uncertified")
        assert denied[0] == first
        assert len(denied) <= 2, "one in a second at most"


def test_a_lease_is_not_renewed_without_the_certificate() -> None:
    world = World()
    certificates: dict[Address, NodeCertificate] = {}
    world.certificates = certificates.get
    world.start_root()
    kitchen = world.start_node("kitchen", "home/kitchen")
    certificates[kitchen.settings.listen] = certificate("kitchen")
    world.advance(2)
    assert world.owners("home/kitchen/oven") == ["kitchen"]
    del certificates[kitchen.settings.listen]
    world.advance(60)
    assert world.owners("home/kitchen/oven") == ["root"]


@pytest.mark.parametrize("certified", ["home/kitchen", "home", "home/kitchen/oven", "home/kit", "attic"])
def test_a_node_owns_what_its_certificate_names(certified: str) -> None:
    world = World()
    certificates: dict[Address, NodeCertificate] = {}
    world.certificates = certificates.get
    world.start_root()
    kitchen = world.start_node("kitchen", "home/kitchen")
    certificates[kitchen.settings.listen] = certificate("kitchen", certified)
    world.advance(2)
    may_own = certified in ("home/kitchen", "home")
    assert world.owners("home/kitchen/oven") == ["kitchen" if may_own else "root"]
    own = kitchen.node.claims.find("$SYS/nodes/kitchen")
    assert own is not None
    assert own.is_held
    denied = [event.why for event in world.events("root") if isinstance(event, JoinDenied)]
    assert denied == ([] if may_own else ["outside_certificate"])
