"""A file system whose power can be cut: ext4 on a loop device. The kernel can shut it down at once, without
writing its journal (`EXT4_IOC_SHUTDOWN`, as xfstests' `godown` does). From then on all calls fail with EIO,
and when it is mounted again, it has only what was synced, or what the kernel had written by itself.

No process may be in the middle of a sync at that moment: the kernel may report success for one whose
transaction it has just aborted (2 of 50 tries with Linux 6.18). So all processes are suspended before."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest

from tests.product.network import PATIENCE

__all__ = ["Disk", "need_disk"]

SHUTDOWN: Final = 2 << 30 | 4 << 16 | ord("X") << 8 | 125
"""`EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`."""
NO_LOG_FLUSH: Final = 2
SIZE: Final = 512 << 20


class Disk:
    """A mounted file system in a file."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.mount_point = mount_point
        self._image = image
        with image.open("wb") as file:
            file.truncate(SIZE)
        mount_point.mkdir()
        run("mkfs.ext4", "-q", str(image))

    def __enter__(self) -> Disk:
        self._mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run("umount", "--lazy", str(self.mount_point))  # Whoever still has a file there, after a failure.
        self._image.unlink()

    def cut_power(self) -> None:
        """Nothing is written any more, and all calls fail. All processes that write must be suspended."""
        folder = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(folder)

    def restore(self) -> None:
        """Mounts it again. No process may have a file on it open."""
        self._unmount()
        self._mount()

    def _mount(self) -> None:
        run("mount", "-o", "loop", str(self._image), str(self.mount_point))

    def _unmount(self) -> None:
        run("umount", str(self.mount_point))


def need_disk() -> None:
    """Skips the test if this machine has no loop devices for it, or it may not mount."""
    is_root = os.geteuid() == 0
    has_tools = all(
        shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for tool in ("mkfs.ext4", "mount")
    )
    if not (is_root and has_tools and Path("/dev/loop-control").exists()):
        pytest.skip("needs root, mkfs.ext4 and loop devices")


def run(*command: str) -> None:
    """Runs a tool of the system."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    subprocess.run(
        command, check=True, timeout=PATIENCE, capture_output=True, env={**os.environ, "PATH": path}
    )
