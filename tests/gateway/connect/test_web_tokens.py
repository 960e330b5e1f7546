"""JSON Web Tokens as passwords: which are accepted, and what becomes of their clients later."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_curve_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as new_rsa_key
from hypothesis import given
from hypothesis import strategies as st

from hbroker.errors import ConfigError
from hbroker.gateway.access import acl_file
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.policy import Admitted, Candidate, Refusal
from hbroker.gateway.access.web_tokens import LEEWAY_S, WebTokens, is_token
from hbroker.sim.network.world import START
from tests.gateway.networks import FakeGateway
from tests.network.networks import Tree

NOW = START // 1_000_000
HOUR = 3_600
WRONG, NOT_AUTHORIZED, WRONG_CLIENT_ID = 0x86, 0x87, 0x85


class Issuer:
    """An identity provider with one key."""

    def __init__(self, algorithm: str = "EdDSA", kid: str = "1") -> None:
        self.algorithm, self.kid = algorithm, kid
        makers: dict[str, Callable[[], Any]] = {
            "EdDSA": Ed25519PrivateKey.generate,
            "ES256": lambda: new_curve_key(SECP256R1()),
            "RS256": lambda: new_rsa_key(65_537, 2_048),
        }
        self.private = makers[algorithm]()

    def key(self, **members: str) -> dict[str, Any]:
        """The public key as a member of a set."""
        algorithm: Any = jwt.PyJWS().get_algorithm_by_name(self.algorithm)
        return {**json.loads(algorithm.to_jwk(self.private.public_key())), "kid": self.kid, **members}

    def token(self, header: dict[str, str] | None = None, **claims: object) -> bytes:
        given = {"sub": "ann", "exp": NOW + HOUR} | claims
        named = {"kid": self.kid} if header is None else header
        whole = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(whole, self.private, self.algorithm, named).encode()


OURS, THEIRS = Issuer(), Issuer()


def tokens(*issuers: Issuer, now: float = NOW, **fields: str) -> WebTokens:
    keys = json.dumps({"keys": [issuer.key() for issuer in issuers or (OURS,)]})
    return WebTokens(keys, "keys.json", unix_s=lambda: now, **fields)


def candidate(client_id: str = "c", username: str | None = None) -> Candidate:
    return Candidate(client_id, username, None, "192.0.2.1", "mqtt://x")


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256", "RS256"])
def test_a_token_of_each_kind_of_key_names_its_user(algorithm: str) -> None:
    issuer = Issuer(algorithm)
    admitted = tokens(issuer).admit(candidate(), issuer.token())
    assert isinstance(admitted, Admitted)
    assert (admitted.username, admitted.until_s) == ("ann", NOW + HOUR + LEEWAY_S)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": NOW - LEEWAY_S}, "it has expired"),
        ({"exp": None}, '"exp"'),
        ({"exp": "soon"}, "`exp` is not a time"),
        ({"exp": -5}, "`exp` is not a time"),
        ({"nbf": NOW + LEEWAY_S + 1}, "it is not valid yet"),
        ({"sub": None}, '"sub"'),
        ({"sub": ""}, "is not a user name"),
        ({"iss": "somebody else"}, "ssuer"),
        ({"iss": None}, '"iss"'),
        ({"aud": "another"}, "udience"),
    ],
)
def test_a_token_whose_claims_are_wrong_is_refused_with_the_reason(claims: dict[str, Any], told: str) -> None:
    ours = tokens(issuer="us", audience="hbroker")
    right: dict[str, Any] = {"iss": "us", "aud": ["x", "hbroker"]}
    assert isinstance(ours.admit(candidate(), OURS.token(**right)), Admitted)
    refused = ours.admit(candidate(), OURS.token(**(right | claims)))
    assert isinstance(refused, Refusal)
    assert refused.code == WRONG
    assert told in refused.text


def test_a_claim_names_the_workspace_of_a_client() -> None:
    for claimed in (None, "acme"):
        admitted = tokens().admit(candidate(), OURS.token(workspace=claimed))
        assert isinstance(admitted, Admitted)
        assert admitted.workspace == claimed
    for wrong in ("", "A", "a/b", 5, ["acme"], True):
        refused = tokens().admit(candidate(), OURS.token(workspace=wrong))
        assert isinstance(refused, Refusal)
        assert "`workspace`" in refused.text


def test_clocks_may_differ_a_little() -> None:
    token = OURS.token(exp=NOW - LEEWAY_S + 1, nbf=NOW + LEEWAY_S)
    assert isinstance(tokens().admit(candidate(), token), Admitted)


def test_a_signature_of_another_key_or_algorithm_is_refused() -> None:
    ours = tokens()
    unsigned = jwt.encode({"sub": "ann", "exp": NOW + HOUR}, "", "none", {"kid": "1"}).encode()
    public = OURS.private.public_key().public_bytes_raw()
    by_public_key = jwt.encode({"sub": "ann", "exp": NOW + HOUR}, public, "HS256", {"kid": "1"}).encode()
    head, body, signature = OURS.token().split(b".")
    other_body = OURS.token(sub="root").split(b".")[1]
    for token in (
        THEIRS.token(),
        unsigned,
        by_public_key,
        b".".join((head, other_body, signature)),
        b".".join((head, body, signature[:-6] + b"AAAAAA")),
        b".".join((head, body, b"")),
        OURS.token({"kid": "2"}),
    ):
        refused = ours.admit(candidate(), token)
        assert isinstance(refused, Refusal), token
        assert refused.code == WRONG


def test_without_a_key_id_there_must_be_one_key() -> None:
    other = Issuer("ES256", "2")
    assert isinstance(tokens().admit(candidate(), OURS.token({})), Admitted)
    assert isinstance(tokens(OURS, other).admit(candidate(), OURS.token()), Admitted)
    assert isinstance(tokens(OURS, other).admit(candidate(), other.token()), Admitted)
    assert isinstance(tokens(OURS, other).admit(candidate(), OURS.token({})), Refusal)


def test_the_user_name_and_the_client_id_are_those_of_the_token() -> None:
    ours, token = tokens(), OURS.token(client_id="c")
    assert isinstance(ours.admit(candidate(username="ann"), token), Admitted)
    assert ours.admit(candidate(username="bob"), token).code == WRONG
    assert ours.admit(candidate("d"), token).code == WRONG_CLIENT_ID


def test_a_client_may_stay_as_long_as_its_key_is_in_the_set() -> None:
    admitted = tokens().admit(candidate(), OURS.token())
    assert isinstance(admitted, Admitted)
    other = Issuer("ES256", "2")
    for issuers, stays in (((OURS,), True), ((other, OURS), True), ((other,), False), ((THEIRS,), False)):
        policy = FilePolicy(tokens=tokens(*issuers))
        assert policy.still_admits("ann", "c", admitted.proof) is stays
    assert FilePolicy().still_admits("ann", "c", admitted.proof) is False


def test_a_policy_with_tokens_alone_takes_no_name_without_one() -> None:
    policy = FilePolicy(tokens=tokens(), anonymous=False)

    def code(username: str | None, password: bytes | None) -> int:
        asked = Candidate("c", username, password, "192.0.2.1", "mqtt://x")
        answer = policy.admit(asked)
        assert isinstance(answer, Refusal)
        return answer.code

    assert code(None, None) == NOT_AUTHORIZED
    assert code("ann", b"secret") == WRONG
    assert code("ann", None) == WRONG
    assert not policy.still_admits("ann", "c", "")
    assert isinstance(policy.admit(Candidate("c", None, OURS.token(), "192.0.2.1", "mqtt://x")), Admitted)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a JSON Web Key Set"),
        ("[]", "not a JSON Web Key Set"),
        ('{"keys": 5}', "not a JSON Web Key Set"),
        ('{"keys": [5]}', "not a JSON Web Key Set"),
        ('{"keys": []}', "it has no key"),
        ('{"keys": [{"kty": "future"}]}', "it has no key"),
        ("[" * 100_000, "not a JSON Web Key Set"),
    ],
)
def test_a_set_without_a_usable_key_is_an_error(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        WebTokens(text, "keys.json", unix_s=lambda: NOW)


def test_keys_for_other_uses_are_passed_over_and_private_ones_are_an_error() -> None:
    keys = [{"kty": "future"}, THEIRS.key(use="enc", kid="2"), OURS.key(use="sig")]
    ours = WebTokens(json.dumps({"keys": keys}), "keys.json", unix_s=lambda: NOW)
    assert isinstance(ours.admit(candidate(), OURS.token({})), Admitted)
    private = json.dumps({"keys": [OURS.key(d="c2VjcmV0")]})
    with pytest.raises(ConfigError, match="private key") as caught:
        WebTokens(private, "keys.json", unix_s=lambda: NOW)
    assert "c2VjcmV0" not in str(caught.value)


@given(st.binary(max_size=200))
def test_no_bytes_are_an_error_or_get_in(data: bytes) -> None:
    ours = tokens()
    head, body, signature = OURS.token().split(b".")
    for token in (data, b"eyJ" + data, data + b"..", b".".join((head, data, signature)), head + b"." + data):
        assert isinstance(ours.admit(candidate(), token), Refusal)
    assert is_token(b".".join((head, body, signature)))


def test_a_client_is_disconnected_when_its_token_expires_and_its_session_goes_on() -> None:
    policy = FilePolicy(
        None, acl_file.parse("user ann\ntopic readwrite home/#\n", "acl"), tokens=tokens(), anonymous=False
    )
    gateway = FakeGateway(Tree.grow(1, ("home",)), "one", policy=policy).ready()
    left_s = 60

    def connect(until_s: int) -> Any:
        token = OURS.token(exp=until_s - LEEWAY_S)
        return gateway.connect("c", username="ann", password=token, session_expiry_s=900, clean_start=False)

    client = connect(gateway.world.now // 1_000_000 + left_s)
    ends = []
    for run_s in (left_s - 2, 4):
        gateway.world.run(run_s * 1_000_000)
        ends.append(client.closed)
    assert ends == [None, NOT_AUTHORIZED]
    again = connect(gateway.world.now // 1_000_000 + left_s)
    assert gateway.native_api.accepted[again.number].session_present
    again.drop()
    gateway.world.run(2 * left_s * 1_000_000)
    third = connect(gateway.world.now // 1_000_000 + left_s)
    gateway.world.run(10_000_000)
    assert third.closed is None, "the end of an earlier connection's token is not its end"
