from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_SUCCESS: _ClassVar[Reason]
    REASON_NO_MATCHING_SUBSCRIBERS: _ClassVar[Reason]
    REASON_NOT_RESPONSIBLE: _ClassVar[Reason]
    REASON_HANDOVER: _ClassVar[Reason]
    REASON_ADDRESS_UNPROVEN: _ClassVar[Reason]
    REASON_NOT_AUTHORIZED: _ClassVar[Reason]
    REASON_OVERLAP: _ClassVar[Reason]
    REASON_OUTSIDE_JURISDICTION: _ClassVar[Reason]
    REASON_STALE_EPOCH: _ClassVar[Reason]
    REASON_TOPIC_NAME_INVALID: _ClassVar[Reason]
    REASON_TOPIC_FILTER_INVALID: _ClassVar[Reason]
    REASON_QUOTA_EXCEEDED: _ClassVar[Reason]
    REASON_OWNER_UNREACHABLE: _ClassVar[Reason]
    REASON_NOT_SERVING: _ClassVar[Reason]
    REASON_PACKET_TOO_LARGE: _ClassVar[Reason]
    REASON_PROTOCOL_ERROR: _ClassVar[Reason]
    REASON_NO_SUBSCRIPTION_EXISTED: _ClassVar[Reason]
    REASON_NORMAL_DISCONNECTION: _ClassVar[Reason]
    REASON_MESSAGE_EXPIRED: _ClassVar[Reason]
    REASON_DISCONNECT_WITH_WILL: _ClassVar[Reason]
    REASON_SESSION_TAKEN_OVER: _ClassVar[Reason]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_RECURSIVE: _ClassVar[Mode]
    MODE_REFERRAL: _ClassVar[Mode]

