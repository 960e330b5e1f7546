"""The access lists that the native core has: one for all clients with equal rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from hbroker.gateway.access.acl_file import BRIDGE_STATE
from hbroker.gateway.access.policy import Policy
from hbroker.gateway.native_api import NativeApi, Rule
from hbroker.topic_filters import covers

__all__ = ["AccessLists", "guarded"]


def guarded(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules without those parts that no policy can give. Clients may read `$SYS` and write the states of
    bridges; all other topics that begin with `$` belong to the network.

    A filter with a wildcard at its first level matches no such topic (MQTT 5 §4.7.2). So only filters that
    begin with `$` are changed.
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
    """The access lists of the present connections."""

    def __init__(self, native_api: NativeApi, policy: Policy) -> None:
        self._native_api = native_api
        self._policy = policy
        self._numbers = count(1)
        self._by_name: dict[tuple[str, ...], int] = {}
        self._users: dict[int, int] = {}
        self._rules: dict[int, tuple[Rule, ...]] = {}
        self._clients: dict[int, tuple[str | None, str, tuple[str, ...]]] = {}

    def of(self, username: str | None, client_id: str) -> int:
        """The number of this client's list; installs the list if there is none. Call `release` once for each
        call."""
        name = self._policy.rules_name(username, client_id)
        number = self._by_name.get(name)
        if number is None:
            number = self._by_name[name] = next(self._numbers)
            self._clients[number] = username, client_id, name
            self._users[number] = 0
            self._install(number)
        self._users[number] += 1
        return number

    def rules(self, number: int) -> Sequence[Rule]:
        """The rules of a list."""
        return self._rules[number]

    def release(self, number: int) -> None:
        """Releases a list for one connection. The last release removes the list."""
        self._users[number] -= 1
        if not self._users[number]:
            name = self._clients.pop(number)[2]
            if self._by_name.get(name) == number:
                del self._by_name[name]
            del self._users[number], self._rules[number]
            self._native_api.forget_acl(number)

    def reload(self, policy: Policy) -> None:
        """Uses another policy for later calls of `of`. Call `of` again for each open connection."""
        self._policy = policy
        self._by_name.clear()

    def _install(self, number: int) -> None:
        username, client_id, _ = self._clients[number]
        self._rules[number] = guarded(self._policy.rules(username, client_id))
        self._native_api.install_acl(number, self._rules[number])
