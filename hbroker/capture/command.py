"""`hbroker capture`: prints the network's datagrams, one line each, live or from a file."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from hbroker.addresses import format_address
from hbroker.capture.packet_counts import Address, PacketCounts
from hbroker.errors import HBrokerError

if TYPE_CHECKING:
    from scapy.packet import Packet

__all__ = ["add_flags", "capture_main", "run"]

_DONE: Final = 0
_FAILED: Final = 1
_POLL_S: Final = 0.2

DESCRIPTION: Final = "Dissect the network's datagrams, live or from a file."

EPILOG: Final = """\
Capturing takes root or CAP_NET_RAW; reading a file takes no right. Ctrl-C or SIGTERM ends it.

examples:
  hbroker capture                              all of hbroker on the loopback interface
  hbroker capture -i eth0 --port 7700 -w house.pcap
  hbroker capture -r house.pcap --count        who sent which packets to whom
  hbroker capture --json | jq 'select(.packets[].kind == "JOIN")'

--json prints an object a line: {time, source, destination, session, incarnation, number, ack,
  packets: [{kind, delivery, after, retained, body}]}; with --count one object at the end:
  {datagrams, missed, flows: [{source: [ip, port], destination: [ip, port], packet, count}]}

exit codes: 0 done, 1 failed (this user may not capture, no such file), 2 wrong flags
"""


def capture_main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with these arguments (without its name). Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="hbroker capture",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_flags(parser)
    try:
        return run(parser.parse_args(arguments))
    except (HBrokerError, OSError) as error:
        print(f"hbroker: {error}", file=sys.stderr)
        return _FAILED


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.add_argument("-i", "--interface", default="lo", metavar="NAME", help="default: %(default)s")
    parser.add_argument("-r", "--read", metavar="FILE", help="read a pcap file in place of an interface")
    parser.add_argument("-w", "--write", metavar="FILE", help="keep what was dissected in a pcap file")
    parser.add_argument(
        "--port",
        type=_port,
        action="append",
        default=[],
        metavar="PORT",
        help="only from or to this UDP port; repeatable",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="end after so many datagrams")
    parser.add_argument(
        "--count", action="store_true", help="print who sent which packets to whom, at the end"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Captures until the end of the file, the limit, or a signal. Returns 0. Raises HBrokerError, OSError."""
    from hbroker.capture import dissector, frames

    dissector.bind()
    packet_counts = PacketCounts()
    writer = frames.PcapFile(options.write) if options.write else None
    stop = _Stop()
    try:
        if options.read:
            _take(frames.read_file(options.read), options, packet_counts, writer)
        else:
            with frames.Interface(options.interface, options.port) as interface:
                print(f"capturing on {options.interface}", file=sys.stderr, flush=True)
                _take(_live(interface, stop), options, packet_counts, writer)
                packet_counts.missed = interface.missed
    finally:
        stop.restore()
        if writer is not None:
            writer.close()
    if options.count:
        _print_counts(packet_counts, options.json)
    elif packet_counts.missed:
        print(f"{packet_counts.missed} datagrams came too fast and were not seen", file=sys.stderr)
    return _DONE


class _Stop:
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


def _live(interface: Any, stop: _Stop) -> Iterator[Packet]:
    while True:
        packet = interface.read(0.0 if stop.at is not None else _POLL_S)
        if stop.at is not None and (packet is None or packet.time > stop.at):
            return
        if packet is not None:
            yield packet


def _take(
    packets: Iterator[Packet], options: argparse.Namespace, packet_counts: PacketCounts, writer: Any
) -> None:
    from scapy.layers.inet import UDP

    from hbroker.capture.dissector import HBroker

    for packet in packets:
        if HBroker not in packet:
            continue
        source, destination = endpoints(packet, UDP)
        if options.port and source[1] not in options.port and destination[1] not in options.port:
            continue
        datagram = packet[HBroker]
        packet_counts.add(source, destination, (one.kind for one in datagram.packets))
        if writer is not None:
            below = packet[UDP].underlayer
            below.time = packet.time
            writer.write(below)
        if not options.count:
            _print(packet, datagram, source, destination, options.json)
        if options.limit is not None and packet_counts.datagrams >= options.limit:
            return


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


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
