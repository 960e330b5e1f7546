"""Who may connect, and what each may do: the hooks, and the default that reads files.

A `Policy` of your own takes the place of `FilePolicy` (`hbroker gateway --policy module:name`). Its methods
are called in the gateway's one thread and must not block; where a decision takes time (a hash, a request to a
server) `admit` returns a `Check`, which runs in a pool of threads. Where too many of those wait, clients are
refused at once, as busy, and try again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from hbroker.gateway.access import acl_file
from hbroker.gateway.access.acl_file import Acl
from hbroker.gateway.access.password_file import Passwords
from hbroker.gateway.native_api import Rule
from hbroker.gateway.reason_codes import Code

__all__ = [
    "Admitted",
    "Candidate",
    "Challenge",
    "Check",
    "Decision",
    "FilePolicy",
    "Policy",
    "Refusal",
    "remembers_passwords",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who wants to connect. `listener`: where. `password`: not to be kept. `names_user`: there a certificate
    proves the user's name; it is `certificate`, verified, and empty where there is no certificate, or no
    common name in it."""

    client_id: str
    username: str | None
    password: bytes | None
    peer: str
    listener: str
    certificate: str = ""
    version: int = 5
    names_user: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """It may connect. `username`: under this name, for its rules. `proof`: what it was admitted by; where
    `Policy.still_admits` says no to it after a reload, the client is disconnected."""

    username: str | None
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """It may not. `text`: told to clients of MQTT 5 that want to know."""

    code: Code
    text: str = ""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Enhanced authentication goes on: AUTH with these data (MQTT 5 §4.12)."""

    data: bytes


Decision: TypeAlias = Admitted | Refusal

Check: TypeAlias = Callable[[], Decision]
"""A decision that takes time: called in a thread of its own."""


class Policy(Protocol):
    """What the gateway asks. `proof` and user names are those of `Admitted`."""

    def admit(self, candidate: Candidate) -> Decision | Check:
        """Whether it may connect, by its name and password, or its certificate."""

    def exchange(
        self, candidate: Candidate, method: str, data: bytes, step: int
    ) -> Decision | Challenge | None:
        """Enhanced authentication: the client's data of one step, from 0. The last answer is a verdict.
        None: the method is not known."""

    def rules(self, username: str | None, client_id: str) -> Sequence[Rule]:
        """What it may read and write. Clients never write to `$` topics, and of those read `$SYS` at most."""

    def rules_name(self, username: str | None, client_id: str) -> tuple[str, ...]:
        """Clients for which this is equal have equal rules, and share one list."""

    def still_admits(self, username: str | None, client_id: str, proof: str) -> bool:
        """Whether a client that was admitted by `proof` would be now."""


def remembers_passwords(policy: Policy) -> bool:
    """Whether it has an attribute of this name that is true. That says: with a name and a password, and
    without a certificate, `admit` admits at once those alone whose name and password it admitted before. Then
    the core refuses guesses beyond the bounds without asking."""
    return bool(getattr(policy, "remembers_passwords", False))


class FilePolicy:
    """mosquitto's rules: a file of passwords, one of access rules, and whether a client may have no name.

    `passwords`: None: any name is taken, with any password or none. `access`: None: everybody may do
    everything.
    """

    def __init__(
        self, passwords: Passwords | None = None, access: Acl | None = None, *, anonymous: bool = True
    ) -> None:
        self._passwords = passwords
        self._access = access
        self._anonymous = anonymous

    @property
    def remembers_passwords(self) -> bool:
        """See the function."""
        return self._passwords is not None

    def admit(self, candidate: Candidate) -> Decision | Check:
        """See `Policy`."""
        user, passwords = candidate.username, self._passwords
        if candidate.certificate:
            return Admitted(candidate.certificate, _CERTIFICATE)
        if user is None:
            return _ANONYMOUS if self._anonymous else _NO_NAME
        if passwords is None:  # Where others prove their names nobody gets one for the asking.
            return _UNPROVEN if candidate.names_user else Admitted(user)
        if candidate.password is None:
            return _WRONG
        password = candidate.password
        admitted = Admitted(user, passwords.hash_of(user) or "")
        if passwords.is_remembered(user, password):
            return admitted
        return lambda: admitted if passwords.verify(user, password) else _WRONG

    def exchange(
        self, candidate: Candidate, method: str, data: bytes, step: int
    ) -> Decision | Challenge | None:
        """See `Policy`: no method is known."""
        return None

    def rules(self, username: str | None, client_id: str) -> Sequence[Rule]:
        """See `Policy`."""
        return acl_file.OPEN if self._access is None else self._access.rules(username, client_id)

    def rules_name(self, username: str | None, client_id: str) -> tuple[str, ...]:
        """See `Policy`."""
        if self._access is None:
            return ()
        name = ("anonymous",) if username is None else ("user", username)
        return (*name, client_id) if self._access.names_clients else name

    def still_admits(self, username: str | None, client_id: str, proof: str) -> bool:
        """See `Policy`. As mosquitto: whose name or password is not in the file any more is turned out."""
        if proof == _CERTIFICATE:
            return True
        if username is None:
            return self._anonymous
        return self._passwords is None or (bool(proof) and self._passwords.hash_of(username) == proof)


_CERTIFICATE: Final = "certificate"
_ANONYMOUS: Final = Admitted(None)
_NO_NAME: Final = Refusal(Code.NOT_AUTHORIZED, "a user name is needed")
_UNPROVEN: Final = Refusal(Code.BAD_USER_NAME_OR_PASSWORD, "a user name needs a certificate here")
_WRONG: Final = Refusal(Code.BAD_USER_NAME_OR_PASSWORD, "wrong user name or password")
