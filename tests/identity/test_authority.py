"""An authority signs certificates for nodes with valid names, and accepts no others than it signed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from hbroker.errors import LocalError
from hbroker.identity.authority import AUTHORITY_VALIDITY_S, MAX_CERTIFICATE_BYTES, Authority
from hbroker.identity.certificate import InvalidCertificate
from tests.identity.examples import AUTHORITY, DAY_S, NOW, OTHER_AUTHORITY

KITCHEN = AUTHORITY.issue("kitchen", ["home/kitchen"], NOW)
DER = KITCHEN.chain[0]
SIGNED = 4 + len(x509.load_der_x509_certificate(DER).tbs_certificate_bytes)
"""The bytes that the signature protects, and the length in front of them."""


def parsed(der: bytes) -> x509.Certificate:
    return x509.load_der_x509_certificate(der)


def test_the_certificate_of_an_authority_is_that_of_a_ca() -> None:
    authority = parsed(AUTHORITY.certificate)
    authority.verify_directly_issued_by(authority)
    extensions = {each.value.__class__: (each.value, each.critical) for each in authority.extensions}
    assert authority.version is x509.Version.v3
    assert AUTHORITY.network == "house"
    assert extensions[x509.BasicConstraints] == (x509.BasicConstraints(ca=True, path_length=0), True)
    usage, is_critical = extensions[x509.KeyUsage]
    assert is_critical
    assert (usage.key_cert_sign, usage.digital_signature, usage.crl_sign) == (True, False, False)
    assert authority.not_valid_before_utc.timestamp() == NOW - DAY_S
    assert authority.not_valid_after_utc.timestamp() == AUTHORITY.not_after == NOW + AUTHORITY_VALIDITY_S


def test_the_certificate_of_a_node_is_for_both_ends_of_a_handshake() -> None:
    node, authority = parsed(DER), parsed(AUTHORITY.certificate)
    node.verify_directly_issued_by(authority)
    extensions = {each.value.__class__: (each.value, each.critical) for each in node.extensions}
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    assert extensions[x509.ExtendedKeyUsage] == (usages, False)
    usage, is_critical = extensions[x509.KeyUsage]
    assert is_critical
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    key_id = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert extensions[x509.AuthorityKeyIdentifier][0].key_identifier == key_id
    assert x509.BasicConstraints not in extensions


def test_serial_numbers_and_keys_are_new_each_time() -> None:
    again = AUTHORITY.issue("kitchen", ["home/kitchen"], NOW)
    assert again.certificate.serial != KITCHEN.certificate.serial
    assert again.key != KITCHEN.key
    assert KITCHEN.key.hex() not in repr(KITCHEN)


def test_a_certificate_is_renewed_with_the_same_key() -> None:
    renewed = AUTHORITY.issue("kitchen", ["home"], NOW + 300 * DAY_S, key=KITCHEN.key)
    assert renewed.key == KITCHEN.key
    assert parsed(renewed.chain[0]).public_key() == parsed(DER).public_key()
    assert AUTHORITY.verify(renewed.chain[0], NOW + 400 * DAY_S).subtrees == ("home",)


def test_a_key_of_another_kind_is_refused() -> None:
    other = x25519.X25519PrivateKey.generate().private_bytes(
        Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
    )
    for key, why in [(other, "not an Ed25519 key"), (b"", "deserialize")]:
        with pytest.raises(ValueError, match=why):
            AUTHORITY.issue("kitchen", [], NOW, key=key)


@pytest.mark.parametrize("name", ["", "-a", "a/b", "../a", "a b", "é", "a\n", "a" * 64])
def test_only_nodes_of_valid_names_get_certificates(name: str) -> None:
    with pytest.raises(LocalError, match="not a valid name"):
        AUTHORITY.issue(name, [], NOW)


def test_only_subtrees_are_certified() -> None:
    with pytest.raises(LocalError, match="node kitchen: 'home/#' is not a subtree"):
        AUTHORITY.issue("kitchen", ["home", "home/#"], NOW)


def test_a_certificate_fits_a_handshake() -> None:
    assert len(DER) < 500
    subtrees = [f"home/{room:04}" for room in range(1_000)]
    with pytest.raises(LocalError, match=f"over {MAX_CERTIFICATE_BYTES}"):
        AUTHORITY.issue("kitchen", subtrees, NOW)
    assert AUTHORITY.issue("kitchen", subtrees[:500], NOW).certificate.subtrees == tuple(subtrees[:500])


@pytest.mark.parametrize("network", ["", "a" * 65, "a\0", "\ud800"])
def test_a_network_needs_a_name_that_a_certificate_can_have(network: str) -> None:
    with pytest.raises(LocalError, match="common name"):
        Authority.create(network, NOW)


@pytest.mark.parametrize("network", ["a" * 64, "my house", "Häuschen"])
def test_a_network_may_have_any_printable_name(network: str) -> None:
    assert Authority.create(network, NOW).network == network


# What an authority accepts


def test_an_authority_accepts_its_own_certificates() -> None:
    assert AUTHORITY.verify(DER, NOW) == KITCHEN.certificate


def test_the_certificate_of_an_authority_of_the_same_name_is_refused() -> None:
    foreign = OTHER_AUTHORITY.issue("kitchen", [""], NOW).chain[0]
    with pytest.raises(InvalidCertificate, match="not signed by the authority of house"):
        AUTHORITY.verify(foreign, NOW)


@pytest.mark.filterwarnings("ignore::UserWarning")  # as in production
def test_a_changed_certificate_is_refused() -> None:
    """Or it says the same. Around the signature, the parser accepts more than one encoding."""
    for place in range(len(DER)):
        for bits in (0x01, 0x20, 0x80):
            with suppress(InvalidCertificate):
                changed = DER[:place] + bytes([DER[place] ^ bits]) + DER[place + 1 :]
                assert AUTHORITY.verify(changed, NOW) == KITCHEN.certificate
                assert place > SIGNED


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(der: bytes) -> None:
    with pytest.raises(InvalidCertificate):
        AUTHORITY.verify(der, NOW)


# Wrong clocks


@pytest.mark.parametrize("now", [NOW - DAY_S - 1, NOW + 365 * DAY_S + 1, 0])
def test_a_certificate_is_refused_at_other_times(now: int) -> None:
    with pytest.raises(InvalidCertificate, match="set the clock"):
        AUTHORITY.verify(DER, now)
    for valid in (NOW - DAY_S, NOW + 365 * DAY_S):
        AUTHORITY.verify(DER, valid)


@pytest.mark.parametrize("now", [0, 0.5, DAY_S - 1])
def test_no_certificate_begins_before_1970(now: float) -> None:
    authority = Authority.create("house", now)
    assert parsed(authority.certificate).not_valid_before_utc.timestamp() == 0
    found = authority.verify(authority.issue("kitchen", [""], now).chain[0], now)
    assert found.not_before == 0


def test_no_certificate_outlives_the_authority() -> None:
    late = AUTHORITY.not_after - 1
    assert AUTHORITY.issue("kitchen", [""], late).certificate.not_after == AUTHORITY.not_after
    for now in (AUTHORITY.not_after, AUTHORITY.not_after + DAY_S):
        with pytest.raises(LocalError, match="replace the authority"):
            AUTHORITY.issue("kitchen", [""], now)


def test_a_certificate_that_would_have_expired_is_not_issued() -> None:
    for now, validity_s in [(NOW, 0), (NOW, -1), (-2 * 365 * DAY_S, 365 * DAY_S)]:
        with pytest.raises(LocalError, match="would have expired"):
            AUTHORITY.issue("kitchen", [""], now, validity_s=validity_s)