class Qos(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QOS_AT_MOST_ONCE: _ClassVar[Qos]
    QOS_AT_LEAST_ONCE: _ClassVar[Qos]
    QOS_EXACTLY_ONCE: _ClassVar[Qos]

class PayloadFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAYLOAD_FORMAT_BYTES: _ClassVar[PayloadFormat]
    PAYLOAD_FORMAT_UTF8: _ClassVar[PayloadFormat]

class AckMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK_MODE_DISTRIBUTED: _ClassVar[AckMode]
    ACK_MODE_QUEUED: _ClassVar[AckMode]

class RetainHandling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETAIN_HANDLING_SEND: _ClassVar[RetainHandling]
    RETAIN_HANDLING_SEND_IF_NEW: _ClassVar[RetainHandling]
    RETAIN_HANDLING_DO_NOT_SEND: _ClassVar[RetainHandling]

class Overflow(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERFLOW_DROP_OLDEST: _ClassVar[Overflow]
    OVERFLOW_DROP_NEWEST: _ClassVar[Overflow]
    OVERFLOW_END_SESSION: _ClassVar[Overflow]

class LeasePolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEASE_POLICY_FENCE: _ClassVar[LeasePolicy]
    LEASE_POLICY_SERVE: _ClassVar[LeasePolicy]

class OrderKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORDER_KIND_UNSPECIFIED: _ClassVar[OrderKind]
    ORDER_KIND_LEAVE: _ClassVar[OrderKind]
    ORDER_KIND_CLAIM: _ClassVar[OrderKind]
    ORDER_KIND_HAND_BACK: _ClassVar[OrderKind]
    ORDER_KIND_LOG_DEBUG: _ClassVar[OrderKind]
    ORDER_KIND_LOG_INFO: _ClassVar[OrderKind]
    ORDER_KIND_LOG_WARNING: _ClassVar[OrderKind]
    ORDER_KIND_LOG_ERROR: _ClassVar[OrderKind]

class TransferPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSFER_PHASE_RECORDS: _ClassVar[TransferPhase]
    TRANSFER_PHASE_READY: _ClassVar[TransferPhase]
    TRANSFER_PHASE_COMMIT: _ClassVar[TransferPhase]
    TRANSFER_PHASE_DONE: _ClassVar[TransferPhase]
REASON_SUCCESS: Reason
REASON_NO_MATCHING_SUBSCRIBERS: Reason
REASON_NOT_RESPONSIBLE: Reason
REASON_HANDOVER: Reason
REASON_ADDRESS_UNPROVEN: Reason
REASON_NOT_AUTHORIZED: Reason
REASON_OVERLAP: Reason
REASON_OUTSIDE_JURISDICTION: Reason
REASON_STALE_EPOCH: Reason
REASON_TOPIC_NAME_INVALID: Reason
REASON_TOPIC_FILTER_INVALID: Reason
REASON_QUOTA_EXCEEDED: Reason
REASON_OWNER_UNREACHABLE: Reason
REASON_NOT_SERVING: Reason
REASON_PACKET_TOO_LARGE: Reason
REASON_PROTOCOL_ERROR: Reason
REASON_NO_SUBSCRIPTION_EXISTED: Reason
REASON_NORMAL_DISCONNECTION: Reason
REASON_MESSAGE_EXPIRED: Reason
REASON_DISCONNECT_WITH_WILL: Reason
REASON_SESSION_TAKEN_OVER: Reason
MODE_RECURSIVE: Mode
MODE_REFERRAL: Mode
QOS_AT_MOST_ONCE: Qos
QOS_AT_LEAST_ONCE: Qos
QOS_EXACTLY_ONCE: Qos
PAYLOAD_FORMAT_BYTES: PayloadFormat
PAYLOAD_FORMAT_UTF8: PayloadFormat
ACK_MODE_DISTRIBUTED: AckMode
ACK_MODE_QUEUED: AckMode
RETAIN_HANDLING_SEND: RetainHandling
RETAIN_HANDLING_SEND_IF_NEW: RetainHandling
RETAIN_HANDLING_DO_NOT_SEND: RetainHandling
OVERFLOW_DROP_OLDEST: Overflow
OVERFLOW_DROP_NEWEST: Overflow
OVERFLOW_END_SESSION: Overflow
LEASE_POLICY_FENCE: LeasePolicy
LEASE_POLICY_SERVE: LeasePolicy
ORDER_KIND_UNSPECIFIED: OrderKind
ORDER_KIND_LEAVE: OrderKind
ORDER_KIND_CLAIM: OrderKind
ORDER_KIND_HAND_BACK: OrderKind
ORDER_KIND_LOG_DEBUG: OrderKind
ORDER_KIND_LOG_INFO: OrderKind
ORDER_KIND_LOG_WARNING: OrderKind
ORDER_KIND_LOG_ERROR: OrderKind
TRANSFER_PHASE_RECORDS: TransferPhase
TRANSFER_PHASE_READY: TransferPhase
TRANSFER_PHASE_COMMIT: TransferPhase
TRANSFER_PHASE_DONE: TransferPhase

class Datagram(_message.Message):
    __slots__ = ("header", "packets", "padding")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    header: Header
    packets: _containers.RepeatedCompositeFieldContainer[Packet]
    padding: bytes
    def __init__(self, header: _Optional[_Union[Header, _Mapping[str, object]]] = ..., packets: _Optional[_Iterable[_Union[Packet, _Mapping[str, object]]]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("session", "incarnation", "number", "ack", "token", "ack_every")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACK_EVERY_FIELD_NUMBER: _ClassVar[int]
    session: int
    incarnation: int
    number: int
    ack: Ack
    token: bytes
    ack_every: int
    def __init__(self, session: _Optional[int] = ..., incarnation: _Optional[int] = ..., number: _Optional[int] = ..., ack: _Optional[_Union[Ack, _Mapping[str, object]]] = ..., token: _Optional[bytes] = ..., ack_every: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("largest", "delay_us", "ranges")
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    DELAY_US_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    largest: int
    delay_us: int
    ranges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, largest: _Optional[int] = ..., delay_us: _Optional[int] = ..., ranges: _Optional[_Iterable[int]] = ...) -> None: ...

class Packet(_message.Message):
    __slots__ = ("delivery", "after", "retained_for", "shared_for", "publish", "again", "puback", "pubconnect", "pubaccept", "subscribe", "suback", "unsubscribe", "ping", "pong", "join", "joinack", "leave", "challenge", "referral", "reset", "transfer", "credit", "will", "willack", "order", "orderack", "authenticated", "revoked", "audit")
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FOR_FIELD_NUMBER: _ClassVar[int]
    SHARED_FOR_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    PUBACK_FIELD_NUMBER: _ClassVar[int]
    PUBCONNECT_FIELD_NUMBER: _ClassVar[int]
    PUBACCEPT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    SUBACK_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    JOINACK_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    REFERRAL_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    WILL_FIELD_NUMBER: _ClassVar[int]
    WILLACK_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ORDERACK_FIELD_NUMBER: _ClassVar[int]
    AUTHENTICATED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    delivery: int
    after: int
    retained_for: int
    shared_for: int
    publish: Publish
    again: bytes
    puback: PubAck
    pubconnect: PubConnect
    pubaccept: PubAccept
    subscribe: Subscribe
    suback: SubAck
    unsubscribe: Unsubscribe
    ping: Ping
    pong: Pong
    join: Join
    joinack: JoinAck
    leave: Leave
    challenge: Challenge
    referral: Referral
    reset: Reset
    transfer: Transfer
    credit: Credit
    will: Will
    willack: WillAck
    order: Order
    orderack: OrderAck
    authenticated: Authenticated
    revoked: Revoked
    audit: Audit
    def __init__(self, delivery: _Optional[int] = ..., after: _Optional[int] = ..., retained_for: _Optional[int] = ..., shared_for: _Optional[int] = ..., publish: _Optional[_Union[Publish, _Mapping[str, object]]] = ..., again: _Optional[bytes] = ..., puback: _Optional[_Union[PubAck, _Mapping[str, object]]] = ..., pubconnect: _Optional[_Union[PubConnect, _Mapping[str, object]]] = ..., pubaccept: _Optional[_Union[PubAccept, _Mapping[str, object]]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping[str, object]]] = ..., suback: _Optional[_Union[SubAck, _Mapping[str, object]]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping[str, object]]] = ..., ping: _Optional[_Union[Ping, _Mapping[str, object]]] = ..., pong: _Optional[_Union[Pong, _Mapping[str, object]]] = ..., join: _Optional[_Union[Join, _Mapping[str, object]]] = ..., joinack: _Optional[_Union[JoinAck, _Mapping[str, object]]] = ..., leave: _Optional[_Union[Leave, _Mapping[str, object]]] = ..., challenge: _Optional[_Union[Challenge, _Mapping[str, object]]] = ..., referral: _Optional[_Union[Referral, _Mapping[str, object]]] = ..., reset: _Optional[_Union[Reset, _Mapping[str, object]]] = ..., transfer: _Optional[_Union[Transfer, _Mapping[str, object]]] = ..., credit: _Optional[_Union[Credit, _Mapping[str, object]]] = ..., will: _Optional[_Union[Will, _Mapping[str, object]]] = ..., willack: _Optional[_Union[WillAck, _Mapping[str, object]]] = ..., order: _Optional[_Union[Order, _Mapping[str, object]]] = ..., orderack: _Optional[_Union[OrderAck, _Mapping[str, object]]] = ..., authenticated: _Optional[_Union[Authenticated, _Mapping[str, object]]] = ..., revoked: _Optional[_Union[Revoked, _Mapping[str, object]]] = ..., audit: _Optional[_Union[Audit, _Mapping[str, object]]] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("ip", "port")
    IP_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ip: bytes
    port: int
    def __init__(self, ip: _Optional[bytes] = ..., port: _Optional[int] = ...) -> None: ...

class Cut(_message.Message):
    __slots__ = ("subtree", "node", "address", "epoch")
    SUBTREE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    subtree: str
    node: str
    address: Address
    epoch: int
    def __init__(self, subtree: _Optional[str] = ..., node: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping[str, object]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class Zone(_message.Message):
    __slots__ = ("subtree", "epoch", "serial", "scope", "cuts")
    SUBTREE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    subtree: str
    epoch: int
    serial: int
    scope: str
    cuts: _containers.RepeatedCompositeFieldContainer[Cut]
    def __init__(self, subtree: _Optional[str] = ..., epoch: _Optional[int] = ..., serial: _Optional[int] = ..., scope: _Optional[str] = ..., cuts: _Optional[_Iterable[_Union[Cut, _Mapping[str, object]]]] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("address", "hops", "rights")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    address: Address
    hops: int
    rights: int
    def __init__(self, address: _Optional[_Union[Address, _Mapping[str, object]]] = ..., hops: _Optional[int] = ..., rights: _Optional[int] = ...) -> None: ...

class Fragment(_message.Message):
    __slots__ = ("index", "count", "total")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    index: int
    count: int
    total: int
    def __init__(self, index: _Optional[int] = ..., count: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class UserProperty(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("topic", "payload", "publisher", "sequence", "qos", "retain", "published_at_us", "expiry_s", "fragment", "ack_mode", "content_type", "payload_format", "response_topic", "correlation_data", "user_properties", "origin")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_S_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    ACK_MODE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_DATA_FIELD_NUMBER: _ClassVar[int]
    USER_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    payload: bytes
    publisher: int
    sequence: int
    qos: Qos
    retain: bool
    published_at_us: int
    expiry_s: int
    fragment: Fragment
    ack_mode: AckMode
    content_type: str
    payload_format: PayloadFormat
    response_topic: str
    correlation_data: bytes
    user_properties: _containers.RepeatedCompositeFieldContainer[UserProperty]
    origin: int
    def __init__(self, topic: _Optional[str] = ..., payload: _Optional[bytes] = ..., publisher: _Optional[int] = ..., sequence: _Optional[int] = ..., qos: _Optional[_Union[Qos, str]] = ..., retain: _Optional[bool] = ..., published_at_us: _Optional[int] = ..., expiry_s: _Optional[int] = ..., fragment: _Optional[_Union[Fragment, _Mapping[str, object]]] = ..., ack_mode: _Optional[_Union[AckMode, str]] = ..., content_type: _Optional[str] = ..., payload_format: _Optional[_Union[PayloadFormat, str]] = ..., response_topic: _Optional[str] = ..., correlation_data: _Optional[bytes] = ..., user_properties: _Optional[_Iterable[_Union[UserProperty, _Mapping[str, object]]]] = ..., origin: _Optional[int] = ...) -> None: ...

class PubAck(_message.Message):
    __slots__ = ("ranges", "reason", "referral", "topic")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFERRAL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedScalarFieldContainer[int]
    reason: Reason
    referral: Cut
    topic: str
    def __init__(self, ranges: _Optional[_Iterable[int]] = ..., reason: _Optional[_Union[Reason, str]] = ..., referral: _Optional[_Union[Cut, _Mapping[str, object]]] = ..., topic: _Optional[str] = ...) -> None: ...

class PubConnect(_message.Message):
    __slots__ = ("request", "topic", "mode", "origin")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    request: int
    topic: str
    mode: Mode
    origin: Origin
    def __init__(self, request: _Optional[int] = ..., topic: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., origin: _Optional[_Union[Origin, _Mapping[str, object]]] = ...) -> None: ...

class PubAccept(_message.Message):
    __slots__ = ("request", "reason", "node", "address", "zone", "ttl_s", "subscriptions", "token", "hops")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    request: int
    reason: Reason
    node: str
    address: Address
    zone: Zone
    ttl_s: int
    subscriptions: int
    token: bytes
    hops: int
    def __init__(self, request: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ..., node: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping[str, object]]] = ..., zone: _Optional[_Union[Zone, _Mapping[str, object]]] = ..., ttl_s: _Optional[int] = ..., subscriptions: _Optional[int] = ..., token: _Optional[bytes] = ..., hops: _Optional[int] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("request", "filter", "qos", "no_local", "retain_as_published", "retain_handling", "mode", "origin", "client", "group", "session_expiry_s", "clean_start", "overflow", "queue_messages", "queue_bytes", "listener", "cleaned")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    NO_LOCAL_FIELD_NUMBER: _ClassVar[int]
    RETAIN_AS_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    RETAIN_HANDLING_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SESSION_EXPIRY_S_FIELD_NUMBER: _ClassVar[int]
    CLEAN_START_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    CLEANED_FIELD_NUMBER: _ClassVar[int]
    request: int
    filter: str
    qos: Qos
    no_local: bool
    retain_as_published: bool
    retain_handling: RetainHandling
    mode: Mode
    origin: Origin
    client: str
    group: str
    session_expiry_s: int
    clean_start: bool
    overflow: Overflow
    queue_messages: int
    queue_bytes: int
    listener: int
    cleaned: bool
    def __init__(self, request: _Optional[int] = ..., filter: _Optional[str] = ..., qos: _Optional[_Union[Qos, str]] = ..., no_local: _Optional[bool] = ..., retain_as_published: _Optional[bool] = ..., retain_handling: _Optional[_Union[RetainHandling, str]] = ..., mode: _Optional[_Union[Mode, str]] = ..., origin: _Optional[_Union[Origin, _Mapping[str, object]]] = ..., client: _Optional[str] = ..., group: _Optional[str] = ..., session_expiry_s: _Optional[int] = ..., clean_start: _Optional[bool] = ..., overflow: _Optional[_Union[Overflow, str]] = ..., queue_messages: _Optional[int] = ..., queue_bytes: _Optional[int] = ..., listener: _Optional[int] = ..., cleaned: _Optional[bool] = ...) -> None: ...

class SubAck(_message.Message):
    __slots__ = ("request", "reason", "node", "address", "filter", "responsible", "active", "passed_to", "token", "qos", "hops", "part", "parts", "list", "group", "resumed", "held")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    RESPONSIBLE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    PASSED_TO_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    request: int
    reason: Reason
    node: str
    address: Address
    filter: str
    responsible: bool
    active: bool
    passed_to: _containers.RepeatedCompositeFieldContainer[Cut]
    token: bytes
    qos: Qos
    hops: int
    part: int
    parts: int
    list: int
    group: str
    resumed: bool
    held: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ..., node: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping[str, object]]] = ..., filter: _Optional[str] = ..., responsible: _Optional[bool] = ..., active: _Optional[bool] = ..., passed_to: _Optional[_Iterable[_Union[Cut, _Mapping[str, object]]]] = ..., token: _Optional[bytes] = ..., qos: _Optional[_Union[Qos, str]] = ..., hops: _Optional[int] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ..., list: _Optional[int] = ..., group: _Optional[str] = ..., resumed: _Optional[bool] = ..., held: _Optional[_Iterable[str]] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("request", "filter", "group")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    request: int
    filter: str
    group: str
    def __init__(self, request: _Optional[int] = ..., filter: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("messages", "bytes", "for_many")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FOR_MANY_FIELD_NUMBER: _ClassVar[int]
    messages: int
    bytes: int
    for_many: bool
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ..., for_many: _Optional[bool] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("sent_at_us",)
    SENT_AT_US_FIELD_NUMBER: _ClassVar[int]
    sent_at_us: int
    def __init__(self, sent_at_us: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("sent_at_us",)
    SENT_AT_US_FIELD_NUMBER: _ClassVar[int]
    sent_at_us: int
    def __init__(self, sent_at_us: _Optional[int] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("request", "node", "subtree", "address", "incarnation", "epoch", "policy", "origin", "credential", "fenced", "nonce", "leaving", "keeps_queues", "revoked")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SUBTREE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    KEEPS_QUEUES_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    request: int
    node: str
    subtree: str
    address: Address
    incarnation: int
    epoch: int
    policy: LeasePolicy
    origin: Origin
    credential: bytes
    fenced: bool
    nonce: int
    leaving: bool
    keeps_queues: bool
    revoked: _containers.RepeatedCompositeFieldContainer[RevokedCount]
    def __init__(self, request: _Optional[int] = ..., node: _Optional[str] = ..., subtree: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping[str, object]]] = ..., incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., policy: _Optional[_Union[LeasePolicy, str]] = ..., origin: _Optional[_Union[Origin, _Mapping[str, object]]] = ..., credential: _Optional[bytes] = ..., fenced: _Optional[bool] = ..., nonce: _Optional[int] = ..., leaving: _Optional[bool] = ..., keeps_queues: _Optional[bool] = ..., revoked: _Optional[_Iterable[_Union[RevokedCount, _Mapping[str, object]]]] = ...) -> None: ...

class RevokedCount(_message.Message):
    __slots__ = ("authority", "count")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    authority: bytes
    count: int
    def __init__(self, authority: _Optional[bytes] = ..., count: _Optional[int] = ...) -> None: ...

class JoinAck(_message.Message):
    __slots__ = ("request", "reason", "node", "address", "subtree", "epoch", "lease_ms", "token", "holder", "policy", "nonce", "credential", "epoch_clock")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SUBTREE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_CLOCK_FIELD_NUMBER: _ClassVar[int]
    request: int
    reason: Reason
    node: str
    address: Address
    subtree: str
    epoch: int
    lease_ms: int
    token: bytes
    holder: Cut
    policy: LeasePolicy
    nonce: int
    credential: bytes
    epoch_clock: int
    def __init__(self, request: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ..., node: _Optional[str] = ..., address: _Optional[_Union[Address, _Mapping[str, object]]] = ..., subtree: _Optional[str] = ..., epoch: _Optional[int] = ..., lease_ms: _Optional[int] = ..., token: _Optional[bytes] = ..., holder: _Optional[_Union[Cut, _Mapping[str, object]]] = ..., policy: _Optional[_Union[LeasePolicy, str]] = ..., nonce: _Optional[int] = ..., credential: _Optional[bytes] = ..., epoch_clock: _Optional[int] = ...) -> None: ...

class Revoked(_message.Message):
    __slots__ = ("authority", "first", "records", "more")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    authority: bytes
    first: int
    records: _containers.RepeatedScalarFieldContainer[bytes]
    more: bool
    def __init__(self, authority: _Optional[bytes] = ..., first: _Optional[int] = ..., records: _Optional[_Iterable[bytes]] = ..., more: _Optional[bool] = ...) -> None: ...

class Audit(_message.Message):
    __slots__ = ("event", "record")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    event: str
    record: bytes
    def __init__(self, event: _Optional[str] = ..., record: _Optional[bytes] = ...) -> None: ...

class Authenticated(_message.Message):
    __slots__ = ("nonce", "sequence", "tag", "packet")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    PACKET_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    sequence: int
    tag: bytes
    packet: bytes
    def __init__(self, nonce: _Optional[int] = ..., sequence: _Optional[int] = ..., tag: _Optional[bytes] = ..., packet: _Optional[bytes] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("request", "subtree", "epoch", "reason", "keep_session", "session")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SUBTREE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KEEP_SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    request: int
    subtree: str
    epoch: int
    reason: Reason
    keep_session: bool
    session: int
    def __init__(self, request: _Optional[int] = ..., subtree: _Optional[str] = ..., epoch: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ..., keep_session: _Optional[bool] = ..., session: _Optional[int] = ...) -> None: ...

class Will(_message.Message):
    __slots__ = ("request", "publish", "delay_s", "session_expiry_s")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    SESSION_EXPIRY_S_FIELD_NUMBER: _ClassVar[int]
    request: int
    publish: bytes
    delay_s: int
    session_expiry_s: int
    def __init__(self, request: _Optional[int] = ..., publish: _Optional[bytes] = ..., delay_s: _Optional[int] = ..., session_expiry_s: _Optional[int] = ...) -> None: ...

class WillAck(_message.Message):
    __slots__ = ("request", "reason", "referral")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFERRAL_FIELD_NUMBER: _ClassVar[int]
    request: int
    reason: Reason
    referral: Cut
    def __init__(self, request: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ..., referral: _Optional[_Union[Cut, _Mapping[str, object]]] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("request", "kind", "node", "subtree", "credential", "nonce")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SUBTREE_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    request: int
    kind: OrderKind
    node: str
    subtree: str
    credential: bytes
    nonce: int
    def __init__(self, request: _Optional[int] = ..., kind: _Optional[_Union[OrderKind, str]] = ..., node: _Optional[str] = ..., subtree: _Optional[str] = ..., credential: _Optional[bytes] = ..., nonce: _Optional[int] = ...) -> None: ...

class OrderAck(_message.Message):
    __slots__ = ("request", "reason", "node", "done", "text", "nonce")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    request: int
    reason: Reason
    node: str
    done: bool
    text: str
    nonce: int
    def __init__(self, request: _Optional[int] = ..., reason: _Optional[_Union[Reason, str]] = ..., node: _Optional[str] = ..., done: _Optional[bool] = ..., text: _Optional[str] = ..., nonce: _Optional[int] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("token", "lifetime_s")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_S_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    lifetime_s: int
    def __init__(self, token: _Optional[bytes] = ..., lifetime_s: _Optional[int] = ...) -> None: ...

class Referral(_message.Message):
    __slots__ = ("request", "node", "zone", "next")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    request: int
    node: str
    zone: Zone
    next: Cut
    def __init__(self, request: _Optional[int] = ..., node: _Optional[str] = ..., zone: _Optional[_Union[Zone, _Mapping[str, object]]] = ..., next: _Optional[_Union[Cut, _Mapping[str, object]]] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ("session", "token", "reason")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    session: int
    token: bytes
    reason: Reason
    def __init__(self, session: _Optional[int] = ..., token: _Optional[bytes] = ..., reason: _Optional[_Union[Reason, str]] = ...) -> None: ...

class SubscriptionRecord(_message.Message):
    __slots__ = ("filter", "qos", "no_local", "retain_as_published", "session", "address", "client", "group", "overflow", "interrupted", "rights")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    NO_LOCAL_FIELD_NUMBER: _ClassVar[int]
    RETAIN_AS_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    filter: str
    qos: Qos
    no_local: bool
    retain_as_published: bool
    session: int
    address: Address
    client: str
    group: str
    overflow: Overflow
    interrupted: bool
    rights: int
    def __init__(self, filter: _Optional[str] = ..., qos: _Optional[_Union[Qos, str]] = ..., no_local: _Optional[bool] = ..., retain_as_published: _Optional[bool] = ..., session: _Optional[int] = ..., address: _Optional[_Union[Address, _Mapping[str, object]]] = ..., client: _Optional[str] = ..., group: _Optional[str] = ..., overflow: _Optional[_Union[Overflow, str]] = ..., interrupted: _Optional[bool] = ..., rights: _Optional[int] = ...) -> None: ...

class SessionRecord(_message.Message):
    __slots__ = ("session", "session_expiry_s", "offline_us", "queue_messages", "queue_bytes", "begun_us", "begun_by", "lost", "rights")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_EXPIRY_S_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_US_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEGUN_US_FIELD_NUMBER: _ClassVar[int]
    BEGUN_BY_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    session: int
    session_expiry_s: int
    offline_us: int
    queue_messages: int
    queue_bytes: int
    begun_us: int
    begun_by: int
    lost: bool
    rights: int
    def __init__(self, session: _Optional[int] = ..., session_expiry_s: _Optional[int] = ..., offline_us: _Optional[int] = ..., queue_messages: _Optional[int] = ..., queue_bytes: _Optional[int] = ..., begun_us: _Optional[int] = ..., begun_by: _Optional[int] = ..., lost: _Optional[bool] = ..., rights: _Optional[int] = ...) -> None: ...

class QueuedRecord(_message.Message):
    __slots__ = ("session", "publish", "qos", "retained_for", "group", "overflow", "launched", "shared_for", "queue", "number")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FOR_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    LAUNCHED_FIELD_NUMBER: _ClassVar[int]
    SHARED_FOR_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    session: int
    publish: bytes
    qos: Qos
    retained_for: int
    group: str
    overflow: Overflow
    launched: bool
    shared_for: int
    queue: int
    number: int
    def __init__(self, session: _Optional[int] = ..., publish: _Optional[bytes] = ..., qos: _Optional[_Union[Qos, str]] = ..., retained_for: _Optional[int] = ..., group: _Optional[str] = ..., overflow: _Optional[_Union[Overflow, str]] = ..., launched: _Optional[bool] = ..., shared_for: _Optional[int] = ..., queue: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class GoneRecord(_message.Message):
    __slots__ = ("queue", "below", "runs", "launched")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    LAUNCHED_FIELD_NUMBER: _ClassVar[int]
    queue: int
    below: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    launched: int
    def __init__(self, queue: _Optional[int] = ..., below: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ..., launched: _Optional[int] = ...) -> None: ...

class ReplayRecord(_message.Message):
    __slots__ = ("session", "filter", "qos", "listener", "first")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    session: int
    filter: str
    qos: Qos
    listener: int
    first: str
    def __init__(self, session: _Optional[int] = ..., filter: _Optional[str] = ..., qos: _Optional[_Union[Qos, str]] = ..., listener: _Optional[int] = ..., first: _Optional[str] = ...) -> None: ...

class SeenRecord(_message.Message):
    __slots__ = ("publisher", "floor", "words")
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    publisher: int
    floor: int
    words: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, publisher: _Optional[int] = ..., floor: _Optional[int] = ..., words: _Optional[_Iterable[int]] = ...) -> None: ...

class ChoiceRecord(_message.Message):
    __slots__ = ("publisher", "sequence", "shared_for", "session")
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FOR_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    publisher: int
    sequence: int
    shared_for: int
    session: int
    def __init__(self, publisher: _Optional[int] = ..., sequence: _Optional[int] = ..., shared_for: _Optional[int] = ..., session: _Optional[int] = ...) -> None: ...

class CutRecord(_message.Message):
    __slots__ = ("cut", "incarnation", "policy")
    CUT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    cut: Cut
    incarnation: int
    policy: LeasePolicy
    def __init__(self, cut: _Optional[_Union[Cut, _Mapping[str, object]]] = ..., incarnation: _Optional[int] = ..., policy: _Optional[_Union[LeasePolicy, str]] = ...) -> None: ...

class WillRecord(_message.Message):
    __slots__ = ("session", "publish", "delay_s", "due_us")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    DUE_US_FIELD_NUMBER: _ClassVar[int]
    session: int
    publish: bytes
    delay_s: int
    due_us: int
    def __init__(self, session: _Optional[int] = ..., publish: _Optional[bytes] = ..., delay_s: _Optional[int] = ..., due_us: _Optional[int] = ...) -> None: ...

class GatheringRecord(_message.Message):
    __slots__ = ("subtree", "remaining_us", "epoch", "known")
    SUBTREE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_US_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    subtree: str
    remaining_us: int
    epoch: int
    known: bool
    def __init__(self, subtree: _Optional[str] = ..., remaining_us: _Optional[int] = ..., epoch: _Optional[int] = ..., known: _Optional[bool] = ...) -> None: ...

class Transfer(_message.Message):
    __slots__ = ("subtree", "epoch", "phase", "last", "subscriptions", "retained", "sessions", "queued", "seen", "cuts", "wills", "gathering", "gone", "replays", "choices")
    SUBTREE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    WILLS_FIELD_NUMBER: _ClassVar[int]
    GATHERING_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    subtree: str
    epoch: int
    phase: TransferPhase
    last: bool
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionRecord]
    retained: _containers.RepeatedScalarFieldContainer[bytes]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionRecord]
    queued: _containers.RepeatedCompositeFieldContainer[QueuedRecord]
    seen: _containers.RepeatedCompositeFieldContainer[SeenRecord]
    cuts: _containers.RepeatedCompositeFieldContainer[CutRecord]
    wills: _containers.RepeatedCompositeFieldContainer[WillRecord]
    gathering: _containers.RepeatedCompositeFieldContainer[GatheringRecord]
    gone: _containers.RepeatedCompositeFieldContainer[GoneRecord]
    replays: _containers.RepeatedCompositeFieldContainer[ReplayRecord]
    choices: _containers.RepeatedCompositeFieldContainer[ChoiceRecord]
    def __init__(self, subtree: _Optional[str] = ..., epoch: _Optional[int] = ..., phase: _Optional[_Union[TransferPhase, str]] = ..., last: _Optional[bool] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionRecord, _Mapping[str, object]]]] = ..., retained: _Optional[_Iterable[bytes]] = ..., sessions: _Optional[_Iterable[_Union[SessionRecord, _Mapping[str, object]]]] = ..., queued: _Optional[_Iterable[_Union[QueuedRecord, _Mapping[str, object]]]] = ..., seen: _Optional[_Iterable[_Union[SeenRecord, _Mapping[str, object]]]] = ..., cuts: _Optional[_Iterable[_Union[CutRecord, _Mapping[str, object]]]] = ..., wills: _Optional[_Iterable[_Union[WillRecord, _Mapping[str, object]]]] = ..., gathering: _Optional[_Iterable[_Union[GatheringRecord, _Mapping[str, object]]]] = ..., gone: _Optional[_Iterable[_Union[GoneRecord, _Mapping[str, object]]]] = ..., replays: _Optional[_Iterable[_Union[ReplayRecord, _Mapping[str, object]]]] = ..., choices: _Optional[_Iterable[_Union[ChoiceRecord, _Mapping[str, object]]]] = ...) -> None: ...
