"""The errors of hbroker, by whose fault they are.

    HBrokerError
        LocalError              the caller is at fault, or this process has failed
            InvalidTopic        a topic name or filter that MQTT 5 §4.7 does not allow
            PayloadTooLarge     over 256 MiB, or the properties do not fit a datagram
            NotConnected        the client is closed, or its socket has failed
            Backpressure        the queue or the credit is full: try again later
        RemoteError             the peer is at fault or has refused; it carries the reason code
            Refused             a node refused a request
            SessionTakenOver    another run of the client has its session now
            Unreachable         no answer arrived before the deadline
        ConfigError             one error of a file or a flag, with file, line and remedy
        ConfigErrors            all errors of one file

Bad input from the network raises none of them: hbroker counts it and discards it.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "Backpressure",
    "ConfigError",
    "ConfigErrors",
    "HBrokerError",
    "InvalidTopic",
    "LocalError",
    "NotConnected",
    "PayloadTooLarge",
    "Refused",
    "RemoteError",
    "SessionTakenOver",
    "Unreachable",
]


class HBrokerError(Exception):
    """Any error of hbroker."""


class LocalError(HBrokerError):
    """The caller is at fault, or this process has failed."""


class InvalidTopic(LocalError):
    """The topic name or filter is not valid (docs/protocol.md §7.1)."""


class PayloadTooLarge(LocalError):
    """The payload is over 256 MiB, or the properties leave no room in a datagram (docs/protocol.md §7.5,
    §9)."""


class NotConnected(LocalError):
    """The client is closed, or its socket has failed."""


class Backpressure(LocalError):
    """The queue, or the credit at an owner, is full (docs/protocol.md §7.7). Nothing was sent: try again
    later."""


class RemoteError(HBrokerError):
    """The peer is at fault, or has refused.

    `reason` is a `Reason` of the protocol (docs/protocol.md §8).
    """

    def __init__(self, message: str, reason: int) -> None:
        super().__init__(message)
        self.reason = reason


class Refused(RemoteError):
    """A node refused a request. `reason` is the node's reason."""


class SessionTakenOver(RemoteError):
    """Another run of this client, with the same name and key, has its session now (docs/protocol.md §6.4)."""


class Unreachable(RemoteError):
    """No answer arrived before the deadline."""


class ConfigError(HBrokerError):
    """An error of a file or a flag.

    `file` and `line` (from 1) give the place; `line` None: the whole file, or a flag. `remedy` says what to
    do.
    """

    def __init__(self, message: str, *, file: str, line: int | None = None, remedy: str) -> None:
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {message}; {remedy}")
        self.message = message
        self.file = file
        self.line = line
        self.remedy = remedy


class ConfigErrors(HBrokerError):
    """All errors of one file, in the order of their lines; at least one."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
