"""The interface of a policy.

A `Policy` of your own replaces `file_policy.FilePolicy` (`hbroker gateway --policy module:name`). The
gateway calls its methods in its one thread, so they must not block. If a decision takes time (a hash, a
request to a server), `admit` returns a `Check`, which runs in a pool of threads. If too many checks wait,
clients are refused at once with 0x89 (server busy), and try again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from hbroker.gateway.native_api import Rule
from hbroker.gateway.reason_codes import Code

__all__ = [
    "Admitted",
    "Candidate",
    "Challenge",
    "Check",
    "Decision",
    "Policy",
    "Refusal",
    "remembers_passwords",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """The client of a CONNECT. `listener`: the URL to which it connected. `password`: do not keep it.

    `names_user`: at this listener a certificate proves the user name. `certificate` is then its verified
    common name; it is empty if there is no certificate or no common name in it. `exchange`: the state
    that the last `Challenge` of this exchange holds.
    """

    client_id: str
    username: str | None
    password: bytes | None
    peer: str
    listener: str
    certificate: str = ""
    version: int = 5
    names_user: bool = False
    exchange: object = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The client may connect.

    `username`: the name by which it gets its rules. `proof`: given to `Policy.still_admits` after a reload;
    if that says no, the client is disconnected. `until_s`: when it is disconnected, in seconds since the Unix
    epoch; None: never. `data`: the last data of enhanced authentication, which CONNACK or AUTH holds.
    `workspace`: the name of the workspace of which it is a client; None: that of its listener.
    """

    username: str | None
    proof: str = ""
    until_s: int | None = None
    data: bytes = b""
    workspace: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The client may not connect. `text`: the reason string, for clients of MQTT 5 that want it."""

    code: Code
    text: str = ""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Enhanced authentication goes on with an AUTH that holds these data (MQTT 5 §4.12).

    `state`: whatever the next step needs; it comes back as `Candidate.exchange`.
    """

    data: bytes
    state: object = None


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
        """The access rules of a client, in order, with the names of its workspace. Clients never write to
        topics that begin with `$`, except for the states of bridges, and of those topics read at most
        `$SYS`."""

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
