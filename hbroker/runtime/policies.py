"""The policy of a gateway, as its settings name it: files, or a class of somebody's own."""

from __future__ import annotations

import importlib
import secrets
from pathlib import Path

from hbroker.config import AccessSettings
from hbroker.errors import ConfigError
from hbroker.gateway import acl, passwords
from hbroker.gateway.passwords import Passwords
from hbroker.gateway.policy import FilePolicy, Policy
from hbroker.topology.document import read_text

__all__ = ["load_policy"]

_SECRET = secrets.token_bytes(32)


def load_policy(access: AccessSettings, hook: str = "") -> Policy:
    """Reads the files of a policy. `hook`: `module:name` of what makes one, called with the settings.

    Raises ConfigErrors with all that is wrong with a file, ConfigError where there is no such hook.
    """
    if hook:
        return _hooked(access, hook)
    users = rules = None
    if access.passwords:
        users = Passwords(passwords.parse(read_text(Path(access.passwords)), access.passwords), _SECRET)
    if access.acl:
        rules = acl.parse(read_text(Path(access.acl)), access.acl)
    anonymous = users is None if access.anonymous is None else access.anonymous
    return FilePolicy(users, rules, anonymous=anonymous)


def _hooked(access: AccessSettings, hook: str) -> Policy:
    module, _, name = hook.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        remedy = "name it as `module:name`, importable from here"
        raise ConfigError(
            f"no policy {hook!r}: {error}", file="command line", line=None, remedy=remedy
        ) from None
    policy: Policy = make(access)
    return policy
