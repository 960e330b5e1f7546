"""`hbroker tree`: shows the live hierarchy."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, UNREACHABLE
from hbroker.cli.flags import SECONDS, RunningNetwork, json_flag, root_flag, timeout_flag, url_flag
from hbroker.cli.output import Style, print_json, print_table, styled
from hbroker.errors import Unreachable
from hbroker.metrics.families import LOSSES
from hbroker.operations.node_statuses import Status, drawing, read_statuses

_COLUMNS = (
    ("SUBSCRIPTIONS", "subscriptions"),
    ("PUBLISHERS", "publishers"),
    ("SESSIONS", "sessions"),
    ("IN", "messages_in"),
    ("OUT", "messages_out"),
    ("QUEUED", "queued_messages"),
)

_TEXT = """\
Each node says for itself what it owns and how much it moved. IN and OUT are messages since
it started; QUEUED those that wait for a session or for its acknowledgement now; LOST those that
it took and could not deliver: a subscriber did not keep up or went away, or there was no room
for a retained one. CPU and MiB are its process's. --json tells all that it dropped, by reason,
which is much that harms nobody, and what became of every session's messages (docs/commands.md).
Where a node's security is off, it says so on stderr.

examples:
  hbroker tree
  hbroker tree --root 192.0.2.1:7700
  hbroker tree --watch 2
  hbroker tree --json | jq '.nodes[] | {name, drops}'
  hbroker tree --json | jq '.nodes[].clients[] | select(.state != "connected")'

--json prints {silent: [name], nodes: [{name, subtree, subtrees, parent, address, epoch,
  subscriptions, publishers, sessions, sessions_offline, wills, revoked_tokens, workspaces: {name:
  {sessions, most_sessions, subscriptions, most_subscriptions, most_messages_per_second}},
  messages_in, messages_out, bytes_in, bytes_out, accepted, delivered, expired, queued_messages,
  queued_bytes, offline_bytes, out_of_order_bytes, drops: {reason: n}, cpu_s, rss_bytes, security,
  clients: [{client, state, accepted, delivered, expired, dropped: {reason: n}, queued,
  queued_bytes}]}]}; of each session accepted = delivered + expired + dropped + queued. Workspaces
  are those with quotas; a quota of 0 is none

exit codes: 0 every node answered, 3 one did not, or the root
"""


@command("tree", _TEXT)
@root_flag
@timeout_flag()
@click.option(
    "--watch",
    type=SECONDS,
    help="show it again and again, so many seconds apart, until Ctrl-C",
)
@url_flag
@json_flag
def tree(root: str, timeout: float, watch: float | None, url: str | None, as_json: bool) -> int:
    """Returns 0 only if every node answered with its status."""
    network = RunningNetwork(root, timeout, None, Path(), url)
    if watch is None:
        return _show(network, as_json=as_json)
    while True:
        if not as_json and sys.stdout.isatty():
            click.clear()
        try:
            _show(network, as_json=as_json)
        except Unreachable as error:
            print(styled(str(error), Style.BAD), file=sys.stderr)
        sys.stdout.flush()
        time.sleep(watch)


def _show(network: RunningNetwork, *, as_json: bool) -> int:
    if (api := network.api()) is not None:
        statuses, silent = api.statuses()
    else:
        statuses, silent = read_statuses(network.root, network.timeout, with_clients=as_json)
    if as_json:
        print_json({"nodes": statuses, "silent": silent})
    else:
        _print(statuses)
        for name in silent:
            print(styled(f"{name} does not tell its status", Style.BAD), file=sys.stderr)
    _warn_of_open([str(status["name"]) for status in statuses if status.get("security") == "off"])
    return DONE if statuses and not silent else UNREACHABLE


def _warn_of_open(names: list[str]) -> None:
    if names:
        who = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        danger = "nothing is encrypted, and no node proves who it is"
        print(styled(f"SECURITY IS OFF at {who}: {danger}", Style.BAD), file=sys.stderr)


def _print(statuses: list[Status]) -> None:
    header = (
        "NODE",
        "SUBTREE",
        "ADDRESS",
        "EPOCH",
        *(title for title, _ in _COLUMNS),
        "LOST",
        "CPU s",
        "MiB",
    )
    rows = [
        (
            label,
            _subtrees(status),
            status.get("address", "-"),
            status.get("epoch", "-"),
            *(status.get(key, "-") for _, key in _COLUMNS),
            _lost(status.get("drops")),
            _fixed(status.get("cpu_s"), 1, "{:.1f}"),
            _fixed(status.get("rss_bytes"), 1 << 20, "{:.0f}"),
        )
        for label, status in zip(drawing(statuses), statuses, strict=True)
    ]
    print_table(header, rows, numbers=header[3:])


def _subtrees(status: Status) -> str:
    """The subtrees that a node owns, most often one. `-`: none, because it has handed its own back."""
    main = status.get("subtree")
    others = status.get("subtrees")
    others = [str(s) for s in others if s != main] if isinstance(others, list) else []
    return " ".join([str(main) or '""', *others]) if main is not None else "-"


def _lost(drops: object) -> object:
    if not isinstance(drops, dict):
        return "-"
    return sum(count for reason, count in drops.items() if reason in LOSSES and isinstance(count, int))


def _fixed(value: object, unit: int, form: str) -> str:
    return form.format(value / unit) if isinstance(value, int | float) else "-"
