"""One interface to every client: either a program of `programs`, or a pair of commands.

`subscribe` and `publish` return when the broker has acknowledged. A thread of the client reads its messages,
so that a slow test does not slow down a fast client.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from tests.interop.lines import Message, Place, encode, message_of
from tests.product.network import PROJECT, environment
from tests.waiting import until

PATIENCE_S = 60.0
"""Much more than a client needs for one order, on a busy machine."""

HERE = Path(__file__).parent
WITHOUT_NODE = (
    "needs node" if shutil.which("node") is None else "needs `npm ci` in tests/interop, for MQTT.js"
)
HAS_MQTTJS = shutil.which("node") is not None and (HERE / "node_modules" / "mqtt").is_dir()


class Client(ABC):
    """A client in its own processes. `close` ends them."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []

    @abstractmethod
    def publish(self, topic: str, payload: bytes, qos: int, *, retained: bool = False) -> None:
        """Returns when the broker has acknowledged the message; at QoS 0, when it is sent."""

    @abstractmethod
    def subscribe(self, filters: Sequence[str], qos: int) -> None:
        """Returns when the broker has acknowledged the subscriptions."""

    def receive(self, count: int) -> list[Message]:
        """The next `count` messages."""
        messages: list[Message] = []
        with suppress(queue.Empty):
            while len(messages) < count:
                messages.append(self._messages.get(timeout=PATIENCE_S))
        assert len(messages) == count, f"only {len(messages)} of {count} came: {messages[-3:]}"
        return messages

    def rest(self) -> list[Message]:
        """The remaining messages; all of them once the client is closed."""
        messages: list[Message] = []
        with suppress(queue.Empty):
            while True:
                messages.append(self._messages.get_nowait())
        return messages

    def kill(self) -> None:
        """`kill -9`."""
        for process in self._processes:
            process.kill()
        self.close()

    def close(self) -> None:
        """Ends its processes and threads."""
        for process in self._processes:
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
            elif process.poll() is None:
                _await_idle(process)
                process.terminate()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.close()
        self._processes.clear()

    def _start(self, command: Sequence[str], *, with_input: bool = False) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if with_input else None,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env=environment(),
        )
        self._processes.append(process)
        reader = threading.Thread(target=self._read, args=[process])
        self._readers.append(reader)
        reader.start()
        return process

    @abstractmethod
    def _handle_line(self, line: str) -> None:
        """Handles a line of a process's output."""

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._handle_line(line)


class Program(Client):
    """A client library, run by one of `programs`."""

    def __init__(self, name: str, place: Place) -> None:
        super().__init__()
        self._done = threading.Semaphore(0)
        settings = json.dumps(vars(place))
        if name.endswith(".mjs"):
            command = ["node", str(HERE / "programs" / name), settings]
        else:
            command = [sys.executable, "-m", f"tests.interop.programs.{name}", settings]
        self._process = self._start(command, with_input=True)
        self._await_done("is connected")

    def publish(self, topic: str, payload: bytes, qos: int, *, retained: bool = False) -> None:
        self._order(verb="publish", topic=topic, payload=encode(payload), qos=qos, retained=retained)

    def subscribe(self, filters: Sequence[str], qos: int) -> None:
        for filter in filters:
            self._order(verb="subscribe", filter=filter, qos=qos)

    def _order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._await_done(f"has done {order['verb']}")

    def _await_done(self, what: str) -> None:
        assert self._done.acquire(timeout=PATIENCE_S), f"not: {self._process.args!r} {what}"

    def _handle_line(self, line: str) -> None:
        event = json.loads(line)
        if event["event"] == "done":
            self._done.release()
        else:
            self._messages.put(message_of(event))


class Commands(Client):
    """A pair of commands with mosquitto's flags. Each message and each subscription is a process.

    `subscribed`: a part of the subscriber's debug line that reports its subscription.
    """

    FORMAT = "message %q %r %x %t"

    def __init__(
        self, publish: Sequence[str], subscribe: Sequence[str], subscribed: str, client_id: str
    ) -> None:
        super().__init__()
        self._publish = publish
        self._subscribe = subscribe
        self._subscribed = subscribed
        self._client_id = client_id
        self._is_subscribed = threading.Semaphore(0)

    def publish(self, topic: str, payload: bytes, qos: int, *, retained: bool = False) -> None:
        command = [*self._publish, "-t", topic, "-q", str(qos), *(["-r"] if retained else [])]
        command += ["-s"] if payload else ["-n"]
        subprocess.run(command, input=payload, check=True, timeout=PATIENCE_S, cwd=PROJECT, env=environment())

    def subscribe(self, filters: Sequence[str], qos: int) -> None:
        client_id = f"{self._client_id}-{len(self._processes)}"
        flags = ["-q", str(qos), "-d", "-F", self.FORMAT, "-i", client_id]
        topics = chain.from_iterable(("-t", filter) for filter in filters)
        self._start(["stdbuf", "-oL", *self._subscribe, *topics, *flags])
        assert self._is_subscribed.acquire(timeout=PATIENCE_S), f"not subscribed: {filters}"

    def _handle_line(self, line: str) -> None:
        if line.startswith("message "):
            _, qos, retained, payload, topic = line.rstrip("\n").split(" ", 4)
            self._messages.put(Message(topic, bytes.fromhex(payload), int(qos), retained == "1"))
        elif self._subscribed in line:
            self._is_subscribed.release()


def _await_idle(process: subprocess.Popen[str]) -> None:
    """Waits until the process can be terminated. A mosquitto_sub that is printing when the signal arrives
    prints the last line twice."""
    with suppress(psutil.NoSuchProcess):
        status = psutil.Process(process.pid).status
        until(lambda: status() != psutil.STATUS_RUNNING, f"idle: {process.args!r}", PATIENCE_S)


def mosquitto(place: Place, *flags: str) -> Commands:
    """mosquitto_pub and mosquitto_sub."""
    common = ["-h", place.host, "-p", str(place.port), "-V", {4: "311", 5: "5"}[place.version], *flags]
    if place.authority:
        common += ["--cafile", place.authority]
    if place.certificate:
        common += ["--cert", place.certificate, "--key", place.key]
    return Commands(["mosquitto_pub", *common], ["mosquitto_sub", *common], "Subscribed (", place.client_id)


def hpub_hsub(root: str, client_id: str) -> Commands:
    """hpub and hsub, which connect without a gateway."""
    host, _, port = root.rpartition(":")
    hpub, hsub = (
        [sys.executable, "-m", f"hbroker.clients.{name}", "-h", host, "-p", port] for name in ("hpub", "hsub")
    )
    return Commands(hpub, hsub, "received SUBACK", client_id)


def paho(place: Place) -> Program:
    """paho-mqtt."""
    return Program("with_paho", place)


def aiomqtt(place: Place) -> Program:
    """aiomqtt."""
    return Program("with_aiomqtt", place)


def gmqtt(place: Place) -> Program:
    """gmqtt."""
    return Program("with_gmqtt", place)


def mqttjs(place: Place) -> Program:
    """MQTT.js."""
    return Program("with_mqttjs.mjs", place)


def version_3(place: Place) -> Place:
    """The same place for a client of MQTT 3.1.1."""
    return replace(place, version=4)
