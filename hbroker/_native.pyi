"""The native core: every message. (The decisions are in `hbroker.protocol`.)

Time is an `int` of microseconds since the Unix epoch that never goes back, always an argument. An address is `(ip, port)`, the ip as text.
A packet is a serialised `hbroker.v1.Packet`. A link is an opaque `int`. Sections (§) are those of docs/protocol.md.

`Engine` is sans-IO: the simulator and the tests run it in virtual time. `Endpoint` runs one engine in each of N threads
with a real socket, under the same verbs, less the four that an engine's driver calls (`handle_datagram`,
`handle_timeout`, `poll_transmit`, `poll_timeout`).
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, Unpack, final

from typing_extensions import disjoint_base

from hbroker.properties import CoreProperties

_Address: TypeAlias = tuple[str, int]
# A delegation, as the `Cut` of the wire protocol: (subtree, node, address, epoch).
_Cut: TypeAlias = tuple[str, str, _Address, int]

VERSION: Final[str]

class NativeError(Exception):
    """The caller erred: the text says how. (Bad input from the network is dropped and counted, never raised.)"""

@final
class Config:
    """Who an engine is, and its limits.

    `session`: the session id of the links that it opens, 64 random bits. `incarnation`: random for each run.
    `token_keys`: 16-byte keys of the address-validation tokens, the newest first (§4);
    nodes that share them accept each other's. `node`: forwards (a node) instead of handing messages up (a client).
    `max_links`, `max_links_of_host`: links that others open, and sessions without one, in all and of one IPv4 address or IPv6
    network of 64 bits. `max_datagram`: the largest datagram that is tried on a path, from 1,200 up (§3.4). `queue_messages`, `queue_bytes`:
    what may wait for one session; `queue_memory_bytes`: for all together (§7.8). Above half of that publishers are held
    back (§7.7). `stranger_rate`: answers to unproven addresses, a second. `max_message_bytes`: the largest payload, out and
    in, at most 256 MiB; `reassembly_bytes`, no less: what a client holds of messages of which parts are missing (§7.5).
    `receive_messages`, `receive_bytes`: what a client takes from one owner without having acknowledged it (§7.7).
    `for_many`: it publishes for many, of whom one may not hold up the others (§7.7).
    `persistent`: the client's session outlives its links, so messages that match no `listen` yet wait for one (§6.4).
    `named`: other runs of the client have its id, too, as those of every persistent session (§3.6).
    `hold`: messages of QoS 1 and 2 are acknowledged when `handled` says so, and not when they are read.
    `telemetry`: a node, or a gateway, counts by topic, for `take_load`.
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
        max_datagram: int = 8_952,
        link_queue_bytes: int = 16_777_216,
        event_queue: int = 100_000,
        message_queue_bytes: int = 67_108_864,
        retained_bytes: int = 268_435_456,
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
        queue_memory_bytes: int = 1_073_741_824,
        stranger_rate: int = 10_000,
        keep_alive_us: int = 2_000_000,
        idle_timeout_us: int = 15_000_000,
        telemetry: bool = False,
    ) -> Config: ...
    @property
    def publisher(self) -> int:
        """The publisher id of what it publishes: of this session and this run (§7.9)."""

# Events -------------------------------------------------------------------------------------------------------------
# poll_events() returns a list of these frozen classes. Those that control logic reads can be made, for its tests.

@final
class ControlEvent:
    """A packet that Python decides on. `link` is None outside of a session; the source has then proved its address."""

    def __new__(cls, link: int | None, source: _Address, packet: bytes, inbound: bool) -> ControlEvent: ...

    link: int | None
    source: _Address
    packet: bytes
    inbound: bool
    """The link was opened by the peer (a client, a child), not by this engine (towards an owner, a parent)."""

@final
class LinkUpEvent:
    """A link has its first acknowledgement, or its first datagram from a proven address."""

    def __new__(cls, link: int, address: _Address, session: int, inbound: bool) -> LinkUpEvent: ...

    link: int
    address: _Address
    session: int
    inbound: bool

@final
class LinkDownEvent:
    """A link is gone, and its session with it, or away where it is persistent. `reason`: "timeout", "reset", "refused"
    (the peer has too many), "restarted", "taken_over" (by another run of its peer), "closed"."""

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
    """Node: a session ended, since its queue overflowed and its subscription asked for that (§7.8).

    It and its subscriptions are gone. Its link, if it has one, is still open: its client is to be told QUOTA_EXCEEDED.
    """

    def __new__(cls, session: int, link: int | None) -> OverflowEvent: ...

    session: int
    link: int | None

@final
class UnresolvedEvent:
    """Client: no zone in the cache covers the topic of a message that waits. Answer with `install_zone` or `reject`.

    `start`: the deepest node known to be above the owner; None: the root.
    """

    def __new__(cls, topic: str, start: _Address | None) -> UnresolvedEvent: ...

    topic: str
    start: _Address | None

