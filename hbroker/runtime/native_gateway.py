"""The native gateway as the decisions see it: its frozen classes become theirs, files become bytes.

The core makes classes of its own for what comes out; the decisions match on those of
`hbroker.gateway.border`, which they, the simulator's fake and this module share. What goes in is read by
attribute, whatever its class.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hbroker import _native
from hbroker._native import Config
from hbroker.config import GatewayLimits, ListenerSettings
from hbroker.gateway.border import (
    AuthEvent,
    ClosedEvent,
    ConnectEvent,
    MqttEvent,
    SessionOverflowEvent,
    SubscribeEvent,
    SubscribeOptions,
    UnsubscribeEvent,
    WillMessage,
)
from hbroker.protocol.packets import Address

__all__ = ["NativeShell"]


class NativeShell:
    """See `hbroker.gateway.border.Shell`. Verbs that need no translation are the core's own.

    Raises OSError where the core cannot listen.
    """

    def __init__(self, config: Config, listen: Address, *, workers: int, limits: GatewayLimits) -> None:
        self._core = _native.Gateway(config, listen, workers=workers)
        self._limits = limits

    def open_listener(self, number: int, listener: ListenerSettings) -> int:
        """See `Shell`. Raises OSError for a file that cannot be read, NativeError for one that is no PEM."""
        tls = listener.tls
        mode = "none"
        if tls is not None and tls.client_ca:
            mode = "required" if tls.needs_certificate else "optional"
        settings = _native.ListenerSettings(
            certificates=Path(tls.certificate).read_bytes() if tls else b"",
            key=Path(tls.key).read_bytes() if tls else b"",
            client_authorities=Path(tls.client_ca).read_bytes() if tls and tls.client_ca else b"",
            client_certificates=mode,
            websocket=bool(listener.websocket),
            websocket_path=listener.websocket,
            proxy_protocol=listener.proxy_protocol,
            connections=listener.connections,
            connect_rate=listener.connect_rate,
            maximum_packet=listener.packet_bytes,
            receive_maximum=self._limits.in_flight,
            rate=self._limits.rate,
        )
        return self._core.open_listener(number, listener.address, settings)[1]

    def poll_mqtt(self, limit: int = 1024) -> list[MqttEvent]:
        """See `Shell`."""
        told = (_EVENTS.get(type(event).__name__, _unknown)(event) for event in self._core.poll_mqtt(limit))
        return [event for event in told if event is not None]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)


def _connect(native: Any) -> ConnectEvent:
    return ConnectEvent(
        connection=native.connection,
        listener=native.listener,
        peer=native.peer,
        version=native.version,
        client_id=native.client_id,
        clean_start=native.clean_start,
        certificate=native.certificate_name,
        username=native.username,
        password=native.password,
        keep_alive_s=native.keep_alive_s,
        will=None if native.will is None else _will(native.will),
        session_expiry_s=native.session_expiry_s,
        receive_maximum=native.receive_maximum,
        maximum_packet_size=native.maximum_packet_size,
        topic_alias_maximum=native.topic_alias_maximum,
        wants_response_information=native.wants_response_information,
        wants_problem_information=native.wants_problem_information,
        user_properties=native.user_properties,
        auth_method=native.auth_method,
        auth_data=native.auth_data,
    )


def _will(native: Any) -> WillMessage:
    return WillMessage(
        topic=native.topic,
        payload=native.payload,
        qos=native.qos,
        retain=native.retain,
        delay_s=native.delay_s,
        expiry_s=native.expiry_s,
        content_type=native.content_type,
        payload_format=native.payload_format,
        response_topic=native.response_topic,
        correlation_data=native.correlation_data,
        user_properties=native.user_properties,
    )


def _subscribe(native: Any) -> SubscribeEvent:
    filters = tuple((filter, _options(options)) for filter, options in native.filters)
    return SubscribeEvent(native.connection, native.packet_id, filters, native.identifier)


def _options(native: Any) -> SubscribeOptions:
    return SubscribeOptions(native.qos, native.no_local, native.retain_as_published, native.retain_handling)


def _unsubscribe(native: Any) -> UnsubscribeEvent:
    return UnsubscribeEvent(native.connection, native.packet_id, tuple(native.filters))


def _auth(native: Any) -> AuthEvent:
    return AuthEvent(native.connection, native.reason, native.method, native.data)


def _closed(native: Any) -> ClosedEvent:
    return ClosedEvent(native.connection, native.cause, native.reason, native.session_expiry_s)


def _overflow(native: Any) -> SessionOverflowEvent:
    return SessionOverflowEvent(native.session)


def _unknown(native: Any) -> None:
    """Nothing that a decision waits for."""


_EVENTS: Final[dict[str, Callable[[Any], MqttEvent | None]]] = {
    "ConnectEvent": _connect,
    "SubscribeEvent": _subscribe,
    "UnsubscribeEvent": _unsubscribe,
    "AuthEvent": _auth,
    "ClosedEvent": _closed,
    "SessionOverflowEvent": _overflow,
}
