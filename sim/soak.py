"""Runs of the simulated network over seeds, on all cores: `python -m hbroker.sim.soak --seeds 1-2000`.

A seed determines a network, its traffic and its faults (`network.drawing`); `network.trial` runs them. If a
seed breaks an invariant, the program prints how to run it again and what happened last, and fails. With
`--lines` each seed is a line that publishers share (`network.line`).

Progress goes to standard error: a bar on a terminal, otherwise a line every 30 seconds.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from hbroker.sim.network.drawing import draw
from hbroker.sim.network.line import LineResult, judge
from hbroker.sim.network.trial import Trial, TrialResult

__all__ = ["main", "report", "report_line", "run"]

FAILED = 1
INTERRUPTED = 130
EVERY_S = 30.0
"""Seconds between two lines of progress, if standard error is not a terminal."""


class _Told(Protocol):
    """The result of a run: of a trial or of a line."""

    @property
    def seed(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def violation(self) -> object: ...


_Run = TypeVar("_Run", bound=_Told)


def run(seed: int) -> TrialResult:
    """Runs one seed."""
    return Trial(draw(seed)).run()


def report(verdict: TrialResult) -> str:
    """The report of a failed run: how to run it again, its plan, its last events."""
    lines = [f"seed {verdict.seed} failed; again: python -m hbroker.sim.soak --seed {verdict.seed}"]
    lines += ["", "the plan:", *(f"  {line}" for line in draw(verdict.seed).schedule())]
    lines += ["", "what happened last:", *(f"  {line}" for line in verdict.tail), ""]
    return "\n".join(lines)


def report_line(verdict: LineResult) -> str:
    """The report of a line that was not filled, or not shared fairly."""
    seed = verdict.seed
    lines = [f"seed {seed} failed; again: python -m hbroker.sim.soak --lines {seed}-{seed}"]
    return "\n".join([*lines, *(f"  {shares}" for shares in verdict.shares), ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the seeds that the arguments name. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hbroker.sim.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=range(1, 201),
        metavar="N|A-B",
        help="the first N, or those from A to B; default: 200",
    )
    parser.add_argument("--lines", type=_seeds, metavar="N|A-B", help="lines of these seeds instead")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    options = parser.parse_args(arguments)
    seeds = options.seeds if options.seed is None else range(options.seed, options.seed + 1)
    try:
        if options.lines is not None:
            failed = _run_all(options.lines, options.jobs, judge, report_line)
        else:
            failed = _run_all(seeds, options.jobs, run, report)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    return FAILED if failed else 0


def _run_all(seeds: range, jobs: int, run: Callable[[int], _Run], report: Callable[[_Run], str]) -> list[int]:
    began = time.monotonic()
    progress = _Progress(seeds)
    failed: list[int] = []
    messages = 0
    for done, verdict in enumerate(_verdicts(seeds, min(jobs, len(seeds)), run), 1):
        messages += verdict.messages
        if verdict.violation is not None:
            failed.append(verdict.seed)
            print(f"{_clear()}{report(verdict)}", flush=True)
        progress.show(done, len(failed))
    print(f"{_clear()}{len(seeds)} runs, {messages} messages, {time.monotonic() - began:.0f} s", end="")
    print(f"; failed: {' '.join(map(str, sorted(failed)))}" if failed else "; every invariant held")
    return failed


def _verdicts(seeds: range, jobs: int, run: Callable[[int], _Run]) -> Iterator[_Run]:
    """The results in the order in which they are complete. Only the parent handles Ctrl-C, and ends the
    others."""
    run_seed = functools.partial(_run_seed, run)
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap_unordered(run_seed, seeds)


def _run_seed(run: Callable[[int], _Run], seed: int) -> _Run:
    """Runs one seed. An exception (a defect of the simulator, or one that ends a node) gets a note with the
    seed."""
    try:
        return run(seed)
    except Exception as error:
        error.add_note(f"in the run of seed {seed}")
        raise


class _Progress:
    """Shows progress. The first line names the seeds, so that a number of seeds is not mistaken for a
    seed."""

    def __init__(self, seeds: range) -> None:
        self._of = len(seeds)
        self._told_at = time.monotonic()
        if not sys.stderr.isatty():
            runs = "1 run" if self._of == 1 else f"{self._of} runs"
            print(f"{runs}: {_named(seeds)}", file=sys.stderr, flush=True)

    def show(self, done: int, failed: int) -> None:
        """Shows the number of complete runs and of failed ones."""
        if sys.stderr.isatty():
            bar = ("#" * (40 * done // self._of)).ljust(40, ".")
            print(f"\r[{bar}] {done}/{self._of}, {failed} failed", end="", file=sys.stderr, flush=True)
        elif time.monotonic() >= self._told_at + EVERY_S:
            self._told_at = time.monotonic()
            print(f"{done}/{self._of}, {failed} failed", file=sys.stderr, flush=True)


def _named(seeds: range) -> str:
    return f"seed {seeds.start}" if len(seeds) == 1 else f"seeds {seeds.start} to {seeds.stop - 1}"


def _clear() -> str:
    return "\r\x1b[K" if sys.stderr.isatty() else ""


def _seeds(text: str) -> range:
    """`N`: the seeds from 1 to N; `A-B`: those from A to B."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)


if __name__ == "__main__":
    sys.exit(main())