@final
class Message:
    """Client: a message for one or more of its subscriptions. Reading it from `poll_messages` acknowledges it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    """As MQTT 5 §3.3.1.3 has it: `retained`, or published so where a subscription asked for `retain_as_published`."""
    retained: bool
    """Sent because it was kept when a subscription was made."""
    publisher: int
    sequence: int
    copy_id: tuple[int, int]
    """Names this copy to `handled` and `give_back`: a message may come for a shared subscription and for others, each time once."""
    published_at_us: int
    expiry_s: int | None
    content_type: str
    payload_format: int | None
    response_topic: str
    correlation_data: bytes
    user_properties: list[tuple[str, str]]
    origin: int
    """Who published it behind its publisher; 0: nobody in particular."""
    subscriptions: list[int]
    """The listeners that it is for: all that match, or, if it is `retained`, the one in whose name it was asked for (§7.6)."""

@final
class PublishedEvent:
    """Client: what became of messages of QoS 1 or 2 (`reason` is a `Reason` of the wire protocol)."""

    def __new__(cls, sequence: int, topic: str, reason: int, count: int = 1) -> PublishedEvent: ...

    sequence: int
    """The first one's."""
    topic: str
    reason: int
    count: int
    """How many messages: their sequence numbers follow one another."""

_Event: TypeAlias = (
    ControlEvent | LinkUpEvent | LinkDownEvent | OverflowEvent | UnresolvedEvent | PublishedEvent
)

@final
class SessionStatus:
    """How a session at a node is (§7.8).

    `accepted` is `delivered` + `expired` + what was `dropped`, by reason, + `queued`, exactly. `delivered`: answered by a PUBACK;
    at QoS 0 sealed into a datagram. `queued`: messages that wait or are in flight, `queued_bytes` long (QoS 0 left out).
    """

    session: int
    connected: bool
    stalled: bool
    accepted: int
    delivered: int
    expired: int
    queued: int
    queued_bytes: int
    dropped: dict[str, int]

