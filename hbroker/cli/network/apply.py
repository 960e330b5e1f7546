"""`hbroker apply`: changes a running network into that of a topology file, by handovers, while it is in
use."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbroker.addresses import format_address
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import add_json, address, command, not_negative, positive
from hbroker.cli.network.admin_requests import add_orders, give_subtree, join_key, say, take_subtree
from hbroker.cli.output import duration, print_json, print_table
from hbroker.errors import HBrokerError, LocalError

if TYPE_CHECKING:
    from hbroker.cli.flags import Commands
    from hbroker.cli.network.hierarchy import Status
    from hbroker.sync import Client
    from hbroker.topology import Plan, Topology
    from hbroker.topology.moves import Move

_TEXT = """\
Compares the subtrees that running nodes own with those that FILE gives them, and moves what
differs, one after the other, each as `hbroker move` does: nothing is lost, and publishers of
that subtree wait for less than a second. A subtree that a node of FILE owns and FILE does not
name goes back to the node around it. FILE names nodes that run: addresses and settings in it
change nothing. If a move fails, those before it stand: run it again to go on.

`hbroker analyze` writes such files, with a section `plan`: then what each node was predicted to
carry is shown beside what it carries, measured for a while after the last move.

examples:
  hbroker apply plan.yaml --dry-run        what would move
  hbroker apply plan.yaml                  move it, and measure for 10 seconds
  hbroker apply topologies/home.yaml       back to how it began

--json prints {dry_run, moves: [{subtree, source, target, done, seconds, error}], measured:
  {seconds, nodes: [{name, predicted, load, cpu, messages_in, messages_out}], predicted_max_mean,
  max_mean}}; loads are CPU-seconds a second, messages are for each second, target null: to the
  node around it; measured is null where FILE has no plan

exit codes: 0 it is as FILE says, 1 a move failed, or a node of FILE does not run, 2 FILE is
wrong, 3 no answer
"""


@dataclass(frozen=True, slots=True)
class _Done:
    """A move and its result. `done`: None: it was not tried."""

    subtree: str
    source: str | None
    target: str | None
    done: bool | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Load:
    """The load of one node, per second. `predicted`: None: the plan has no prediction."""

    name: str
    predicted: float | None
    load: float
    cpu: float
    messages_in: float
    messages_out: float


def add(commands: Commands) -> None:
    """Declares the command."""
    parser = command(commands, "apply", run, "re-delegate a running network as a topology says", _TEXT)
    parser.add_argument("file", metavar="FILE", type=Path, help="a topology file")
    parser.add_argument("--dry-run", action="store_true", help="tell what would move, and move nothing")
    parser.add_argument(
        "--measure",
        type=not_negative,
        default=10.0,
        metavar="SECONDS",
        help="how long to measure the loads afterwards; 0: not at all (default: %(default)s)",
    )
    parser.add_argument(
        "--root",
        type=address,
        metavar="HOST:PORT",
        help="the root of the network (default: where FILE has it)",
    )
    parser.add_argument(
        "--timeout", type=positive, metavar="SECONDS", help="for each step (default: %(default)s)"
    )
    add_orders(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Returns when the network is as the file says, or a move has failed.

    Raises Unreachable, LocalError, ConfigErrors.
    """
    from hbroker import sync, topology
    from hbroker.cli.network.hierarchy import read_statuses
    from hbroker.topology.moves import moves

    wanted = topology.load(options.file)
    root = options.root or format_address(wanted.root.address)
    key = wanted.root.join_key if options.join_key_file is None else b""
    key = key or join_key(options, root)
    statuses, silent = read_statuses(root, options.timeout)
    _require_all(wanted, statuses, silent)
    claimed = {status["name"]: _claims(status) for status in statuses}
    steps = moves(wanted, claimed)
    if options.dry_run:
        done = [_Done(**asdict(step)) for step in steps]
    else:
        with sync.connect(root, timeout=options.timeout) as client:
            done = _carry_out(client, steps, options, key)
    measured = None
    if wanted.plan and options.measure and not options.dry_run and all(step.done for step in done):
        measured = _measure(root, wanted.plan, options)
    _report(done, measured, options)
    return DONE if options.dry_run or all(step.done for step in done) else FAILED


def _require_all(wanted: Topology, statuses: Sequence[Status], silent: Sequence[str]) -> None:
    there = {status["name"] for status in statuses}
    missing = [node.name for node in wanted.nodes if node.name not in there]
    if missing:
        why = "does not tell its status" if missing[0] in silent else "does not run"
        raise LocalError(f"node {missing[0]!r} {why}: start it, or leave it out of the file")


def _claims(status: Status) -> list[str]:
    subtrees = status.get("subtrees")
    return [str(subtree) for subtree in subtrees] if isinstance(subtrees, list) else []


