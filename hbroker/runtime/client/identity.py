"""The identity of a client: its name, workspace, session and will, from the arguments of `connect`.

A client without session options has a random session id, so several clients may share its name. If a session
is to outlive its run, or `clean_start` is given, the session id follows from the client's name and key
(docs/protocol.md §6.4). Then only one run of the client is connected at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypedDict, cast

from hbroker._native import Credentials, topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import Address
from hbroker.errors import InvalidTopic, PayloadTooLarge
from hbroker.properties import mqtt_properties_of
from hbroker.protocol.sessions.options import LONGEST_EXPIRY_S, SessionOptions, session_id
from hbroker.protocol.wills import client_will
from hbroker.runtime.client.publication import encoded
from hbroker.runtime.credentials import (
    CredentialFiles,
    PathLike,
    client_security,
    credentials_with_token,
    workspace_for,
)
from hbroker.workspace import DEFAULT, Workspace

__all__ = ["Identity", "PoolClientProfile", "Profile", "Will", "random_id"]


@dataclass(frozen=True, slots=True)
class Will:
    """A message that the owner of its topic publishes when the client's session breaks off (docs/protocol.md
    §6.6).

    `delay`: seconds that the owner waits for the client before it publishes; the session's expiry, if that is
    shorter. `expiry_s`: seconds from its publication. The other fields are as in `Client.publish`. Topic,
    payload and properties have some 1,000 bytes in all. Raises InvalidTopic, PayloadTooLarge, ValueError.
    """

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False
    delay: float = 0.0
    expiry_s: int | None = None
    content_type: str = ""
    payload_format: int | None = None
    response_topic: str = ""
    correlation_data: bytes = b""
    user_properties: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        if not topic_is_valid(self.topic):
            raise InvalidTopic(f"not a topic name: {self.topic!r}")
        if self.qos not in (0, 1, 2):
            raise ValueError(f"a QoS is 0, 1 or 2, not {self.qos!r}")
        size = self.message().ByteSize()
        if size > client_will.WILL_ROOM:
            raise PayloadTooLarge(f"a will of {size} bytes: {client_will.WILL_ROOM} are the most")
        _whole_seconds("delay", self.delay)

    def message(self) -> pb.Publish:
        """The will as it is registered, without a message id."""
        return client_will.will_message(
            self.topic,
            encoded(self.payload),
            self.qos,
            retain=self.retain,
            **mqtt_properties_of(self),
        )

    def registered(self) -> client_will.Will:
        """The will and its delay, as the protocol's class."""
        return client_will.Will(self.message(), _whole_seconds("delay", self.delay))


class PoolClientProfile(TypedDict, total=False):
    """The arguments of `ClientPool.connect`.

    - `client_id`: shown to operators; None: a random one.
    - `session_expiry`: seconds for which the subscriptions and their queues live on while no run of the
      client is connected (docs/protocol.md §6.4). It needs a `client_id`.
    - `session_key`: a secret. Whoever knows it and the `client_id` can take the session over.
    - `clean_start`: discards what an earlier run left.
    - `will`: published when the session breaks off (§6.6).
    - `acknowledge`: when a message of QoS 1 or 2 is acknowledged to its owner. `"received"` (the default):
      when this process has it. `"handled"`: when the application asks for the next one. `"explicit"`: when
      the application calls `acknowledge`, in any order. If the process is killed before that, the message
      goes to the session's next run.
    """

    client_id: str | None
    session_expiry: float
    session_key: str | bytes
    clean_start: bool
    will: Will | None
    acknowledge: Literal["received", "handled", "explicit"]


class Profile(PoolClientProfile, total=False):
    """The arguments of `connect`: those of `PoolClientProfile`, and the bounds of what the client takes.

    `max_message_bytes`: the largest payload in both directions; at most 256 MiB. `receive_messages`,
    `receive_bytes`: the credit of each owner (docs/protocol.md §7.7).
    """

    max_message_bytes: int
    receive_messages: int
    receive_bytes: int


