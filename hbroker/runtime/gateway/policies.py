"""Makes the policy of a gateway as its settings say: from files, or from a class of the operator's own."""

from __future__ import annotations

import importlib
import secrets

from hbroker.config import AccessSettings
from hbroker.errors import ConfigError
from hbroker.gateway.access.password_file import MEMORY_KIB, Passwords
from hbroker.gateway.access.policy import FilePolicy, Policy
from hbroker.runtime.gateway.files import read_rules, read_users
from hbroker.runtime.gateway.hashing import MemoryBudget, Verified
from hbroker.runtime.logs import EventLog

__all__ = ["load_policy"]

_verified = Verified(secrets.token_bytes(32))
_memory = MemoryBudget(MEMORY_KIB)


def load_policy(access: AccessSettings, hook: str = "") -> Policy:
    """Makes the policy. `hook`: `module:name` of a callable that makes it, called with `access`; empty: from
    files.

    Raises ConfigErrors with all errors of a file, and ConfigError if the hook cannot be imported.
    """
    if hook:
        return _hooked(access, hook)
    hashes, rules = read_users(access), read_rules(access)
    users = None if hashes is None else Passwords(hashes, _verified, _memory.taken)
    if users is not None and users.costly:
        EventLog("policy").warning(
            "password_hashes_costly",
            users=len(users.costly),
            remedy=f"a guess for one of them takes more than {MEMORY_KIB // 1024} MiB: "
            f"`hbroker passwd {access.passwords} USER` makes a smaller hash",
        )
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
