"""Password files, and the cache of right passwords."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from hashlib import pbkdf2_hmac, sha512

import pytest
from argon2 import PasswordHasher, extract_parameters
from hypothesis import given
from hypothesis import strategies as st

from hbroker.errors import ConfigErrors
from hbroker.gateway.access import password_file
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.password_file import Passwords, parse, with_user, without_user
from hbroker.gateway.access.policy import Admitted, Candidate, Refusal
from hbroker.runtime.gateway.policies import VerifiedPasswordCache

HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("right")
"""A hash as `hash_password` makes it, at a hundredth of the cost."""
LARGE = "$argon2id$v=19$m=47104,t=1,p=1$YWJjZGVmZ2hpamtsbW5vcA$YWJjZGVmZ2hpamtsbW5vcA"
"""A hash with the memory size of mosquitto_passwd 2.1."""


def pbkdf2(password: bytes, iterations: int = 101) -> str:
    salt = b"0123456789ab"
    digest = pbkdf2_hmac("sha512", password, salt, iterations)
    return f"$7${iterations}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def salted(password: bytes) -> str:
    digest = sha512(password + b"salt").digest()
    return f"$6${b64encode(b'salt').decode()}${b64encode(digest).decode()}"


@pytest.mark.parametrize(
    "hash", [HASH, pbkdf2(b"right"), salted(b"right")], ids=["argon2id", "PBKDF2", "SHA-512"]
)
def test_a_right_password_is_accepted_and_a_wrong_one_is_refused(hash: str) -> None:
    users = Passwords(parse(f"# users\nann:{hash}\n", "f"), VerifiedPasswordCache(b"secret"))
    assert users.is_remembered("ann", b"right") is False
    assert users.verify("ann", b"right")
    assert users.is_remembered("ann", b"right") is True
    assert users.is_remembered("ann", b"wrong") is False
    for user, password in (("ann", b"wrong"), ("ann", b""), ("bob", b"right"), ("ann", b"\xff\x00")):
        assert not users.verify(user, password)


def test_only_a_keyed_hash_of_a_right_password_is_cached() -> None:
    known: list[bytes] = []
    for secret in (b"secret", b"other"):
        verified = VerifiedPasswordCache(secret)
        Passwords({"ann": HASH}, verified).verify("ann", b"right")
        known += verified._digests.values()
    assert len(set(known)) == 2
    assert not any(b"right" in digest for digest in known)


def test_a_cached_password_counts_until_the_user_has_another_hash() -> None:
    verified = VerifiedPasswordCache(b"secret")
    Passwords({"ann": HASH}, verified).verify("ann", b"right")
    assert Passwords({"ann": HASH, "bob": HASH}, verified).is_remembered("ann", b"right")
    assert not Passwords({"ann": HASH, "bob": HASH}, verified).is_remembered("bob", b"right")
    assert not Passwords({"ann": pbkdf2(b"right")}, verified).is_remembered("ann", b"right")
    assert not Passwords({}, verified).is_remembered("ann", b"right")


def test_new_hashes_take_at_most_half_of_the_memory_budget() -> None:
    hash = password_file.hash_password("right")
    assert 2 * extract_parameters(hash).memory_cost <= password_file.MEMORY_KIB
    users = Passwords({"ann": hash, "bob": LARGE}, VerifiedPasswordCache(b""))
    assert users.costly == ["bob"]


def test_hashes_that_are_guessed_fast_are_known() -> None:
    hashes = {"ann": HASH, "bob": pbkdf2(b"x"), "eve": salted(b"x")}
    assert Passwords(hashes, VerifiedPasswordCache(b"")).weak == ["eve"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ann", "this is not `user:hash`"),
        (f":{HASH}", "this is not `user:hash`"),
        ("ann:secret", "a password in plain text"),
        ("ann:$6$abc$def", "a hash that is not known"),
        ("ann:$6$" + "A" * 86 + "==", "a hash that is not known"),
        ("ann:$6$$" + "A" * 86 + "==", "a hash that is not known"),
        ("ann:$7$x$YQ==$YQ==", "a hash that is not known"),
        ("ann:$7$99999999999$YQ==$YQ==", "a hash that is not known"),
        ("ann:$argon2id$nonsense", "a hash that is not known"),
        ("ann:$argon2id$v=19$m=4194304,t=1,p=1$YWJjZGVmZ2g$YWJjZGVmZ2g", "a hash that is not known"),
        (f"ok:{HASH}", "has a second password"),
    ],
    ids=range(11),
)
def test_every_error_has_its_line(line: str, message: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse(f"ok:{HASH}\n{line}\n", "users")
    (error,) = caught.value.errors
    assert error.line == 2
    assert message in error.message
    assert "secret" not in str(error)


@given(st.text(max_size=100))
def test_arbitrary_text_raises_only_config_errors(text: str) -> None:
    with suppress(ConfigErrors):
        assert isinstance(parse(text, "f"), dict)


USERS = st.text(st.characters(exclude_characters=":#\n\r", categories=["L", "N"]), min_size=1, max_size=8)


@given(st.lists(USERS, max_size=6, unique=True), USERS)
def test_a_user_is_added_to_and_removed_from_a_file(others: list[str], user: str) -> None:
    text = "# users\n" + "".join(f"{name}:{HASH}\n" for name in others)
    changed = with_user(text, user, pbkdf2(b"x"))
    hashes = parse(changed, "f")
    assert hashes[user] == pbkdf2(b"x")
    assert {name: hash for name, hash in hashes.items() if name != user} == {
        name: HASH for name in others if name != user
    }
    removed = without_user(changed, user)
    assert removed is not None
    assert user not in parse(removed, "f")
    assert without_user(removed, user) is None


def candidate(**fields: object) -> Candidate:
    known = {
        "client_id": "c",
        "username": None,
        "password": None,
        "peer": "192.0.2.1",
        "listener": "mqtt://x",
    }
    return Candidate(**{**known, **fields})  # type: ignore[arg-type]


def test_the_file_policy_decides_by_user_name_password_and_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users = Passwords({"ann": HASH}, VerifiedPasswordCache(b"secret"))
    closed, open = FilePolicy(users, anonymous=False), FilePolicy()
    assert open.admit(candidate()) == Admitted(None)
    assert open.admit(candidate(username="x", password=b"any")) == Admitted("x")
    assert isinstance(closed.admit(candidate()), Refusal)
    assert isinstance(closed.admit(candidate(username="ann")), Refusal)
    assert closed.admit(candidate(certificate="device-1")) == Admitted("device-1", "certificate")
    check = closed.admit(candidate(username="ann", password=b"right"))
    assert callable(check)
    assert check() == Admitted("ann", HASH)
    monkeypatch.setattr(password_file, "_matches", lambda hash, password: pytest.fail("it is remembered"))
    assert closed.admit(candidate(username="ann", password=b"right")) == Admitted("ann", HASH)


@pytest.mark.parametrize(
    ("hashes", "cost"),
    [
        ([], "$argon2id$v=19$m=9216,t=4,p=1$"),
        ([HASH, pbkdf2(b"x"), HASH], "m=8,t=1"),
        ([pbkdf2(b"x")], "$7$101$"),
    ],
)
def test_an_unknown_user_name_takes_as_long_as_a_wrong_password(
    monkeypatch: pytest.MonkeyPatch, hashes: list[str], cost: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(password_file, "_matches", lambda hash, password: asked.append(hash))
    users = Passwords({str(n): hash for n, hash in enumerate(hashes)}, VerifiedPasswordCache(b""))
    assert not users.verify("nobody", b"x")
    assert len(asked) == 1
    assert cost in asked[0]
