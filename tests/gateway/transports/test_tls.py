"""TLS at a gateway: versions, certificates of clients, and those who do not keep to it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.gateway.transports.certificates import Authority, Pair
from tests.gateway.transports.front import Client, Front, flood
from tests.gateway_native.wire import CONNACK, PUBACK, SUBACK, connect, packet, publish, subscribe, text

BAD_USER_NAME, NOT_AUTHORIZED = 0x86, 0x87
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def stalled(front: Front, authority: Authority) -> Iterator[Sequence[socket.socket]]:
    """Three hundred handshakes that go no further, each at its own point, beside all tests here. The memory
    is that of what they sent."""
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
    """CONNECT of MQTT 5, clean, with a user name and no password."""
    return packet(0x10, text("MQTT") + bytes([5, 0x82, 0, 0, 0]) + text(client_id) + text(user))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions(front: Front, authority: Authority, name: str, version: ssl.TLSVersion) -> None:
    with Client(front.secure("tls", authority.context(version=version))) as client:
        client.open(name)
        client.send(subscribe(1, (f"ann/{name}", 0)))
        assert client.expect(SUBACK)[-1] == NOT_AUTHORIZED


def test_an_old_version_is_refused(front: Front, authority: Authority) -> None:
    context = authority.context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        front.secure("tls", context)


def test_a_client_does_not_trust_what_its_authority_did_not_sign(
    front: Front, other_authority: Authority
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        front.secure("tls", other_authority.context())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_comes_back_is_spared_the_certificates(
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
    """`names_user: true`: the common name of a certificate is its client's user name, for `%u` and `user`."""

    @pytest.mark.parametrize("listener", ["asks", "needs"])
    def test_rules_are_those_of_the_certificate(
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

    def test_the_first_rule_that_matches_decides(self, front: Front, authority: Authority, name: str) -> None:
        """Those of the user before the patterns, and in each `deny` first."""
        with Client(front.secure("needs", authority.context(authority.client("ann")))) as ann:
            ann.open(name)
            ann.send(subscribe(1, ("ann/open/x", 1), ("ann/shut/x", 1)))
            assert ann.expect(SUBACK)[-2:] == bytes([1, NOT_AUTHORIZED])
            for packet_id, topic in ((2, "ann/open/z"), (3, "ann/shut/z")):
                ann.send(publish(topic, b"", qos=1, packet_id=packet_id))
            refused = {body[1]: NOT_AUTHORIZED in body for body in (ann.expect(PUBACK), ann.expect(PUBACK))}
            assert refused == {2: False, 3: True}

    def test_a_mark_in_a_name_is_no_mark(self, front: Front, authority: Authority, name: str) -> None:
        """`%c` as a user name is not the client id: it would be whoever it likes."""
        with Client(front.secure("needs", authority.context(authority.client("%c")))) as pretends:
            pretends.open(f"ann-{name}")
            pretends.send(publish(f"of/ann-{name}/x", b"", qos=1, packet_id=1))
            assert pretends.expect(PUBACK)[2:3] == bytes([NOT_AUTHORIZED])
            pretends.send(publish("of/%c/x", b"", qos=1, packet_id=2))
            assert NOT_AUTHORIZED not in pretends.expect(PUBACK)

    def test_a_sign_of_filters_in_a_name_opens_nothing(
        self, front: Front, authority: Authority, name: str
    ) -> None:
        with Client(front.secure("needs", authority.context(authority.client("+/#")))) as client:
            client.open(name)
            client.send(subscribe(1, ("of/ann/x", 1), ("of/#", 1)))
            assert client.expect(SUBACK)[-2:] == bytes([NOT_AUTHORIZED] * 2)

    def test_who_shows_no_certificate_gets_no_name_for_the_asking(
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

    def test_nor_does_one_whose_certificate_has_none(
        self, front: Front, authority: Authority, name: str
    ) -> None:
        with Client(front.secure("needs", authority.context(authority.client(None)))) as pretends:
            pretends.send(connect_as(name, "ann"))
            assert pretends.expect(CONNACK)[1] == BAD_USER_NAME
            assert pretends.at_end()


class TestRefusals:
    """Who is not let in hears so in TLS, and costs the others nothing."""

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
    def test_a_certificate_that_does_not_do(
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

    def test_a_wrong_one_is_refused_where_none_would_do(
        self, front: Front, authority: Authority, other_authority: Authority
    ) -> None:
        context = authority.context(other_authority.client("ann"))
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            front.greet("asks", context)

    def test_plain_mqtt_at_the_port_of_tls(self, front: Front) -> None:
        with front.connect("tls") as connection:
            connection.sendall(connect("plain"))
            answer = connection.recv(64)
            assert answer[:1] == b"\x15", "an alert of TLS"
            assert connection.recv(1) == b""

    def test_tls_at_the_port_of_plain_mqtt(self, front: Front, authority: Authority) -> None:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            front.secure("six", authority.context())

    def test_they_are_counted(self, front: Front, authority: Authority, name: str) -> None:
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


def test_a_handshake_that_stalls_is_given_up(stalled: Sequence[socket.socket]) -> None:
    for connection in stalled:
        while connection.recv(
            4_096
        ):  # The server's part of the handshake, where it got so far; then the end.
            pass


def test_a_handshake_without_end_is_refused(front: Front) -> None:
    """A record says handshake, and the message in it that it has 16 MB: nobody waits for them."""
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
