"""Reads the files of bridges: passwords and certificates. `require_bridges` checks them before a start."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hbroker.config import BridgeSettings, BridgeTls
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.topology.document import read_text

__all__ = ["password_of", "require_bridges", "tls_context"]

_MODULE: Final = "paho"
_LIBRARY: Final = "install the library for bridges: pip install 'hbroker[bridge]'"


def password_of(settings: BridgeSettings) -> str:
    """The password of a bridge at the other broker; empty: it has none. Raises ConfigErrors if its file
    cannot be read."""
    if not settings.password_file:
        return settings.password
    return read_text(Path(settings.password_file)).rstrip("\r\n")


def tls_context(tls: BridgeTls, bridge: str) -> ssl.SSLContext:
    """What TLS needs. Raises ConfigError if a file is not usable."""
    file = tls.ca
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
        if tls.certificate:
            file = tls.certificate
            context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ValueError) as error:  # An ssl.SSLError is an OSError.
        reason = getattr(error, "strerror", None) or error
        remedy = "name files in PEM, and a key that belongs to the certificate"
        raise ConfigError(f"TLS of the bridge {bridge!r}: {reason}", file=file, remedy=remedy) from None
    context.check_hostname = tls.checks_host
    return context


def require_bridges(bridges: Sequence[BridgeSettings], file: str) -> None:
    """Checks that these bridges can run: the library is there, and their files can be used. `file`: the
    topology file. Raises ConfigErrors with all errors."""
    errors: list[ConfigError] = []
    if bridges and find_spec(_MODULE) is None:
        errors.append(
            ConfigError("the file has bridges, and paho-mqtt is missing", file=file, remedy=_LIBRARY)
        )
    for bridge in bridges:
        try:
            password_of(bridge)
        except ConfigErrors as wrong:
            errors.extend(wrong.errors)
        try:
            if bridge.tls is not None:
                tls_context(bridge.tls, bridge.name)
        except ConfigError as wrong:
            errors.append(wrong)
    if errors:
        raise ConfigErrors(errors)