@final
class Load:
    """What passed in an interval, and how things are at its end (docs/telemetry.md).

    `counters`: as of the core, since it began, those that only rise. `gauges`: `workers`, `sessions`, `subscriptions`, `publishers`
    (nodes), `connections` (gateways), `queued_messages`, `queued_bytes`. Topics are columns: `names` end to end in UTF-8, `offsets` of
    each and the end of the last (32 bits each, in the byte order of this machine), and `numbers`: messages in, bytes in, messages out, bytes out, and messages
    in and out of which a large one counts once instead of for each part (64 bits each). `rest`: these six for topics beyond the 10,000 of an interval.
    `bytes_in`, `bytes_out`, `whole_in`, `whole_out`: of all topics together.
    `latency`: 96 counts; bucket i is from 2^(i/4) to 2^((i+1)/4) µs. `sampled`: of how many messages one was timed.
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
    """The verbs that `Engine` and `Endpoint` share."""

    # Out
    def poll_events(self, limit: int = 1024) -> list[_Event]: ...
    def poll_messages(self, limit: int = 1024) -> list[Message]: ...
    def counters(self) -> dict[str, int]:
        """Counters and gauges by name, summed over the workers.

        Counters only rise: `datagrams_in`, `datagrams_out`, `bytes_in`, `bytes_out`, `messages_in`, `messages_out`,
        `datagrams_lost` (numbered ones, by §3.2), `retransmits` (reliable packets sent again), and `drop.<reason>` for
        what did not go on. Of messages for sessions: `accepted`, `delivered`, `expired` (as in `SessionStatus`).
        Gauges: `links`, `sessions` (links that peers opened), `sessions_away`, `publishers` (links that a message came over),
        `queued_messages` (for sessions), `queued_bytes` (on links and in the queues of sessions), `inflight` (messages not yet acknowledged), `waiting` (a client's, for their owner),
        `subscriptions`, `retained`, `replays` (subscriptions for which retained messages are still to be sent). `socket.*` and some drops are an `Endpoint`'s alone.
        """

    def take_load(self) -> Load | None:
        """Node: what passed since this was last asked; also after `shutdown`. The counters of messages and the sums over the topics agree.

        No worker is held up for longer than it takes to exchange an empty table for the full one. None: without `telemetry`.
        """

    # Links and control packets
    def connect(self, address: _Address, token: bytes = b"") -> int:
        """Opens a link to a node, or returns the one that is open."""
    def adopt(self, session: int, address: _Address) -> int:
        """Node: opens the link of a session that another node handed over (§5.4), or returns the one that is open."""
    def is_one_sided(self, link: int) -> bool:
        """Whether the peer opened the link, and has acknowledged nothing there since."""
    def prefer(self, link: int) -> None:
        """Node: the link is a child's. What comes over it waits for the events of nodes alone, and for no client's flood (§3.3)."""
    def will_publisher(self, link: int) -> int:
        """The publisher id of the wills of the client whose link it is (§7.9); 0: there is no such link, or nothing came from its peer."""
    def peer_of(self, link: int) -> _Address | None:
        """Where the peer of a link is now (§4.4); None: there is no such link."""
    def close(self, link: int) -> None:
        """Forgets a link, its queue and its subscriptions; LinkDownEvent follows (reason "closed")."""
    def send(self, link: int, packet: bytes) -> bool:
        """Queues a control packet: reliable, in order, once. False: there is no such link."""
    def send_to(self, address: _Address, packet: bytes, token: bytes = b"", pad_to: int = 0) -> None:
        """Sends one datagram outside of any session, padded to at least `pad_to` bytes. Unreliable."""
    def token_for(self, address: _Address) -> bytes:
        """A token that proves `address` to this node (§4.2)."""

    # Node: jurisdiction and subscriptions
    def grant(
        self,
        subtree: str,
        epoch: int,
        serving: bool,
        until_us: int | None = None,
        *,
        reserved: bool = False,
        gathering: bool = False,
    ) -> None:
        """Owns this subtree (a node may own several). Not serving: PUBLISH is refused with HANDOVER.

        From `until_us` on PUBLISH is refused with NOT_RESPONSIBLE (§5.6), whether or not Python runs; a grant with
        a later one renews the lease. None: it does not end. Reserved: a client's PUBLISH is refused with
        NOT_AUTHORIZED, at every QoS; only `publish` here writes to it (§7.2). Gathering: subscribers are on their way
        back, and PUBLISH at QoS 1 and 2 is refused with HANDOVER meanwhile (§5.8).
        """
    def revoke(self, subtree: str) -> None: ...
    def cut(self, cut: _Cut) -> None:
        """Delegated: PUBLISH below is refused with NOT_RESPONSIBLE and this cut. Replaces one of the same subtree."""
    def uncut(self, subtree: str) -> None: ...
    def open_session(
        self, session: int, *, persistent: bool, queue_messages: int = 0, queue_bytes: int = 0
    ) -> bool:
        """Makes the session in which a client subscribes here, or changes it (§6.4). Its links, now or later, are the session's.

        The bounds are of its queue; 0, or more than the node's own: the node's own.

        One that is not persistent ends with its link, by itself. False: there are too many, or it is not persistent
        and has no link.
        """
    def end_session(self, session: int, reason: str = "session_ended") -> None:
        """Forgets the session, its queue and its subscriptions. Its link stays open.

        `reason`: what its messages are counted as, "session_ended" or "session_expired".
        """
    def sessions(self, most: int) -> list[SessionStatus]:
        """How the sessions are, those for which most is held first."""
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
        """Adds or replaces. `group`: the shared group that the session is a member of (§6.5). `overflow`: an `Overflow` of the wire
        protocol. False: it was there already, or the session is not open.

        An `Endpoint` returns once every worker has it.
        """
    def unsubscribe(self, session: int, filter: str, group: str = "") -> bool: ...
    def send_retained(
        self, session: int, filter: str, qos: int, listener: int, subtree: str = "", first: str = ""
    ) -> bool:
        """Begins to send the retained messages that match, for one of the client's listeners, or (0) for all (§7.6). `subtree`, `first`: those
        alone that lie there, and do not come before this topic. False: it stopped, since too many sessions wait for theirs, or this one for
        too many.
        """
    def replays(self, subtree: str) -> list[tuple[int, str, int, int, str]]:
        """What is still to be sent of a subtree: (session, filter, qos, listener, first), as `send_retained` takes it, for handover."""
    def retained(self, subtree: str, less: Sequence[str]) -> list[bytes]:
        """The retained messages at and below a subtree, each a serialised Publish, for handover.

        `less`, here and in what follows: smaller subtrees below it that are no part of what is meant.
        """
    def take_retained(self, messages: Sequence[bytes]) -> int:
        """Takes them over; returns how many there was no room for."""
    def drop_retained(self, subtree: str, less: Sequence[str]) -> None: ...
    def drain_subtree(self, subtree: str, less: Sequence[str]) -> int:
        """How many messages at and below it are open: at QoS 1 or 2, taken over, and their publishers wait for the PUBACK; and how many
        others connected subscribers have without an answer yet, which the next owner would send again.

        Asked again until it is 0, or for as long as one may wait, before `finish_export`.
        """
    def raise_barrier(self, subtree: str) -> int:
        """Sends a barrier from every worker to every other, behind all messages that it has for it; returns its number.

        `subtree`: is not served any more. Until it is exported, or served again, what its sessions leave to others stays where it is.
        """
    def has_passed(self, barrier: int) -> bool:
        """Whether all that was on its way between the workers when this barrier was raised has come. At once where there is one worker.

        What was acknowledged as queued (`ACK_MODE_QUEUED`) and is on its way is in no account of `finish_export`: a barrier that was
        raised after the subtree was cut has to pass first.
        """
    def begin_export(self, subtree: str, less: Sequence[str], before: int = 0) -> int:
        """Begins to copy what waits for sessions in a subtree that is to move (§5.4), and is served meanwhile; the export's number.

        `less`: the smaller subtrees that stay. `before`: what is held under that number moves along, and first; it is the export's then.
        """
    def copy_export(self, export: int, less: Sequence[str]) -> tuple[list[bytes], bool]:
        """Copies some more, in a bounded step: serialised Transfers with `queued` and `gone`, each for a packet. Messages that publishers
        wait for are left out.

        True: little is left, or more than twice of what there was is copied: now to stop serving. Where `less` is not what it was all
        copies are void, and it begins again.
        """
    def stop_export(self, export: int) -> int:
        """The subtree stays. Returns the number under which what was held before is held still; 0: nothing was."""
    def finish_export(self, export: int, less: Sequence[str]) -> list[bytes]:
        """Takes out what moves with a subtree that is not served any more: what waits for sessions, or is with them and not acknowledged,
        and no publisher would send again; it leaves the sessions' accounts as `moved`, and is held under the export's number. Messages that
        are still open are refused with HANDOVER, and the cut that holds their topic.

        Returns the difference to what was copied, and what was seen, as `copy_export` does. Where nothing in a session's queue belongs to
        another subtree this costs what the difference costs.
        """
    def begin_import(self) -> int:
        """Room for what comes with a subtree; its number."""
    def take_records(self, held: int, transfer: bytes) -> int:
        """Holds what a serialised Transfer has of `queued`, `gone` and `seen`. Returns how many messages there was no room for.

        A record that makes no sense is dropped and counted (`invalid_record`).
        """
    def install(self, held: int) -> int:
        """Gives what is held to its sessions, which must be open, before the subtree is served. Returns how many messages had no room.

        What is for a session that is not open is dropped and counted (`invalid_record`).
        """
    def drop_held(self, held: int) -> None:
        """Forgets what is held. 0: nothing."""
    def publish_raw(self, publish: bytes) -> int:
        """Node: publishes a client's message, a serialised Publish, in its name and under its id (wills, §6.6).

        The reason (§8) as its publisher would be told it: SUCCESS; QUOTA_EXCEEDED, there is no room for it now; another, it is no
        message, or its topic is not this node's to serve.
        """
    def matching(self, topic: str) -> int:
        """How many subscriptions match a topic."""

    # Client: zones, publishing, delivery
    def install_zone(
        self, scope: str, cuts: Sequence[_Cut], owner: _Address, token: bytes, ttl_us: int
    ) -> None:
        """Caches a jurisdiction and releases the messages that waited for it."""
    def forget_zones(self, owner: _Address | None = None) -> None: ...
    def zone(self, topic: str) -> tuple[_Address, bool] | None:
        """(owner, True), or (the node of the deepest known cut, False), or None: ask the root."""
    def reject(self, topic: str, reason: int) -> None:
        """The messages that wait for this topic's owner fail (PublishedEvent) or are dropped (QoS 0)."""
    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        **properties: Unpack[CoreProperties],
    ) -> int | None:
        """Queues a message; returns its sequence number, or None where as much waits as may (try again).

        A client keeps a large payload, without a copy, until its last part is made. A node publishes to its own jurisdiction.
        Raises NativeError for a topic that is not valid, and for a payload, or properties, too large.
        """
    def publish_many(
        self,
        messages: Sequence[tuple[str, bytes]],
        qos: int = 0,
        retain: bool = False,
        **properties: Unpack[CoreProperties],
    ) -> list[int]:
        """Queues messages, (topic, payload), in order, up to one that cannot be; returns the sequence numbers of those before it.

        None of them where as much waits as may. Raises NativeError, as `publish`, where it is the first that is wrong.
        """
    def listen(
        self, subscription: int, filter: str, qos: int, retain_as_published: bool = False, group: str = ""
    ) -> None:
        """Client: messages that match are handed up for this subscription, at this QoS at most; in a persistent session those
        too that wait for a `listen`, up to 30 s. Not `retain_as_published`: `Message.retain` is the publisher's flag only for
        another subscription's sake (§7.6). `group`: of a shared subscription, which gets what owners send for it and nothing else
        (§6.5)."""
    def unlisten(self, subscription: int, gives_back: bool = False) -> None:
        """Client: hands nothing more up for this listener. `gives_back`: what lies unread for it alone is given back, as by
        `give_back`."""
    def set_leaving(self, is_leaving: bool) -> None:
        """Client: whether it is leaving a shared group. So long it acknowledges nothing that nobody listens to (§6.5)."""
    def handled(self, messages: Sequence[tuple[int, int]]) -> None:
        """Client with `hold`: the application is done with these messages, by (publisher, sequence): they are acknowledged."""
    def give_back(self, messages: Sequence[tuple[int, int]]) -> None:
        """Client with `hold`: the application will not handle these messages, by (publisher, sequence), of a shared group that
        it is leaving. They are not acknowledged before the owner has had the occasion to give them to another member (§6.5)."""

