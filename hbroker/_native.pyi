"""The native core: it handles every message. (Python makes every decision, in `hbroker.protocol`.)

A time is an `int` of microseconds since the Unix epoch that never goes back, and always an argument. An
address is `(ip, port)`, with the ip as text. A packet is a serialised `hbroker.v1.Packet`. A link is an
opaque `int`. Sections (§) are those of docs/protocol.md.

`Engine` is sans-IO: the simulator and the tests run it in virtual time. `Endpoint` runs one engine in each of
N threads, with a real socket. It has the same methods, without the four that the driver of an engine calls
(`handle_datagram`, `handle_timeout`, `poll_transmit`, `poll_timeout`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, Unpack, final

from typing_extensions import disjoint_base

from hbroker.properties import CoreProperties

_Address: TypeAlias = tuple[str, int]
# A delegation, as the `Cut` of the wire protocol: (subtree, node, address, epoch).
_Cut: TypeAlias = tuple[str, str, _Address, int]

VERSION: Final[str]

class NativeError(Exception):
    """The caller made an error, and the text says which. (Bad input from the network is dropped and counted,
    never raised.)"""

@final
class Credentials:
    """What an end proves itself with in handshakes, and whom it believes (ADR 35).

    - `authorities`: the certificates of the network's authorities, as DER. There are several while one is
      replaced.
    - `identity`: a chain of certificates, the end's own first, and its private key (PKCS #8), all as DER. A
      node has one. Without it the end proves nothing, and answers no handshakes.
    - `key_log`: the file to which the secrets of associations are appended (`hbroker.runtime.key_log`).
    - `token`: with which a client shows nodes what it may do; None: it has none. A node needs none.

    Raises NativeError: a certificate or the key is not valid, or the token has more than 4,096 bytes. Raises
    OSError: the file cannot be opened.
    """

    def __new__(
        cls,
        authorities: Sequence[bytes],
        identity: tuple[Sequence[bytes], bytes] | None = None,
        key_log: str | None = None,
        token: bytes | None = None,
    ) -> Credentials: ...

@final
class Config:
    """The identity of an engine, and its limits.

    - `session`: the session id of the links that it opens, 64 random bits. `incarnation`: random for each
      run.
    - `token_keys`: 16-byte keys of the address tokens, the newest first (§4). Nodes with the same keys accept
      each other's tokens.
    - `node`: true for a node, which forwards messages; false for a client, which passes them to its
      application.
    - `max_links`, `max_links_of_host`: the limit for links that others open and sessions without a link, in
      all and for one IPv4 address or IPv6 network of 64 bits.
    - `queue_messages`, `queue_bytes`: how much may be queued for one session (§7.8).
    - `spool_bytes`: if a subtree comes with more bytes in queues, they go to the store while it comes (§5.4).
    - `max_message_bytes`: the largest payload in both directions, at most 256 MiB; `reassembly_bytes`, which
      is at least as much: how much memory a client uses for messages with missing fragments (§7.5).
    - `receive_messages`, `receive_bytes`: the credit that a client gives one owner: how much it takes without
      having acknowledged it (§7.7).
    - `for_many`: it publishes for many clients, and one of them must not delay the others (§7.7).
    - `persistent`: the client's session outlives its links, so messages that match no `listen` yet are queued
      for one (§6.4).
    - `named`: other runs of the client have the same id, as every persistent session has (§3.6).
    - `hold`: messages of QoS 1 and 2 are acknowledged when `handled` is called, and not when they are read.
    - `telemetry`: a node or a gateway counts by topic, for `take_load`.
    - `workspace`: the name of the workspace in whose names its application publishes and receives messages;
      empty: the default one, and both names are the same.
    - `workspace_rates`: how many messages a node takes in a second on the topics of a workspace, by its name.
    - `credentials`: with which all its datagrams are sealed (ADR 35); None: security is off, and nothing is
      sealed.
    - `traces`: messages with a sampled `traceparent` have spans, for `take_spans`.
    """

    def __new__(
        cls,
        *,
        node: bool,
        session: int,
        incarnation: int,
        token_keys: Sequence[bytes],
        seed: int,
        max_links: int = 1_000_000,
        max_links_of_host: int = 1_000_000,
        link_queue_bytes: int = 16_777_216,
        max_message_bytes: int = 268_435_456,
        reassembly_bytes: int = 536_870_912,
        persistent: bool = False,
        named: bool = False,
        hold: bool = False,
        receive_messages: int = 4_096,
        receive_bytes: int = 8_388_608,
        for_many: bool = False,
        queue_messages: int = 10_000,
        queue_bytes: int = 16_777_216,
        spool_bytes: int = 4_194_304,
        telemetry: bool = False,
        credentials: Credentials | None = None,
        requires_tokens: bool = False,
        workspace: str = "",
        workspace_rates: Sequence[tuple[str, int]] = ...,
        traces: bool = False,
    ) -> Config: ...
    @property
    def publisher(self) -> int:
        """The publisher id of its messages: that of this session and this run (§7.9)."""
    def take_spans(self) -> tuple[list[Span], int]:
        """The spans since the last call, and how many were dropped because there were too many."""

# Events -------------------------------------------------------------------------------------------------------------
# poll_events() returns a list of these frozen classes. Those that control logic reads have a constructor, for
# its tests.

@final
class ControlEvent:
    """A packet for Python to decide on. `link` is None outside of a session; then the source's address is
    validated."""

    def __new__(
        cls, link: int | None, source: _Address, packet: bytes, inbound: bool, rights: int = 0
    ) -> ControlEvent: ...

    link: int | None
    source: _Address
    packet: bytes
    inbound: bool
    """The peer (a client, a child) opened the link, not this engine (towards an owner, a parent)."""
    rights: int
    """The key of the sender's rights (`Rights.key`); 0: a node, or no tokens are required."""

@final
class RightsRequestedEvent:
    """Node: a client has sent its token, empty if it has none. Its datagrams are kept until `set_rights`."""

    def __new__(cls, association: int, source: _Address, token: bytes) -> RightsRequestedEvent: ...

    association: int
    source: _Address
    token: bytes

@final
class SessionClaimedEvent:
    """Node: a client with these rights wants to go on with a session whose client had others. It may not until
    `allow_session`."""

    def __new__(cls, session: int, source: _Address, rights: int) -> SessionClaimedEvent: ...

    session: int
    source: _Address
    rights: int

@final
class RightsChangedEvent:
    """The peer of a link has other rights than before. `rights`: as in `ControlEvent`."""

    def __new__(cls, link: int, session: int, rights: int) -> RightsChangedEvent: ...

    link: int
    session: int
    rights: int

@final
class LinkUpEvent:
    """A link has its first acknowledgement, or its first datagram from a validated address."""

    def __new__(
        cls, link: int, address: _Address, session: int, inbound: bool, rights: int = 0
    ) -> LinkUpEvent: ...

    link: int
    address: _Address
    session: int
    inbound: bool
    rights: int
    """As in `ControlEvent`."""

