"""The native gateway as its process uses it: makes the decisions' events of the core's, and reads files into
bytes."""

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
    SubscribeEvent,
    SubscribeOptions,
    UnsubscribeEvent,
    WillMessage,
)
from hbroker.protocol.packets import Address

__all__ = ["NativeGateway", "mqtt_event", "native_listeners"]


class NativeGateway:
    """The native gateway. Raises OSError if it cannot bind its socket.

    `core`: has the verbs that need no conversion.
    """

    def __init__(self, config: Config, listen: Address, *, workers: int, limits: GatewayLimits) -> None:
        self.core = _native.Gateway(config, listen, workers=workers, unfinished_bytes=limits.unfinished_bytes)
        self._limits = limits

    def open_listener(self, number: int, listener: ListenerSettings) -> int:
        """Begins to accept connections; returns the port. `number`: `ConnectEvent.listener` of these
        connections.

        Raises OSError, and ConfigError if a file of its TLS is unusable.
        """
        (settings,) = native_listeners([listener], self._limits)
        return self.core.open_listener(number, listener.address, settings)[1]

    def set_listeners(self, listeners: Sequence[ListenerSettings], limits: GatewayLimits) -> None:
        """Changes the settings of the open listeners, in the order of their numbers, for later connections.

        Reads the files of TLS again. Raises ConfigError if one is unusable; then no listener has changed.
        """
        made = native_listeners(listeners, limits)
        self._limits = limits
        for number, settings in enumerate(made):
            self.core.set_listener(number, settings)

    def poll_mqtt(self, limit: int) -> list[MqttEvent]:
        """The next events of MQTT clients, at most `limit`."""
        return [mqtt_event(kind, fields) for kind, fields in self.core.poll_mqtt(limit)]


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
        raise ConfigError(f"{what}: {why}", file=file, remedy=remedy) from None


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        remedy = "check its name and your permission to read it"
        raise ConfigError(f"cannot read the file ({error.strerror})", file=file, remedy=remedy) from None


def mqtt_event(kind: str, fields: dict[str, Any]) -> MqttEvent:
    """An event of the core as the decisions take it."""
    if kind == "ConnectEvent" and fields["will"] is not None:
        fields["will"] = WillMessage(**fields["will"])
    elif kind == "SubscribeEvent":
        fields["filters"] = tuple((name, SubscribeOptions(*options)) for name, options in fields["filters"])
    return _EVENTS[kind](**fields)


_EVENTS: Final[dict[str, Callable[..., MqttEvent]]] = {
    event.__name__: event
    for event in (ConnectEvent, SubscribeEvent, UnsubscribeEvent, AuthEvent, ClosedEvent)
}
