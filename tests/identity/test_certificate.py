"""A certificate says what it was issued for; anything else is refused by one exception."""

from __future__ import annotations

import re
from base64 import b64decode
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from hbroker.identity.certificate import NODE_NAME, InvalidCertificate, NodeCertificate
from hbroker.identity.subtree_uri import parse_uri, to_uri
from tests.frame.checkout import ROOT
from tests.identity.examples import AUTHORITY, DAY_S, NAMES, NOW, SUBTREES

DER = b64decode(
    """
    MIIBczCCASWgAwIBAgIUbbcvmPSDNehzsA0i80mdqQ1IxrUwBQYDK2VwMBAxDjAMBgNVBAMMBWhvdXNlMB4XDTI3MDExNDA4MDAw
    MFoXDTI4MDExNTA4MDAwMFowEjEQMA4GA1UEAwwHa2l0Y2hlbjAqMAUGAytlcAMhAELQYgbKZmDa8BxU3eRYBmQOEq4olz55GPNu
    FQyVNHxIo4GOMIGLMB8GA1UdIwQYMBaAFKSO7iDXncPzX0HpHbW/fg2DwONNMA4GA1UdDwEB/wQEAwIHgDAdBgNVHSUEFjAUBggr
    BgEFBQcDAQYIKwYBBQUHAwIwOQYDVR0RBDIwMIIMbm9kZS5oYnJva2VyhhVoYnJva2VyOi9ob21lL2tpdGNoZW6GCWhicm9rZXI6
    LzAFBgMrZXADQQB85k3+wmy/9ESO6bmGEtvKpzc4gEK59cje+WEyA300vHnCL18Rgo3m7wne4fm/Jez1PBsrApx+PzYg5L6OydwG
    """
)
"""A certificate as the first version issued it. A constant, so that `make test` has the same examples each
time."""
URI = x509.UniformResourceIdentifier
P256 = ec.generate_private_key(ec.SECP256R1())
FACTS = NodeCertificate(
    name="kitchen",
    subtrees=("home/kitchen", ""),
    not_before=NOW - DAY_S,
    not_after=NOW + 365 * DAY_S,
    serial=0x6DB72F98F48335E873B00D22F3499DA90D48C6B5,
)


def test_a_certificate_of_the_first_version_is_read() -> None:
    assert NodeCertificate.read(DER) == FACTS


@given(NAMES, st.lists(SUBTREES, max_size=5))
def test_a_certificate_says_what_it_was_issued_for(name: str, subtrees: list[str]) -> None:
    found = AUTHORITY.issue(name, subtrees, NOW).certificate
    assert (found.name, found.subtrees) == (name, tuple(subtrees))


@given(SUBTREES)
@example("")
def test_a_uri_has_only_characters_of_uris_and_is_read_back(subtree: str) -> None:
    uri = to_uri(subtree)
    assert re.fullmatch(r"hbroker:/(?:[A-Za-z0-9/._~-]|%[0-9A-F]{2})*", uri)
    assert parse_uri(uri) == subtree


@given(st.text(max_size=20) | st.text("hbroker:/%2Fa", max_size=20).map("hbroker:/".__add__))
@example("hbroker:/a%2Fb")
@example("hbroker:/caf%c3%a9")
@example("hbroker:/%61")
@example("hbroker:/%FF")
@example("hbroker:/%ED%A0%80")
def test_a_subtree_has_one_uri(text: str) -> None:
    with suppress(ValueError):
        assert to_uri(parse_uri(text)) == text


@pytest.mark.parametrize("subtree", ["/", "a/", "/a", "a//b", "+", "a/#", "a\0b", "\ud800", "a" * 70_000])
def test_only_subtrees_have_uris(subtree: str) -> None:
    with pytest.raises(ValueError, match=r"not a subtree|surrogates"):
        to_uri(subtree)


@given(st.lists(SUBTREES, max_size=3), SUBTREES)
@example(["home"], "homes")
@example(["home/kitchen"], "home")
@example([], "")
def test_a_node_may_own_what_lies_within_its_subtrees(own: list[str], subtree: str) -> None:
    def levels(text: str) -> list[str]:
        return text.split("/") if text else []

    is_within = any(levels(subtree)[: len(levels(each))] == levels(each) for each in own)
    assert replace(FACTS, subtrees=tuple(own)).may_own(subtree) is is_within


def test_a_certificate_is_renewed_when_less_than_a_third_of_its_validity_is_left() -> None:
    assert not FACTS.needs_renewal(NOW)
    assert not FACTS.needs_renewal(NOW + 243 * DAY_S)
    assert FACTS.needs_renewal(NOW + 243 * DAY_S + 1)
    assert FACTS.needs_renewal(NOW + 999 * DAY_S)


