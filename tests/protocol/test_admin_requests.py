"""Orders of the operator: which are carried out, who may send them, and how often they count (§5.7)."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.admin import requests
from hbroker.protocol.admin.client import AdminClient, order_credential
from hbroker.protocol.admin.requests import MEMORY
from hbroker.protocol.events import LogLevelOrdered, Ordered, OrderRefused
from hbroker.protocol.hierarchy.join_proofs import NONCE_PERIOD
from hbroker.protocol.packets import Address, Reason, body_of, pack
from tests.protocol.world import World

KEY = b"a secret of enough bytes"
LEAVE, CLAIM, HAND_BACK = pb.ORDER_KIND_LEAVE, pb.ORDER_KIND_CLAIM, pb.ORDER_KIND_HAND_BACK
HOSTS = count(1)


def small_network(key: bytes = b"") -> World:
    world = World()
    world.start_root(join_key=key)
    for name, subtree in (("home", "home"), ("kitchen", "home/kitchen"), ("garden", "garden")):
        world.start_node(name, subtree, join_key=key)
        world.advance(0.5)
    return world


def send_order(world: World, node: str, kind: int, subtree: str = "", key: bytes = b"") -> pb.OrderAck:
    """Sends an order and waits for its answer."""
    core = world.network.attach(("10.0.3.1", 5_000 + next(HOSTS)), is_node=False)
    order = pb.Order(kind=pb.OrderKind.Name(kind), node=node, subtree=subtree)
    admin_client = AdminClient(core, Random(next(HOSTS)), world.nodes[node].settings.listen, order, key)
    core.control = admin_client
    admin_client.start(world.network.now)
    for _ in range(100):
        world.advance(0.05)
        if admin_client.has_ended:
            break
    assert admin_client.answer is not None, "it is answered"
    return admin_client.answer


def orders_carried_out(world: World, node: str) -> int:
    return sum(isinstance(node_event, Ordered) for node_event in world.events(node))


def test_a_subtree_is_handed_back_by_one_node_and_claimed_by_another() -> None:
    world = small_network()
    assert send_order(world, "kitchen", HAND_BACK, "home/kitchen").done
    assert world.owners("home/kitchen/x") == ["home"]
    assert send_order(world, "garden", CLAIM, "home/kitchen").done
    assert world.owners("home/kitchen/x") == ["garden"]
    assert world.owners("garden/x") == ["garden"]
    status = world.nodes["kitchen"].node.status(world.network.now)
    assert (status["subtree"], status["subtrees"]) == (None, [])


def test_a_node_that_a_subscribe_reaches_twice_names_all_its_cuts_each_time() -> None:
    """§6.1: otherwise a client that receives only one of the answers would miss cuts."""
    world = small_network()
    assert send_order(world, "garden", CLAIM, "home/kitchen/oven").done
    world.start_node("probe", "garden/probe")
    world.start_node("grill", "home/kitchen/oven/grill")
    world.advance(0.5)
    answers = world.ask("alice", pb.Subscribe(filter="+/+/+/grill"))
    told = [(a.node, {cut.node for cut in a.passed_to}) for a in answers if isinstance(a, pb.SubAck)]
    held = [a.held for a in answers if isinstance(a, pb.SubAck) and a.node == "garden"]
    assert held == [["garden", "home/kitchen/oven"]] * 2
    assert told.count(("garden", {"grill", "probe"})) == 2, told
    reached = sorted(node for node, _ in told if node in ("grill", "probe"))
    assert reached == ["grill", "probe"], "each once"


def test_a_node_that_loses_a_subtree_tells_its_remaining_subscribers_the_parent_takes_it_back() -> None:
    """§6.3: no other node tells them, because the parent has dropped their subscription (§5.4)."""
    world = small_network()
    assert send_order(world, "kitchen", HAND_BACK, "home/kitchen").done
    assert send_order(world, "garden", CLAIM, "home/kitchen").done
    world.subscribe("alice", "+/kitchen")
    assert world.storing("+/kitchen") == ["garden", "root"]
    home, garden = (world.nodes[name].settings.listen for name in ("home", "garden"))
    world.network.part(home, garden)
    world.advance(25)
    assert world.owners("home/kitchen") == ["home"]
    heard = [body for source, _, body in world.client("alice").heard if source == garden]
    news = [body for body in heard if isinstance(body, pb.SubAck) and not body.request]
    assert [(ack.active, list(ack.held), [(c.subtree, c.node) for c in ack.passed_to]) for ack in news] == [
        (True, ["garden"], [("home/kitchen", "home")])
    ]


def test_a_handed_back_subtree_is_reported_under_the_next_epoch_as_held_by_the_parent() -> None:
    """§6.3: the parent's earlier delegation of the subtree does not count any more."""
    world = small_network()
    world.subscribe("alice", "#")
    heard = world.client("alice").heard
    before = [body for _, _, body in heard if isinstance(body, pb.SubAck)]
    (epoch,) = {c.epoch for ack in before for c in ack.passed_to if c.subtree == "home/kitchen"}
    heard.clear()
    assert send_order(world, "kitchen", HAND_BACK, "home/kitchen").done
    world.advance(1)
    news = [body for _, _, body in heard if isinstance(body, pb.SubAck) and not body.request]
    told = {ack.node: (list(ack.held), [(c.subtree, c.epoch) for c in ack.passed_to]) for ack in news}
    assert told == {"kitchen": ([], [("home/kitchen", epoch + 1)]), "home": (["home", "home/kitchen"], [])}


