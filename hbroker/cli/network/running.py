"""Finds the running network that a command is about."""

from __future__ import annotations

from pathlib import Path

from hbroker.errors import ConfigError
from hbroker.runtime.launcher.run_directory import RunDirectory, running


def named(base: Path, network: str | None) -> RunDirectory | None:
    """The directory of the network with this name or file, or of the only one that runs.

    None: no name was given and no network runs. Raises ConfigError if no name was given and several run.
    """
    if network is not None:
        return RunDirectory(base, Path(network).stem)
    candidates = running(base)
    if len(candidates) > 1:
        names = ", ".join(directory.network for directory in candidates)
        raise ConfigError("several networks run", file=str(base), remedy=f"name one of {names}")
    return candidates[0] if candidates else None
