"""OpenSSL, with all checks of RFC 5280, completes a handshake with these certificates, and refuses others."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from hbroker.identity.authority import Authority
from hbroker.identity.certificate import NODE_NAME, NodeCertificate
from hbroker.identity.node_identity import Identity

HOUR_S, YEAR_S = 3_600, 365 * 86_400


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("house", time.time() - 2 * HOUR_S)


def context(protocol: int, authority: Authority, identity: Identity, folder: Path) -> ssl.SSLContext:
    """TLS 1.3 with this identity, for an end that trusts this authority and wants a certificate."""
    identity.save(folder)
    name = identity.certificate.name
    made = ssl.SSLContext(protocol)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    made.load_verify_locations(cadata=authority.certificate)
    made.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return made


def handshake(
    authority: Authority, initiator: Identity, acceptor: Identity, folder: Path, *, name: str = NODE_NAME
) -> tuple[NodeCertificate, NodeCertificate]:
    """What each end learns of the other. Raises ssl.SSLError."""
    client_in, server_in = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context(ssl.PROTOCOL_TLS_CLIENT, authority, initiator, folder / "initiator").wrap_bio(
        client_in, server_in, server_hostname=name
    )
    server = context(ssl.PROTOCOL_TLS_SERVER, authority, acceptor, folder / "acceptor").wrap_bio(
        server_in, client_in, server_side=True
    )
    waiting = [client, server]
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
    learnt = [end.getpeercert(binary_form=True) for end in (client, server)]
    return NodeCertificate.read(learnt[0] or b""), NodeCertificate.read(learnt[1] or b"")


def test_two_nodes_prove_themselves_to_each_other(authority: Authority, tmp_path: Path) -> None:
    kitchen = authority.issue("kitchen", ["home/kitchen", "café/№ 1"], time.time())
    root = authority.issue("root", [""], time.time())
    learnt = handshake(authority, kitchen, root, tmp_path)
    assert learnt == (root.certificate, kitchen.certificate)


def test_a_node_is_refused_under_another_name(authority: Authority, tmp_path: Path) -> None:
    kitchen = authority.issue("kitchen", [""], time.time())
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(authority, kitchen, kitchen, tmp_path, name="kitchen")


@pytest.mark.parametrize("end", ["initiator", "acceptor"])
def test_a_node_of_another_authority_is_refused(authority: Authority, tmp_path: Path, end: str) -> None:
    other = Authority.create("house", time.time())
    nodes = {each: authority.issue(each, [""], time.time()) for each in ("initiator", "acceptor")}
    nodes[end] = other.issue(end, [""], time.time())
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        handshake(authority, nodes["initiator"], nodes["acceptor"], tmp_path)


@pytest.mark.parametrize("issued_at", [-YEAR_S - HOUR_S, 25 * HOUR_S])
def test_a_node_is_refused_at_another_time(tmp_path: Path, issued_at: int) -> None:
    authority = Authority.create("house", time.time() + min(issued_at, 0))
    kitchen = authority.issue("kitchen", [""], time.time() + issued_at)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"expired|not yet valid"):
        handshake(authority, kitchen, kitchen, tmp_path)


def test_the_clock_of_a_peer_may_be_slow(authority: Authority, tmp_path: Path) -> None:
    ahead = authority.issue("kitchen", [""], time.time() + 23 * HOUR_S)
    assert handshake(authority, ahead, ahead, tmp_path)


def test_a_node_certifies_no_other_node(authority: Authority, tmp_path: Path) -> None:
    """`kitchen` signs a certificate with its own key, and sends its own certificate as that of its issuer."""
    kitchen = authority.issue("kitchen", [""], time.time())
    rogue = Authority.create("kitchen", time.time())
    forged = rogue.issue("attic", [""], time.time())
    chained = Identity((*forged.chain, kitchen.chain[0]), forged.key)
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        handshake(authority, kitchen, chained, tmp_path)
