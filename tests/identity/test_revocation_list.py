"""The list of revoked tokens: only the authority's records, in their order, without a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.identity import revocation_list
from hbroker.identity.revocation_list import (
    RECORD_BYTES,
    InvalidRecord,
    RevocationAuthority,
    RevocationList,
    RevokedToken,
    short_id,
)
from hbroker.identity.revoked_file import signed_record
from tests.identity.examples import AUTHORITY, NOW, OTHER_AUTHORITY

BELIEVED = RevocationAuthority.of(AUTHORITY.public_key)
TOKENS = [RevokedToken(n, short_id(b"%d" % n), NOW + n if n % 2 else 0) for n in range(1, 31)]
RECORDS = [signed_record(AUTHORITY, token) for token in TOKENS]


def filled(count: int) -> RevocationList:
    found = RevocationList(BELIEVED)
    for record in RECORDS[:count]:
        found.append(record)
    return found


def test_a_list_has_what_the_authority_has_signed() -> None:
    found = filled(30)
    assert found.tokens() == TOKENS
    assert all(token.id in found for token in TOKENS)
    assert short_id(b"31") not in found
    assert found.records(1, 30) == RECORDS
    assert found.records(29, 10) == RECORDS[28:]
    assert found.records(31, 10) == found.records(0, 10) == []
    assert found.records(2**63, 10) == []
    assert {len(record) for record in RECORDS} == {RECORD_BYTES}


@pytest.mark.parametrize(
    "record",
    [
        RECORDS[4],
        RECORDS[6],
        signed_record(OTHER_AUTHORITY, TOKENS[5]),
        RECORDS[5][:-1],
        RECORDS[5] + b"\0",
        b"",
        RECORDS[5][:28] + RECORDS[6][28:],
    ],
    ids=["again", "gap", "another authority", "cut off", "longer", "empty", "signature of another record"],
)
def test_another_record_is_refused_and_nothing_changes(record: bytes) -> None:
    found = filled(5)
    with pytest.raises(InvalidRecord):
        found.append(record)
    assert found.tokens() == TOKENS[:5]
    found.append(RECORDS[5])


@given(st.integers(0, RECORD_BYTES * 8 - 1))
def test_no_bit_of_a_record_can_be_changed(bit: int) -> None:
    changed = bytearray(RECORDS[0])
    changed[bit // 8] ^= 1 << bit % 8
    found = RevocationList(BELIEVED)
    with pytest.raises(InvalidRecord):
        found.append(bytes(changed))
    assert not len(found)


def test_lists_are_compared_by_their_beginnings() -> None:
    found = filled(5)
    assert found.is_beginning_of(b"".join(RECORDS[:6]))
    assert found.holds(b"".join(RECORDS[:4]))
    assert not found.is_beginning_of(b"".join(RECORDS[1:7]))
    assert not found.holds(b"".join(RECORDS[1:3]))


def test_what_was_verified_before_is_restored_up_to_a_gap() -> None:
    found = RevocationList(BELIEVED)
    with pytest.raises(InvalidRecord):
        found.restore([*RECORDS[:3], RECORDS[5]])
    assert found.tokens() == TOKENS[:3]


def test_a_list_has_a_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation_list, "MOST_RECORDS", 3)
    found = filled(3)
    with pytest.raises(InvalidRecord, match="3 records at most"):
        found.append(RECORDS[3])
