"""The distance of two CPUs: the time that a cache line takes from the broker's CPU to the load's and back.

On a virtual machine that changes within seconds. Its host runs the two CPUs now as two threads of one core,
which share a cache, and now on cores that do not. Then a message from one to the other costs several times as
much (docs/benchmarks.md). So only rounds with similar distances are compared.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Ruler"]

_SOURCE: Final = Path(__file__).resolve().parent / "limits" / "cpulat.c"
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Ruler:
    """A program in C that measures the distance of two CPUs."""

    program: Path
    cpus: tuple[int, int]

    @classmethod
    def build(cls, directory: Path, cpus: tuple[int, int]) -> Ruler | None:
        """Builds the program in this directory. None: there is no C compiler, or it failed."""
        program = directory / _SOURCE.stem
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        command = [compiler, "-O3", "-pthread", "-o", str(program), str(_SOURCE)]
        done = subprocess.run(command, capture_output=True, check=False)
        return None if done.returncode else cls(program, cpus)

    def measure(self) -> float | None:
        """Nanoseconds for a round trip. None: it could not be measured, which does not stop the run."""
        one, other = self.cpus
        command = [str(self.program), "-a", str(one), "-b", str(other)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True)
            return float(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
