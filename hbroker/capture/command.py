"""`hbroker capture`: prints the network's datagrams, one line each, live or from a file."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hbroker.addresses import Address, format_address
from hbroker.capture.packet_counts import PacketCounts
from hbroker.runtime.key_log import KeyLog

if TYPE_CHECKING:
    from scapy.packet import Packet

__all__ = ["CaptureOptions", "capture"]

_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """What to print: the datagrams from or to these ports (empty: all), up to a number of them; only their
    counts, at the end (`is_count`); as JSON. `key_log`: a log of keys, which opens what is sealed."""

    ports: tuple[int, ...] = ()
    limit: int | None = None
    is_count: bool = False
    as_json: bool = False
    key_log: str | None = None


def capture(
    options: CaptureOptions, *, interface: str, read: str | None = None, write: str | None = None
) -> None:
    """Captures from an interface, or from a pcap file (`read`), until its end, the limit, or a signal.

    `write`: a pcap file for what was dissected. Raises HBrokerError, OSError.
    """
    from hbroker.capture import dissector, frames

    key_log = KeyLog(options.key_log) if options.key_log else None
    dissector.bind(key_log=key_log)
    packet_counts = PacketCounts()
    writer = frames.PcapFile(write) if write else None
    stop = _StopSignal()
    try:
        if read:
            _take(frames.read_file(read), options, packet_counts, writer)
        else:
            with frames.Interface(interface, options.ports) as opened:
                print(f"capturing on {interface}", file=sys.stderr, flush=True)
                _take(_live(opened, stop), options, packet_counts, writer)
                packet_counts.missed = opened.missed
    finally:
        stop.restore()
        if writer is not None:
            writer.close()
    if options.is_count:
        _print_counts(packet_counts, options.as_json)
    elif packet_counts.missed:
        print(f"{packet_counts.missed} datagrams came too fast and were not seen", file=sys.stderr)


class _StopSignal:
    """Notes the time of SIGINT or SIGTERM. What was captured before that is still handled."""

    def __init__(self) -> None:
        self.at: float | None = None
        self._before = {
            number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def restore(self) -> None:
        """Restores the former signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, *_: object) -> None:
        if self.at is not None:
            raise KeyboardInterrupt
        self.at = time.time()


def _live(interface: Any, stop: _StopSignal) -> Iterator[Packet]:
    while True:
        packet = interface.read(0.0 if stop.at is not None else _POLL_S)
        if stop.at is not None and (packet is None or packet.time > stop.at):
            return
        if packet is not None:
            yield packet


def _take(
    packets: Iterator[Packet], options: CaptureOptions, packet_counts: PacketCounts, writer: Any
) -> None:
    from scapy.layers.inet import UDP

    from hbroker.capture.dissector import HBroker

    for packet in packets:
        if HBroker not in packet:
            continue
        source, destination = endpoints(packet, UDP)
        if options.ports and source[1] not in options.ports and destination[1] not in options.ports:
            continue
        if writer is not None:
            below = packet[UDP].underlayer
            below.time = packet.time
            writer.write(below)
        for datagram in packet[UDP].iterpayloads():
            if not isinstance(datagram, HBroker):
                continue
            packet_counts.add(source, destination, _kinds(datagram))
            if not options.is_count:
                _print(packet, datagram, source, destination, options.as_json)
            if options.limit is not None and packet_counts.datagrams >= options.limit:
                return


def _kinds(datagram: Packet) -> list[str]:
    """The names of what is in a datagram: packets, or, if it cannot be opened, what it is."""
    if datagram.association and not datagram.incarnation:
        return [str(datagram.association).partition(" ")[0].upper()]
    return [one.kind for one in datagram.packets]


def endpoints(packet: Packet, transport: type[Packet]) -> tuple[Address, Address]:
    """Source and destination of a packet with this transport layer."""
    segment = packet[transport]
    below = segment.underlayer
    return (below.src, segment.sport), (below.dst, segment.dport)


def _print(packet: Packet, datagram: Packet, source: Address, destination: Address, as_json: bool) -> None:
    if not as_json:
        from hbroker.capture.frames import seen_at

        seconds, microseconds = seen_at(packet)
        at = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{microseconds:06}"
        print(
            f"{at} {format_address(source)} > {format_address(destination)} {datagram.mysummary()}",
            flush=True,
        )
        return
    entry = {
        "time": float(packet.time),
        "source": format_address(source),
        "destination": format_address(destination),
        "association": datagram.association,
        "session": datagram.session,
        "incarnation": datagram.incarnation,
        "number": datagram.number,
        "ack": datagram.ack,
        "packets": [
            {
                "kind": one.kind,
                "delivery": one.delivery,
                "after": one.after,
                "retained": one.retained,
                "body": one.body_as_dict(),
            }
            for one in datagram.packets
        ],
    }
    print(json.dumps(entry, ensure_ascii=False), flush=True)


def _print_counts(packet_counts: PacketCounts, as_json: bool) -> None:
    if as_json:
        print(json.dumps(packet_counts.to_json()), flush=True)
        return
    for (source, destination, name), count in sorted(packet_counts.counts.items()):
        print(f"{format_address(source):>24} > {format_address(destination):<24} {name:<12} {count:>9}")
    print(f"{packet_counts.datagrams} datagrams; {packet_counts.missed} came too fast and were not seen")