@final
class Engine(_Core):
    def __new__(cls, config: Config) -> Engine: ...
    # Every verb of _Core acts at the time last given by one of these:
    def handle_datagram(self, now: int, source: _Address, datagram: bytes) -> None: ...
    def handle_timeout(self, now: int) -> None: ...
    def poll_transmit(self) -> list[tuple[_Address, bytes]]:
        """All datagrams that may leave now. Sealing the bundles is part of this call."""
    def poll_timeout(self) -> int | None:
        """When to call handle_timeout next."""
    def owns(self, now: int, topic: str) -> bool:
        """Whether a PUBLISH to this topic would be taken at `now` (§7.2). Asking changes nothing, the time neither."""

@final
class Endpoint(_Core):
    def __new__(cls, config: Config, listen: _Address, workers: int = 1) -> Endpoint:
        """Binds (port 0: any free one) and starts the threads. Raises OSError."""
    @property
    def address(self) -> _Address: ...
    @property
    def unix_offset_us(self) -> int:
        """Microseconds since the Unix epoch less those of `hbroker.runtime.control_loop.clock`, as both were at the start (§5.6)."""
    @property
    def fault(self) -> str | None:
        """Why a worker ended by itself, if one has: its socket died. Shut the endpoint down."""
    def fileno(self) -> int:
        """Readable when there are events or messages to poll."""
    def wait(self, timeout_s: float) -> bool:
        """Blocks, without the GIL, until there are events or messages. False: the time is over."""
    def gather(self, gathers: bool) -> None:
        """Whether what follows from verbs (datagrams that leave) may wait for more of them: for a caller that calls often.

        False: what waits happens now. It waits for 128 verbs at most.
        """
    def drain(self, timeout_s: float) -> bool:
        """Blocks until everything queued has been sent and, where it asks for it, acknowledged."""
    def shutdown(self) -> None:
        """Stops the threads and closes the sockets. Idempotent."""