@final
class LinkDownEvent:
    """A link has ended. Its session has ended with it, or is offline if it is persistent.

    `reason`: "timeout", "reset", "refused" (the peer has too many links), "restarted", "taken_over" (by
    another run of its peer), "closed".
    """

    def __new__(
        cls, link: int, address: _Address, session: int, inbound: bool, reason: str
    ) -> LinkDownEvent: ...

    link: int
    address: _Address
    session: int
    inbound: bool
    reason: str

@final
class OverflowEvent:
    """Node: a session ended because its queue overflowed, and its subscription asked for that (§7.8).

    The session and its subscriptions are gone. Its link, if it has one, is still open, so that the client can
    receive QUOTA_EXCEEDED.
    """

    def __new__(cls, session: int, link: int | None) -> OverflowEvent: ...

    session: int
    link: int | None

@final
class UnresolvedEvent:
    """Client: no cached zone covers the topic of a queued message. Answer with `install_zone` or `reject`.

    `start`: the deepest node that is known to be above the owner; None: the root.
    """

    def __new__(cls, topic: str, start: _Address | None) -> UnresolvedEvent: ...

    topic: str
    start: _Address | None

@final
class Message:
    """Client: a message for one or more of its subscriptions. Reading it from `poll_messages` acknowledges
    it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    """As MQTT 5 §3.3.1.3 defines: `retained`, or published so and a subscription asked for
    `retain_as_published`."""
    retained: bool
    """Sent as a retained message because a subscription was made."""
    publisher: int
    sequence: int
    copy_id: tuple[int, int]
    """Identifies this copy for `handled` and `give_back`. A client may receive a message once for a shared
    subscription and once for others."""
    published_at_us: int
    expiry_s: int | None
    content_type: str
    payload_format: int | None
    response_topic: str
    correlation_data: bytes
    user_properties: list[tuple[str, str]]
    origin: int
    """The MQTT client that published it through the publisher; 0: none."""
    subscriptions: list[int]
    """The listeners that it is for: all that match, or, if it is `retained`, the one that asked for it
    (§7.6)."""

@final
class PublishedEvent:
    """Client: the result of publishing messages of QoS 1 or 2 (`reason` is a `Reason` of the wire
    protocol)."""

    def __new__(cls, sequence: int, topic: str, reason: int, count: int) -> PublishedEvent: ...

    sequence: int
    """The sequence number of the first message."""
    topic: str
    reason: int
    count: int
    """The number of messages. Their sequence numbers are consecutive."""

_Event: TypeAlias = (
    ControlEvent
    | RightsRequestedEvent
    | RightsChangedEvent
    | SessionClaimedEvent
    | LinkUpEvent
    | LinkDownEvent
    | OverflowEvent
    | UnresolvedEvent
    | PublishedEvent
)

@final
class SessionStatus:
    """The status of a session at a node (§7.8).

    `accepted` is exactly `delivered` + `expired` + `dropped` (by reason) + `queued`. `delivered`:
    acknowledged by a PUBACK, or at QoS 0 put into a datagram. `queued`: messages that are queued or in
    flight, and `queued_bytes` their size (both without QoS 0). `has_backlog`: some of them are only in the
    store, and the PUBACK of another one does not wait for the subscriber.
    """

    session: int
    connected: bool
    stalled: bool
    has_backlog: bool
    accepted: int
    delivered: int
    expired: int
    queued: int
    queued_bytes: int
    dropped: dict[str, int]

@final
class Span:
    """A part of the life of a message that has a sampled `traceparent` (docs/traces.md).

    - `kind`: `gateway` (from its client until the network has answered), `owner` (until it was acknowledged),
      `delivery` (until a copy was sent to a subscriber, at `peer`), `client` (at a gateway: until it was
      written to its client).
    - `trace`, `parent`: the 16 bytes of the trace and the 8 bytes of the publisher's span.
    - `publisher`, `sequence`: of the message (§7.9). `is_from_gateway`: a gateway has sent it to its owner.
    - `started`, `ended`: microseconds, by the clock of the core.
    """

    kind: str
    trace: bytes
    parent: bytes
    publisher: int
    sequence: int
    topic: str
    qos: int
    is_from_gateway: bool
    started: int
    ended: int
    peer: str | None

@final
class Load:
    """What passed in an interval, and the gauges at its end (docs/telemetry.md).

    - `counters`: those of the core since its start; they only rise.
    - `gauges`: `workers`, `sessions`, `subscriptions`, `publishers` (nodes), `connections` (gateways),
      `queued_messages`, `queued_bytes`.
    - Topics are columns. `names`: the topic names end to end in UTF-8. `offsets`: the offset of each name and
      the end of the last (32 bits each, in the byte order of this machine). `numbers`: messages in, bytes in,
      messages out, bytes out, and messages in and out again, in which a large message counts once instead of
      once for each fragment (64 bits each).
    - `rest`: these six numbers for topics beyond the 10,000 of an interval.
    - `bytes_in`, `bytes_out`, `whole_in`, `whole_out`: the sums over all topics.
    - `latency`: 96 counts; bucket i is from 2^(i/4) to 2^((i+1)/4) µs. `sampled`: one in this many messages
      was timed.
    """

    counters: dict[str, int]
    gauges: dict[str, int]
    names: bytes
    offsets: bytes
    numbers: list[bytes]
    rest: tuple[int, int, int, int, int, int]
    bytes_in: int
    bytes_out: int
    whole_in: int
    whole_out: int
    latency: list[int]
    sampled: int

class _Core:
    """The methods that `Engine`, `Endpoint`, and every client of a pool or a load have."""

    # Out
    def poll_events(self, limit: int = 1024) -> list[_Event]: ...
    def poll_messages(self, limit: int = 1024) -> list[Message]: ...
    def counters(self) -> dict[str, int]:
        """Counters and gauges by name, summed over the workers.

        Counters only rise: `datagrams_in`, `datagrams_out`, `bytes_in`, `bytes_out`, `messages_in`,
        `messages_out`, `datagrams_lost` (numbered ones, by §3.2), `retransmits` (reliable packets that were
        sent again), and `drop.<reason>` for what was dropped. For messages to sessions: `accepted`,
        `delivered`, `expired` (as in `SessionStatus`).

        Gauges: `links`, `sessions` (links that peers opened), `sessions_offline` (offline sessions),
        `publishers` (links on which a message was received), `queued_messages` (for sessions), `queued_bytes`
        (on links and in the queues of sessions), `inflight` (messages that are not acknowledged yet),
        `waiting` (messages and fragments of a client that wait until their owner is known or grants credit),
        `subscriptions`, `retained`, `replays` (subscriptions for which retained messages are still to be
        sent).

        Only an `Endpoint` has `socket.*` and some drops.
        """

    def take_load(self) -> Load | None:
        """Node: what passed since the last call, also after `shutdown`. The counters of messages agree with
        the sums over the topics. None without `telemetry`.

        No worker waits longer than it takes to exchange its table for an empty one.
        """

    # Links and control packets
    def connect(self, address: _Address, token: bytes = b"") -> int:
        """Opens a link to a node, or returns the one that is open."""
    def adopt(self, session: int, address: _Address, rights: int = 0) -> int:
        """Node: opens the link of a session that another node handed over (§5.4), or returns the one that is
        open. `rights`: the key of the client's rights; datagrams on the link go only to somebody with these.
        """
    def is_half_open(self, link: int) -> bool:
        """Whether the peer has never answered on the link: it opened the link and has acknowledged nothing
        since, or the link was opened here for an earlier handover."""
    def prioritise(self, link: int) -> None:
        """Node: the link is a child's. Its events wait only for those of other nodes, and never for a
        client's flood (§3.3)."""
    def will_publisher(self, link: int) -> int:
        """The publisher id for wills of the client at the other end of the link (§7.9); 0: there is no such
        link, or its peer has sent nothing."""
    def peer_of(self, link: int) -> _Address | None:
        """The current address of a link's peer (§4.4); None: there is no such link."""
    def certificate(self, peer: _Address) -> bytes | None:
        """The certificate with which the peer at an address proved itself, as DER. None: it has not."""
    def has_association(self, association: int) -> bool:
        """Node: whether there is an association with this id (`RightsRequestedEvent`)."""
    def set_rights(
        self, association: int, key: int, blocks: Sequence[tuple[Sequence[str], bool]], is_empty: bool
    ) -> bool:
        """Node: from now on the client at the other end of an association has these rights.

        Answers `RightsRequestedEvent`, and may be called again. `key`: `Rights.key`; datagrams for other
        rights do not go through this association. `blocks`: the topic filters with which each block of the
        token lets it publish, and whether also retained messages; a message needs a right in each block.
        `is_empty`: it may neither read nor write anything, and gets no session.
        Returns False if the association has ended. Raises NativeError: the key is 0.
        """
    def close(self, link: int) -> None:
        """Closes a link, with its queue and its subscriptions. LinkDownEvent follows (reason "closed")."""
    def send(self, link: int, packet: bytes) -> bool:
        """Queues a control packet: reliable, in order, once. False: there is no such link, or no room."""
    def send_to(
        self, address: _Address, packet: bytes, token: bytes = b"", pad_to: int = 0, rights: int = 0
    ) -> None:
        """Sends one datagram outside of any session, padded to at least `pad_to` bytes. Unreliable. `rights`:
        the key of those of who is meant; 0: a node, or a client where no tokens are required."""
    def token_for(self, address: _Address) -> bytes:
        """An address token for `address` (§4.2)."""

    # Node: jurisdiction and subscriptions
    def grant(
        self,
        subtree: str,
        epoch: int,
        serving: bool,
        until_us: int | None = None,
        *,
        reserved: bool = False,
        recovering: bool = False,
    ) -> None:
        """Grants this subtree (a node may own several). `serving` false: PUBLISH is refused with HANDOVER.

        - `until_us`: from this time on, PUBLISH is refused with NOT_RESPONSIBLE (§5.6), whether or not Python
          runs. A grant with a later time renews the lease. None: the lease does not end.
        - `reserved`: a client's PUBLISH is refused with NOT_AUTHORIZED, at every QoS; only `publish` here
          writes to it (§7.2).
        - `recovering`: recovery. Subscribers are on their way back, and PUBLISH at QoS 1 and 2 is refused with
          HANDOVER meanwhile (§5.8).
        """
    def revoke(self, subtree: str) -> None: ...
    def cut(self, cut: _Cut) -> None:
        """Delegates a subtree: PUBLISH below it is refused with NOT_RESPONSIBLE and this cut. It replaces the
        last cut of the subtree."""
    def uncut(self, subtree: str) -> None: ...
    def open_session(
        self,
        session: int,
        *,
        persistent: bool,
        queue_messages: int = 0,
        queue_bytes: int = 0,
        rights: int = 0,
    ) -> bool:
        """Opens the session in which a client subscribes here, or changes it (§6.4). The client's links, now
        or later, belong to the session.

        `queue_messages`, `queue_bytes`: the limits of its queue. 0, or more than the node's own limit, means
        the node's own. `rights`: the key of those of its client, if it has no link here.

        A session that is not persistent ends with its link, by itself. False: there are too many sessions, or
        it is not persistent and has no link.
        """
    def allow_session(self, session: int, rights: int) -> None:
        """A client with the rights of this key may go on with a session (`SessionClaimedEvent`)."""
    def refuse_session(self, session: int, client: _Address, rights: int) -> None:
        """It may not, and is told so (RESET with NOT_AUTHORIZED)."""
    def end_session(self, session: int, reason: str = "session_ended") -> None:
        """Ends the session, with its queue and its subscriptions. Its link stays open.

        `reason`: the counter for its messages, "session_ended" or "session_expired".
        """
    def restore_queue(self, session: int) -> int:
        """Gives a session, which must be open, the messages that an earlier run has stored for it. Returns how
        many they are. Raises OSError. Has no effect after `run_store`."""
    def submit_stored(self) -> int:
        """Gives the store all records that have gathered. Returns the number of the last submission; 0: there
        is no store."""
    def stored(self) -> int:
        """The number of the last submission that is stored; 0: there is none."""
    @property
    def store_fault(self) -> tuple[bool, str] | None:
        """Why the store stores nothing now, and whether that is for good; None: it works."""
    def take_store_damage(self) -> list[str]:
        """A line for each piece of damage that was found in the store since the last call."""
    def sessions(self, most: int) -> list[SessionStatus]:
        """The status of at most `most` sessions, those with the most queued bytes first."""
    def subscribe(
        self,
        session: int,
        filter: str,
        qos: int,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        group: str = "",
        overflow: int = 0,
    ) -> bool:
        """Adds a subscription, or replaces its options. False: it existed already, or the session is not
        open.

        `group`: the shared group of which the session is a member (§6.5). `overflow`: an `Overflow` of the
        wire protocol.

        An `Endpoint` returns once every worker has the subscription.
        """
    def unsubscribe(self, session: int, filter: str, group: str = "") -> bool: ...
    def send_retained(
        self, session: int, filter: str, qos: int, listener: int, subtree: str = "", first: str = ""
    ) -> bool:
        """Begins to send the matching retained messages, for one of the client's listeners, or (0) for all
        (§7.6).

        `subtree`, `first`: only those in the subtree, and not before this topic. False: it does not, because
        too many sessions wait for theirs, or this session for too many.
        """
    def replays(self, subtree: str) -> list[tuple[int, str, int, int, str]]:
        """What is still to be sent of a subtree: (session, filter, qos, listener, first), as `send_retained`
        takes it, for a handover."""
    def retained(self, subtree: str, excluded: Sequence[str]) -> list[bytes]:
        """The retained messages at and below a subtree, each a serialised Publish, for a handover.

        `excluded`, here and below: smaller subtrees within it whose messages are left out.
        """
    def take_retained(self, messages: Sequence[bytes]) -> int:
        """Stores retained messages. Returns for how many there was no room."""
    def drop_retained(self, subtree: str, excluded: Sequence[str]) -> None: ...
    def drain_subtree(self, subtree: str, excluded: Sequence[str]) -> int:
        """How many messages at and below the subtree are open: those of QoS 1 or 2 whose publishers wait for
        the PUBACK, and others that connected subscribers have not acknowledged, which the next owner would
        send again.

        Called before `finish_export`, until it is 0, or for as long as the handover may wait.
        """
    def raise_barrier(self, subtree: str) -> int:
        """Sends a barrier from each worker to each other, behind all messages between them. Returns its
        number.

        `subtree`: one that is not served any more. Until it is exported, or served again, the messages that
        its ended sessions leave to other members of a shared group stay where they are.
        """
    def has_passed(self, barrier: int) -> bool:
        """Whether all that was on its way between the workers before this barrier has arrived. With one
        worker always.

        A message that was acknowledged as queued (`ACK_MODE_QUEUED`) and is on its way between workers is not
        seen by `finish_export`. So a barrier that was sent after the subtree was cut must pass first.
        """
    def begin_export(self, subtree: str, excluded: Sequence[str], before: int = 0) -> int:
        """Begins to copy the sessions' queues in a subtree that is to move (§5.4), and that is served
        meanwhile. Returns the number of the export.

        `excluded`: the subtrees within it that stay. `before`: the number of records that are held from an
        earlier export or import; they move along, are sent first, and belong to this export from now on.
        """
    def copy_export(self, export: int, excluded: Sequence[str]) -> tuple[list[bytes], bool]:
        """Copies the next step, of bounded size: serialised Transfers with `queued` and `gone`, each for one
        packet. Messages that publishers wait for are left out. No Transfers and False: the store is reading
        the next messages.

        True: little is left to copy, or more than twice the bytes that were queued at the beginning have been
        copied. Then the node should stop serving. If `excluded` has changed, all copies are void, and copying
        begins again.
        """
    def has_uncopied(self, export: int, excluded: Sequence[str]) -> bool:
        """Whether messages that move are still to be copied by `copy_export`: those that only the store has,
        and those that were held before.

        The first call, and the first one after a change of `excluded`, determines which messages these are.
        From then on no message of the subtree may be accepted.
        """
    def stop_export(self, export: int) -> int:
        """Cancels the export: the subtree stays. Returns the number under which earlier records are still
        held; 0: there are none."""
    def finish_export(self, export: int, excluded: Sequence[str]) -> list[bytes]:
        """Takes out what moves with a subtree that is not served any more: messages that are queued for
        sessions, or in flight to them, and that no publisher would send again. They leave the sessions'
        counters as `moved`, and are held under the number of the export. Open messages are refused with
        HANDOVER, and with the cut that contains their topic.

        Returns the difference to what was copied, and the records of seen messages, in the form of
        `copy_export`. If no session has messages of other subtrees queued, this costs only as much as the
        difference.
        """
    def begin_import(self) -> int:
        """Begins an import. Returns its number."""
    def take_records(self, held: int, transfer: bytes) -> int:
        """Holds the `queued`, `gone` and `seen` records of a serialised Transfer. Returns for how many
        messages there was no room.

        An invalid record is dropped and counted (`invalid_record`).
        """
    def install(self, held: int) -> int:
        """Moves what is held into its sessions, which must be open, before the subtree is served. Returns for
        how many messages there was no room.

        Messages for a session that is not open are dropped and counted (`invalid_record`).
        """
    def drop_held(self, held: int) -> None:
        """Drops what is held under this number. 0: nothing."""
    def publish_raw(self, publish: bytes) -> int:
        """Node: publishes a client's message, a serialised Publish, in its name and with its id (wills,
        §6.6).

        Returns the reason (§8) that its publisher would receive: SUCCESS; QUOTA_EXCEEDED if there is no room
        now; another one if it is no valid message, or this node does not serve its topic.
        """
    def matching(self, topic: str) -> int:
        """How many subscriptions match a topic."""

    # Client: zones, publishing, delivery
    def install_zone(
        self, scope: str, cuts: Sequence[_Cut], owner: _Address, token: bytes, ttl_us: int
    ) -> None:
        """Caches a zone, and releases the messages that waited for it."""
    def forget_zones(self, owner: _Address | None = None) -> None: ...
    def zone(self, topic: str) -> tuple[_Address, bool] | None:
        """(owner, True), or (the node of the deepest known cut, False), or None: ask the root."""
    def reject(self, topic: str, reason: int) -> None:
        """Fails the messages that wait for this topic's owner (PublishedEvent), or drops them (QoS 0)."""
    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        **properties: Unpack[CoreProperties],
    ) -> int | None:
        """Queues a message. Returns its sequence number, or None if the queue is full (try again).

        A client keeps a large payload, without a copy, until its last fragment is built. A node publishes to
        its own jurisdiction. Raises NativeError for an invalid topic, and for a payload or properties that
        are too large.
        """
    def publish_many(
        self,
        messages: Sequence[tuple[str, bytes]],
        qos: int = 0,
        retain: bool = False,
        **properties: Unpack[CoreProperties],
    ) -> list[int]:
        """Queues messages, (topic, payload), in order, up to the first that cannot be queued. Returns the
        sequence numbers of those before it.

        The list is empty if the queue is full. Raises NativeError, as `publish`, if the first message is
        invalid.
        """
    def listen(
        self, subscription: int, filter: str, qos: int, retain_as_published: bool = False, group: str = ""
    ) -> None:
        """Client: passes matching messages to this subscription, at most at this QoS. In a persistent session
        these include messages that have waited for a `listen`, for up to 30 s.

        Without `retain_as_published`, `Message.retain` is the publisher's flag only if another subscription
        asked for it (§7.6). `group`: of a shared subscription, which receives only what owners send for it
        (§6.5).
        """
    def unlisten(self, subscription: int, gives_back: bool = False) -> None:
        """Client: passes no more messages to this listener. `gives_back`: the unread messages for it alone
        are given back, as by `give_back`."""
    def set_leaving(self, is_leaving: bool) -> None:
        """Client: whether it is leaving a shared group. Meanwhile it does not acknowledge messages without a
        listener (§6.5)."""
    def handled(self, messages: Sequence[tuple[int, int]]) -> None:
        """Client with `hold`: the application has handled these messages, by (publisher, sequence). They are
        acknowledged."""
    def give_back(self, messages: Sequence[tuple[int, int]]) -> None:
        """Client with `hold`: the application will not handle these messages, by (publisher, sequence), of a
        shared group that it is leaving. They are not acknowledged before the owner has had the opportunity to
        send them to another member (§6.5)."""

