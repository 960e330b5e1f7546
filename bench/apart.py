"""How far apart the broker's CPU and the load's are: what a cache line takes from one to the other and back.

On a virtual machine that changes within seconds. Its host has them run now as two threads of one core, which
share a cache, and now on cores that do not, and a message that goes from one to the other costs several times
as much there (docs/benchmarks.md). So rounds are compared that ran alike.
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
    """A program in C between two CPUs, built where it is to be."""

    program: Path
    cpus: tuple[int, int]

    @classmethod
    def build(cls, directory: Path, cpus: tuple[int, int]) -> Ruler | None:
        """None: there is no C compiler, or it could not."""
        program = directory / _SOURCE.stem
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        command = [compiler, "-O3", "-pthread", "-o", str(program), str(_SOURCE)]
        done = subprocess.run(command, capture_output=True, check=False)
        return None if done.returncode else cls(program, cpus)

    def measure(self) -> float | None:
        """Nanoseconds for a round trip. None: it could not be found out, and that is no reason to stop."""
        one, other = self.cpus
        command = [str(self.program), "-a", str(one), "-b", str(other)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True)
            return float(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
