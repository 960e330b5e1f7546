"""A gateway's records of sessions, and when it ends those sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hbroker.gateway.records.client_id_claims import Stamp
from hbroker.gateway.records.gateways import GatewayRecord, GatewayRecords
from hbroker.gateway.records.record_authentication import sign
from hbroker.gateway.records.session_records import SessionRecord, SessionRecords
from tests.gateway.networks import SECOND

KEY: Final = b"a secret of enough bytes"


class OneRecord:
    """The records of gateway `one`: one record of a session whose client is connected to gateway `two`."""

    def __init__(self, expiry_s: int = 100) -> None:
        self.gateways = GatewayRecords("one", 1)
        self.records = SessionRecords(KEY, self.gateways, 0)
        record = SessionRecord("a", "two", 2, expiry_s, stamp=Stamp(1, 2))
        assert self.records.handle_payload(0, record.topic, sign(KEY, record.topic, record.body()))

    def hear(self, at_s: int, *, is_alive: bool) -> None:
        self.gateways.update(GatewayRecord("two", 2, is_alive, stamp=Stamp(at_s, 2)), b"")
        self.records.gateway_changed(at_s * SECOND, "two")

    def ends(self, at_s: Iterable[int]) -> list[int]:
        """The seconds of `at_s` at which the session has expired."""
        return [at for at in at_s if list(self.records.due(at * SECOND))]


def test_the_expiry_begins_when_the_gateway_is_first_known_to_be_dead() -> None:
    one_record = OneRecord()
    one_record.hear(1, is_alive=True)
    assert one_record.ends([200]) == []
    one_record.hear(300, is_alive=False)
    one_record.hear(350, is_alive=False)
    assert one_record.ends([399, 400, 450]) == [400]


def test_a_session_does_not_expire_while_its_gateway_is_alive_again() -> None:
    one_record = OneRecord()
    one_record.hear(1, is_alive=False)
    one_record.hear(50, is_alive=True)
    assert one_record.ends([101, 1_000]) == []
    one_record.hear(1_000, is_alive=False)
    assert one_record.ends([1_099, 1_100]) == [1_100]


def test_a_claim_does_not_make_a_session_expire_earlier() -> None:
    for claimed_s, due_s in ((10, 100), (80, 140)):
        one_record = OneRecord()
        one_record.records.claimed(claimed_s * SECOND, "a")
        assert one_record.ends(range(claimed_s, 200)) == [due_s]
