"""SCRAM-SHA-256 by AUTH: who knows the password gets in, and the gateway proves itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient, ScramException

from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.password_file import Passwords, parse
from hbroker.gateway.access.policy import Admitted, Candidate, Challenge, Decision, Refusal
from hbroker.gateway.access.scram import METHOD, ScramVerifier
from hbroker.gateway.native_api import AuthEvent
from hbroker.runtime.gateway.policies import VerifiedPasswordCache
from tests.gateway.networks import FakeGateway
from tests.network.networks import Tree

CONTINUE, AGAIN = 0x18, 0x19
NOT_AUTHORIZED = 0x87
PASSWORD = "pässword"
ANN = str(ScramVerifier.of(PASSWORD))
RFC_7677 = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ=="
    "$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)
"""Of the password "pencil"."""


def policy(**users: str) -> FilePolicy:
    return FilePolicy(Passwords(users or {"ann": ANN}, VerifiedPasswordCache(b"")), anonymous=False)


def candidate(exchange: object = None) -> Candidate:
    return Candidate("c", None, None, "192.0.2.1", "mqtt://x", exchange=exchange)


def client(user: str = "ann", password: str = PASSWORD) -> Any:
    return ScramClient([METHOD], user, password)


def exchange(policy: FilePolicy, client: Any) -> Decision:
    first = policy.exchange(candidate(), METHOD, client.get_client_first().encode(), 0)
    assert isinstance(first, Challenge)
    client.set_server_first(first.data.decode())
    last = policy.exchange(candidate(first.state), METHOD, client.get_client_final().encode(), 1)
    assert isinstance(last, Admitted | Refusal)
    return last


def test_a_right_password_is_admitted_and_the_gateway_proves_itself() -> None:
    ann = client()
    admitted = exchange(policy(), ann)
    assert isinstance(admitted, Admitted)
    assert (admitted.username, admitted.proof) == ("ann", ANN)
    ann.set_server_final(admitted.data.decode())
    with pytest.raises(ScramException):
        client().set_server_final(admitted.data.decode())


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("bob", PASSWORD), ("eve", "1")])
def test_a_wrong_password_and_an_unknown_name_look_alike(user: str, password: str) -> None:
    ours = policy(ann=ANN, eve="$7$101$MDEyMzQ1Njc4OWFi$" + "A" * 86 + "==")
    firsts = []
    for _ in range(2):
        asked = client(user, password)
        first = ours.exchange(candidate(), METHOD, asked.get_client_first().encode(), 0)
        assert isinstance(first, Challenge)
        firsts.append(first.data.split(b",")[1:])
        asked.set_server_first(first.data.decode())
        last = ours.exchange(candidate(first.state), METHOD, asked.get_client_final().encode(), 1)
        assert isinstance(last, Refusal)
        assert last.code == NOT_AUTHORIZED
    assert firsts[0] == firsts[1], "salt and iterations of a name stay"


def test_the_verifier_is_that_of_the_rfc_and_takes_the_password_in_clear() -> None:
    verifier = ScramVerifier.parse(RFC_7677)
    assert verifier is not None
    assert str(verifier) == RFC_7677
    assert verifier.verify(b"pencil")
    assert not verifier.verify(b"pen")
    assert not verifier.verify(b"\xff")
    check = policy(ann=RFC_7677).admit(Candidate("c", "ann", b"pencil", "192.0.2.1", "mqtt://x"))
    assert callable(check)
    assert check() == Admitted("ann", RFC_7677)
    assert parse(f"ann:{RFC_7677}\n", "users") == {"ann": RFC_7677}
    assert isinstance(exchange(policy(ann=RFC_7677), client("ann", "pencil")), Admitted)


@pytest.mark.parametrize(
    "line", ["", "SCRAM-SHA-256$", RFC_7677[:-4], RFC_7677.replace("4096", "0"), RFC_7677.replace("$W", "$")]
)
def test_a_line_that_is_no_verifier_is_none(line: str) -> None:
    assert ScramVerifier.parse(line) is None


@given(st.binary(max_size=100))
def test_no_bytes_are_an_error_or_get_in(data: bytes) -> None:
    ours = policy(ann=RFC_7677)
    answer = ours.exchange(candidate(), METHOD, data, 0)
    assert isinstance(answer, Challenge | Refusal)
    first = ours.exchange(candidate(), METHOD, client().get_client_first().encode(), 0)
    assert isinstance(first, Challenge)
    assert isinstance(ours.exchange(candidate(first.state), METHOD, data, 1), Refusal)


def test_other_methods_and_files_without_verifiers_know_none() -> None:
    assert policy().exchange(candidate(), "SCRAM-SHA-1", b"", 0) is None
    assert FilePolicy().exchange(candidate(), METHOD, b"", 0) is None
    argon = "$argon2id$v=19$m=8,t=1,p=1$YWJjZGVmZ2hpamtsbW5vcA$YWJjZGVmZ2hpamtsbW5vcA"
    assert policy(ann=argon).exchange(candidate(), METHOD, b"", 0) is None


def test_connack_has_the_gateways_proof_and_who_authenticates_again_stays_the_same() -> None:
    gateway = FakeGateway(
        Tree.grow(1, ("home",)), "one", policy=policy(ann=ANN, bob=str(ScramVerifier.of("2")))
    ).ready()
    ann = client()
    begun = gateway.begin("a", auth_method=METHOD, auth_data=ann.get_client_first().encode())

    def answer(asked: Any) -> bytes:
        asked.set_server_first(gateway.native_api.auths[-1][2].decode())
        return str(asked.get_client_final()).encode()

    gateway.tell(AuthEvent(begun.number, CONTINUE, METHOD, answer(ann)))
    gateway.world.run_until(lambda: begun.is_accepted)
    ann.set_server_final(gateway.native_api.accepted[begun.number].auth_data.decode())
    assert gateway.control._context.connection_table.get(begun.number).username == "ann"

    again = client()
    gateway.tell(AuthEvent(begun.number, AGAIN, METHOD, again.get_client_first().encode()))
    gateway.tell(AuthEvent(begun.number, CONTINUE, METHOD, answer(again)))
    number, code, proof = gateway.native_api.auths[-1]
    assert (number, code) == (begun.number, 0)
    again.set_server_final(proof.decode())
    assert begun.closed is None

    bob = client("bob", "2")
    gateway.tell(AuthEvent(begun.number, AGAIN, METHOD, bob.get_client_first().encode()))
    gateway.tell(AuthEvent(begun.number, CONTINUE, METHOD, answer(bob)))
    assert begun.closed == NOT_AUTHORIZED