def test_a_node_whose_process_is_ending_refuses_a_claim() -> None:
    """Otherwise it would not end, and would never hand back the subtree that it claimed."""
    world = small_network()
    world.leave("garden")
    refused = send_order(world, "garden", CLAIM, "home/kitchen/oven")
    assert refused.reason == Reason.REASON_NOT_SERVING
    assert world.nodes["garden"].node.has_stopped
    assert world.owners("home/kitchen/oven/x") == ["kitchen"]


def test_a_node_that_left_by_order_answers_before_it_stops() -> None:
    world = small_network()
    assert send_order(world, "home", LEAVE).done
    home = world.nodes["home"].node
    assert home.has_left
    assert [home.has_stopped] == [False], "the answer may have been lost"
    world.advance(1.1)
    assert [home.has_stopped] == [True]
    assert world.owners("home/kitchen/x") == ["kitchen"]
    assert world.owners("home/x") == ["root"]


@pytest.mark.parametrize("node", ["root", "kitchen"])
def test_a_node_is_told_to_log_at_another_level(node: str) -> None:
    world = small_network()
    answer = send_order(world, node, pb.ORDER_KIND_LOG_DEBUG, "")
    assert (answer.done, answer.reason) == (True, Reason.REASON_SUCCESS)
    assert LogLevelOrdered("debug") in world.events(node)


@pytest.mark.parametrize(
    ("node", "kind", "subtree", "reason"),
    [
        ("root", LEAVE, "", "NOT_AUTHORIZED"),
        ("root", HAND_BACK, "home", "NOT_AUTHORIZED"),
        ("kitchen", CLAIM, "a/+/b", "TOPIC_NAME_INVALID"),
        ("kitchen", CLAIM, "", "TOPIC_NAME_INVALID"),
        ("kitchen", CLAIM, "a//b", "TOPIC_NAME_INVALID"),
        ("kitchen", CLAIM, "/c", "TOPIC_NAME_INVALID"),
        ("kitchen", HAND_BACK, "$SYS/nodes/kitchen", "TOPIC_NAME_INVALID"),
        ("kitchen", HAND_BACK, "home", "NOT_RESPONSIBLE"),
        ("kitchen", pb.ORDER_KIND_UNSPECIFIED, "", "PROTOCOL_ERROR"),
        ("garden", CLAIM, "home", "OVERLAP"),
    ],
)
def test_an_invalid_order_is_refused_and_changes_nothing(
    node: str, kind: int, subtree: str, reason: str
) -> None:
    world = small_network()
    answer = send_order(world, node, kind, subtree)
    assert answer.reason == Reason.Value(f"REASON_{reason}")
    assert answer.text
    world.advance(20)
    owners = {topic: world.owners(topic) for topic in ("x", "home/x", "home/kitchen/x", "garden/x")}
    assert owners == {
        "x": ["root"],
        "home/x": ["home"],
        "home/kitchen/x": ["kitchen"],
        "garden/x": ["garden"],
    }


