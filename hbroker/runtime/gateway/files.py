"""Reads the files of gateways: users, rules, keys of tokens, certificates. `require_files` checks them before
a start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.error import URLError
from urllib.request import urlopen

from hbroker.config import AccessSettings, GatewaySettings
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.gateway.access import acl_file, password_file
from hbroker.gateway.access.acl_file import Acl
from hbroker.runtime.gateway.native_gateway import native_listeners
from hbroker.topology.document import read_text

if TYPE_CHECKING:
    from hbroker.gateway.access.web_tokens import WebTokens

__all__ = ["read_rules", "read_tokens", "read_users", "require_files"]

_FETCH_S: Final = 10.0
_MOST_KEY_BYTES: Final = 1 << 20


def read_users(access: AccessSettings) -> dict[str, str] | None:
    """The password hash of each user; None: the settings name no file. Raises ConfigErrors with all
    errors."""
    file = access.passwords
    return password_file.parse(read_text(Path(file)), file) if file else None


def read_rules(access: AccessSettings) -> Acl | None:
    """The access rules; None: the settings name no file. Raises ConfigErrors with all errors."""
    return acl_file.parse(read_text(Path(access.acl)), access.acl) if access.acl else None


def read_tokens(access: AccessSettings) -> WebTokens | None:
    """What verifies tokens; None: there are no tokens. Fetches the keys, if they are at a URL, for up to ten
    seconds. Raises ConfigError and ConfigErrors."""
    keys = access.jwt_keys
    if not keys:
        return None
    from hbroker.gateway.access.web_tokens import WebTokens

    text = _fetched(keys) if _is_url(keys) else read_text(Path(keys))
    return WebTokens(text, keys, issuer=access.jwt_issuer, audience=access.jwt_audience, unix_s=time.time)


def _is_url(keys: str) -> bool:
    return keys.startswith(("https://", "http://"))


def _fetched(url: str) -> str:
    """What is at a URL. Raises ConfigError."""
    try:
        with urlopen(url, timeout=_FETCH_S) as answer:
            content: bytes = answer.read(_MOST_KEY_BYTES + 1)
        if len(content) > _MOST_KEY_BYTES:
            raise ValueError(f"it has over {_MOST_KEY_BYTES} bytes")
        return content.decode()
    except (URLError, OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        remedy = "check the URL, and that this host reaches it"
        raise ConfigError(f"cannot read the keys of tokens: {reason}", file=url, remedy=remedy) from None


def require_files(gateways: Sequence[GatewaySettings]) -> None:
    """Reads all files of these gateways, and nothing from other hosts. Raises ConfigErrors with all errors,
    each once."""
    errors: dict[str, ConfigError] = {}
    for gateway in gateways:
        reads: list[Callable[[], object]] = [
            partial(read_users, gateway.access),
            partial(read_rules, gateway.access),
            partial(_read_token_file, gateway.access),
            *(partial(native_listeners, [listener], gateway.limits) for listener in gateway.listeners),
        ]
        for error in (error for read in reads for error in _errors(read)):
            errors.setdefault(str(error), error)
    if errors:
        raise ConfigErrors(tuple(errors.values()))


def _read_token_file(access: AccessSettings) -> WebTokens | None:
    return None if _is_url(access.jwt_keys) else read_tokens(access)


def _errors(read: Callable[[], object]) -> tuple[ConfigError, ...]:
    try:
        read()
    except ConfigErrors as wrong:
        return wrong.errors
    except ConfigError as wrong:
        return (wrong,)
    return ()
