"""Sessions: parked, resumed, taken out; and connections that end."""

from __future__ import annotations

from hbroker._native import ConnectEvent
from tests.gateway_native.house import Accept, Rule, house
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
    with house() as it, Raw(it.open()) as client:
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


def test_what_was_not_acknowledged_comes_again_with_its_packet_id() -> None:
    with house() as it:
        port = it.open()
        with Raw(port) as client:
            client.open("x", clean=False, properties=_EXPIRY).send(subscribe(1, ("t", 2)))
            client.expect(SUBACK)
            client.send(publish("t", b"a", qos=2, packet_id=21))
            seen = {client.read()[0] >> 4, client.read()[0] >> 4}
            assert seen == {PUBLISH, PUBREC}
        it.wait(lambda: it.closed)
        state = it.states["x"]
        assert list(state.received) == [21], "PUBREL has not come"
        assert [known.is_received for known in state.in_flight] == [False]
        with Raw(port) as client:
            client.send(connect("x", clean=False, properties=_EXPIRY))
            assert client.expect(CONNACK)[:2] == b"\1\0"
            client.send(publish("t", b"a", qos=2, packet_id=21))
            assert client.expect(PUBREC)[:2] == b"\0\x15", "and no second message"
            client.send(packet(0xC0, b""))
            client.expect(PINGRESP)


def test_refusals_have_the_codes_of_their_version() -> None:
    def accepts(event: ConnectEvent, session: int) -> Accept | int:
        return 0x87 if event.version == 5 else 5

    with house(accepts) as it:
        port = it.open()
        for level in (3, 4, 5):
            with Raw(port, level=level) as client:
                client.send(connect("x", level=level))
                body = client.expect(CONNACK)
                assert body[:2] == (b"\0\x87" if level == 5 else b"\0\x05")
                assert client.at_end()


def test_a_full_listener_refuses_by_itself() -> None:
    with house() as it:
        port = it.open(connections=1)
        with Raw(port).open("first"), Raw(port) as second, Raw(port, level=4) as third:
            second.send(connect("second"))
            assert second.expect(CONNACK)[:2] == b"\0\x97"
            third.send(connect("third", level=4))
            assert third.expect(CONNACK) == b"\0\x03"
            assert second.at_end()
            assert third.at_end()
        assert [event.client_id for event in it.connects] == ["first"]


def test_ends_are_told_once_with_their_cause() -> None:
    with house() as it:
        port = it.open()
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
            it.wait(lambda: len(it.closed) == 4)
        causes = {event.connection: (event.cause, event.reason) for event in it.closed}
        names = {event.client_id: event.connection for event in it.connects}
        assert causes[names["polite"]] == ("disconnect", 4)
        assert causes[names["wild"]] == ("protocol_error", None)
        assert causes[names["silent"]] == ("keep_alive", None)
        assert causes[names["gone"]] == ("closed", None)


def test_a_server_says_goodbye_to_everybody() -> None:
    with house() as it:
        port = it.open()
        clients = [Raw(port).open(f"c{number}") for number in range(20)]
        it.gateway.disconnect_all(0x8B, text="maintenance", server_reference="other:1883")
        for client in clients:
            body = client.expect(DISCONNECT)
            assert body[0] == 0x8B
            assert b"other:1883" in body
            assert client.at_end()
            client.socket.close()
        it.wait(lambda: len(it.closed) == 20)
        assert {event.cause for event in it.closed} == {"server"}


def test_rules_hold_at_once_and_for_both_ways() -> None:
    with house() as it:
        port = it.open()
        it.gateway.install_acl(0, [Rule("secret/#", is_allowed=False), Rule("#")])
        with Raw(port) as client:
            client.open("x").send(subscribe(1, ("#", 0)))
            client.expect(SUBACK)
            client.send(publish("secret/a", b"no", qos=1, packet_id=1))
            assert client.expect(PUBACK)[2] == 0x87
            client.send(publish("open", b"yes"))
            assert client.message()[0] == "open"
            it.gateway.install_acl(0, [Rule("#")])
            it.gateway.deliver(it.listeners, "secret/a", b"now")
            assert client.message()[0] == "secret/a"


def test_a_client_that_does_not_read_stalls_alone() -> None:
    with house() as it:
        port = it.open()
        with Raw(port) as deaf, Raw(port) as reader, Raw(port) as writer:
            for client, qos in ((deaf, 1), (reader, 1)):
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
            # The deaf one answers nothing. After its patience is over the network is answered without it.
            for _ in range(201):
                writer.expect(PUBACK)


def test_auth_goes_both_ways_before_the_decision() -> None:
    with house() as it, Raw(it.open()) as client:
        client.open("x", properties=b"\x15" + b"\0\x04TEST" + b"\x16\0\x02hi")
        assert it.connects[0].auth_method == "TEST"
        assert it.connects[0].auth_data == b"hi"