@final
class LoadGenerator:
    """Publishers and subscribers of a load, all driven by one thread (docs/benchmarks.md)."""

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
        """Starts the thread. `groups`: of each, how many publishers there are, how many messages one of them may have under way (None: any
        number), and how many messages a second all of them send (None: as fast as they may). `subscribers`: of each, the first publisher
        that it hears, and how many.

        `payload`: bytes; 16 at least. `topics`: of each publisher; its messages go to them in turn. `polls`: the thread never sleeps. `tls`: connections over TCP are secured: the
        authorities, as PEM, that sign brokers' certificates, and the host that those name. Raises NativeError for what can be no load, OSError (for no such authorities or host, too).
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
        """A client of hbroker's own protocol: the number of the publisher that it is, or of the subscriber, or both.

        `topics`: that it publishes to, where it does. Its control is to find the owner, and to subscribe. Raises NativeError, OSError.
        """
    def add_client_pool(self, config: Config, listen: _Address) -> LoadClientPool:
        """Subscribers of hbroker's own protocol that share a socket. `config` is that of the first member, which is no subscriber. Raises NativeError,
        OSError.
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
        """A client over TCP; `protocol`: mqtt (3.1.1), mqtt5 or nats. It returns once the client is subscribed to the filter, where it is to be.

        `topics`: that it publishes to, where it does.
        Raises NativeError, OSError.
        """
    def start(self) -> None:
        """Publishers may send from now on."""
    def stop(self) -> None:
        """They may not any more. What is under way still counts when it comes."""
    def forget_times(self) -> None:
        """Latencies are counted anew."""
    def report(self) -> LoadReport:
        """What was counted, now."""
    @property
    def fault(self) -> str | None:
        """Why the load cannot go on, if a connection has ended."""
    def shutdown(self) -> None:
        """Stops the thread and closes the connections. Idempotent."""

@final
class LoadClient(_Core):
    """A client whose messages are a load's: `poll_messages` has none, and `poll_events` no PublishedEvent."""

    @property
    def address(self) -> _Address: ...
    def fileno(self) -> int:
        """Readable when there are events to poll."""
    def time_look_ups(self, topics: list[str], rounds: int) -> int:
        """Nanoseconds that it takes the core to find these topics in its cache of zones, in turn, so many times."""
    def drain(self, timeout_s: float) -> bool:
        """As `Endpoint.drain`."""

@final
class LoadReport:
    """What came of a load. `lost` also has what is still under way; copies, one for each subscriber, but for `sent`, `acknowledged` and
    `refused`: messages."""

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
        """What was no message of this load, or not as it was sent."""
    @property
    def acknowledged(self) -> int: ...
    @property
    def refused(self) -> int:
        """Messages that the broker answered with a failure."""
    @property
    def stalls(self) -> int:
        """How often nothing came for 250 ms while all windows were full, so that they were opened again."""
    @property
    def latency_ns(self) -> list[int] | None:
        """p50, p90, p99 and p99.9, from when a message was due, or was sent; None: nothing was timed."""
    @property
    def lateness_ns(self) -> list[int] | None:
        """The same of how late messages of a paced load were sent."""
    @property
    def groups(self) -> list[LoadReport]:
        """The same of each group; of a group: none."""

@disjoint_base
class ClientPool:
    """Many clients of the network behind one UDP socket, each with a session of its own: the members of a gateway.

    The first is number 0, and `config` is its own; the others differ in what `open_pool_client` takes. All of them say with `handled` when a
    message is done with (as with `hold` of `Config`).
    """

    def __new__(cls, config: Config, listen: _Address, workers: int = 1) -> ClientPool:
        """Binds (port 0: any free one) and starts the threads. Raises OSError."""
    def open_pool_client(
        self, session: int, *, persistent: bool, incarnation: int, keep_alive_us: int = 7_000_000
    ) -> int:
        """Adds a member; returns its number. `incarnation`: random, for each run of it.

        `keep_alive_us`: what keeps its links alive, below the nodes' idle timeout (§3.5). Raises NativeError where another member has the
        session; one that was closed gives way.
        """
    def member(self, number: int) -> PoolClient:
        """Its verbs."""
    def close_pool_client(self, number: int) -> None:
        """Tells nothing of it any more, and forgets it: once what it was to send is acknowledged, after a second in any case."""
    def poll_pool_events(self, limit: int = 1024) -> list[tuple[int, _Event]]:
        """The next events, and whose each is. Answers outside of sessions are told to the member that asked."""
    def poll_pool_messages(self, limit: int = 1024) -> list[tuple[int, Message]]:
        """The next messages, and whose each is."""
    def handled(self, messages: Sequence[tuple[int, tuple[int, int]]]) -> None:
        """These messages, by (member, (publisher, sequence)), are done with: they are acknowledged."""
    def counters(self) -> dict[str, int]:
        """As `_Core.counters`, summed over all members, those that are gone too; `members`: how many there are."""
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
    """A hive whose members are subscribers of a load: `poll_pool_messages` has none. The load's thread drives it."""

    def enter(self, member: int, subscriber: int) -> None:
        """This member is that subscriber, by its number. Raises NativeError where there is no such one."""