@final
class Engine(_Core):
    def __new__(cls, config: Config) -> Engine: ...
    # Every method of _Core acts at the time that one of these was last called with:
    def handle_datagram(self, now: int, source: _Address, datagram: bytes) -> None: ...
    def handle_timeout(self, now: int) -> None: ...
    def poll_transmit(self) -> list[tuple[_Address, bytes]]:
        """All datagrams that may leave now. This call also builds them."""
    def poll_timeout(self) -> int | None:
        """When to call handle_timeout next."""
    def open_store(self, disk: StoreDisk) -> tuple[list[str], int]:
        """As `Endpoint.open_store`, on the disk of a simulated node. Raises OSError."""
    def run_store(self) -> None:
        """As `Endpoint.run_store`, without a thread: `turn_store` does its work."""
    def turn_store(self) -> None:
        """Stores what was submitted until now, and reads what was requested."""
    def awaits_store(self) -> bool:
        """Whether something was submitted or requested since."""
    def owns(self, now: int, topic: str) -> bool:
        """Whether a PUBLISH to this topic would be accepted at `now` (§7.2). The call changes nothing, not
        even the time."""

@final
class StoreDisk:
    """The disk of a simulated node, for the stores of all its runs."""

    def __new__(cls) -> StoreDisk: ...
    def lose_power(self, seed: int) -> None:
        """Of what was not synced, the seed says what is on the disk."""
    def flip(self, seed: int) -> bool:
        """Flips a bit that was synced. Returns whether there is one."""
    def fail_to_sync(self, fails: bool) -> None:
        """All syncs fail from now on, or until power is lost; or none does."""
    def set_space(self, space: int | None) -> None:
        """From now on all files together may have this many bytes; None: as many as they like."""

