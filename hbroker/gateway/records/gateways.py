"""The gateways of the network. Each publishes its presence as a retained message; its will takes that back.

The owner of `$gateway` publishes the will when the gateway's link has been silent for the idle timeout
(docs/protocol.md §6.6). A gateway that restarts has the same name and another run.

Any client of the network may write to the topic, also an earlier payload. So each presence has a stamp,
higher than the earlier ones of its name. The will that takes a presence back has the same stamp. Gateways
ignore a presence that is older than the known one, also for a gateway that is absent.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Final

from hbroker.gateway.records.client_id_claims import NEVER, Stamp
from hbroker.gateway.records.record_authentication import GATEWAYS

__all__ = ["MOST", "GatewayRecord", "GatewayRecordChange", "GatewayRecords"]

MOST: Final = 10_000
"""Other gateways that are present, and as many that are absent. Of more absent ones the first are
forgotten."""


@dataclass(frozen=True, slots=True)
class GatewayRecord:
    """The presence of one gateway. `listeners`: URLs. `since_us`: its start, since the Unix epoch."""

    name: str
    run: int
    is_alive: bool = True
    listeners: tuple[str, ...] = ()
    since_us: int = 0
    stamp: Stamp = NEVER

    @property
    def topic(self) -> str:
        """The topic of the presence."""
        return GATEWAYS + self.name

    @property
    def rank(self) -> tuple[Stamp, bool]:
        """Of one name the presence with the highest order counts. A will outranks the presence with its
        stamp."""
        return self.stamp, not self.is_alive

    def body(self) -> dict[str, Any]:
        """The presence as JSON."""
        return {
            "gateway": self.name,
            "run": self.run,
            "alive": self.is_alive,
            "listeners": list(self.listeners),
            "since_us": self.since_us,
            "stamp": list(self.stamp),
        }

    @classmethod
    def parse(cls, body: dict[str, Any]) -> GatewayRecord | None:
        """The inverse of `body`; None: it is something else."""
        try:
            return cls(
                str(body["gateway"]),
                int(body["run"]),
                bool(body["alive"]),
                tuple(str(listener) for listener in body["listeners"]),
                int(body["since_us"]),
                Stamp.parse(body["stamp"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


class GatewayRecordChange(Enum):
    """How a presence relates to the known one of its name."""

    NEW = auto()
    KNOWN = auto()
    OLD = auto()
    """It was true once, or no gateway published it."""
    TOO_MANY = auto()
    """There is no room for another gateway."""


class GatewayRecords:
    """All gateways that this one knows, itself included."""

    def __init__(self, name: str, run: int) -> None:
        self._own = GatewayRecord(name, run)
        self._present: dict[str, GatewayRecord] = {}
        """The other gateways that are present."""
        self._absent: OrderedDict[str, tuple[GatewayRecord, bytes]] = OrderedDict()
        """The other gateways that are absent, each with the payload that says so."""

    def update(self, record: GatewayRecord, payload: bytes) -> GatewayRecordChange:
        """Takes the presence of another gateway, or its will, with its payload."""
        name = record.name
        known = self.of(name)
        if known is not None and record.rank <= known.rank:
            return GatewayRecordChange.KNOWN if record.rank == known.rank else GatewayRecordChange.OLD
        if record.is_alive:
            if name not in self._present and len(self._present) >= MOST:
                return GatewayRecordChange.TOO_MANY
            self._absent.pop(name, None)
            self._present[name] = record
            return GatewayRecordChange.NEW
        self._present.pop(name, None)
        self._absent[name] = record, payload
        self._absent.move_to_end(name)
        if len(self._absent) > MOST:
            self._absent.popitem(last=False)
        return GatewayRecordChange.NEW

    def of(self, name: str) -> GatewayRecord | None:
        """The known presence of another gateway, present or absent; None: it is unknown."""
        absent = self._absent.get(name)
        return self._present.get(name) if absent is None else absent[0]

    def correct_payload(self, name: str) -> bytes | None:
        """The payload about a gateway that is absent, if this gateway must publish it; otherwise None."""
        absent = self._absent.get(name)
        return absent[1] if absent is not None and self.is_first_for(name) else None

    def is_self(self, run: int) -> bool:
        """Whether this is the run of this gateway."""
        return run == self._own.run

    def is_alive(self, name: str, run: int) -> bool:
        """Whether this run of this gateway is present, as far as known."""
        if self.is_self(run):
            return True
        known = self._present.get(name)
        return known is not None and known.run == run

    def is_first_for(self, hash: str) -> bool:
        """Whether this gateway is the first by rendezvous for `hash`: of all present gateways its weight is
        highest."""
        return all(_weight(hash, self._own.name) > _weight(hash, name) for name in self._present)

    @property
    def names(self) -> list[str]:
        """The names of the present gateways, this one included."""
        return sorted([self._own.name, *self._present])


def _weight(hash: str, name: str) -> bytes:
    return blake2b(f"{hash}/{name}".encode(), digest_size=8).digest()