def test_a_claim_of_a_subtree_that_the_node_owns_already_is_done_at_once() -> None:
    world = small_network()
    assert send_order(world, "home", CLAIM, "home/cellar").done
    assert send_order(world, "root", CLAIM, "street").done


def test_an_order_without_the_join_key_is_refused() -> None:
    world = small_network(KEY)
    assert send_order(world, "kitchen", LEAVE).reason == Reason.REASON_NOT_AUTHORIZED
    assert send_order(world, "kitchen", LEAVE, key=b"another secret of some length").reason
    assert world.owners("home/kitchen/x") == ["kitchen"]
    assert orders_carried_out(world, "kitchen") == 0
    assert send_order(world, "kitchen", LEAVE, key=KEY).done


def test_who_gave_an_order_and_whose_order_was_refused_is_reported() -> None:
    world = small_network(KEY)
    world.events("kitchen")
    send_order(world, "kitchen", CLAIM, "attic")
    assert world.events("kitchen") == [], "without a proof it only asks for a nonce"
    send_order(world, "kitchen", LEAVE, key=b"another secret of some length")
    (refused,) = world.events("kitchen")
    assert isinstance(refused, OrderRefused)
    assert (refused.order, refused.client, refused.suppressed) == ("leave", "", 0)
    assert refused.address[0] == "10.0.3.1"
    for _ in range(3):
        send_order(world, "kitchen", CLAIM, "$SYS/a", KEY)
    world.advance(1)
    send_order(world, "kitchen", CLAIM, "$SYS/b", KEY)
    found = [event for event in world.events("kitchen") if isinstance(event, OrderRefused)]
    assert found[-1].subtree == "$SYS/b"
    assert "is no subtree that can be moved" in found[-1].why
    assert sum(1 + event.suppressed for event in found) >= 4, "all are counted, and copies of the one before"
    assert len(found) < 4, "one in a second"
    assert send_order(world, "kitchen", CLAIM, "home/hall", KEY).done
    (ordered,) = [event for event in world.events("kitchen") if isinstance(event, Ordered)]
    assert (ordered.order, ordered.subtree, ordered.address[0]) == ("claim", "home/hall", "10.0.3.1")


def test_a_replayed_order_is_not_carried_out_again() -> None:
    world = small_network(KEY)
    kitchen = world.nodes["kitchen"]
    recorded: list[tuple[Address, bytes]] = []
    handle = kitchen.node.handle_event

    def tap(now: int, event: object) -> None:
        if isinstance(event, ControlEvent) and isinstance(body_of(event.packet), pb.Order):
            recorded.append((event.source, event.packet))
        handle(now, event)  # type: ignore[arg-type]

    kitchen.node.handle_event = tap  # type: ignore[method-assign]
    assert send_order(world, "kitchen", HAND_BACK, "home/kitchen", KEY).done
    assert send_order(world, "kitchen", CLAIM, "home/kitchen", KEY).done
    handed_back = [(source, packet) for source, packet in recorded if b"home/kitchen" in packet]
    before = orders_carried_out(world, "kitchen")
    for wait in (0, NONCE_PERIOD, 2 * NONCE_PERIOD, 2 * MEMORY):
        world.advance(wait / 1e6)
        for source, packet in handed_back:
            for address in (source, ("10.6.6.6", 666)):
                handle(world.network.now, ControlEvent(None, address, packet, True))
        world.advance(1)
        assert world.owners("home/kitchen/x") == ["kitchen"]
    assert (before, orders_carried_out(world, "kitchen")) == (2, 0)


