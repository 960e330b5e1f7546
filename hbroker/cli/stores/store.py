"""`hbroker store`: shows, verifies and changes what a node has on disk for its sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from hbroker.cli.commands import command
from hbroker.cli.flags import PATH

_TEXT: Final = """\
Shows, verifies or changes the store of a node whose durability is `fsync` or `os`. DIR is its
folder: the node's state file with `.store` behind its name. `hbroker up` has it as
STATE_DIR/TOPOLOGY/NODE.cuts.store. But for `verify`, the node must not run. As at its start, a
torn end of the log is cut off.

  info DIR           which sessions have messages there, how many, and about how many bytes;
                     and how many messages are retained (each fragment of a large one counts)
  verify DIR         reads every record, and compares its checksum; the node may run
  compact DIR        removes what is not needed any more from the log at once
  export DIR FILE    writes all messages to a table: Parquet if FILE ends with .parquet, else
                     one JSON object a line. `-` is standard output
  import FILE DIR    makes a new store of such a table. The sessions of its messages must be in
                     the node's state files
  merge A B DIR      makes a new store of two: of a node that came back after another had its
                     subtree, or of two sides of a partition. What waits in both waits once.
                     The state files of A are copied, with the sessions of B in addition

examples:
  hbroker store info .hbroker/home/root.cuts.store
  hbroker store verify --json /var/lib/hbroker/kitchen.store
  hbroker store export .hbroker/home/root.cuts.store waiting.parquet
  hbroker store merge old/kitchen.cuts.store new/kitchen.cuts.store both/kitchen.cuts.store

exit codes: 0 done, 1 damage was found or a store cannot be read or written, 2 there is no store
"""

_PATHS: Final = {
    "info": ("DIR",),
    "verify": ("DIR",),
    "compact": ("DIR",),
    "export": ("DIR", "FILE"),
    "import": ("FILE", "NEW"),
    "merge": ("A", "B", "NEW"),
}


@command("store", _TEXT)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.option(
    "--memory",
    type=click.IntRange(1, 1 << 20),
    default=256,
    show_default=True,
    metavar="MIB",
    help="merge: the most memory for the numbers of messages",
)
@click.option("--quiet", is_flag=True, help="show no progress")
@click.argument("action", metavar="ACTION", type=click.Choice(list(_PATHS)))
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=PATH)
def store(action: str, paths: tuple[Path, ...], as_json: bool, memory: int, quiet: bool) -> int:
    """Returns 1 if there is damage. Raises BadParameter if there is no store, UsageError, and OSError."""
    names = _PATHS[action]
    if len(paths) != len(names):
        needed = " ".join("DIR" if name == "NEW" else name for name in names)
        raise click.UsageError(f"{action} is followed by {needed}")
    for path, name in zip(paths, names, strict=True):
        if name in ("DIR", "A", "B") and not (path / "log").is_dir():
            raise click.BadParameter(f"{path} is no store: it has no folder `log`")
        if name == "NEW" and path.exists():
            raise click.BadParameter(f"{path} exists already")
        if name in ("A", "B", "NEW") and path.suffix != ".store":
            raise click.BadParameter(f"{path}: the name of a store ends with .store")
    if action in ("info", "verify"):
        from hbroker.cli.stores import show

        return (show.info if action == "info" else show.verify)(paths[0], as_json)
    if action in ("export", "import"):
        from hbroker.cli.stores import tables

        source, target = paths
        return (tables.export if action == "export" else tables.load)(source, target, is_silent=quiet)
    from hbroker.cli.stores import rewrite

    if action == "compact":
        return rewrite.compact(paths[0], as_json=as_json, is_silent=quiet)
    first, second, into = paths
    return rewrite.merge(first, second, into, as_json=as_json, memory_bytes=memory << 20, is_silent=quiet)
