"""The file of access rules, in mosquitto's syntax.

    # before the first `user`: clients without a user name
    topic read public/#
    user alice
    topic readwrite home/#
    topic deny home/bedroom/#
    # for everybody; %c: the client id, %u: the user name
    pattern write devices/%c/status

The rules of a client are those of its user, then the patterns. In each of the two, `deny` rules come first,
wherever they stand in the file. The first rule that matches decides. If none matches, the access is denied.
If a client's id or user name holds `+`, `#` or `/`, the patterns that name it do not apply to the client: it
could write itself into the rules of others.

Topics that begin with `$` belong to the network, whatever a file says. Clients read `$SYS` alone, as far as a
rule allows it; a rule with a wildcard at its first level does not match these topics. Clients write only
`$SYS/broker/connection/<id>/state`, where a bridge publishes whether it is connected. With a file, a rule
must allow that, as with mosquitto.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hbroker._native import filter_is_valid, topic_matches
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.gateway.native_api import Rule
from hbroker.topic_filters import covers, overlap

__all__ = ["BRIDGE_STATE", "OPEN", "Acl", "is_writable", "may_read_some", "may_write", "parse"]

BRIDGE_STATE: Final = "$SYS/broker/connection/+/state"
"""Where bridges of other brokers publish whether they are connected: `1`, and as a will `0`, both retained
(`notifications` in mosquitto.conf)."""

_ACCESS: Final = {
    "read": (True, True, False),
    "write": (True, False, True),
    "readwrite": (True, True, True),
    "deny": (False, True, True),
}
_KEYWORDS: Final = ("user", "topic", "pattern")
_SIGNS: Final = frozenset("+#/")
_MARK: Final = re.compile("%[cu]")


@dataclass(frozen=True, slots=True)
class Acl:
    """The rules of one file. `users`: by user name; None: clients without one. `patterns`: with `%c` and `%u`
    as they are written."""

    users: dict[str | None, tuple[Rule, ...]] = field(default_factory=dict)
    patterns: tuple[Rule, ...] = ()

    def rules(self, username: str | None, client_id: str) -> tuple[Rule, ...]:
        """The rules of one client, in the order in which they are applied."""
        return (*self.users.get(username, ()), *_filled(self.patterns, username, client_id))

    @property
    def names_clients(self) -> bool:
        """Whether two clients of one user may have different rules."""
        return any("%c" in rule.filter for rule in self.patterns)


OPEN: Final = (
    Rule("#", True, True, True),
    Rule(BRIDGE_STATE, True, True, True),
    Rule("$SYS/#", True, True, False),
)
"""The rules without a file: every topic that is not the network's own, the states of bridges, and reading
`$SYS`."""


def is_writable(topic: str) -> bool:
    """Whether a rule can allow clients to publish to this topic."""
    return not topic.startswith("$") or topic_matches(BRIDGE_STATE, topic)


def may_write(rules: Iterable[Rule], topic: str) -> bool:
    """Whether a client with these rules may publish to a topic."""
    if not is_writable(topic):
        return False
    return next((r.is_allowed for r in rules if r.for_write and topic_matches(r.filter, topic)), False)


def may_read_some(rules: Sequence[Rule], filter: str) -> bool:
    """Whether a subscription to `filter` could bring a message: the client may read some topic that matches.

    It may return True wrongly if only several `deny` rules together cover the filter. Each message is checked
    again when it is delivered.
    """
    for rule in rules:
        if not rule.for_read:
            continue
        if rule.is_allowed and overlap(rule.filter, filter):
            return True
        if not rule.is_allowed and covers(rule.filter, filter):
            return False
    return False


def parse(text: str, file: str) -> Acl:
    """The rules of a file's text. Raises ConfigErrors with every error in it."""
    errors: list[ConfigError] = []
    users: dict[str | None, list[Rule]] = {}
    patterns: list[Rule] = []
    user: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        keyword, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        wrong: tuple[str, str] | None = None
        if not keyword or keyword.startswith("#"):
            continue
        if keyword == "user":
            user = rest
            wrong = None if rest else ("`user` names nobody", "write `user <name>`")
        elif keyword in ("topic", "pattern"):
            read = _rule(rest, with_names=keyword == "pattern")
            if isinstance(read, Rule):
                (users.setdefault(user, []) if keyword == "topic" else patterns).append(read)
            else:
                wrong = read
        else:
            wrong = (f"{keyword[:40]!r} is not known here", f"begin the line with {_listed(_KEYWORDS)}, or #")
        if wrong is not None:
            errors.append(ConfigError(wrong[0], file=file, line=number, remedy=wrong[1]))
    if errors:
        raise ConfigErrors(errors)
    return Acl({name: _ordered(rules) for name, rules in users.items()}, _ordered(patterns))


def _rule(text: str, *, with_names: bool) -> Rule | tuple[str, str]:
    """A rule, or its error and the remedy. A rule without an access word is `readwrite`."""
    word, _, rest = text.partition(" ")
    access, filter = (word, rest.strip()) if word in _ACCESS and rest.strip() else ("readwrite", text)
    if not filter or filter in _ACCESS:
        return "the rule names no topic", "write `[read|write|readwrite|deny] <filter>` behind it"
    if not filter_is_valid(filter):
        return (
            f"{filter[:80]!r} is not a topic filter",
            "put `+` alone into a level, and `#` alone at the end",
        )
    if not with_names and ("%c" in filter or "%u" in filter):
        return f"{filter[:80]!r} has %c or %u, which a `topic` does not know", "write `pattern` for `topic`"
    return Rule(filter, *_ACCESS[access])


def _ordered(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(sorted(rules, key=lambda rule: rule.is_allowed))


def _filled(patterns: Iterable[Rule], username: str | None, client_id: str) -> Iterable[Rule]:
    names = {"%c": client_id, "%u": username}
    known = {mark: name for mark, name in names.items() if name is not None and not _SIGNS & set(name)}
    for rule in patterns:
        if not known.keys() >= set(_MARK.findall(rule.filter)):
            continue
        # All at once: the client id "%u" must not be replaced by a user name.
        filter = _MARK.sub(lambda mark: known[mark[0]], rule.filter)
        if filter_is_valid(filter):
            yield Rule(filter, rule.is_allowed, rule.for_read, rule.for_write)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
