"""The interface of a policy, and the policy that reads the two files.

A `Policy` of your own replaces `FilePolicy` (`hbroker gateway --policy module:name`). The gateway calls its
methods in its one thread, so they must not block. If a decision takes time (a hash, a request to a server),
`admit` returns a `Check`, which runs in a pool of threads. If too many checks wait, clients are refused at
once with 0x89 (server busy), and try again.
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
    """The client of a CONNECT. `listener`: the URL to which it connected. `password`: do not keep it.

    `names_user`: at this listener a certificate proves the user name. `certificate` is then its verified
    common name; it is empty if there is no certificate or no common name in it.
    """

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
    """The client may connect.

    `username`: the name by which it gets its rules. `proof`: given to `Policy.still_admits` after a reload;
    if that says no, the client is disconnected.
    """

    username: str | None
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The client may not connect. `text`: the reason string, for clients of MQTT 5 that want it."""

    code: Code
    text: str = ""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Enhanced authentication goes on with an AUTH that holds these data (MQTT 5 §4.12)."""

    data: bytes


Decision: TypeAlias = Admitted | Refusal

Check: TypeAlias = Callable[[], Decision]
"""A decision that takes time. It is called in another thread."""


class Policy(Protocol):
    """What a gateway asks its policy. `proof` and user names are those of `Admitted`."""

    def admit(self, candidate: Candidate) -> Decision | Check:
        """Whether the client may connect, by its name and password or its certificate."""

    def exchange(
        self, candidate: Candidate, method: str, data: bytes, step: int
    ) -> Decision | Challenge | None:
        """Enhanced authentication (MQTT 5 §4.12): the client's data of one step, counted from 0.

        The last answer is a `Decision`. None: the method is unknown.
        """

    def rules(self, username: str | None, client_id: str) -> Sequence[Rule]:
        """The access rules of a client, in order. Clients never write to topics that begin with `$`, except
        for the states of bridges, and of those topics read at most `$SYS`."""

    def rules_name(self, username: str | None, client_id: str) -> tuple[str, ...]:
        """A name that is equal for clients with equal rules. These share one access list."""

    def still_admits(self, username: str | None, client_id: str, proof: str) -> bool:
        """Whether a client that was admitted by `proof` would be admitted now."""


def remembers_passwords(policy: Policy) -> bool:
    """Whether the policy has a true attribute `remembers_passwords`.

    It declares that `admit` admits a client at once only if it admitted this name and password before. That
    is for CONNECTs with a name and a password and without a certificate. Then the core refuses guesses beyond
    the bounds without asking the policy.
    """
    return bool(getattr(policy, "remembers_passwords", False))


class FilePolicy:
    """mosquitto's rules: a file of passwords, a file of access rules, and whether a client may have no name.

    `passwords`: None: any name is accepted, with any password or none. `access`: None: every client may do
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
        """Whether there is a file of passwords. See `remembers_passwords` of this module."""
        return self._passwords is not None

    def admit(self, candidate: Candidate) -> Decision | Check:
        """See `Policy`."""
        user, passwords = candidate.username, self._passwords
        if candidate.certificate:
            return Admitted(candidate.certificate, _CERTIFICATE)
        if user is None:
            return _ANONYMOUS if self._anonymous else _NO_NAME
        if passwords is None:  # If certificates prove names at this listener, a name without one is refused.
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
        """See `Policy`: every method is unknown."""
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
        """See `Policy`. As with mosquitto, a client whose name or password is no longer in the file may not
        stay."""
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
