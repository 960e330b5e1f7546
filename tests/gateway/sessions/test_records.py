"""What a gateway knows of sessions, and when it sees to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hbroker.gateway.records.claims import Stamp
from hbroker.gateway.records.gateways import Gateways, Presence
from hbroker.gateway.records.record_authentication import sign
from hbroker.gateway.records.session_records import Record, Records
from tests.gateway.networks import SECOND

KEY: Final = b"a secret of enough bytes"


class Known:
    """The records of gateway `one`, and one of `two`, which has its client."""

    def __init__(self, expiry_s: int = 100) -> None:
        self.gateways = Gateways("one", 1)
        self.records = Records(KEY, self.gateways, 0)
        record = Record("a", "two", 2, expiry_s, stamp=Stamp(1, 2))
        assert self.records.take(0, record.topic, sign(KEY, record.topic, record.body()))

    def hear(self, at_s: int, *, is_alive: bool) -> None:
        self.gateways.take(Presence("two", 2, is_alive, stamp=Stamp(at_s, 2)), b"")
        self.records.gateway_changed(at_s * SECOND, "two")

    def ends(self, at_s: Iterable[int]) -> list[int]:
        """At which of these seconds its session has ended."""
        return [at for at in at_s if list(self.records.due(at * SECOND))]


def test_a_session_is_away_since_its_gateway_was_first_known_to_be_gone() -> None:
    known = Known()
    known.hear(1, is_alive=True)
    assert known.ends([200]) == []
    known.hear(300, is_alive=False)
    known.hear(350, is_alive=False)
    assert known.ends([399, 400, 450]) == [400]


def test_a_session_is_away_no_more_when_its_gateway_is_there_again() -> None:
    known = Known()
    known.hear(1, is_alive=False)
    known.hear(50, is_alive=True)
    assert known.ends([101, 1_000]) == []
    known.hear(1_000, is_alive=False)
    assert known.ends([1_099, 1_100]) == [1_100]


def test_a_claim_makes_nothing_due_earlier() -> None:
    for claimed_s, due_s in ((10, 100), (80, 140)):
        known = Known()
        known.records.claimed(claimed_s * SECOND, "a")
        assert known.ends(range(claimed_s, 200)) == [due_s]
