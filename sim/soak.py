"""Runs of the simulated network over seeds, on all cores: `python -m hbroker.sim.soak --seeds 1-2000`.

A seed determines a network, its traffic and its faults (`network.drawing`); `network.trial` runs them. If a
seed breaks an invariant, the program prints how to run it again and what happened last, and fails.

Progress goes to standard error: a bar on a terminal, otherwise a line every 30 seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hbroker.sim.network.drawing import draw
from hbroker.sim.network.trial import Trial, TrialResult

__all__ = ["main", "report", "run"]

FAILED = 1
INTERRUPTED = 130
EVERY_S = 30.0
"""Seconds between two lines of progress, if standard error is not a terminal."""


def run(seed: int) -> TrialResult:
    """Runs one seed."""
    return Trial(draw(seed)).run()


def report(verdict: TrialResult) -> str:
    """The report of a failed run: how to run it again, its plan, its last events."""
    lines = [f"seed {verdict.seed} failed; again: python -m hbroker.sim.soak --seed {verdict.seed}"]
    lines += ["", "the plan:", *(f"  {line}" for line in draw(verdict.seed).schedule())]
    lines += ["", "what happened last:", *(f"  {line}" for line in verdict.tail), ""]
    return "\n".join(lines)


def _seeds(text: str) -> range:
    """`N`: the seeds from 1 to N; `A-B`: those from A to B."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)


@click.command
@click.option("--seed", type=int, help="Run this seed alone.")
@click.option(
    "--seeds",
    type=_seeds,
    default="200",
    show_default=True,
    metavar="N|A-B",
    help="The first N, or those from A to B.",
)
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes.  [default: one for each core]")
def main(seed: int | None, seeds: range, jobs: int) -> None:
    """Runs the simulated network over seeds, on all cores.

    Exit codes: 0 every invariant held, 1 a seed failed, 130 interrupted.
    """
    if seed is not None:
        seeds = range(seed, seed + 1)
    try:
        failed = _run_all(seeds, jobs)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    sys.exit(FAILED if failed else 0)


def _run_all(seeds: range, jobs: int) -> list[int]:
    began = time.monotonic()
    failed: list[int] = []
    messages = 0
    with _progress(seeds) as show:
        for done, verdict in enumerate(_verdicts(seeds, min(jobs, len(seeds))), 1):
            messages += verdict.messages
            if verdict.violation is not None:
                failed.append(verdict.seed)
                print(report(verdict), flush=True)
            show(done, len(failed))
    print(f"{len(seeds)} runs, {messages} messages, {time.monotonic() - began:.0f} s", end="")
    print(f"; failed: {' '.join(map(str, sorted(failed)))}" if failed else "; every invariant held")
    return failed


def _verdicts(seeds: range, jobs: int) -> Iterator[TrialResult]:
    """The results in the order in which they are complete. Only the parent handles Ctrl-C, and ends the
    others."""
    if jobs == 1:
        yield from map(_run_seed, seeds)
        return
    with multiprocessing.Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap_unordered(_run_seed, seeds)


def _run_seed(seed: int) -> TrialResult:
    """Runs one seed. An exception (a defect of the simulator, or one that ends a node) gets a note with the
    seed."""
    try:
        return run(seed)
    except Exception as error:
        error.add_note(f"in the run of seed {seed}")
        raise


@contextmanager
def _progress(seeds: range) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that shows the number of complete runs and of failed ones."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(seeds)
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(),
    )
    # No thread draws: the processes are forked while the bar is shown.
    with Progress(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    ) as bar:
        task = bar.add_task("", total=len(seeds), failed=0)
        yield lambda done, failed: bar.update(task, completed=done, failed=failed, refresh=True)


def _lines(seeds: range) -> Callable[[int, int], None]:
    """The first line names the seeds, so that a number of seeds is not mistaken for a seed."""
    of = len(seeds)
    shown_at = time.monotonic()
    which = f"seed {seeds.start}" if of == 1 else f"seeds {seeds.start} to {seeds.stop - 1}"
    print(f"{'1 run' if of == 1 else f'{of} runs'}: {which}", file=sys.stderr, flush=True)

    def show(done: int, failed: int) -> None:
        nonlocal shown_at
        if time.monotonic() >= shown_at + EVERY_S:
            shown_at = time.monotonic()
            print(f"{done}/{of}, {failed} failed", file=sys.stderr, flush=True)

    return show


if __name__ == "__main__":
    main()
