"""Runs every defective product until the soak finds its defect: `python -m tests.defects [--core FILE]`.

Without a core that was built with the feature `broken`, only the defects of the control are tried.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from hbroker.sim.network.trial import TrialResult
    from tests.defects.variants import Variant

MOST_SEEDS: Final = 500
"""A defect must be found within this number of seeds."""
FAILED: Final = 1


@click.command
@click.option(
    "--core", type=click.Path(path_type=Path), help="The native core, built with the feature broken."
)
@click.option("--only", default="", metavar="TEXT", help="The defects with this in their names.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes.  [default: one for each core]")
def main(core: Path | None, only: str, jobs: int) -> None:
    """Runs every defective product until the soak finds its defect."""
    if core is not None:
        load(core)
    from tests.defects.variants import CONTROL, CORE

    tried = [v for v in (*CONTROL, *(CORE if core else ())) if only in v.name]
    missed = [variant.name for variant in tried if not is_caught(variant, jobs)]
    print(f"{len(tried) - len(missed)} of {len(tried)} defects are caught by the invariants they break")
    sys.exit(FAILED if missed else 0)


def load(core: Path) -> None:
    """Imports this file as the native core."""
    loader = ExtensionFileLoader("hbroker._native", str(core))
    spec = importlib.util.spec_from_file_location("hbroker._native", core, loader=loader)
    assert spec is not None
    sys.modules["hbroker._native"] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)


def is_caught(variant: Variant, jobs: int) -> bool:
    """Whether the first violation is of the invariant that the safeguard protects."""
    if not variant.defect:
        variant.patch()  # An error here would start the pool's processes again without end.
    began = time.monotonic()
    verdict = next((v for v in verdicts(variant, jobs) if v.violation is not None), None)
    took = f"{time.monotonic() - began:.0f} s"
    if verdict is None:
        print(f"NOT FOUND  {variant.name} ({MOST_SEEDS} seeds, {took})", flush=True)
        return False
    assert verdict.violation is not None
    found = verdict.violation.invariant
    is_it = found is variant.breaks
    what = "caught" if is_it else f"CAUGHT AS {found.name}: {verdict.violation.text}:"
    print(f"{what}  {variant.name} (by {variant.breaks.name}, seed {verdict.seed}, {took})", flush=True)
    return is_it


def verdicts(variant: Variant, jobs: int) -> Iterator[TrialResult]:
    """The results of a defective product, by seed. The processes are used for this variant only, because
    they stay defective."""
    with multiprocessing.Pool(jobs, _begin, (variant.name,)) as pool:
        yield from pool.imap(partial(_run, variant.name), range(1, MOST_SEEDS + 1))


def _run(variant: str, seed: int) -> TrialResult:
    from hbroker.sim.network.trial import Trial
    from tests.defects.variants import VARIANTS

    return Trial(VARIANTS[variant].plan(seed)).run()


def _begin(variant: str) -> None:
    from tests.defects.variants import VARIANTS

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    VARIANTS[variant].apply()


if __name__ == "__main__":
    main()