@final
class PoolClient(_Core):
    """One client of a hive. Its events and messages come by `poll_pool_events` and `poll_pool_messages` of that.

    Once it was closed nothing that is done here has any effect.
    """

# The gateway --------------------------------------------------------------------------------------------------------------
# MQTT terms and codes are those of MQTT 5. A connection, a session and a listener are opaque `int`s; a listener is one MQTT subscription,
# under the number by which its member listens.

@final
class ListenerSettings:
    """How clients come in at one address, and what they are held to.

    `certificates`, `key`, `client_authorities`: contents of PEM files; empty: no TLS. `client_certificates`: "none", "optional" or
    "required". `websocket`: over WebSocket, with this path (empty: any). `proxy_protocol`: a balancer in front tells the client's address
    (PROXY protocol 2). `connections`: at most; `connections_of_host`: of one IPv4 address, or IPv6 network of 64 bits, but with
    `proxy_protocol`; `connect_rate`: new ones a second; they are refused with CONNACK beyond it (0: any number). `write_buffer`: bytes that may wait for a client that does not read. `handshake_bytes`, `handshake_us`: until CONNECT is
    whole. `maximum_packet`: bytes. `rate`, `rate_bytes`: of messages from one client in a second, by not reading it (0: any
    number); `Accept.rate` takes the place of the first.

    Raises NativeError for TLS that cannot be; the text says what.
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
        write_buffer: int = 1_048_576,
        handshake_bytes: int = 65_536,
        handshake_us: int = 10_000_000,
        maximum_packet: int = 268_435_460,
        receive_maximum: int = 1_000,
        topic_alias_maximum: int = 64,
        topic_aliases: int = 64,
        maximum_qos: int = 2,
        retain_available: bool = True,
        rate: int = 0,
        rate_bytes: int = 0,
    ) -> ListenerSettings: ...

@final
class WillMessage:
    """CONNECT's will (§3.1.3). `delay_s`: 0 before version 5."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    delay_s: int
    expiry_s: int | None
    content_type: str
    payload_format: int | None
    response_topic: str
    correlation_data: bytes
    user_properties: tuple[tuple[str, str], ...]

@final
class ConnectEvent:
    """A CONNECT, checked. What it does not hold has the default that MQTT names. To be answered with `accept`, `refuse` or `auth`.

    `listener`: of `open_listener`. `peer`: behind a balancer, as that told. `version`: 3 (MQTT 3.1), 4 (3.1.1) or 5. `certificate`: the
    subject of the client's, as RFC 4514 writes it, and `certificate_name` its common name; empty: it has none.
    `session_expiry_s`: 0 before version 5.
    """

    connection: int
    listener: int
    peer: _Address
    version: int
    is_bridge: bool
    client_id: str
    clean_start: bool
    certificate: str
    certificate_name: str
    username: str | None
    password: bytes | None
    keep_alive_s: int
    will: WillMessage | None
    session_expiry_s: int
    receive_maximum: int
    maximum_packet_size: int | None
    topic_alias_maximum: int
    wants_response_information: bool
    wants_problem_information: bool
    user_properties: tuple[tuple[str, str], ...]
    auth_method: str | None
    auth_data: bytes

@final
class SubscribeOptions:
    """§3.8.3.1. `retain_handling`: 0 send, 1 send if new, 2 do not."""

    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int

@final
class SubscribeEvent:
    """SUBSCRIBE, to be answered with `suback`. `identifier`: 0 where it has none."""

    connection: int
    packet_id: int
    filters: tuple[tuple[str, SubscribeOptions], ...]
    identifier: int

@final
class UnsubscribeEvent:
    """UNSUBSCRIBE, to be answered with `unsuback`."""

    connection: int
    packet_id: int
    filters: tuple[str, ...]

@final
class AuthEvent:
    """AUTH (§3.15), before `accept` or after it."""

    connection: int
    reason: int
    method: str
    data: bytes

@final
class ClosedEvent:
    """A connection of which there was a ConnectEvent is gone. The last that is told of it.

    `session`: that of `accept`, which has no connection any more, and whose messages the network has answered (or has not within 2 s);
    0: it was not accepted. `cause`: "disconnect", "closed", "keep_alive", "protocol_error", "too_large" or "server".
    `reason`: that of the client's DISCONNECT. `session_expiry_s`: as DISCONNECT changed it.
    """

    connection: int
    session: int
    cause: str
    reason: int | None
    session_expiry_s: int | None

@final
class SessionOverflowEvent:
    """More came for a session without a connection than it may hold, and it is to end by its policy."""

    session: int

_MqttEvent: TypeAlias = (
    ConnectEvent | SubscribeEvent | UnsubscribeEvent | AuthEvent | ClosedEvent | SessionOverflowEvent
)

