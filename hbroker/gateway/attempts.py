"""How many passwords may be guessed, by whom and for whom.

An attempt takes a token from three buckets: that of its address and name together, that of its address, and
that of its name. It gets them back unless the password was wrong, so only guesses, and what is still being
checked, count. An attempt that the bucket of its address and name refuses takes none from the other two: a
device with an old password does not use up what others behind its address, or others with its name, have.

The bucket of a name alone would let a stranger lock its owner out. So it, and that of an address, does not
hold for an address from which somebody has logged in with this name before.

An address is an IPv4 address, or the first 64 bits of an IPv6 address: who has one address of those has all
of them (RFC 6177). All tables are bounded; beyond that the entry that was used longest ago is forgotten.
"""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

from hbroker.protocol.timers import SECOND

__all__ = [
    "ADDRESS",
    "MOST_REMEMBERED",
    "NAME",
    "PAIR",
    "Attempts",
    "Bound",
    "Bucket",
    "Source",
    "network_of",
]


class Bucket(NamedTuple):
    """`burst`: wrong passwords at once. `interval`: µs until one more is allowed."""

    burst: int
    interval: int


PAIR: Final = Bucket(10, 10 * SECOND)
"""Of one address with one name."""
ADDRESS: Final = Bucket(64, 2 * SECOND)
"""Of one address with any name."""
NAME: Final = Bucket(128, 2 * SECOND)
"""Of one name from any address."""
ASKED: Final = Bucket(64, SECOND)
"""Attempts of one address, right or wrong: it refuses none, and says who makes room for whom."""
MOST_REMEMBERED: Final = 16_384
"""Entries of each table."""
_PREFIX_BITS: Final = 64


class Bound(Enum):
    """What refuses an attempt. The value: what is told and logged."""

    PAIR = "too many wrong passwords for this name from this address"
    ADDRESS = "too many wrong passwords from this address"
    NAME = "too many wrong passwords for this name"


class Source(NamedTuple):
    """Where an attempt comes from: keys of the three tables."""

    pair: bytes
    address: bytes
    name: bytes


def network_of(host: str) -> bytes:
    """The address that counts for a peer's: see the module. Text that is no address stands for itself."""
    if ":" not in host:
        return host.encode()
    try:
        address = IPv6Address(host.partition("%")[0])
    except AddressValueError:
        return host.encode()
    mapped = address.ipv4_mapped
    return str(mapped).encode() if mapped is not None else address.packed[: _PREFIX_BITS // 8]


class Attempts:
    """The attempts of one gateway. `key`: a secret of this run; with it names become keys of 16 bytes, so
    that nobody fills memory with long names."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._pairs = _Buckets(PAIR)
        self._addresses = _Buckets(ADDRESS)
        self._names = _Buckets(NAME)
        self._asked = _Buckets(ASKED)
        self._trusted: dict[bytes, None] = {}

    def source(self, host: str, name: str) -> Source:
        """The keys of an attempt for `name` by the peer at `host`."""
        network, known = network_of(host), name.encode("utf-8", "surrogatepass")
        return Source(
            self._digest(b"%d:%b%b" % (len(network), network, known)),
            network,
            self._digest(known),
        )

    def take(self, now: int, source: Source) -> Bound | None:
        """Takes the tokens of an attempt; else says which bound refuses it, and takes none."""
        self._asked.take(now, source.address)
        if not self._pairs.has_one(now, source.pair):
            return Bound.PAIR
        if source.pair not in self._trusted:
            if not self._addresses.has_one(now, source.address):
                return Bound.ADDRESS
            if not self._names.has_one(now, source.name):
                return Bound.NAME
        for buckets, key in self._tables(source):
            buckets.take(now, key)
        return None

    def give_back(self, now: int, source: Source) -> None:
        """The attempt was no guess."""
        for buckets, key in self._tables(source):
            buckets.give_back(now, key)

    def succeeded(self, now: int, source: Source) -> None:
        """The password was right: this address is trusted with this name."""
        self.give_back(now, source)
        self._asked.give_back(now, source.address)
        self._trusted.pop(source.pair, None)
        self._trusted[source.pair] = None
        if len(self._trusted) > MOST_REMEMBERED:
            del self._trusted[next(iter(self._trusted))]

    def asked(self, now: int, source: Source) -> int:
        """How much the address has asked of late, all that was right left out."""
        return self._asked.taken(now, source.address)

    def _tables(self, source: Source) -> tuple[tuple[_Buckets, bytes], ...]:
        return (
            (self._pairs, source.pair),
            (self._addresses, source.address),
            (self._names, source.name),
        )

    def _digest(self, text: bytes) -> bytes:
        return blake2b(text, key=self._key, digest_size=16).digest()


class _Buckets:
    """Token buckets by key. Of each is kept when it will be full again; one that is full needs no entry."""

    def __init__(self, bucket: Bucket) -> None:
        self._burst, self._interval = bucket
        self._full_at: dict[bytes, int] = {}

    def has_one(self, now: int, key: bytes) -> bool:
        return self.taken(now, key) < self._burst

    def taken(self, now: int, key: bytes) -> int:
        missing = self._full_at.get(key, now) - now
        return max(0, -(-missing // self._interval))

    def take(self, now: int, key: bytes) -> None:
        full_at = max(now, self._full_at.pop(key, now)) + self._interval
        self._full_at[key] = min(full_at, now + self._burst * self._interval)
        if len(self._full_at) > MOST_REMEMBERED:
            del self._full_at[next(iter(self._full_at))]

    def give_back(self, now: int, key: bytes) -> None:
        full_at = self._full_at.get(key)
        if full_at is None:
            return
        if full_at - self._interval <= now:
            del self._full_at[key]
        else:
            self._full_at[key] = full_at - self._interval
