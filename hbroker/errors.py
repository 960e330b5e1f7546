"""The errors of hbroker: each says who is at fault.

HBrokerError
    LocalError                  the caller erred, or this process cannot go on
        InvalidTopic            a topic name or filter that MQTT 5 §4.7 does not allow
        PayloadTooLarge
        NotConnected            the client was closed, or its socket failed
        Backpressure            queue or credit is full: try again later
    RemoteError                 the peer erred or refused; carries its reason code
        Refused                 a node refused a request
        SessionTakenOver        another run of the client has its session now
        Unreachable             no answer within the deadline
    ConfigError                 a file or a flag is wrong: names file, line and remedy
    ConfigErrors                all that is wrong with one file
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
    """The caller erred."""


class InvalidTopic(LocalError):
    """A topic name or filter that is not valid (docs/protocol.md §7.1)."""


class PayloadTooLarge(LocalError):
    """A payload over 256 MiB, or properties that leave no room in a datagram (docs/protocol.md §7.5, §9)."""


class NotConnected(LocalError):
    """The client is closed, or its socket failed."""


class Backpressure(LocalError):
    """The queue or the credit towards an owner is full. Nothing was sent: try again later."""


class RemoteError(HBrokerError):
    """The peer erred or refused.

    `reason` is a `Reason` of the wire protocol (docs/protocol.md §8).
    """

    def __init__(self, message: str, reason: int) -> None:
        super().__init__(message)
        self.reason = reason


class Refused(RemoteError):
    """A node refused a request, for `reason`."""


class SessionTakenOver(RemoteError):
    """Another run of this client, with its name and its key, has its session now (docs/protocol.md §6.4)."""


class Unreachable(RemoteError):
    """No answer came within the deadline."""


class ConfigError(HBrokerError):
    """A file or a flag is wrong.

    `file` and `line` (from 1; None: the file as a whole, or a flag) say where, `remedy` what to do.
    """

    def __init__(self, message: str, *, file: str, line: int | None, remedy: str) -> None:
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {message}; {remedy}")
        self.message = message
        self.file = file
        self.line = line
        self.remedy = remedy


class ConfigErrors(HBrokerError):
    """All that is wrong with one file, in the order of its lines. Never empty."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