@dataclass(frozen=True, slots=True)
class Identity:
    """One client. Its session and its will have the names of the network. `client_id`: as its application
    names it. `session_key`: the key of a named session. `workspace`: whose names its application uses.
    `will`: None: it has none. `acknowledges_handled`: it acknowledges handled messages only.
    `acknowledges_explicitly`: its application says which these are. `credentials`: with which its datagrams
    are sealed; None: they are not. `credential_files`: the files from which they are read again when one
    changes; None: there are none."""

    client_id: str
    session_options: SessionOptions
    session_key: bytes = field(default=b"", repr=False)
    workspace: Workspace = DEFAULT
    will: Will | None = None
    acknowledges_handled: bool = False
    acknowledges_explicitly: bool = False
    max_message_bytes: int = 268_435_456
    receive_messages: int = 4_096
    receive_bytes: int = 8_388_608
    credentials: Credentials | None = None
    credential_files: CredentialFiles | None = None

    def secured(
        self,
        root: Address,
        authority: PathLike | None = None,
        token: PathLike | None = None,
        workspace: str | None = None,
    ) -> Self:
        """The same client, with the credentials for the network with this root, and in its workspace. The
        arguments are as in `hbroker.connect`.

        Raises ConfigError and OSError, if a file is not usable, and what `within` raises.
        """
        security = client_security(root, authority, token)
        client = self.within(workspace_for(security, workspace))
        if not security.is_on:
            return client
        files = CredentialFiles(security)
        return replace(client, credentials=files.read(), credential_files=files)

    def with_token(self, authority: PathLike, token: str) -> Self:
        """The same client of a network whose security is on, with a token of which this is the text, and in
        its workspace. `authority`: as in `hbroker.connect`. Raises as `secured`."""
        credentials, workspace = credentials_with_token(authority, token)
        return replace(self.within(workspace), credentials=credentials)

    def within(self, workspace: Workspace) -> Self:
        """The same client of the default workspace in another one. Raises ValueError for its client id, and
        InvalidTopic and PayloadTooLarge for its will, if the workspace cannot have them."""
        options, will = self.session_options, self.will
        client = workspace.client_name(self.client_id)
        options = replace(options, client=client)
        if options.is_named:
            options = replace(options, session=session_id(client, self.session_key))
        if will is not None:
            topic = workspace.absolute(will.topic)
            if topic is None:
                raise InvalidTopic(f"no workspace has the topic {will.topic!r}: it begins with $")
            will = replace(will, topic=topic)
        return replace(self, session_options=options, workspace=workspace, will=will)

    @classmethod
    def of(
        cls,
        client_id: str | None = None,
        session_expiry: float = 0.0,
        session_key: str | bytes = "",
        clean_start: bool = False,
        will: Will | None = None,
        acknowledge: str = "received",
        **bounds: int,
    ) -> Identity:
        """Checks the arguments of `connect`. The client is in the default workspace. Raises ValueError."""
        if acknowledge not in ("received", "handled", "explicit"):
            raise ValueError(f"acknowledge is 'received', 'handled' or 'explicit', not {acknowledge!r}")
        expiry_s = _whole_seconds("session_expiry", session_expiry)
        key = session_key.encode() if isinstance(session_key, str) else session_key
        if (expiry_s or key or clean_start) and not client_id:
            raise ValueError("a session that is known in another run needs a client_id")
        name = client_id or f"client-{os.urandom(4).hex()}"
        session_options = SessionOptions(name, random_id(), expiry_s, clean_start)
        client = cls(
            name,
            session_options,
            key,
            will=will,
            acknowledges_handled=acknowledge != "received",
            acknowledges_explicitly=acknowledge == "explicit",
            **cast(Any, bounds),
        )
        return client.within(DEFAULT)


def random_id() -> int:
    """64 random bits, never 0."""
    return int.from_bytes(os.urandom(8), "big") or 1


def _whole_seconds(name: str, seconds: float) -> int:
    """Rounds up, so the result is never less than the argument. Infinity becomes the largest expiry."""
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{name} is a number of seconds, not {seconds!r}")
    return LONGEST_EXPIRY_S if seconds >= LONGEST_EXPIRY_S else math.ceil(seconds)