def _carry_out(client: Client, steps: Sequence[Move], options: argparse.Namespace, key: bytes) -> list[_Done]:
    """Makes the moves one after the other, up to the first that fails."""
    done: list[_Done] = []
    for number, step in enumerate(steps, 1):
        say(f"[{number}/{len(steps)}] {_described(step)}", options)
        began = time.monotonic()
        error = _carry_out_one(client, step, options, key)
        seconds = round(time.monotonic() - began, 3)
        done.append(
            _Done(
                step.subtree,
                step.source,
                step.target,
                error is None,
                seconds,
                None if error is None else str(error),
            )
        )
        if error is not None:
            break
    return done + [_Done(**asdict(step)) for step in steps[len(done) :]]


def _carry_out_one(
    client: Client, step: Move, options: argparse.Namespace, key: bytes
) -> HBrokerError | None:
    try:
        if step.target is None:
            assert step.source is not None, "what nobody holds is not handed back"
            take_subtree(client, step.subtree, step.source, options, key)
            return None
        return give_subtree(client, step.subtree, step.target, options, key)[1]
    except HBrokerError as error:
        return error


def _measure(root: str, plan: Plan, options: argparse.Namespace) -> tuple[float, list[_Load]]:
    """Measures the load of every node. Returns the seconds of the measurement, and the loads."""
    from hbroker.cli.network.hierarchy import read_statuses

    say(f"measuring for {duration(options.measure)}", options)
    began = time.monotonic()
    before = {status["name"]: status for status in read_statuses(root, options.timeout)[0]}
    time.sleep(options.measure)
    seconds = time.monotonic() - began
    after = read_statuses(root, options.timeout)[0]
    predicted = dict(plan.predicted)
    return seconds, [
        _load(status["name"], before[status["name"]], status, seconds, plan, predicted)
        for status in after
        if status["name"] in before
    ]


def _load(
    name: str, before: Status, after: Status, seconds: float, plan: Plan, predicted: Mapping[str, float]
) -> _Load:
    def rate(key: str) -> float:
        return float(max(after.get(key, 0) - before.get(key, 0), 0)) / seconds

    messages_in, messages_out = rate("messages_in"), rate("messages_out")
    load = plan.load(messages_in, messages_out)
    return _Load(name, predicted.get(name), load, rate("cpu_s"), messages_in, messages_out)


def _max_mean(loads: Sequence[float]) -> float | None:
    return max(loads) * len(loads) / sum(loads) if sum(loads) else None


def _report(
    done: Sequence[_Done],
    measured: tuple[float, list[_Load]] | None,
    options: argparse.Namespace,
) -> None:
    if options.json:
        print_json(_as_json(done, measured, options))
        return
    if not done:
        print("nothing to move: the network is as the file says")
    else:
        rows = [(step.subtree, step.source or "-", step.target or "(merged)", _result(step)) for step in done]
        print_table(("SUBTREE", "FROM", "TO", "" if options.dry_run else "TOOK"), rows)
    if measured is not None:
        print()
        _print_loads(measured[1])


def _result(step: _Done) -> str:
    if step.error is not None:
        return f"failed: {step.error}"
    return "" if step.seconds is None else duration(step.seconds)


def _print_loads(loads: Sequence[_Load]) -> None:
    from hbroker.topology.plan import is_alike

    header = ("NODE", "PREDICTED", "MEASURED", "CPU", "IN/s", "OUT/s")
    rows = [
        (
            load.name,
            "-" if load.predicted is None else f"{load.predicted:.1%}",
            f"{load.load:.1%}",
            f"{load.cpu:.1%}",
            f"{load.messages_in:.0f}",
            f"{load.messages_out:.0f}",
        )
        for load in loads
    ]
    print_table(header, rows, numbers=header[1:])
    predicted = _max_mean([load.predicted or 0.0 for load in loads])
    found = _max_mean([load.load for load in loads])
    if predicted is not None and found is not None:
        print(f"largest load over the mean: predicted {predicted:.2f}, measured {found:.2f}")
    expected, carried = sum(load.predicted or 0.0 for load in loads), sum(load.load for load in loads)
    if not is_alike(expected, carried):
        print(f"the traffic is not that which was analysed: {carried:.1%} of a processor, not {expected:.1%}")


def _as_json(
    done: Sequence[_Done],
    measured: tuple[float, list[_Load]] | None,
    options: argparse.Namespace,
) -> dict[str, Any]:
    reported = None
    if measured is not None:
        seconds, loads = measured
        reported = {
            "seconds": round(seconds, 3),
            "nodes": [asdict(load) for load in loads],
            "predicted_max_mean": _max_mean([load.predicted or 0.0 for load in loads]),
            "max_mean": _max_mean([load.load for load in loads]),
        }
    return {"dry_run": options.dry_run, "moves": [asdict(step) for step in done], "measured": reported}


def _described(step: Move) -> str:
    to = "back to the node around it" if step.target is None else f"to {step.target}"
    return f"{step.subtree}: {'' if step.source is None else f'from {step.source} '}{to}"
