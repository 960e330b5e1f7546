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

_SOURCES: Final = Path(__file__).resolve().parent / "limits"
_PATIENCE_S: Final = 10.0


def compiled(name: str, directory: Path) -> str | None:
    """Compiles a program of bench/limits into this directory. None: it succeeded; otherwise the reason why
    not."""
    compiler = shutil.which("cc")
    if compiler is None:
        return "there is no C compiler"
    flags = ("-O3", "-march=native", "-pthread", "-o", str(directory / name))
    command = [compiler, *flags, str(_SOURCES / f"{name}.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = (done.stderr.splitlines() or ["no reason told"])[0]
        return f"cc could not build {name}.c: {complaint}"
    return None


@dataclass(frozen=True, slots=True)
class Ruler:
    """A program in C that measures the distance of two CPUs."""

    program: Path
    cpus: tuple[int, int]

    @classmethod
    def build(cls, directory: Path, cpus: tuple[int, int]) -> Ruler | None:
        """Builds the program in this directory. None: there is no C compiler, or it failed."""
        return None if compiled("cpulat", directory) else cls(directory / "cpulat", cpus)

    def measure(self) -> float | None:
        """Nanoseconds for a round trip. None: it could not be measured, which does not stop the run."""
        one, other = self.cpus
        command = [str(self.program), "-a", str(one), "-b", str(other)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True)
            return float(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
