"""Which running network a command means."""

from __future__ import annotations

from pathlib import Path

from hbroker.errors import ConfigError
from hbroker.runtime.launcher.run_directory import RunDirectory, running


def named(base: Path, network: str | None) -> RunDirectory | None:
    """The network of that name or file, or the one that runs; None: no name was given and none runs.

    Raises ConfigError where no name was given and several run.
    """
    if network is not None:
        return RunDirectory(base, Path(network).stem)
    candidates = running(base)
    if len(candidates) > 1:
        names = ", ".join(directory.network for directory in candidates)
        raise ConfigError("several networks run", file=str(base), line=None, remedy=f"name one of {names}")
    return candidates[0] if candidates else None
