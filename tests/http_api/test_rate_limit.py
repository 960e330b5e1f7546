"""The token buckets of addresses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hbroker.http_api.middleware.rate_limit import MOST_ADDRESSES, RateLimit, bucket_of


@given(st.lists(st.floats(0, 2), min_size=1))
def test_no_address_sends_more_than_its_rate_and_its_burst(pauses: list[float]) -> None:
    limit = RateLimit(2, 5)
    now, passed = 0.0, 0
    for pause in pauses:
        now += pause
        passed += limit.takes(now, "192.0.2.1")
        assert passed <= 5 + 2 * now + 1e-6


def test_one_address_takes_nothing_from_another() -> None:
    limit = RateLimit(1, 2)
    assert [limit.takes(0.0, "192.0.2.1") for _ in range(3)] == [True, True, False]
    assert limit.takes(0.0, "192.0.2.2")
    assert limit.takes(1.5, "192.0.2.1")


def test_the_addresses_of_an_ipv6_host_count_as_one() -> None:
    assert bucket_of("2001:db8::1") == bucket_of("2001:db8::ffff:1") != bucket_of("2001:db8:0:1::1")


def test_memory_is_bounded() -> None:
    limit = RateLimit(1, 1)
    for number in range(MOST_ADDRESSES + 100):
        limit.takes(0.0, f"client-{number}")
    assert len(limit._left) == MOST_ADDRESSES