@final
class Endpoint(_Core):
    def __new__(
        cls, config: Config, listen: _Address, workers: int = 1, inherited: list[int] = ...
    ) -> Endpoint:
        """Binds (port 0: any free port) and starts the threads. Raises OSError.

        `inherited`: descriptors of UDP sockets of an earlier process, bound to one address, one for each worker.
        They are used in place of new ones. They are duplicated, and stay the caller's.
        """
    @property
    def address(self) -> _Address: ...
    @property
    def descriptors(self) -> list[int]:
        """The descriptors of the sockets, one of each worker, until `shutdown`. Only to duplicate them."""
    def set_credentials(self, credentials: Credentials) -> None:
        """From now on handshakes use these. Peers stay connected. Raises NativeError: security is off."""
    @property
    def unix_offset_us(self) -> int:
        """The microseconds since the Unix epoch minus those of `hbroker.runtime.control_loop.clock`, as both
        were at the start (§5.6)."""
    @property
    def fault(self) -> str | None:
        """Why a worker ended by itself, if one has: its socket failed. Shut the endpoint down."""
    def fileno(self) -> int:
        """Readable when there are events or messages to poll."""
    def wait(self, timeout_s: float) -> bool:
        """Blocks, without the GIL, until there are events or messages. False: the time is over."""
    def gather(self, gathers: bool) -> None:
        """Whether the effects of calls (datagrams to send) may wait for more calls. It is meant for a caller
        that calls often.

        False: the effects happen now. They wait for at most 128 calls.
        """
    def drain(self, timeout_s: float) -> bool:
        """Blocks until everything that is queued was sent and, if it is reliable, acknowledged."""
    def reset_peers(self) -> None:
        """Takes no more datagrams, and tells all peers that opened links that these are gone (§3.6). They begin
        anew at once, and what they send waits in the sockets for the next process, which has inherited them.
        """
    def shutdown(self) -> None:
        """Stops the threads, closes the sockets, and stores what was given to the store. Idempotent."""
    def open_store(self, folder: str, syncs: bool, most_bytes: int) -> tuple[list[str], int]:
        """Opens the store in a folder, or makes it. From then on messages for sessions that are not connected
        are given to it, and their PUBACKs wait until they are stored.

        `syncs`: a message counts as stored once it would survive a loss of power, not once it is written.
        `most_bytes`: with more bytes in the log, no message is taken over that has to be stored.
        Returns a line for each piece of damage that was found, and the bytes that were cut off at the end of the
        log: what the earlier run was writing when it ended. Raises OSError.
        """
    def run_store(self) -> None:
        """Drops what is stored for other sessions than those restored, and begins to store. Raises OSError."""

