"""Messages between clients: once, in order, and as the subscription options say."""

from __future__ import annotations

import pytest

from tests.gateway_native.gateway_with_node import gateway_up
from tests.gateway_native.wire import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    Raw,
    ack,
    connect,
    publish,
    subscribe,
)


@pytest.mark.parametrize("level", [3, 4, 5])
def test_every_mqtt_version_exchanges_messages_at_every_qos(level: int) -> None:
    with gateway_up() as setup, Raw(setup.open(), level=level) as client:
        client.open("x")
        client.send(subscribe(1, ("a/#", 2), level=level))
        assert client.expect(SUBACK)[-1] == 2
        client.send(
            publish("a/b", b"zero", level=level),
            publish("a/b", b"one", qos=1, packet_id=7, level=level),
            publish("a/b", b"two", qos=2, packet_id=8, level=level),
        )
        got: list[tuple[int, bytes]] = []
        acks: set[tuple[int, int]] = set()
        while len(got) < 3 or len(acks) < 2:
            first, body = client.read()
            if first >> 4 == 3:
                got.append((first >> 1 & 3, body[-4:].lstrip(b"\0\1\2\3\4")))
                if first >> 1 & 3 == 1:
                    client.send(ack(PUBACK, int.from_bytes(body[5:7], "big")))
                if first >> 1 & 3 == 2:
                    client.send(ack(PUBREC, int.from_bytes(body[5:7], "big")))
            elif first >> 4 == PUBREC:
                client.send(ack(PUBREL, 8))
            elif first >> 4 == PUBREL:
                client.send(ack(PUBCOMP, int.from_bytes(body[:2], "big")))
            else:
                acks.add((first >> 4, int.from_bytes(body[:2], "big")))
        assert acks == {(PUBACK, 7), (PUBCOMP, 8)}
        assert sorted(got) == [(0, b"zero"), (1, b"one"), (2, b"two")]


def test_a_puback_waits_until_every_subscriber_has_acknowledged() -> None:
    with gateway_up() as setup:
        port = setup.open()
        with Raw(port) as slow, Raw(port) as publisher:
            slow.open("slow").send(subscribe(1, ("t", 1)))
            slow.expect(SUBACK)
            publisher.open("publisher").send(publish("t", b"x", qos=1, packet_id=9))
            *_, packet_id, _ = slow.message()
            # The message over the same connection shows that a PUBACK would have arrived by now.
            publisher.send(subscribe(2, ("u", 0)))
            publisher.expect(SUBACK)
            slow.send(publish("u", b"now"))
            assert publisher.message()[1] == b"now"
            slow.send(ack(PUBACK, packet_id))
            assert publisher.expect(PUBACK)[:2] == b"\0\x09"


def test_ten_thousand_messages_arrive_in_order() -> None:
    count = 10_000
    with gateway_up() as setup:
        port = setup.open()
        with Raw(port) as reader, Raw(port) as writer:
            reader.open("reader").send(subscribe(1, ("t/#", 1)))
            reader.expect(SUBACK)
            writer.open("writer")
            window = 500
            for start in range(0, count, window):
                numbers = range(start, start + window)
                writer.send(*(publish("t/1", b"%d" % n, qos=1, packet_id=n - start + 1) for n in numbers))
                for number in numbers:
                    _, payload, qos, packet_id, _ = reader.message()
                    assert (payload, qos) == (b"%d" % number, 1)
                    reader.send(ack(PUBACK, packet_id))
                for number in numbers:
                    assert int.from_bytes(writer.expect(PUBACK)[:2], "big") == number - start + 1


def test_one_message_reaches_five_hundred_clients() -> None:
    with gateway_up() as setup:
        port = setup.open()
        readers = [Raw(port).open(f"r{number}") for number in range(500)]
        for number, reader in enumerate(readers):
            reader.send(subscribe(1, ("news", number % 2), identifier=number + 1))
        for reader in readers:
            reader.expect(SUBACK)
        with Raw(port) as writer:
            writer.open("w").send(publish("news", b"x" * 100, qos=1, packet_id=1))
            for number, reader in enumerate(readers):
                _, payload, qos, packet_id, properties = reader.message()
                assert (len(payload), qos) == (100, number % 2)
                assert properties[0] == 0x0B
                if qos:
                    reader.send(ack(PUBACK, packet_id))
            assert writer.expect(PUBACK)[:2] == b"\0\x01"
        counters = setup.gateway.gateway_counters()
        assert counters["messages_out"] == 500
        assert counters["connections"] >= 500
        for reader in readers:
            reader.socket.close()


def test_a_large_payload_is_split_and_reaches_two_clients() -> None:
    size = 3_000_000
    with gateway_up() as setup:
        port = setup.open()
        with Raw(port) as writer, Raw(port) as one, Raw(port) as other:
            for reader in (one, other):
                reader.open(f"reader{reader.socket.fileno()}").send(subscribe(1, ("cam", 1)))
                reader.expect(SUBACK)
            writer.open("w").send(publish("cam", bytes(range(250)) * (size // 250), qos=1, packet_id=1))
            for reader in (one, other):
                _, payload, _, packet_id, _ = reader.message()
                assert payload == bytes(range(250)) * (size // 250)
                reader.send(ack(PUBACK, packet_id))
            assert writer.expect(PUBACK)[:2] == b"\0\x01"


def test_suback_is_sent_before_the_messages_that_its_subscribe_causes() -> None:
    with gateway_up() as setup, Raw(setup.open()) as client:
        # As with an owner: retained messages arrive for the listener before its SUBACK is sent.
        def cause(event: object) -> None:
            listener = setup.listeners
            setup.gateway.deliver(listener, "a", b"kept", retained=True)
            setup.gateway.deliver(listener, "b", b"kept too", retained=True)

        setup.suback_hook = cause
        client.send(connect("x"), subscribe(3, ("#", 1), identifier=5))
        client.expect(2)
        client.expect(SUBACK)
        first, body = client.read()
        assert first == 0x31, "kept messages say so"
        assert body == b"\0\x01a\x02\x0b\x05kept"
        assert client.message()[1] == b"kept too"


def test_no_local_and_retain_as_published_are_obeyed() -> None:
    with gateway_up() as setup:
        port = setup.open()
        with Raw(port) as own, Raw(port) as other:
            own.open("own").send(subscribe(1, ("t", 0b0100)), subscribe(2, ("end", 0)))
            own.expect(SUBACK)
            own.expect(SUBACK)
            other.open("other").send(subscribe(1, ("t", 0b1000)))
            other.expect(SUBACK)
            own.send(publish("t", b"mine", retain=True), publish("end", b""))
            assert own.message()[0] == "end"
            first, body = other.read()
            assert (first, body[-4:]) == (0x31, b"mine")
            other.send(publish("t", b"theirs"))
            assert own.message()[1] == b"theirs"


def test_messages_between_gateways_do_not_pass_the_gateways_decisions() -> None:
    """They come back, because the gateway subscribes to the topics of gateways, and are acknowledged."""
    with gateway_up() as setup:
        sequences = [setup.gateway.member(0).publish(f"told/{n}", b"x", 1) for n in range(100)]
        setup.wait(lambda: len(setup.published) == len(sequences))
        assert {event.sequence for event in setup.published if not event.reason} == set(sequences)
        assert setup.own == []
