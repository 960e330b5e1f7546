"""What the parts of one client's control share: its core, its session's options and what it knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hbroker.protocol.core import ClientCore
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.results import Result
from hbroker.protocol.sessions.options import SessionOptions

__all__ = ["ClientContext"]


@dataclass(slots=True)
class ClientContext:
    """What the parts of one client's control share.

    `root`: where look-ups and discoveries begin. `session_options`: for later requests. `on_result`: called
    with each outcome.
    """

    core: ClientCore
    random: Random
    root: Address
    session_options: SessionOptions
    caches: ResolverCaches
    on_result: Callable[[Result], None]
