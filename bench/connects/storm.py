"""A storm of MQTT clients: many connect, as devices do when the power returns, and stay connected.

It runs in one process with one loop. Its cost is mostly the kernel's: a socket, connect, send and one read
for each client. The packets are made beforehand, and of an answer only the codes are read. With a `rate`,
clients connect at their times, as far as the window allows. Without one, the next connects as soon as fewer
than `window` wait.

Clients with subscriptions make them the first time, in one segment with CONNECT, and then also wait for
SUBACK. In later storms their sessions have them. Clients with wills send them each time.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bench.secure import client_context
from hbroker.bench.launching import NoAnswer
from hbroker.bench.plan import Address
from hbroker.sim.rooms.mqtt.packets import Will, connect, subscribe

_CONNACK, _SUBACK = 0x20, 0x90
_GRANTED: Final = 1
"""The SUBACK code of a filter that asked for QoS 1."""
_IP_BIND_ADDRESS_NO_PORT: Final = 24
_PORTS: Final = 10_000
"""Connections from one source address to one server. The kernel has some 28,000 ports for them, but its
search for a free one takes longer the more are in use: from half of them on it costs more than all else."""
_SILENCE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The load of a storm.

    `window`: the most clients that wait for CONNACK. `rate`: clients a second; None: as many as the window
    allows. `expiry_s`: of their sessions; 0: these end with their connections. `has_subscriptions`: each has
    one at QoS 1, to a topic of its own. `has_wills`: each has one at QoS 1. `tls`: over TLS. `resumes`: all
    but the first use its ticket.
    """

    clients: int
    window: int = 64
    rate: float | None = None
    expiry_s: int = 0
    has_subscriptions: bool = False
    has_wills: bool = False
    tls: bool = False
    resumes: bool = False


