"""Passwords: files of hashes, and what is remembered of those that were right."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from hashlib import pbkdf2_hmac

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from hbroker.errors import ConfigErrors
from hbroker.gateway import passwords
from hbroker.gateway.passwords import Passwords, parse, with_user, without_user
from hbroker.gateway.policy import Admitted, Candidate, FilePolicy, Refusal

HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("right")
"""As `hash_password` makes them, at a hundredth of the cost."""


def pbkdf2(password: bytes, iterations: int = 101) -> str:
    salt = b"0123456789ab"
    digest = pbkdf2_hmac("sha512", password, salt, iterations)
    return f"$7${iterations}${b64encode(salt).decode()}${b64encode(digest).decode()}"


@pytest.mark.parametrize("hash", [HASH, pbkdf2(b"right")], ids=["argon2id", "mosquitto's"])
def test_a_password_is_right_or_wrong(hash: str) -> None:
    users = Passwords(parse(f"# users\nann:{hash}\n", "f"), b"secret")
    assert users.is_remembered("ann", b"right") is None
    assert users.verify("ann", b"right")
    assert users.is_remembered("ann", b"right") is True
    assert users.is_remembered("ann", b"wrong") is None
    for user, password in (("ann", b"wrong"), ("ann", b""), ("bob", b"right"), ("ann", b"\xff\x00")):
        assert not users.verify(user, password)


def test_nothing_is_remembered_of_a_password_but_a_keyed_hash() -> None:
    users = Passwords({"ann": HASH}, b"secret")
    users.verify("ann", b"right")
    (known,) = users._verified.values()
    assert b"right" not in known
    other = Passwords({"ann": HASH}, b"other")
    other.verify("ann", b"right")
    assert other._verified["ann"] != known


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ann", "this is not `user:hash`"),
        (f":{HASH}", "this is not `user:hash`"),
        ("ann:secret", "a password in plain text"),
        ("ann:$6$abc$def", "a hash that is not known"),
        ("ann:$7$x$YQ==$YQ==", "a hash that is not known"),
        ("ann:$7$99999999999$YQ==$YQ==", "a hash that is not known"),
        ("ann:$argon2id$nonsense", "a hash that is not known"),
        (f"ok:{HASH}", "has a second password"),
    ],
    ids=range(8),
)
def test_every_error_has_its_line(line: str, message: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse(f"ok:{HASH}\n{line}\n", "users")
    (error,) = caught.value.errors
    assert error.line == 2
    assert message in error.message
    assert "secret" not in str(error)


@given(st.text(max_size=100))
def test_only_config_errors_come_out(text: str) -> None:
    with suppress(ConfigErrors):
        assert isinstance(parse(text, "f"), dict)


USERS = st.text(st.characters(exclude_characters=":#\n\r", categories=["L", "N"]), min_size=1, max_size=8)


@given(st.lists(USERS, max_size=6, unique=True), USERS)
def test_a_file_with_and_without_a_user(others: list[str], user: str) -> None:
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


def test_what_the_files_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    users = Passwords({"ann": HASH}, b"secret")
    closed, open = FilePolicy(users, anonymous=False), FilePolicy()
    assert open.admit(candidate()) == Admitted(None)
    assert open.admit(candidate(username="x", password=b"any")) == Admitted("x")
    assert isinstance(closed.admit(candidate()), Refusal)
    assert isinstance(closed.admit(candidate(username="ann")), Refusal)
    assert closed.admit(candidate(certificate="device-1")) == Admitted("device-1", "certificate")
    check = closed.admit(candidate(username="ann", password=b"right"))
    assert callable(check)
    assert check() == Admitted("ann", HASH)
    monkeypatch.setattr(passwords, "_matches", lambda hash, password: pytest.fail("it is remembered"))
    assert closed.admit(candidate(username="ann", password=b"right")) == Admitted("ann", HASH)


def test_a_wrong_name_takes_as_long_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(passwords, "_matches", lambda hash, password: asked.append(hash))
    assert not Passwords({}, b"").verify("ann", b"x")
    assert len(asked) == 1
    assert asked[0].startswith("$argon2id$")
