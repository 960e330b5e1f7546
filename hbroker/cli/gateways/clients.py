"""`hbroker clients`: the MQTT clients of all gateways."""

from __future__ import annotations

import time
from typing import Any

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, UNREACHABLE
from hbroker.cli.flags import RunningNetwork, json_flag, order_flags, url_flag
from hbroker.cli.output import duration, print_json, print_table

_TEXT = """\
Each gateway lists the clients that it has, and the sessions without a client that it sees to.
The network's join key is needed; that of a network of `hbroker up` on this host is found.

examples:
  hbroker clients
  hbroker clients --json | jq -r '.clients[] | select(.state == "offline").client'

--json prints {clients: [{client, workspace, gateway, state, user, address, version, keep_alive_s, since_us,
  session_expiry_s, subscriptions, has_will, messages_in, messages_out, queued, dropped}],
  silent: [name]}; those that are offline have fewer keys. since_us: connected or offline since,
  in microseconds since the Unix epoch

exit codes: 0 every gateway answered, 2 the join key is missing or wrong, 3 a gateway did not
  answer, or the root
"""

_NUMBERS = ("FILTERS", "IN", "OUT", "QUEUED")
_VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5"}


@command("clients", _TEXT)
@order_flags
@url_flag
@json_flag
def clients(network: RunningNetwork, as_json: bool) -> int:
    """Returns 0 only if every gateway answered."""
    from hbroker.cli.gateways.requests import ask, complain
    from hbroker.gateway.admin_requests import CLIENTS

    api = network.api()
    replies = ask(network, CLIENTS) if api is None else api.clients()
    found = sorted(
        ({**entry, "gateway": gateway} for gateway, entries in replies.entries.items() for entry in entries),
        key=lambda entry: (entry.get("workspace") or "", str(entry["client"]), str(entry["state"])),
    )
    if as_json:
        print_json({"clients": found, "silent": replies.silent})
    else:
        _print(found)
        complain(replies)
    return UNREACHABLE if replies.silent else DONE


def _print(clients: list[dict[str, Any]]) -> None:
    now_us = time.time_ns() // 1000
    header = ("CLIENT", "WORKSPACE", "GATEWAY", "STATE", "FOR", "USER", "ADDRESS", "MQTT", *_NUMBERS)
    rows = [
        (
            entry["client"],
            entry.get("workspace") or "-",
            entry["gateway"],
            entry["state"],
            duration(max(now_us - int(entry["since_us"] or now_us), 0) / 1e6),
            entry.get("user") or "-",
            entry.get("address", "-"),
            _VERSIONS.get(entry.get("version", 0), "-"),
            entry["subscriptions"],
            *(_number(entry.get(key)) for key in ("messages_in", "messages_out", "queued")),
        )
        for entry in clients
    ]
    print_table(header, rows, numbers=_NUMBERS)


def _number(value: object) -> object:
    return "-" if value is None else value