@final
class InFlight:
    """A message of QoS 1 or 2 that a client has not finished with, under its packet id.

    `publisher`, `sequence`: its id (§7.4 of docs/protocol.md); 0: the network does not bring it again. `is_received`: PUBREC came, and PUBREL is
    owed; with `packet_id` 0 PUBCOMP came, too, and the network has not heard of it.
    """

    def __new__(
        cls, packet_id: int, publisher: int, sequence: int, qos: int, is_received: bool = False
    ) -> InFlight: ...

    packet_id: int
    publisher: int
    sequence: int
    qos: int
    is_received: bool

@final
class SessionState:
    """What MQTT 5 §4.1 wants kept of a session beside its subscriptions. `received`: packet ids of QoS 2 messages from the client that
    wait for its PUBREL. `block`: the eighth of the packet ids, from 0, out of which new messages get theirs."""

    def __new__(
        cls, in_flight: Sequence[InFlight] = ..., received: Sequence[int] = ..., block: int = 0
    ) -> SessionState: ...

    in_flight: tuple[InFlight, ...]
    received: tuple[int, ...]
    block: int

@final
class ConnectionStatus:
    """How an accepted connection is: PUBLISH packets and bytes over it, what waits here for it, what did not go to it."""

    connection: int
    session: int
    listener: int
    peer: _Address
    client_id: str
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    queued: int
    queued_bytes: int
    in_flight: int
    dropped: int

