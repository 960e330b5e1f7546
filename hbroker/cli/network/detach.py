"""`--detach` of `hbroker up` and `hbroker join`: a process in its own session, which outlives the terminal.

Its output goes to a log. The command prints this output until the process is ready, or has ended.
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
"""Seconds that the process may take to stop."""


def launch(command: Sequence[str], path: Path, *, is_json: bool = False) -> int:
    """Starts `hbroker` with these arguments in the background, and writes its output to `path`.

    Returns DONE once it is ready, or its exit code if it has ended. Ctrl-C before that ends it. Raises
    OSError.
    """
    make_folder(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as log, path.open(encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "hbroker", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return _await_ready(process, output, is_json=is_json)
        except KeyboardInterrupt:
            process.terminate()
            process.wait(_PATIENCE_S)
            raise


def _await_ready(process: subprocess.Popen[bytes], output: IO[str], *, is_json: bool) -> int:
    unfinished = ""
    while True:
        has_ended = process.poll() is not None
        *lines, unfinished = (unfinished + output.read()).split("\n")
        for line in lines:
            print(line, flush=True)
            if _is_ready(line, is_json=is_json):
                return DONE
        if has_ended:
            return process.returncode or FAILED
        time.sleep(_EVERY_S)


def _is_ready(line: str, *, is_json: bool) -> bool:
    if not is_json:
        return line.startswith("ready ")
    try:
        return bool(json.loads(line)["event"] == "ready")
    except (ValueError, KeyError, TypeError):
        return False
