"""`hbroker audit`: the events of all nodes and gateways, as they happen."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import RunningNetwork, json_flag, root_flag, timeout_flag, url_flag
from hbroker.cli.output import Style, print_json_line, styled

if TYPE_CHECKING:
    from hbroker import Message

_FILTER: Final = "$SYS/audit/#"
_TEXT: Final = """\
Nodes and gateways publish what they log of joins, leases, orders, refused tokens, keys, and MQTT
clients. Each line is one event: its time, the node or gateway, its name, and its fields
(docs/audit.md). Where tokens are required, the token must allow to read $SYS/#.

Nothing is retained: the command shows what happens while it runs, for --timeout seconds or, with
--follow, until Ctrl-C. What happened before is in the logs of the nodes.

examples:
  hbroker audit --follow
  hbroker audit --follow --json | jq 'select(.event == "token_refused")'

--json prints one object a line: {v, time, node, event, …}

exit codes: 0 done, 1 not allowed, 3 no answer, 130 interrupted
"""


@command("audit", _TEXT)
@click.option("--follow", is_flag=True, help="go on until Ctrl-C")
@root_flag
@timeout_flag(10.0, "how long to listen, without --follow; and to wait for answers")
@url_flag
@json_flag
def audit(follow: bool, root: str, timeout: float, url: str | None, as_json: bool) -> int:
    """Returns when the time is over. Raises Unreachable, Refused, LocalError, KeyboardInterrupt."""
    until = None if follow else time.monotonic() + timeout
    api = RunningNetwork(root, timeout, None, Path(), url).api()
    for record in _records(root, timeout, until) if api is None else api.events("audit", until):
        _show(record, as_json=as_json)
    return DONE


def _records(root: str, timeout: float, until: float | None) -> Iterator[dict[str, Any]]:
    """The records that are published until this time by `time.monotonic`; None: without end."""
    from hbroker import sync

    with (
        sync.connect(root, timeout=timeout) as client,
        client.subscribe(_FILTER, qos=1, timeout=timeout) as messages,
    ):
        while True:
            left = None if until is None else max(until - time.monotonic(), 0.0)
            message = messages.next(timeout=left)
            if message is None:
                return
            if (record := _record_of(message)) is not None:
                yield record


def _record_of(message: Message) -> dict[str, Any] | None:
    """The record in a message. The topic says of which node it is, whatever the record says."""
    _, _, node, *rest = [*message.topic.split("/"), ""]
    try:
        record = json.loads(bytes(message.payload))
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        print(styled(f"no record of an event: {message.topic!r}", Style.BAD), file=sys.stderr)
        return None
    return record | {"node": node, "event": rest[0]}


def _show(record: dict[str, Any], *, as_json: bool) -> None:
    from hbroker.runtime.logs import pairs, plain

    if as_json:
        print_json_line(record)
        return
    head = [plain(record.pop(key, None)) for key in ("time", "node", "event")]
    print(
        " ".join([*head, *pairs({plain(key): value for key, value in record.items() if key != "v"})]),
        flush=True,
    )
