"""Who may read and write what: a file in mosquitto's syntax.

    # before the first `user`: clients without a user name
    topic read public/#
    user alice
    topic readwrite home/#
    topic deny home/bedroom/#
    # for everybody; %c: the client id, %u: the user name
    pattern write devices/%c/status

The rules of a client are those of its user, then the patterns; in each of the two `deny` goes first, wherever
it stands in the file. The first rule that matches decides; where none does, the answer is no. A client
whose id or user name holds `+`, `#` or `/` gets none of the patterns that name it: it could write itself
into others'.

Whatever a file says, `$` topics are the network's own: clients read `$SYS` alone, and of that what a rule
allows; a rule with a wildcard at its first level says nothing about it. They write to none of them but
`$SYS/broker/connection/<id>/state`, where a bridge tells whether it is connected: with a file of rules if one
of them allows it, as with mosquitto.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hbroker._native import filter_is_valid, topic_matches
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.gateway.native_api import Rule
from hbroker.gateway.subscriptions.filters import covers, overlap

__all__ = ["BRIDGE_STATE", "OPEN", "Acl", "is_writable", "may_read_some", "may_write", "parse"]

BRIDGE_STATE: Final = "$SYS/broker/connection/+/state"
"""Where bridges of other brokers say whether they are connected: `1`, and as a will `0`, both retained
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
    """The rules of one file. `users`: by user name, None for clients that have none; `patterns`: with `%c`
    and `%u` as they are written."""

    users: dict[str | None, tuple[Rule, ...]] = field(default_factory=dict)
    patterns: tuple[Rule, ...] = ()

    def rules(self, username: str | None, client_id: str) -> tuple[Rule, ...]:
        """The rules of one client, in the order in which they are asked."""
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
"""Where there is no file: everything that is not the network's own, the states of bridges, and to read
`$SYS`."""


def is_writable(topic: str) -> bool:
    """Whether rules can allow clients to publish to a topic."""
    return not topic.startswith("$") or topic_matches(BRIDGE_STATE, topic)


def may_write(rules: Iterable[Rule], topic: str) -> bool:
    """Whether a client with these rules may publish to a topic."""
    if not is_writable(topic):
        return False
    return next((r.is_allowed for r in rules if r.for_write and topic_matches(r.filter, topic)), False)


def may_read_some(rules: Sequence[Rule], filter: str) -> bool:
    """Whether a subscription to `filter` could ever bring anything: some topic that matches may be read.

    It errs on the side of yes, where several denials only together cover the filter. Each message is checked
    when it is delivered.
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
    """The rules of a file's text. Raises ConfigErrors with all that is wrong with it."""
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
    """A rule, or what is wrong with it and what to do. Without an access word it is readwrite."""
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
        # In one go: a client whose id is "%u" is no user.
        filter = _MARK.sub(lambda mark: known[mark[0]], rule.filter)
        if filter_is_valid(filter):
            yield Rule(filter, rule.is_allowed, rule.for_read, rule.for_write)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
