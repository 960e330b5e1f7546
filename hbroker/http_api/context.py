"""What the routes need: the network, and how to reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar, Unpack

from litestar.datastructures import State

from hbroker import sync
from hbroker._native import Credentials
from hbroker.addresses import Address
from hbroker.http_api.caller_clients import CallerClients
from hbroker.http_api.moves import MoveProgress, Moves
from hbroker.http_api.plans import PlanProgress, Plans
from hbroker.operations.live_network import LiveNetwork, now_text
from hbroker.operations.mqtt_sessions import MqttSessions
from hbroker.operations.orders import Orders
from hbroker.runtime.client.async_client import Connecting, connect, connect_with_token
from hbroker.runtime.client.identity import Profile
from hbroker.runtime.credentials import credentials_at

__all__ = ["PING_S", "ApiContext", "NetworkAccess", "context_of"]

T = TypeVar("T")

ORDER_TIMEOUT_S: Final = 60.0
PING_S: Final = 15.0
"""How often a stream without events has a comment, so that both ends notice that the other one is gone."""
_ORDERS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class NetworkAccess:
    """How the API reaches the network. `authority`: the certificate of the network's authority; None:
    security is off. `token`: the API's own, with the rights of an operator; None: no tokens are required.
    `join_key`: empty: there is none. `timeout`: seconds for each request."""

    root: Address
    authority: Path | None = None
    token: Path | None = None
    join_key: bytes = field(default=b"", repr=False)
    timeout: float = 10.0

    @property
    def requires_tokens(self) -> bool:
        """Whether nodes require tokens, and so the API does."""
        return self.authority is not None and self.token is not None

    def connect(self, **profile: Unpack[Profile]) -> Connecting:
        """A client with the API's own token."""
        return connect(self.root, timeout=self.timeout, authority=self.authority, token=self.token, **profile)

    def connect_as(self, token: str | None, **profile: Unpack[Profile]) -> Connecting:
        """A client with the token of a caller; None: the caller needs none."""
        if token is None or self.authority is None:
            return self.connect(**profile)
        return connect_with_token(self.root, token, self.authority, timeout=self.timeout, **profile)

    def connect_blocking(self, **profile: Unpack[Profile]) -> sync.Client:
        """As `connect`, without an event loop."""
        return sync.connect(
            self.root, timeout=self.timeout, authority=self.authority, token=self.token, **profile
        )

    def credentials(self) -> Credentials | None:
        """With what orders are sealed; None: security is off."""
        return credentials_at(self.root, self.authority, self.token)


class ApiContext:
    """What the routes share. Made when the application starts, within its event loop."""

    def __init__(self, access: NetworkAccess) -> None:
        self.access = access
        self.live = LiveNetwork(access.connect)
        self.callers = CallerClients(access.connect_as)
        self.moves = Moves(self.ask, self.orders, self._tell_move)
        self.plans = Plans(self.ask, self.orders, self._tell_plan)
        self.is_ending = False
        """Whether the API ends, so that streams end, too."""
        self._threads = ThreadPoolExecutor(_ORDERS_AT_ONCE, thread_name_prefix="orders")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to follow the network."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self.live.run()), loop.create_task(self._close_idle())]

    def end_streams(self) -> None:
        """Ends the streams that are open, so that their readers do not see a broken connection."""
        self.is_ending = True
        self.live.wake_readers()
        self._tasks.append(asyncio.get_running_loop().create_task(self.callers.close()))

    async def stop(self) -> None:
        """Ends all that goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.callers.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: Callable[[sync.Client], T]) -> T:
        """Asks with a client of the API, in a thread. Raises what `question` raises, and the errors of
        `hbroker.connect`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._asked, question)

    async def change_session(self, change: Callable[[MqttSessions], T]) -> T:
        """Changes the session of an MQTT client, in a thread. Raises what `change` raises."""
        access = self.access
        sessions = MqttSessions(access.connect_blocking, access.join_key, access.timeout)
        return await asyncio.get_running_loop().run_in_executor(self._threads, change, sessions)

    def orders(self, client: sync.Client, say: Callable[[str], None]) -> Orders:
        """Gives orders to nodes."""
        return Orders(client, self.access.join_key, self.access.credentials(), ORDER_TIMEOUT_S, say)

    def _tell_move(self, move: MoveProgress) -> None:
        content = {"id": move.id, "subtree": move.subtree, "node": move.node, "state": move.state}
        told = {"time": now_text(), **content, "steps": list(move.steps), "error": move.error}
        self.live.tell("move", told)

    def _tell_plan(self, plan: PlanProgress) -> None:
        done = sum(move.done is True for move in plan.moves)
        counts = {"moves": len(plan.moves), "done": done}
        told = {"time": now_text(), "id": plan.id, "state": plan.state, **counts, "error": plan.error}
        self.live.tell("plan", told)

    def _asked(self, question: Callable[[sync.Client], T]) -> T:
        with self.access.connect_blocking() as client:
            return question(client)

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(10.0)
            await self.callers.close_idle()


def context_of(state: State) -> ApiContext:
    """The context of the application."""
    context: ApiContext = state.context
    return context