def test_a_clock_may_be_slow_by_a_day() -> None:
    found = AUTHORITY.issue("kitchen", [""], NOW, validity_s=60).certificate
    assert [found.is_valid(NOW + s) for s in (-DAY_S - 1, -DAY_S, 60, 61)] == [False, True, True, False]
    assert not found.needs_renewal(0)


def test_the_dns_name_is_that_which_the_core_asks_for() -> None:
    source = (ROOT / "hbroker/native/src/association/credentials.rs").read_text("utf-8")
    assert f'NODE_NAME: &str = "{NODE_NAME}"' in source


# Whatever the bytes are


def read(der: bytes) -> NodeCertificate | None:
    """The certificate; None: it was refused. Any other exception fails the test."""
    try:
        return NodeCertificate.read(der)
    except InvalidCertificate:
        return None


@given(st.binary(max_size=200) | st.binary(max_size=100).map(b"\x30\x82\x01\x00".__add__))
def test_random_bytes_are_refused(der: bytes) -> None:
    assert read(der) is None


@pytest.mark.filterwarnings("ignore::UserWarning")  # as in production
@given(st.lists(st.tuples(st.integers(0, len(DER) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_changed_bytes_raise_nothing_else(changes: list[tuple[int, int]]) -> None:
    changed = bytearray(DER)
    for place, bits in changes:
        changed[place] ^= bits
    read(bytes(changed))


@pytest.mark.filterwarnings("ignore::UserWarning")  # as in production
def test_no_changed_byte_raises_anything_else() -> None:
    for place in range(len(DER)):
        for bits in (0x01, 0x80, 0xFF):
            read(DER[:place] + bytes([DER[place] ^ bits]) + DER[place + 1 :])


@pytest.mark.filterwarnings("ignore::UserWarning")  # as in production
@given(st.integers(0, len(DER)), st.integers(0, len(DER)), st.binary(max_size=8))
def test_cut_repeated_and_inserted_bytes_are_refused(start: int, end: int, inserted: bytes) -> None:
    changed = DER[:start] + inserted + DER[end:]
    assert read(changed) is None or len(changed) == len(DER)


def certificate(
    *names: x509.GeneralName,
    subject: tuple[str, ...] = ("kitchen",),
    public_key: CertificatePublicKeyTypes | None = None,
) -> bytes:
    """A certificate with other names, another subject, or another key."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in subject])
    moment = datetime.fromtimestamp(NOW, UTC)
    builder = x509.CertificateBuilder(name, name, public_key or key.public_key(), 7, moment, moment)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, algorithm=None).public_bytes(Encoding.DER)


def test_names_of_other_schemes_are_ignored() -> None:
    spiffe, web = URI("spiffe://house/kitchen"), x509.DNSName("kitchen.example.com")
    found = read(certificate(web, x509.DNSName(NODE_NAME), spiffe, URI("hbroker:/home")))
    assert found.subtrees == ("home",)
    assert read(certificate(x509.DNSName(NODE_NAME))).subtrees == ()


@pytest.mark.parametrize(
    ("der", "why"),
    [
        (certificate(), "extension"),
        (certificate(x509.DNSName("kitchen.example.com"), URI("hbroker:/")), NODE_NAME),
        (certificate(x509.DNSName(NODE_NAME), URI("hbroker:")), "not the URI of a subtree"),
        (certificate(x509.DNSName(NODE_NAME), URI("HBROKER:/home")), "not the URI of a subtree"),
        (certificate(x509.DNSName(NODE_NAME), URI("hbroker:/home/")), "not a subtree"),
        (certificate(x509.DNSName(NODE_NAME), URI("hbroker://home")), "not a subtree"),
        (certificate(x509.DNSName(NODE_NAME), subject=()), "0 common names"),
        (certificate(x509.DNSName(NODE_NAME), subject=("a", "b")), "2 common names"),
        (certificate(x509.DNSName(NODE_NAME), subject=("../a",)), "not the name of a node"),
        (certificate(x509.DNSName(NODE_NAME), subject=("a" * 64,)), "not the name of a node"),
        (AUTHORITY.certificate, "extension"),
        (DER + b"\0", "ExtraData"),
        (certificate(x509.DNSName(NODE_NAME), public_key=P256.public_key()), "not an Ed25519 key"),
    ],
)
def test_another_form_is_refused(der: bytes, why: str) -> None:
    with pytest.raises(InvalidCertificate, match=re.escape(why)):
        NodeCertificate.read(der)