@dataclass(slots=True)
class StormResult:
    """The result of a storm. `latencies_s`: of accepted clients, from connect to CONNACK."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    refused: int = 0
    present: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """The number of clients that got CONNACK with success."""
        return len(self.latencies_s)


class Storm:
    """Connections to one server, kept until `close`. `is_first`: whether this is the clients' first
    storm."""

    def __init__(self, server: Address, plan: Plan, *, is_first: bool = True) -> None:
        self._server = server
        self._plan = plan
        self._subscribes = plan.has_subscriptions and is_first
        self._packets = [self._hello(f"device-{n:06}") for n in range(plan.clients)]
        self._epoll = select.epoll()
        self._open: dict[int, socket.socket] = {}
        self._shaking: set[int] = set()
        self._begun: dict[int, tuple[float, int]] = {}
        """By descriptor, the waiting clients: since when, and their numbers."""
        self._heard: dict[int, bytes] = {}
        """By descriptor, an incomplete answer."""
        self._reported = StormResult()
        self._context = client_context() if plan.tls else None
        self._ticket: ssl.SSLSession | None = None

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._open.values():
            connection.close()
        self._epoll.close()

    def run(self) -> StormResult:
        """Connects all clients. Raises NoAnswer if no more answers arrive."""
        begun, cpu = time.perf_counter(), time.process_time()
        coming = iter(range(self._plan.clients))
        heard = begun
        is_over = False
        while not is_over or self._begun:
            is_over = is_over or self._let_in(coming, begun)
            answered = self._epoll.poll(self._pause(), 512)
            for descriptor, events in answered:
                self._take(descriptor, events)
            now = time.perf_counter()
            heard = now if answered or not self._begun else heard
            if now - heard > _SILENCE_S:
                raise NoAnswer(f"{len(self._begun)} clients got no CONNACK in {_SILENCE_S:.0f} s")
        self._reported.seconds = time.perf_counter() - begun
        self._reported.cpu_s = time.process_time() - cpu
        return self._reported

    def _pause(self) -> float:
        return 1.0 if self._plan.rate is None or len(self._begun) >= self._plan.window else 0.001

    def _let_in(self, coming: Iterator[int], begun: float) -> bool:
        """Begins the connections that are due. Returns whether all have begun."""
        room = self._plan.window - len(self._begun)
        if self._plan.rate is not None:
            due = int((time.perf_counter() - begun) * self._plan.rate) + 1
            room = min(room, due - len(self._open) - self._reported.refused)
        for _ in range(room):
            number = next(coming, None)
            if number is None:
                return True
            self._begin(number)
        return False

    def _begin(self, number: int) -> None:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if number >= _PORTS:
            connection.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((f"127.0.0.{1 + number // _PORTS}", 0))
        descriptor = connection.fileno()
        self._open[descriptor] = connection
        self._begun[descriptor] = time.perf_counter(), number
        connection.connect_ex(self._server)
        if self._context is not None:
            self._shake_hands(self._context, connection)
            return
        try:  # Over loopback the TCP handshake has ended by now.
            connection.send(self._packets[number])
            self._epoll.register(descriptor, select.EPOLLIN)
        except (BlockingIOError, BrokenPipeError):
            self._epoll.register(descriptor, select.EPOLLOUT)

    def _shake_hands(self, context: ssl.SSLContext, connection: socket.socket) -> None:
        descriptor = connection.fileno()
        secured = context.wrap_socket(connection, do_handshake_on_connect=False, session=self._ticket)
        self._open[descriptor] = secured
        self._shaking.add(descriptor)
        with suppress(ssl.SSLWantReadError):
            secured.do_handshake()
        self._epoll.register(descriptor, select.EPOLLIN)

    def _go_on(self, descriptor: int, number: int) -> bool:
        """Continues a TLS handshake. Returns whether it was one, so that there is no answer yet."""
        secured = self._open[descriptor]
        if descriptor not in self._shaking:
            return False
        assert isinstance(secured, ssl.SSLSocket), "it shakes hands"
        with suppress(ssl.SSLWantReadError):
            secured.do_handshake()
            self._shaking.discard(descriptor)
            secured.send(self._packets[number])
        return True

    def _take(self, descriptor: int, events: int) -> None:
        connection = self._open[descriptor]
        begun, number = self._begun[descriptor]
        if self._go_on(descriptor, number):
            return
        if events & select.EPOLLOUT and not events & (select.EPOLLERR | select.EPOLLHUP):
            connection.send(self._packets[number])
            self._epoll.modify(descriptor, select.EPOLLIN)
            return
        try:
            came = connection.recv(256)
        except (BlockingIOError, ssl.SSLWantReadError):  # It was a TLS ticket.
            return
        except OSError:
            came = b""
        answer = self._heard.pop(descriptor, b"") + came
        goal_result = _verdict(answer, has_suback=self._subscribes) if came else False
        if goal_result is None:
            self._heard[descriptor] = answer
            return
        self._epoll.unregister(descriptor)
        del self._begun[descriptor]
        if goal_result:
            self._reported.latencies_s.append(time.perf_counter() - begun)
            if self._plan.resumes and isinstance(connection, ssl.SSLSocket):
                self._ticket = self._ticket or connection.session
            self._reported.present += answer[2] & 1
        else:
            self._reported.refused += 1
            del self._open[descriptor]
            connection.close()

    def _hello(self, client_id: str) -> bytes:
        """With clean start, or with a session that is resumed if it exists."""
        expiry_s = self._plan.expiry_s
        will = Will(f"state/{client_id}", b"gone") if self._plan.has_wills else None
        hello = connect(
            client_id, keep_alive_s=0, clean_start=not expiry_s, session_expiry_s=expiry_s, will=will
        )
        return hello + (subscribe(1, f"own/{client_id}", 1) if self._subscribes else b"")


def _verdict(answer: bytes, *, has_suback: bool) -> bool | None:
    """Whether CONNACK, and SUBACK if one is expected, report success; None: the answer is incomplete."""
    rest = _rest(answer)
    if rest is None or answer[0] != _CONNACK or answer[3]:
        return None if rest is None else False
    if not has_suback:
        return True
    return None if _rest(rest) is None else rest[0] == _SUBACK and rest[1 + rest[1]] == _GRANTED


def _rest(packets: bytes) -> bytes | None:
    """What follows the first packet; None: that is incomplete."""
    end = 2 + packets[1] if len(packets) > 1 else 2
    return packets[end:] if len(packets) >= end else None
