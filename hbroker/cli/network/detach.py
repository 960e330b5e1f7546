"""`hbroker up --detach`: a launcher in its own session, which does not end with the terminal.

Its output goes to `launcher.log` beside the logs of its nodes. The command prints this output until the
network is ready, or the launcher has ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from hbroker.cli.exits import DONE, FAILED
from hbroker.storage.disk import make_folder

_EVERY_S: Final = 0.05
_PATIENCE_S: Final = 10.0
"""Seconds that a launcher may take to stop."""


def launch(arguments: Sequence[str], directory: Path, *, is_json: bool) -> int:
    """Starts `hbroker up` with these arguments in the background.

    Returns DONE once the network is ready, or the launcher's exit code if it has ended. Ctrl-C before that
    ends the launcher. Raises OSError.
    """
    make_folder(directory)
    path = directory / "launcher.log"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as log, path.open(encoding="utf-8", errors="replace") as output:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "hbroker", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return _await_ready(launcher, output, is_json=is_json)
        except KeyboardInterrupt:
            launcher.terminate()
            launcher.wait(_PATIENCE_S)
            raise


def _await_ready(launcher: subprocess.Popen[bytes], output: IO[str], *, is_json: bool) -> int:
    unfinished = ""
    while True:
        has_ended = launcher.poll() is not None
        *lines, unfinished = (unfinished + output.read()).split("\n")
        for line in lines:
            print(line, flush=True)
            if _is_ready(line, is_json=is_json):
                return DONE
        if has_ended:
            return launcher.returncode or FAILED
        time.sleep(_EVERY_S)


def _is_ready(line: str, *, is_json: bool) -> bool:
    if not is_json:
        return line.startswith("ready ")
    try:
        return bool(json.loads(line)["event"] == "ready")
    except (ValueError, KeyError, TypeError):
        return False