@final
class AttemptSource:
    """Where an attempt comes from: hashes under the key of its `Attempts`."""

    @property
    def address(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Attempts:
    """How many passwords may be guessed, by whom and for whom. Times are µs of the core's clock. Usable from several threads."""

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
        """Buckets as (burst, µs until one more, what a client is told): of an address with a name, an address, a name, and of all
        attempts of an address. `entries`, `known`: so many of each table, and passwords, are kept, and twice as many at most."""
    def source(self, host: str, name: str | None) -> AttemptSource:
        """Of an attempt for `name` by the peer at `host`; None: for no name. Raises ValueError for what is no IP address."""
    def take(self, now: int, source: AttemptSource) -> str | None:
        """Takes the tokens of an attempt; else takes none, and returns the text of the bucket that refuses it."""
    def give_back(self, now: int, source: AttemptSource) -> None:
        """The attempt was no guess."""
    def succeeded(self, now: int, source: AttemptSource) -> None:
        """The password was right: this address is trusted with this name."""
    def asked(self, now: int, source: AttemptSource) -> int:
        """How much the address has asked of late, all that was right left out."""
    def remember(self, name: str, password: bytes) -> None:
        """This password is right: workers leave it to Python. Of each name the last one counts."""
    def set_full(self, is_full: bool) -> None:
        """Whether there is no room. Then workers refuse the addresses that have asked as often as is counted."""
    def refused(self) -> list[tuple[str, int]]:
        """How many attempts workers refused, by what clients were told."""
    def sizes(self) -> tuple[int, int]:
        """Entries of the largest table, and passwords that are known."""

@final
class Gateway(ClientPool):
    """A hive, and an MQTT server in front of it. Its first member publishes what clients publish.

    Messages whose listeners are attached go to clients. Those of the first member that are for no such listener come out of
    `poll_pool_messages`. Verbs for one connection, session or listener take effect in the order of the calls; those for a
    connection that has ended do nothing.
    """

    def __new__(
        cls, config: Config, listen: _Address, workers: int = 0, unfinished_bytes: int = 536_870_912
    ) -> Gateway:
        """`workers`: threads for MQTT; 0: one for each processor. `unfinished_bytes`: of packets that are not whole yet, of all
        clients. Raises OSError."""

    # Listeners
    def open_listener(self, number: int, address: _Address, settings: ListenerSettings) -> _Address:
        """Takes clients in (port 0: any free one); the address. Raises OSError: it is taken, or not here, or so is the number."""
    def set_listener(self, number: int, settings: ListenerSettings) -> None:
        """For who comes from now on. Whoever is in keeps what it came in by."""
    def close_listener(self, number: int) -> None:
        """Takes nobody in there any more."""

    # Connections
    def poll_mqtt(self, limit: int = 1024) -> list[_MqttEvent]:
        """What clients ask. `fileno` is readable, and `wait` returns, as long as there is something."""
    def accept(self, connection: int, accept: Any) -> None:
        """CONNACK with success: `accept` has the attributes of `hbroker.gateway.native_api.Accept`. Its session is one without a connection."""
    def refuse(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        """CONNACK with this code: a reason code of MQTT 5, or, before that, a return code; then closes."""
    def auth(self, connection: int, reason: int, method: str, data: bytes) -> None:
        """AUTH."""
    def disconnect(
        self, connection: int, code: int, *, text: str = "", server_reference: str | None = None
    ) -> None:
        """DISCONNECT, where the version has it for servers, and closes. ClosedEvent follows."""
    def disconnect_all(self, code: int, *, text: str = "", server_reference: str | None = None) -> None:
        """The same for every connection; those that are not accepted yet are refused."""
    def suback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None:
        """SUBACK, and behind it what came for the listeners that waited for it."""
    def unsuback(self, connection: int, packet_id: int, codes: Sequence[int], text: str = "") -> None: ...

    # Sessions
    def open_session(self, state: Any) -> int:
        """A session without a connection. What comes for it waits. `state`: a `SessionState`, or an object with its attributes."""
    def export_session(self, session: int, *, is_over: bool = False) -> SessionState:
        """Ends it here, and its listeners. What came for it through the first member counts as handled; what came through
        another one stays unanswered, so that it comes again to whoever has that member's session next. `is_over`: nobody will;
        then what the client began to get at QoS 2 counts as handled, too (MQTT 5 §4.8.2), before its member says anything else.

        Raises NativeError where it has a connection, or is not here.
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
        """Has messages for this listener go to the session, once the SUBACK with `packet_id` has left; None: at once. Before the member
        listens. `options`: with the attributes `qos`, `no_local`, `retain_as_published`. Raises NativeError for what is no filter."""
    def detach_listener(self, listener: int) -> None:
        """No more messages for it; those that are in the session stay there."""
    def deliver(
        self, listener: int, topic: str, payload: bytes, *, qos: int = 0, retained: bool = False
    ) -> None:
        """Gives it a message of the gateway's own, as if its owner had sent it."""

    # Policy
    def install_acl(self, acl: int, rules: Sequence[Any]) -> None:
        """Makes or replaces an access list, at once for all connections that have it. Rules have the attributes `filter`,
        `is_allowed`, `for_read`, `for_write`. The first that matches and speaks of the act decides; where none does: no."""
    def assign_acl(self, connection: int, acl: int) -> None:
        """A connection has another list from now on. Raises NativeError where there is no such list."""
    def forget_acl(self, acl: int) -> None: ...
    def refuse_guesses(self, attempts: Attempts | None) -> None:
        """A CONNECT with a name and a password, and without a certificate or a method, that these refuse is refused without a
        ConnectEvent, and counted there. None: none is."""

    # Read
    def connections(self, most: int) -> list[ConnectionStatus]: ...
    def gateway_counters(self) -> dict[str, int]:
        """Of all connections since the start: `accepted`, `refused`, `closed`, `bytes_in`, `bytes_out`, `packets_in`, `packets_out`,
        `messages_in`, `messages_out` (PUBLISH), `dropped`, and `drop.<reason>`; and now: `connections`, `sessions`, `sessions_parked`,
        `listeners`, `unanswered` (messages of clients)."""
    def take_load(self) -> Load | None:
        """As `_Core.take_load`, of MQTT clients: `messages_in` is what was taken over from them, `drop.refused` what was not."""
    def shutdown(self, grace_s: float = 0.0) -> None:
        """Takes nobody in any more, waits so long for those who are being told their end, and stops all threads. Idempotent."""

# Topics (§7.1) --------------------------------------------------------------------------------------------------------

def topic_is_valid(topic: str) -> bool: ...
def filter_is_valid(filter: str) -> bool: ...
def topic_matches(filter: str, topic: str) -> bool: ...
def filter_touches(filter: str, subtree: str) -> bool:
    """Whether some topic at or below the subtree can match the filter."""

# For tests and tools ---------------------------------------------------------------------------------------------------

def decode(datagram: bytes) -> tuple[tuple[Any, ...], list[tuple[Any, ...]]] | None:
    """The fast path's view of a datagram: (header, packets), as native/src/python/codec.rs lists their values.

    None where it is malformed. For the test that holds both codecs equal.
    """

def encode(header: tuple[Any, ...], packets: Sequence[tuple[Any, ...]], padding: int = 0) -> bytes:
    """The datagram that `decode` would read so, and `padding` more bytes (1 is impossible: it adds none)."""

def decode_queued(
    record: bytes,
) -> tuple[int, bytes, int, tuple[int | None, int], str, int, bool, tuple[int, int]] | None:
    """(session, publish, qos, (retained_for, shared_for), group, overflow, launched, (queue, number)) of a serialised QueuedRecord. None where it is malformed."""

def encode_queued(
    values: tuple[int, bytes, int, tuple[int | None, int], str, int, bool, tuple[int, int]],
) -> bytes:
    """The QueuedRecord that `decode_queued` would read so."""

def decode_gone(record: bytes) -> tuple[int, int, list[tuple[int, int]], int] | None:
    """(queue, below, [(first, last)], launched) of a serialised GoneRecord. None where it is malformed, or its runs make no sense."""

def encode_gone(values: tuple[int, int, Sequence[tuple[int, int]], int]) -> bytes:
    """The GoneRecord that `decode_gone` would read so; the runs must ascend."""

def decode_seen(record: bytes) -> tuple[int, int, list[tuple[int, int]]] | None:
    """(publisher, floor, [(index, bits)]) of a serialised SeenRecord. None where it is malformed, or its words make no sense."""

def encode_seen(values: tuple[int, int, Sequence[tuple[int, int]]]) -> bytes:
    """The SeenRecord that `decode_seen` would read so. Raises ValueError for words that do not ascend from the floor."""

@final
class SubscriptionTrie:
    """The forwarding table's trie, alone, for property tests and benchmarks."""

    def __new__(cls) -> SubscriptionTrie: ...
    def insert(self, filter: str, subscriber: int) -> bool: ...
    def remove(self, filter: str, subscriber: int) -> bool: ...
    def matches(self, topic: str) -> list[int]: ...
    def __len__(self) -> int: ...