def test_an_order_that_finds_no_room_is_refused_and_no_earlier_one_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "MOST_REMEMBERED", 3)
    world = small_network()
    kitchen = world.nodes["kitchen"]
    recorded: list[ControlEvent] = []
    handle = kitchen.node.handle_event

    def tap(now: int, event: object) -> None:
        if isinstance(event, ControlEvent) and isinstance(body_of(event.packet), pb.Order):
            recorded.append(event)
        handle(now, event)  # type: ignore[arg-type]

    kitchen.node.handle_event = tap  # type: ignore[method-assign]
    assert send_order(world, "kitchen", HAND_BACK, "home/kitchen").done
    assert send_order(world, "kitchen", CLAIM, "home/kitchen").done
    assert send_order(world, "kitchen", CLAIM, "home/kitchen").done
    busy = send_order(world, "kitchen", HAND_BACK, "home/kitchen")
    assert busy.reason == Reason.REASON_QUOTA_EXCEEDED
    for event in recorded:
        handle(world.network.now, event)
    world.advance(1)
    assert world.owners("home/kitchen/x") == ["kitchen"], "the first HAND_BACK was not carried out again"
    world.advance(MEMORY / 1e6)
    assert send_order(world, "kitchen", HAND_BACK, "home/kitchen").done
    assert world.owners("home/kitchen/x") == ["home"]


def test_a_node_leaves_by_order_also_if_it_remembers_all_the_orders_that_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "MOST_REMEMBERED", 1)
    world = small_network()
    assert send_order(world, "garden", CLAIM, "garden").done
    assert send_order(world, "garden", LEAVE).done
    assert world.owners("garden/x") == ["root"]


def test_an_order_is_proved_to_a_node_that_reads_its_first_copies_late() -> None:
    """The node refuses each copy for want of a nonce. The refusals leave after the proof was sent."""
    world = small_network(KEY)
    kitchen = world.nodes["kitchen"]
    handle, late = kitchen.node.handle_event, list[ControlEvent]()

    def hold(now: int, event: object) -> None:
        if not isinstance(event, ControlEvent) or b"home/kitchen" not in event.packet or len(late) >= 5:
            handle(now, event)  # type: ignore[arg-type]
            return
        late.append(event)
        for copy in late if len(late) == 5 else []:
            handle(now, copy)

    kitchen.node.handle_event = hold  # type: ignore[method-assign]
    assert send_order(world, "kitchen", HAND_BACK, "home/kitchen", KEY).done
    assert len(late) == 5


def test_an_order_that_takes_longer_than_its_nonce_is_good_is_carried_out_once() -> None:
    """The nonce is good for two minutes, and the node remembers an order for three from its last copy on."""
    world = small_network(KEY)
    garden = world.nodes["garden"].settings.listen
    others = [world.nodes[name].settings.listen for name in ("root", "home", "kitchen")]
    core = world.network.attach(("10.0.3.9", 5_000), is_node=False)
    order = pb.Order(kind="ORDER_KIND_CLAIM", node="garden", subtree="home/kitchen/oven")
    admin_client = AdminClient(core, Random(1), garden, order, KEY)
    core.control = admin_client
    for other in others:
        world.network.part(garden, other)
    admin_client.start(world.network.now)
    world.advance(6 * NONCE_PERIOD / 1e6 + 30)
    assert admin_client.answer is not None
    assert admin_client.answer.text == "", "it is under way"
    world.network.heal()
    for _ in range(120):
        world.advance(1)
        if admin_client.has_ended:
            break
    assert admin_client.answer.done, admin_client.answer
    assert world.owners("home/kitchen/oven/x") == ["garden"]
    assert orders_carried_out(world, "garden") == 1


def test_an_order_for_another_node_is_not_carried_out() -> None:
    world = small_network()
    order = pb.Order(request=1, kind="ORDER_KIND_LEAVE", node="garden")
    kitchen = world.nodes["kitchen"]
    kitchen.node.handle_event(world.network.now, ControlEvent(None, ("10.9.9.9", 9), pack(order), True))
    world.advance(5)
    assert world.owners("home/kitchen/x") == ["kitchen"]


def test_a_credential_covers_every_field_of_the_order() -> None:
    order = pb.Order(request=1, nonce=2, kind="ORDER_KIND_CLAIM", node="a", subtree="b/c")
    proofs = {order_credential(KEY, order)}
    for field, value in (
        ("request", 3),
        ("nonce", 3),
        ("kind", HAND_BACK),
        ("node", "ab"),
        ("subtree", "/c"),
    ):
        other = pb.Order()
        other.CopyFrom(order)
        setattr(other, field, value)
        proofs.add(order_credential(KEY, other))
    assert len(proofs) == 6
