"""TLS at a gateway: versions, client certificates, and peers that violate the protocol."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.gateway.transports.certificates import Authority, Pair
from tests.gateway.transports.front import Client, Front, flood
from tests.gateway_native.wire import CONNACK, PUBACK, SUBACK, connect, packet, publish, subscribe, text

WRONG_CLIENT_ID, BAD_USER_NAME, NOT_AUTHORIZED = 0x85, 0x86, 0x87
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def stalled(front: Front, authority: Authority) -> Iterator[Sequence[socket.socket]]:
    """Three hundred handshakes that have stopped at different points, during all tests of this module. The
    gateway needs no more memory for them than for the bytes that they sent."""
    hello = _client_hello(authority)
    before = front.own_bytes()
    with ExitStack() as stack:
        connections = [stack.enter_context(front.connect("tls")) for _ in range(300)]
        for number, connection in enumerate(connections):
            connection.sendall(hello[: number * 7 % len(hello)])
        with Client(front.secure("tls", authority.context())) as client:
            client.open("beside-the-stalled")
        assert front.own_bytes() - before < 16 * MIB
        yield connections


def connect_as(client_id: str, user: str) -> bytes:
    """A CONNECT of MQTT 5 with a clean start, a user name and no password."""
    return packet(0x10, text("MQTT") + bytes([5, 0x82, 0, 0, 0]) + text(client_id) + text(user))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_accepted(
    front: Front, authority: Authority, name: str, version: ssl.TLSVersion
) -> None:
    with Client(front.secure("tls", authority.context(version=version))) as client:
        client.open(name)
        client.send(subscribe(1, (f"ann/{name}", 0)))
        assert client.expect(SUBACK)[-1] == NOT_AUTHORIZED


def test_tls_1_1_is_refused(front: Front, authority: Authority) -> None:
    context = authority.context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        front.secure("tls", context)


def test_a_client_refuses_a_certificate_of_another_authority(
    front: Front, other_authority: Authority
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        front.secure("tls", other_authority.context())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_tls_session_is_resumed(
    front: Front, authority: Authority, name: str, version: ssl.TLSVersion
) -> None:
    context = authority.context(version=version)
    with front.secure("tls", context) as first:
        Client(first).open(name)
        assert not first.session_reused
        session = first.session
    connection = front.connect("tls")
    with context.wrap_socket(connection, server_hostname="localhost", session=session) as second:
        Client(second).open(name)
        assert second.session_reused


class TestNames:
    """`names_user: true`: the common name of a client certificate is the user name, for `%u` and `user` in
    the rules."""

    @pytest.mark.parametrize("listener", ["asks", "needs"])
    def test_the_rules_use_the_name_in_the_certificate(
        self, front: Front, authority: Authority, name: str, listener: str
    ) -> None:
        with Client(front.secure(listener, authority.context(authority.client("ann")))) as ann:
            ann.send(connect_as(name, "bob"))
            assert ann.expect(CONNACK)[1] == 0
            ann.send(subscribe(1, ("ann/x", 1), ("of/ann/y", 1), ("of/bob/y", 1)))
            assert ann.expect(SUBACK)[-3:] == bytes([1, 1, NOT_AUTHORIZED])
            ann.send(publish("of/ann/z", b"mine", qos=1, packet_id=2))
            assert NOT_AUTHORIZED not in ann.expect(PUBACK)
            ann.send(publish("of/bob/z", b"his", qos=1, packet_id=3))
            assert ann.expect(PUBACK)[:3] == bytes([0, 3, NOT_AUTHORIZED])

    def test_the_first_matching_rule_decides(self, front: Front, authority: Authority, name: str) -> None:
        """The rules of the user come before the patterns, and `deny` comes first in each."""
        with Client(front.secure("needs", authority.context(authority.client("ann")))) as ann:
            ann.open(name)
            ann.send(subscribe(1, ("ann/open/x", 1), ("ann/shut/x", 1)))
            assert ann.expect(SUBACK)[-2:] == bytes([1, NOT_AUTHORIZED])
            for packet_id, topic in ((2, "ann/open/z"), (3, "ann/shut/z")):
                ann.send(publish(topic, b"", qos=1, packet_id=packet_id))
            refused = {body[1]: NOT_AUTHORIZED in body for body in (ann.expect(PUBACK), ann.expect(PUBACK))}
            assert refused == {2: False, 3: True}

    def test_the_client_id_is_that_of_the_certificate(
        self, front: Front, authority: Authority, name: str
    ) -> None:
        """`names_client: true`."""
        context = authority.context(authority.client(name))
        with Client(front.secure("own id", context)) as own:
            own.open(name)
        for other in (f"{name}-other", ""):
            with Client(front.secure("own id", context)) as client:
                client.send(connect(other))
                assert client.expect(CONNACK)[1] == WRONG_CLIENT_ID

    def test_a_placeholder_in_a_common_name_is_not_replaced(
        self, front: Front, authority: Authority, name: str
    ) -> None:
        """If `%c` in a user name were replaced by the client id, such a client could take any name."""
        with Client(front.secure("needs", authority.context(authority.client("%c")))) as pretends:
            pretends.open(f"ann-{name}")
            pretends.send(publish(f"of/ann-{name}/x", b"", qos=1, packet_id=1))
            assert pretends.expect(PUBACK)[2:3] == bytes([NOT_AUTHORIZED])
            pretends.send(publish("of/%c/x", b"", qos=1, packet_id=2))
            assert NOT_AUTHORIZED not in pretends.expect(PUBACK)

    def test_a_wildcard_in_a_common_name_matches_no_other_topic(
        self, front: Front, authority: Authority, name: str
    ) -> None:
        with Client(front.secure("needs", authority.context(authority.client("+/#")))) as client:
            client.open(name)
            client.send(subscribe(1, ("of/ann/x", 1), ("of/#", 1)))
            assert client.expect(SUBACK)[-2:] == bytes([NOT_AUTHORIZED] * 2)

    def test_a_client_without_a_certificate_gets_no_user_name(
        self, front: Front, authority: Authority, name: str
    ) -> None:
        with Client(front.secure("asks", authority.context())) as nobody:
            nobody.open(name)
            nobody.send(subscribe(1, ("public/x", 1), ("of/ann/x", 1)))
            assert nobody.expect(SUBACK)[-2:] == bytes([1, NOT_AUTHORIZED])
        with Client(front.secure("asks", authority.context())) as pretends:
            pretends.send(connect_as(name, "ann"))
            assert pretends.expect(CONNACK)[1] == BAD_USER_NAME
            assert pretends.at_end()

    def test_a_client_whose_certificate_has_no_common_name_is_refused(
        self, front: Front, authority: Authority, name: str
    ) -> None:
        with Client(front.secure("needs", authority.context(authority.client(None)))) as pretends:
            pretends.send(connect_as(name, "ann"))
            assert pretends.expect(CONNACK)[1] == BAD_USER_NAME
            assert pretends.at_end()


class TestRefusals:
    """A refused client gets a TLS alert, and does not affect others."""

    @pytest.fixture
    def strangers(self, authority: Authority, other_authority: Authority) -> dict[str, Pair | None]:
        return {
            "none": None,
            "of another authority": other_authority.client("ann"),
            "expired": authority.expired("ann"),
        }

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @pytest.mark.parametrize(
        ("kind", "alert"),
        [
            ("none", "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"),
            ("of another authority", "UNKNOWN_CA"),
            ("expired", "CERTIFICATE_EXPIRED"),
        ],
    )
    def test_a_missing_or_invalid_client_certificate_is_refused(
        self,
        front: Front,
        authority: Authority,
        strangers: dict[str, Pair | None],
        version: ssl.TLSVersion,
        kind: str,
        alert: str,
    ) -> None:
        with pytest.raises(ssl.SSLError, match=alert):
            front.greet("needs", authority.context(strangers[kind], version))

    def test_an_invalid_certificate_is_refused_where_the_certificate_is_optional(
        self, front: Front, authority: Authority, other_authority: Authority
    ) -> None:
        context = authority.context(other_authority.client("ann"))
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            front.greet("asks", context)

    def test_plain_mqtt_at_a_tls_listener_gets_an_alert(self, front: Front) -> None:
        with front.connect("tls") as connection:
            connection.sendall(connect("plain"))
            answer = connection.recv(64)
            assert answer[:1] == b"\x15", "an alert of TLS"
            assert connection.recv(1) == b""

    def test_tls_at_a_plain_listener_is_refused(self, front: Front, authority: Authority) -> None:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            front.secure("six", authority.context())

    def test_failed_handshakes_are_counted(self, front: Front, authority: Authority, name: str) -> None:
        with Client(front.secure("tls", authority.context())) as watcher:
            watcher.open(name)
            watcher.send(subscribe(1, ("$SYS/broker/sockets/failed/tls", 0)))
            watcher.expect(SUBACK)
            _, before, *_ = watcher.message()
            for _ in range(3):
                with front.connect("tls") as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    connection.recv(64)
            while int(watcher.message()[1]) < int(before) + 3:
                pass


def test_a_stalled_handshake_is_ended(stalled: Sequence[socket.socket]) -> None:
    for connection in stalled:
        while connection.recv(
            4_096
        ):  # the server's part of the handshake, if it got that far, and then the end
            pass


def test_a_handshake_message_that_is_too_large_is_refused(front: Front) -> None:
    """The record contains a handshake message that declares 16 MB. The gateway does not wait for them."""
    before = front.own_bytes()
    with front.connect("tls") as connection:
        endless = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(0x4000 - 4)
        more = b"\x16\x03\x01\x40\x00" + bytes(0x4000)
        connection.sendall(endless)
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            flood(connection, more, 64 * MIB)
    assert front.own_bytes() - before < 4 * MIB


def _client_hello(authority: Authority) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = authority.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
