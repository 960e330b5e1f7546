"""Reads the files of gateways: users, rules, certificates. `require_files` checks them before a start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hbroker.config import AccessSettings, GatewaySettings
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.gateway.access import acl_file, password_file
from hbroker.gateway.access.acl_file import Acl
from hbroker.runtime.gateway.native_gateway import native_listeners
from hbroker.topology.document import read_text

__all__ = ["read_rules", "read_users", "require_files"]


def read_users(access: AccessSettings) -> dict[str, str] | None:
    """The password hash of each user; None: the settings name no file. Raises ConfigErrors with all
    errors."""
    file = access.passwords
    return password_file.parse(read_text(Path(file)), file) if file else None


def read_rules(access: AccessSettings) -> Acl | None:
    """The access rules; None: the settings name no file. Raises ConfigErrors with all errors."""
    return acl_file.parse(read_text(Path(access.acl)), access.acl) if access.acl else None


def require_files(gateways: Sequence[GatewaySettings]) -> None:
    """Reads all files of these gateways. Raises ConfigErrors with all errors, each once."""
    errors: dict[str, ConfigError] = {}
    for gateway in gateways:
        reads: list[Callable[[], object]] = [
            partial(read_users, gateway.access),
            partial(read_rules, gateway.access),
            *(partial(native_listeners, [listener], gateway.limits) for listener in gateway.listeners),
        ]
        for error in (error for read in reads for error in _errors(read)):
            errors.setdefault(str(error), error)
    if errors:
        raise ConfigErrors(tuple(errors.values()))


def _errors(read: Callable[[], object]) -> tuple[ConfigError, ...]:
    try:
        read()
    except ConfigErrors as wrong:
        return wrong.errors
    except ConfigError as wrong:
        return (wrong,)
    return ()
