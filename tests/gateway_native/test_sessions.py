"""Sessions: kept without a connection, resumed, exported. And the ends of connections."""

from __future__ import annotations

from hbroker.gateway.native_api import ConnectEvent
from tests.gateway_native.gateway_with_node import Accept, Rule, gateway_up
from tests.gateway_native.wire import (
    CONNACK,
    DISCONNECT,
    PINGRESP,
    PUBACK,
    PUBLISH,
    PUBREC,
    SUBACK,
    Raw,
    ack,
    connect,
    packet,
    publish,
    subscribe,
)

_EXPIRY = b"\x11\xff\xff\xff\xff"


def test_packets_behind_connect_wait_for_the_decision() -> None:
    with gateway_up() as setup, Raw(setup.open()) as client:
        client.send(
            connect("x"),
            subscribe(1, ("a", 1)),
            publish("a", b"early", qos=1, packet_id=3),
            packet(0xC0, b""),
        )
        assert client.expect(CONNACK)[1] == 0
        missing = {SUBACK, PUBACK, PINGRESP}
        while missing:
            first, body = client.read()
            missing -= {first >> 4}
            if first >> 4 == PUBLISH:
                client.send(ack(PUBACK, int.from_bytes(body[3:5], "big")))


def test_unacknowledged_messages_are_sent_again_with_their_packet_id() -> None:
    with gateway_up() as setup:
        port = setup.open()
        with Raw(port) as client:
            client.open("x", clean=False, properties=_EXPIRY).send(subscribe(1, ("t", 2)))
            client.expect(SUBACK)
            client.send(publish("t", b"a", qos=2, packet_id=21))
            seen = {client.read()[0] >> 4, client.read()[0] >> 4}
            assert seen == {PUBLISH, PUBREC}
        setup.wait(lambda: setup.closed)
        state = setup.states["x"]
        assert list(state.received) == [21], "PUBREL has not come"
        assert [known.is_received for known in state.in_flight] == [False]
        with Raw(port) as client:
            client.send(connect("x", clean=False, properties=_EXPIRY))
            assert client.expect(CONNACK)[:2] == b"\1\0"
            client.send(publish("t", b"a", qos=2, packet_id=21))
            assert client.expect(PUBREC)[:2] == b"\0\x15", "and no second message"
            client.send(packet(0xC0, b""))
            client.expect(PINGRESP)


def test_a_refused_connect_gets_the_code_of_its_version() -> None:
    def accepts(event: ConnectEvent, session: int) -> Accept | int:
        return 0x87 if event.version == 5 else 5

    with gateway_up(accepts) as setup:
        port = setup.open()
        for level in (3, 4, 5):
            with Raw(port, level=level) as client:
                client.send(connect("x", level=level))
                body = client.expect(CONNACK)
                assert body[:2] == (b"\0\x87" if level == 5 else b"\0\x05")
                assert client.at_end()


def test_a_full_listener_refuses_without_asking_the_control() -> None:
    with gateway_up() as setup:
        port = setup.open(connections=1)
        with Raw(port).open("first"), Raw(port) as second, Raw(port, level=4) as third:
            second.send(connect("second"))
            assert second.expect(CONNACK)[:2] == b"\0\x97"
            third.send(connect("third", level=4))
            assert third.expect(CONNACK) == b"\0\x03"
            assert second.at_end()
            assert third.at_end()
        assert [event.client_id for event in setup.connects] == ["first"]


def test_the_end_of_a_connection_is_reported_once_with_its_cause() -> None:
    with gateway_up() as setup:
        port = setup.open()
        with Raw(port) as polite, Raw(port) as wild, Raw(port) as silent, Raw(port) as gone:
            for name, client in (("wild", wild), ("gone", gone)):
                client.open(name)
            polite.open("polite", properties=_EXPIRY)
            silent.open("silent", keep_alive=1)
            polite.send(packet(0xE0, b"\x04\x05\x11\0\0\0\x07"))
            wild.send(packet(0x82, b"\0\0\0"))
            gone.socket.close()
            assert silent.expect(DISCONNECT)[0] == 0x8D
            assert wild.expect(DISCONNECT)[0] in (0x81, 0x82)
            setup.wait(lambda: len(setup.closed) == 4)
        causes = {event.connection: (event.cause, event.reason) for event in setup.closed}
        names = {event.client_id: event.connection for event in setup.connects}
        assert causes[names["polite"]] == ("disconnect", 4)
        assert causes[names["wild"]] == ("protocol_error", None)
        assert causes[names["silent"]] == ("keep_alive", None)
        assert causes[names["gone"]] == ("closed", None)


def test_disconnect_names_the_reason_and_another_server() -> None:
    with gateway_up() as setup, Raw(setup.open()).open("c") as client:
        setup.gateway.disconnect(
            setup.connects[0].connection, 0x8B, text="maintenance", server_reference="other:1883"
        )
        body = client.expect(DISCONNECT)
        assert body[0] == 0x8B
        assert b"other:1883" in body
        assert client.at_end()
        setup.wait(lambda: setup.closed)
        assert [event.cause for event in setup.closed] == ["server"]


def test_changed_access_rules_apply_at_once_to_publish_and_delivery() -> None:
    with gateway_up() as setup:
        port = setup.open()
        setup.gateway.install_acl(0, [Rule("secret/#", is_allowed=False), Rule("#")])
        with Raw(port) as client:
            client.open("x").send(subscribe(1, ("#", 0)))
            client.expect(SUBACK)
            client.send(publish("secret/a", b"no", qos=1, packet_id=1))
            assert client.expect(PUBACK)[2] == 0x87
            client.send(publish("open", b"yes"))
            assert client.message()[0] == "open"
            setup.gateway.install_acl(0, [Rule("#")])
            setup.gateway.deliver(setup.listeners, "secret/a", b"now")
            assert client.message()[0] == "secret/a"


def test_a_client_that_does_not_read_stalls_alone() -> None:
    with gateway_up() as setup:
        port = setup.open()
        with Raw(port) as not_reading, Raw(port) as reader, Raw(port) as writer:
            for client, qos in ((not_reading, 1), (reader, 1)):
                client.open(f"r{client.socket.fileno()}").send(subscribe(1, ("t", qos)))
                client.expect(SUBACK)
            writer.open("w")
            for number in range(3_000):
                writer.send(publish("t", bytes(10_000), qos=1, packet_id=number % 500 + 1))
                _, payload, _, packet_id, _ = reader.message()
                assert len(payload) == 10_000
                reader.send(ack(PUBACK, packet_id))
                if number == 200:
                    break
            # This client acknowledges nothing. When it counts as stalled, the publisher gets its PUBACKs
            # without it.
            for _ in range(201):
                writer.expect(PUBACK)


def test_the_authentication_method_and_data_of_connect_are_reported() -> None:
    with gateway_up() as setup, Raw(setup.open()) as client:
        client.open("x", properties=b"\x15" + b"\0\x04TEST" + b"\x16\0\x02hi")
        assert setup.connects[0].auth_method == "TEST"
        assert setup.connects[0].auth_data == b"hi"
