"""Access lists in the border: one for all clients that have the same rules, replaced when the policy
changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from hbroker.gateway.access.acl_file import BRIDGE_STATE
from hbroker.gateway.access.policy import Policy
from hbroker.gateway.native_api import NativeApi, Rule
from hbroker.gateway.subscriptions.filters import covers

__all__ = ["AccessLists", "guarded"]


def guarded(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules, less what no policy can give: `$` topics are the network's own, but for reading `$SYS`, and
    for the states of bridges.

    A filter with a wildcard at its first level matches none of them; so those that name one are all there
    are.
    """
    return tuple(part for rule in rules for part in _parts(rule))


def _parts(rule: Rule) -> Iterator[Rule]:
    if not rule.filter.startswith("$") or (rule.for_write and covers(BRIDGE_STATE, rule.filter)):
        yield rule
    elif rule.filter.partition("/")[0] == "$SYS":
        yield Rule(rule.filter, rule.is_allowed, rule.for_read, False)
        if rule.for_write and covers(rule.filter, BRIDGE_STATE):
            yield Rule(BRIDGE_STATE, rule.is_allowed, False, True)


class AccessLists:
    """The lists that connections have now."""

    def __init__(self, native_api: NativeApi, policy: Policy) -> None:
        self._native_api = native_api
        self._policy = policy
        self._numbers = count(1)
        self._by_name: dict[tuple[str, ...], int] = {}
        self._users: dict[int, int] = {}
        self._rules: dict[int, tuple[Rule, ...]] = {}
        self._who: dict[int, tuple[str | None, str, tuple[str, ...]]] = {}

    def of(self, username: str | None, client_id: str) -> int:
        """The list of this client, made if need be. `release` it."""
        name = self._policy.rules_name(username, client_id)
        number = self._by_name.get(name)
        if number is None:
            number = self._by_name[name] = next(self._numbers)
            self._who[number] = username, client_id, name
            self._users[number] = 0
            self._install(number)
        self._users[number] += 1
        return number

    def rules(self, number: int) -> Sequence[Rule]:
        """What a list says."""
        return self._rules[number]

    def release(self, number: int) -> None:
        """A connection that had it is gone."""
        self._users[number] -= 1
        if not self._users[number]:
            name = self._who.pop(number)[2]
            if self._by_name.get(name) == number:
                del self._by_name[name]
            del self._users[number], self._rules[number]
            self._native_api.forget_acl(number)

    def reload(self, policy: Policy) -> None:
        """Other rules, at once, for connections from now on. Those that are open have `of` asked again."""
        self._policy = policy
        self._by_name.clear()

    def _install(self, number: int) -> None:
        username, client_id, _ = self._who[number]
        self._rules[number] = guarded(self._policy.rules(username, client_id))
        self._native_api.install_acl(number, self._rules[number])
