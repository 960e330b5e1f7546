"""`hbroker capture`: dissects the datagrams of a network, packet by packet."""

from __future__ import annotations

from pathlib import Path

import click

import hbroker.capture
from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import FILE, json_flag
from hbroker.errors import LocalError

_TEXT = """\
Capturing takes root or CAP_NET_RAW; reading a file takes no right. Ctrl-C or SIGTERM ends it.

examples:
  hbroker capture                              all of hbroker on the loopback interface
  hbroker capture -i eth0 --port 7700 -w house.pcap
  hbroker capture -r house.pcap --count        who sent which packets to whom
  hbroker capture --json | jq 'select(.packets[].kind == "JOIN")'
  hbroker capture --key-log keys.log           opens what processes with HBROKER_KEYLOG sealed
  tshark -X "lua_script:$(hbroker capture --wireshark)" -r house.pcap

--json prints an object a line: {time, source, destination, association, session, incarnation,
  number, ack, packets: [{kind, delivery, after, retained, body}]}; with --count one object at the
  end: {datagrams, missed, flows: [{source: [ip, port], destination: [ip, port], packet, count}]}

exit codes: 0 done, 1 failed (this user may not capture, no such file), 2 wrong flags
"""


@command("capture", _TEXT)
@click.option("-i", "--interface", default="lo", metavar="NAME", show_default=True)
@click.option("-r", "--read", type=FILE, metavar="FILE", help="read a pcap file in place of an interface")
@click.option("-w", "--write", type=FILE, metavar="FILE", help="keep what was dissected in a pcap file")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    multiple=True,
    metavar="PORT",
    help="only from or to this UDP port; repeatable",
)
@click.option(
    "--key-log",
    type=FILE,
    metavar="FILE",
    envvar="HBROKER_KEYLOG",
    help="the log of keys, which opens what is sealed (default: $HBROKER_KEYLOG)",
)
@click.option("--limit", type=int, metavar="N", help="end after so many datagrams")
@click.option("--count", is_flag=True, help="print who sent which packets to whom, at the end")
@click.option("--wireshark", is_flag=True, help="print the path of the dissector for Wireshark, and exit")
@json_flag
def capture(
    interface: str,
    read: str | None,
    write: str | None,
    port: tuple[int, ...],
    key_log: str | None,
    limit: int | None,
    count: bool,
    wireshark: bool,
    as_json: bool,
) -> int:
    """Captures, or reads a file, until Ctrl-C or the end of the file. Raises LocalError without scapy."""
    if wireshark:
        print(Path(hbroker.capture.__file__).with_name("hbroker.lua"))
        return DONE
    from hbroker.capture import command as live

    try:
        live.capture(
            live.CaptureOptions(port, limit, count, as_json, key_log),
            interface=interface,
            read=read,
            write=write,
        )
    except ModuleNotFoundError as error:
        raise LocalError(f"{error.name} is not installed; pip install 'hbroker[capture]'") from error
    return DONE