@final
class LoadGenerator:
    """The publishers and subscribers of a load, all driven by one thread (docs/benchmarks.md)."""

    def __new__(
        cls,
        *,
        groups: list[tuple[int, int | None, float | None]],
        subscribers: list[tuple[int, int]],
        payload: int,
        qos: int,
        topics: int = 1,
        polls: bool = False,
        tls: tuple[bytes, str] | None = None,
    ) -> LoadGenerator:
        """Starts the thread. Raises NativeError for an invalid load, OSError (also for invalid authorities or
        host).

        - `groups`: for each, the number of publishers, how many messages each may have in flight (None: any
          number), and how many messages a second all of them send (None: as fast as they may).
        - `subscribers`: for each, the first publisher whose messages it receives, and how many publishers.
        - `payload`: in bytes; at least 16.
        - `topics`: the number of topics of each publisher, which it uses in rotation.
        - `polls`: the thread never sleeps.
        - `tls`: TLS for connections over TCP: the authorities (PEM) that sign brokers' certificates, and the
          host in them.
        """
    def add_client(
        self,
        config: Config,
        listen: _Address,
        *,
        topics: list[str] = ...,
        publishes: int | None = None,
        subscribes: int | None = None,
    ) -> LoadClient:
        """Adds a client of hbroker's own protocol: with the number of its publisher, of its subscriber, or
        both.

        `topics`: those that it publishes to, if it publishes. Its control must find the owner, and subscribe.
        Raises NativeError, OSError.
        """
    def add_client_pool(self, config: Config, listen: _Address) -> LoadClientPool:
        """Adds subscribers of hbroker's own protocol that share a socket. `config` is that of the first pool
        client, which is no subscriber. Raises NativeError, OSError.
        """
    def add_connection(
        self,
        protocol: str,
        address: _Address,
        *,
        name: str,
        topics: list[str] = ...,
        filter: str | None = None,
        publishes: int | None = None,
        subscribes: int | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Adds a client over TCP; `protocol`: mqtt (3.1.1), mqtt5 or nats. Returns once it is subscribed to
        the filter, if there is one.

        `topics`: those that it publishes to, if it publishes. Raises NativeError, OSError.
        """
    def start(self) -> None:
        """Starts the load: publishers may send from now on."""
    def stop(self) -> None:
        """Stops the publishers. Messages in flight still count when they are received."""
    def forget_times(self) -> None:
        """Clears the recorded times."""
    def report(self) -> LoadReport:
        """The counts so far."""
    @property
    def fault(self) -> str | None:
        """Why the load has failed, if a connection has ended."""
    def shutdown(self) -> None:
        """Stops the thread and closes the connections. Idempotent."""

@final
class LoadClient(_Core):
    """A client whose messages belong to a load: `poll_messages` returns none, and `poll_events` no
    PublishedEvent."""

    @property
    def address(self) -> _Address: ...
    def fileno(self) -> int:
        """Readable when there are events to poll."""
    def time_look_ups(self, topics: list[str], rounds: int) -> int:
        """How many nanoseconds the core needs to find these topics in its cache of zones, `rounds` times
        each."""
    def drain(self, timeout_s: float) -> bool:
        """As `Endpoint.drain`."""

@final
class LoadReport:
    """The results of a load. `sent`, `acknowledged` and `refused` count messages, the others copies, one for
    each subscriber. `lost` includes messages in flight."""

    @property
    def sent(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def lost(self) -> int: ...
    @property
    def duplicated(self) -> int: ...
    @property
    def disordered(self) -> int: ...
    @property
    def damaged(self) -> int:
        """Payloads that are not of this load, or were altered."""
    @property
    def acknowledged(self) -> int: ...
    @property
    def refused(self) -> int:
        """Messages that the broker answered with a failure."""
    @property
    def stalls(self) -> int:
        """How often nothing was received for 250 ms, plus 1 µs for each copy in flight, while all windows
        were full, so that they were opened again."""
    @property
    def latency_ns(self) -> list[int] | None:
        """p50, p90, p99 and p99.9, from when a message was due, or was sent; None: nothing was timed."""
    @property
    def lateness_ns(self) -> list[int] | None:
        """The same percentiles of how late messages of a paced load were sent."""
    @property
    def groups(self) -> list[LoadReport]:
        """The report of each group. The report of a group has none."""

@disjoint_base
class ClientPool:
    """Many clients of the network behind one UDP socket, each with a session of its own. A gateway is such a
    pool.

    The first pool client has the number 0 and the settings `config`. The others differ in the arguments of
    `open_pool_client`. For all of them `handled` acknowledges messages (as with `hold` of `Config`).
    """

    def __new__(cls, config: Config, listen: _Address) -> ClientPool:
        """Binds (port 0: any free port) and starts the thread. Raises OSError."""
    def set_credentials(self, credentials: Credentials) -> None:
        """As `Endpoint.set_credentials`."""
    def open_pool_client(self, session: int, *, persistent: bool, incarnation: int) -> int:
        """Adds a pool client. Returns its number. `incarnation`: random, for each of its runs.

        Raises NativeError if another pool client has the session, unless that one was closed: then this one
        replaces it.
        """
    def member(self, number: int) -> PoolClient:
        """The methods of a pool client."""
    def close_pool_client(self, number: int) -> None:
        """Closes a pool client: it has no more events, and is removed once what it had to send is
        acknowledged, at the latest after a second."""
    def poll_pool_events(self, limit: int = 1024) -> list[tuple[int, _Event]]:
        """The next events, each with the number of its pool client. An answer outside of sessions goes to the
        pool client that made the request."""
    def poll_pool_messages(self, limit: int = 1024) -> list[tuple[int, Message]]:
        """The next messages, each with the number of its pool client."""
    def handled(self, messages: Sequence[tuple[int, tuple[int, int]]]) -> None:
        """Acknowledges these messages, by (pool client, (publisher, sequence))."""
    def counters(self) -> dict[str, int]:
        """As `_Core.counters`, summed over all pool clients, including those that are gone; `members`: how
        many there are."""
    @property
    def address(self) -> _Address: ...
    @property
    def fault(self) -> str | None:
        """As `Endpoint.fault`."""
    def fileno(self) -> int:
        """Readable when there are events or messages to poll."""
    def wait(self, timeout_s: float) -> bool:
        """As `Endpoint.wait`."""
    def gather(self, gathers: bool) -> None:
        """As `Endpoint.gather`."""
    def drain(self, timeout_s: float) -> bool:
        """As `Endpoint.drain`."""
    def shutdown(self) -> None:
        """Stops the threads and closes the sockets. Idempotent."""

@final
class LoadClientPool(ClientPool):
    """A client pool whose clients are subscribers of a load: `poll_pool_messages` returns none. The load's
    thread drives it."""

    def enter(self, member: int, subscriber: int) -> None:
        """Makes this pool client that subscriber, by number. Raises NativeError if there is no such
        subscriber."""

@final
class PoolClient(_Core):
    """One client of a client pool. `poll_pool_events` and `poll_pool_messages` of the pool return its events
    and messages.

    Once it is closed its methods have no effect.
    """

# The gateway --------------------------------------------------------------------------------------------------------------
# Terms and codes are those of MQTT 5. A connection, a session and a listener are opaque `int`s. A listener is
# one MQTT subscription, with the number by which its pool client listens.

@final
class ListenerSettings:
    """A listener: how clients connect at one address, and their limits.

    - `certificates`, `key`, `client_authorities`: the contents of PEM files; empty: no TLS.
      `client_certificates`: "none", "optional" or "required".
    - `websocket`: MQTT over WebSocket, with the path `websocket_path` (empty: any).
    - `proxy_protocol`: a load balancer in front reports the client's address (PROXY protocol 2).
    - `connections`: the most connections; `connections_of_host`: of one IPv4 address or IPv6 network of 64
      bits, ignored with `proxy_protocol`; `connect_rate`: new ones a second (0: any number). Connections
      beyond these are refused with CONNACK.
    - `maximum_packet`: in bytes.
    - `rate`: how many messages a client may send in a second (0: any number); beyond that the client is not
      read. `Accept.rate` replaces it.

    Raises NativeError for invalid TLS settings; the text says which.
    """

    def __new__(
        cls,
        *,
        certificates: bytes = ...,
        key: bytes = ...,
        client_authorities: bytes = ...,
        client_certificates: str = "none",
        websocket: bool = False,
        websocket_path: str = "",
        proxy_protocol: bool = False,
        connections: int = 1_000_000,
        connections_of_host: int = 1_000_000,
        connect_rate: int = 0,
        maximum_packet: int = 268_435_460,
        receive_maximum: int = 1_000,
        rate: int = 0,
    ) -> ListenerSettings: ...

@final
class InFlight:
    """A message of QoS 1 or 2 that a client has not acknowledged finally, with its packet id.

    `publisher`, `sequence`: its id (§7.4 of docs/protocol.md); 0: the network does not send it again.
    `is_received`: PUBREC has arrived, and PUBREL must be sent; with `packet_id` 0 PUBCOMP has arrived, too,
    and the message is not acknowledged to the network yet.
    """

    def __new__(
        cls, packet_id: int, publisher: int, sequence: int, qos: int, is_received: bool
    ) -> InFlight: ...

    packet_id: int
    publisher: int
    sequence: int
    qos: int
    is_received: bool

@final
class SessionState:
    """The session state of MQTT 5 §4.1 without the subscriptions.

    `received`: packet ids of QoS 2 messages from the client that wait for its PUBREL. `block`: the eighth of
    the packet ids, from 0, from which new messages get theirs.
    """

    def __new__(cls, in_flight: Sequence[InFlight], received: Sequence[int], block: int) -> SessionState: ...

    in_flight: list[InFlight]
    received: list[int]
    block: int

@final
class ConnectionStatus:
    """The status of an accepted connection: PUBLISH packets in both directions, and how many messages are
    queued for it, and were dropped."""

    connection: int
    messages_in: int
    messages_out: int
    queued: int
    dropped: int

@final
class AttemptSource:
    """Where an attempt comes from, as hashes under the key of its `Attempts`."""

    @property
    def address(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Attempts:
    """The limits on password guesses, by address and by name. Times are µs of the core's clock. Usable from
    several threads."""

    def __new__(
        cls,
        seed: int,
        *,
        pair: tuple[int, int, str],
        address: tuple[int, int, str],
        name: tuple[int, int, str],
        asked: tuple[int, int, str],
        entries: int,
        known: int,
    ) -> Attempts:
        """Buckets as (burst, µs until one more, reason string for clients): of an address with a name, of an
        address, of a name, and of all attempts of an address. `entries`, `known`: the least number of entries
        of each table and of known passwords; at most twice as many are kept."""
    def source(self, host: str, name: str | None) -> AttemptSource:
        """An attempt for `name` by the peer at `host`; None: without a name. Raises ValueError if `host` is
        no IP address."""
    def take(self, now: int, source: AttemptSource) -> str | None:
        """Takes the tokens of an attempt. If a bucket refuses it, takes none, and returns the bucket's reason
        string."""
    def give_back(self, now: int, source: AttemptSource) -> None:
        """Gives the tokens back: the attempt was not a wrong guess."""
    def succeeded(self, now: int, source: AttemptSource) -> None:
        """The password was right: gives the tokens back, and trusts this address with this name."""
    def asked(self, now: int, source: AttemptSource) -> int:
        """How many attempts of the address count at present. Successful ones do not."""
    def remember(self, name: str, password: bytes) -> None:
        """Remembers a right password: workers pass such an attempt to Python. For each name only the last one
        is remembered."""
    def set_full(self, is_full: bool) -> None:
        """Sets whether the queue of password checks is full. Then workers refuse addresses whose `asked`
        bucket is empty."""
    def refused(self) -> list[tuple[str, int]]:
        """How many attempts the workers have refused, by reason string."""
    def sizes(self) -> tuple[int, int]:
        """The number of entries of the largest table, and the number of known passwords."""

@final
class Gateway(ClientPool):
    """A client pool, and an MQTT server in front of it. Its first pool client publishes the messages of the
    MQTT clients.

    Messages with attached listeners go to MQTT clients. `poll_pool_messages` returns the messages of the
    first pool client without such a listener. Calls for one connection, session or listener take effect in
    their order. Calls for a connection that has ended do nothing.
    """

    def __new__(
        cls, config: Config, listen: _Address, workers: int = 0, unfinished_bytes: int = 536_870_912
    ) -> Gateway:
        """`workers`: the number of MQTT threads; 0: one for each processor. `unfinished_bytes`: the memory
        for incomplete packets of all clients. Raises OSError."""

    # Listeners
    def open_listener(self, number: int, address: _Address, settings: ListenerSettings) -> _Address:
        """Opens a listener (port 0: any free port). Returns the address. Raises OSError if the address is in
        use or not of this machine, or the number is in use."""
    def set_listener(self, number: int, settings: ListenerSettings) -> None:
        """Changes the settings for new connections. Open connections keep theirs."""

    # Connections
    def poll_mqtt(self, limit: int = 1024) -> list[tuple[str, dict[str, Any]]]:
        """The events of MQTT clients, each as the name of a class of `hbroker.gateway.native_api` and its fields
        (a will as its fields, the options of a filter as a tuple). While there are any, `fileno` is readable and
        `wait` returns."""
    def accept(self, connection: int, accept: Any) -> None:
        """Sends CONNACK with success. `accept` has the attributes of `hbroker.gateway.native_api.Accept`. Its
        session must have no connection."""
    def refuse(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        """Sends CONNACK with this code and closes. The code is a reason code of MQTT 5, or before that a
        return code."""
    def auth(self, connection: int, reason: int, method: str, data: bytes) -> None:
        """Sends AUTH."""
    def disconnect(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        """Sends DISCONNECT, if the version allows it, and closes. ClosedEvent follows."""
    def suback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        """Sends SUBACK, and then the messages for the listeners that waited for it."""
    def unsuback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None: ...

    # Sessions
    def open_session(self, state: Any) -> int:
        """Opens a session without a connection. Its messages are queued. `state`: a `SessionState`, or an
        object with its attributes."""
    def export_session(self, session: int, *, is_over: bool = False) -> SessionState:
        """Ends a session here, and its listeners.

        Its messages that the first pool client received count as handled. Those that another pool client
        received stay unacknowledged, so that the network sends them to the next gateway that has that pool
        client's session. `is_over`: no gateway will; then messages whose delivery at QoS 2 has begun count as
        handled, too (MQTT 5 §4.8.2), before the pool client sends anything else.

        Raises NativeError if it has a connection, or is not here.
        """

    # Listeners of sessions
    def attach_listener(
        self,
        listener: int,
        session: int,
        filter: str,
        options: Any,
        identifier: int,
        *,
        packet_id: int | None,
    ) -> None:
        """Passes the messages of this listener to the session, once the SUBACK with `packet_id` was sent;
        None: at once. Call it before the pool client listens. `options`: with the attributes `qos`,
        `no_local`, `retain_as_published`. Raises NativeError for an invalid filter."""
    def detach_listener(self, listener: int) -> None:
        """Passes it no more messages. Those that are in the session stay there."""
    def deliver(
        self, listener: int, topic: str, payload: bytes, *, qos: int = 0, retained: bool = False
    ) -> None:
        """Delivers a message of the gateway itself, as if its owner had sent it."""

    # Policy
    def install_acl(self, acl: int, rules: Sequence[Any]) -> None:
        """Installs or replaces an access list. It applies at once to all connections that have it. Rules have
        the attributes `filter`, `is_allowed`, `for_read`, `for_write`. The first rule for the access whose
        filter matches decides; if there is none, access is denied."""
    def assign_acl(self, connection: int, acl: int) -> None:
        """Assigns another access list to a connection. Raises NativeError if there is no such list."""
    def forget_acl(self, acl: int) -> None: ...
    def refuse_guesses(self, attempts: Attempts | None) -> None:
        """Refuses a CONNECT with a name and a password, and without a certificate or an authentication
        method, if `attempts` refuses it: without a ConnectEvent, and counted there. None: refuses none."""

    # Read
    def connections(self, most: int) -> list[ConnectionStatus]: ...
    def gateway_counters(self) -> dict[str, int]:
        """For all connections since the start: `accepted`, `refused`, `closed`, `bytes_in`, `bytes_out`,
        `packets_in`, `packets_out`, `messages_in`, `messages_out` (PUBLISH), `dropped`, and `drop.<reason>`.
        At present: `connections`, `sessions`, `sessions_parked`, `listeners`, `unanswered` (messages of
        clients)."""
    def take_load(self) -> Load | None:
        """As `_Core.take_load`, for MQTT clients: `messages_in` counts the messages that the network took,
        `drop.refused` those that were refused."""
    def shutdown(self, grace_s: float = 0.0) -> None:
        """Stops accepting, lets the connections that are closing send their last bytes for `grace_s`, and
        stops all threads. Idempotent."""

# Topics (§7.1) --------------------------------------------------------------------------------------------------------

def topic_is_valid(topic: str) -> bool: ...
def filter_is_valid(filter: str) -> bool: ...
def topic_matches(filter: str, topic: str) -> bool: ...
def filter_touches(filter: str, subtree: str) -> bool:
    """Whether the filter can match a topic at or below the subtree."""

# For tests and tools ---------------------------------------------------------------------------------------------------

def decode(datagram: bytes) -> tuple[tuple[Any, ...], list[tuple[Any, ...]]] | None:
    """The fast path's view of a datagram: (header, packets), with the values that native/src/python/codec.rs
    lists.

    None if it is malformed. For the test that compares both codecs.
    """

def encode(header: tuple[Any, ...], packets: Sequence[tuple[Any, ...]], padding: int = 0) -> bytes:
    """The datagram that `decode` would decode to these values, and `padding` more bytes (1 is impossible: it
    adds none)."""

def decode_queued(
    record: bytes,
) -> tuple[int, bytes, int, tuple[int | None, int], str, int, bool, tuple[int, int]] | None:
    """(session, publish, qos, (retained_for, shared_for), group, overflow, launched, (queue, number)) of a
    serialised QueuedRecord. None if it is malformed."""

def verify_store(folder: str) -> list[tuple[str, int, int, int, list[tuple[int, bool]]]]:
    """The segments of a store's log: file, bytes, records, messages, and the damage: its offset, and whether
    what was there had been promised (docs/guarantees.md, Durability). Changes nothing. Raises OSError."""

@final
class StoppedStore:
    """The store of a node that does not run; or a new one. As when its node starts, a torn end of the log is cut off.
    All methods raise OSError."""

    def __new__(cls, folder: str) -> StoppedStore:
        """Opens it, or makes it. Raises OSError, also if a node uses the store."""
    @property
    def damage(self) -> list[str]:
        """A line for each piece of damage that was found when it was opened."""
    @property
    def log_bytes(self) -> int:
        """The bytes of the log."""
    @property
    def retained(self) -> int:
        """How many messages and fragments are retained."""
    def queues(self) -> list[tuple[int, int, int]]:
        """Session, waiting messages, and about how many bytes these have, of each queue."""
    def read(
        self, session: int, start: int, size: int
    ) -> tuple[list[tuple[int, int | None, bytes, bytes]], int | None, list[str]]:
        """Messages of a session's queue from the number `start` on, about `size` bytes of them: number, when it
        expires (microseconds since the Unix epoch; None: never), how the session gets it, and the field `publish`
        with its tag.

        Also returns where to go on (None: that was all), and a line for each message that is damaged.
        """
    def each_retained(self, take: Callable[[bytes], object]) -> list[str]:
        """Calls `take` with the field `publish`, with its tag, of each retained message and fragment. Returns a line
        for each piece of damage in the log."""
    def add(self, session: int, expires: int | None, delivery: bytes, message: bytes) -> None:
        """Adds a message behind a session's queue. The values are those of `read`."""
    def add_retained(self, message: bytes) -> None:
        """Adds a retained message or fragment."""
    def finish(self) -> None:
        """Stores what was added: it would survive a loss of power."""
    def compact(self, progress: Callable[[int], object]) -> None:
        """Removes what is not needed any more. `progress` is called with the bytes of the log so far."""

def merge_stores(
    first: StoppedStore,
    second: StoppedStore,
    into: StoppedStore,
    memory: int,
    progress: Callable[[int], object],
) -> tuple[int, int, int, int, int, tuple[list[str], list[str]]]:
    """Writes what waits and what is retained in two stores to a third, which is empty.

    `memory`: about so many bytes are used for the numbers of messages. `progress` is called with the number of
    messages written so far. Returns how many messages wait; how many waited in both; how many waited in one and were
    settled in the other; how many are not in the order of their publisher; how many messages and fragments are
    retained; and a line for each piece of damage in either store. Raises MemoryError, and OSError.
    """

def encode_queued(
    values: tuple[int, bytes, int, tuple[int | None, int], str, int, bool, tuple[int, int]],
) -> bytes:
    """The QueuedRecord that `decode_queued` would decode to these values."""

def decode_gone(record: bytes) -> tuple[int, int, list[tuple[int, int]], int] | None:
    """(queue, below, [(first, last)], launched) of a serialised GoneRecord. None if it is malformed, or its
    runs are invalid."""

def encode_gone(values: tuple[int, int, Sequence[tuple[int, int]], int]) -> bytes:
    """The GoneRecord that `decode_gone` would decode to these values. The runs must ascend."""

def decode_seen(record: bytes) -> tuple[int, int, list[tuple[int, int]]] | None:
    """(publisher, floor, [(index, bits)]) of a serialised SeenRecord. None if it is malformed, or its words
    are invalid."""

def encode_seen(values: tuple[int, int, Sequence[tuple[int, int]]]) -> bytes:
    """The SeenRecord that `decode_seen` would decode to these values. Raises ValueError if the words do not
    ascend from the floor."""

@final
class SubscriptionTrie:
    """The forwarding table's trie alone, for property tests and benchmarks."""

    def __new__(cls) -> SubscriptionTrie: ...
    def insert(self, filter: str, subscriber: int) -> bool: ...
    def remove(self, filter: str, subscriber: int) -> bool: ...
    def matches(self, topic: str) -> list[int]: ...
    def __len__(self) -> int: ...
