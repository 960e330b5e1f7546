"""The native gateway as the decisions use it: converts its classes to theirs, and reads files into bytes.

The native core has classes of its own for the events that it returns. The decisions match on the classes of
`hbroker.gateway.native_api`, which they share with the simulator's fake and with this module. The native core
reads its arguments by attribute, whatever their class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from hbroker import _native
from hbroker._native import Config
from hbroker.config import GatewayLimits, ListenerSettings
from hbroker.errors import ConfigError
from hbroker.gateway.native_api import (
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

__all__ = ["NativeShell", "native_listeners"]


class NativeShell:
    """Implements `hbroker.gateway.native_api.Shell`. Verbs that need no conversion are those of the native
    core.

    Raises OSError if the core cannot bind its socket.
    """

    def __init__(self, config: Config, listen: Address, *, workers: int, limits: GatewayLimits) -> None:
        self._core = _native.Gateway(
            config, listen, workers=workers, unfinished_bytes=limits.unfinished_bytes
        )
        self._limits = limits

    def open_listener(self, number: int, listener: ListenerSettings) -> int:
        """As `Shell.open_listener`."""
        (settings,) = native_listeners([listener], self._limits)
        return self._core.open_listener(number, listener.address, settings)[1]

    def set_listeners(self, listeners: Sequence[ListenerSettings], limits: GatewayLimits) -> None:
        """As `Shell.set_listeners`."""
        made = native_listeners(listeners, limits)
        self._limits = limits
        for number, settings in enumerate(made):
            self._core.set_listener(number, settings)

    def poll_mqtt(self, limit: int = 1024) -> list[MqttEvent]:
        """As `Shell.poll_mqtt`."""
        converted = (
            _EVENTS.get(type(event).__name__, _unknown)(event) for event in self._core.poll_mqtt(limit)
        )
        return [event for event in converted if event is not None]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)


def native_listeners(
    listeners: Sequence[ListenerSettings], limits: GatewayLimits
) -> list[_native.ListenerSettings]:
    """Listeners as the core takes them. Reads their certificates and keys. Raises ConfigError if a file
    cannot be read, or does not have the right content."""
    return [_native_listener(listener, limits) for listener in listeners]


def _native_listener(listener: ListenerSettings, limits: GatewayLimits) -> _native.ListenerSettings:
    tls = listener.tls
    mode = "none"
    if tls is not None and tls.client_ca:
        mode = "required" if tls.needs_certificate else "optional"
    try:
        return _native.ListenerSettings(
            certificates=_read(tls.certificate) if tls else b"",
            key=_read(tls.key) if tls else b"",
            client_authorities=_read(tls.client_ca) if tls and tls.client_ca else b"",
            client_certificates=mode,
            websocket=bool(listener.websocket),
            websocket_path=listener.websocket,
            proxy_protocol=listener.proxy_protocol,
            connections=listener.connections,
            connections_of_host=listener.connections_per_address,
            connect_rate=listener.connect_rate,
            maximum_packet=listener.packet_bytes,
            receive_maximum=limits.in_flight,
            rate=limits.rate,
        )
    except _native.NativeError as error:
        assert tls is not None, "all else was checked when it was read"
        what, _, why = str(error).partition(": ")
        file = {"key": tls.key, "client authority": tls.client_ca}.get(what, tls.certificate)
        remedy = "name files in PEM; the key is that of the first certificate"
        raise ConfigError(f"{what}: {why}", file=file, line=None, remedy=remedy) from None


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        remedy = "check its name and your permission to read it"
        raise ConfigError(
            f"cannot read the file ({error.strerror})", file=file, line=None, remedy=remedy
        ) from None


def _connect(native: Any) -> ConnectEvent:
    return ConnectEvent(
        connection=native.connection,
        listener=native.listener,
        peer=native.peer,
        version=native.version,
        is_bridge=native.is_bridge,
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
    """Ignores an event that no decision handles."""


_EVENTS: Final[dict[str, Callable[[Any], MqttEvent | None]]] = {
    "ConnectEvent": _connect,
    "SubscribeEvent": _subscribe,
    "UnsubscribeEvent": _unsubscribe,
    "AuthEvent": _auth,
    "ClosedEvent": _closed,
    "SessionOverflowEvent": _overflow,
}
