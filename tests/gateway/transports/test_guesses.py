"""Clients log in at a gateway while a program guesses passwords as fast as it can."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hbroker.gateway.access.password_checks import PAIR
from hbroker.gateway.access.password_file import hash_password
from tests.gateway.transports.front import Client, Front, front_up
from tests.gateway.transports.guesser import GUESSER, connect_as
from tests.gateway_native.wire import CONNACK, PUBACK, SUBACK, Raw, ack, publish, subscribe
from tests.product.network import PATIENCE, PROJECT, environment
from tests.waiting import until

HOME, WORK, NEW = "192.0.2.1", "198.51.100.1", "2001:db8::7"
REFUSALS = {"0x86", "0x89", "0x9f"}
STRANGERS = 20
SECONDS = 20.0
RATE = 10_000
MOST_BYTES = 32 << 20
PAUSE_S = 1.0


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    """A gateway behind a balancer, with passwords of its own and an empty cache of right passwords."""
    users = ["known", *(f"stranger{n}" for n in range(STRANGERS))]
    (tmp_path / "users").write_text("".join(f"{user}:{hash_password(user)}\n" for user in users))
    listeners = {"proxied": {"proxy_protocol": True}}
    rules = "pattern readwrite of/%u/#\npattern read $SYS/broker/#"
    with front_up(tmp_path, listeners, rules=rules, passwords="users", anonymous=False) as front:
        yield front


class Guesser:
    """The guessing program, and its last report."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.told: dict[str, Any] = {"guesses": 0, "codes": {}}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told = json.loads(line)

    def await_more(self) -> None:
        """Waits until the program has reported more guesses."""
        before = self.told["guesses"]
        until(lambda: self.told["guesses"] > before, "guesses", PATIENCE)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None


@contextmanager
def guessing(front: Front, kind: str, rate: int = 0) -> Iterator[Guesser]:
    port = front.addresses["proxied"][1]
    command = [sys.executable, "-m", "tests.gateway.transports.guesser", str(port), str(rate), kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment()
    ) as process:
        try:
            guesser = Guesser(process)
            guesser.await_more()
            yield guesser
            assert guesser.is_alive
        finally:
            process.kill()


def log_in(front: Front, name: str, source: str) -> int:
    """Sends CONNECT, and returns the reason code of CONNACK."""
    with Client(front.connect("proxied")) as client:
        client.send(connect_as(source, f"{name}'s", name, name))
        return client.expect(CONNACK)[1]


def log_in_eventually(front: Front, name: str, source: str) -> None:
    """Tries until the login succeeds."""
    codes: list[int] = []

    def is_taken() -> bool:
        codes.append(log_in(front, name, source))
        return codes[-1] == 0

    until(is_taken, f"{name} is taken", PATIENCE, found=lambda: codes, glance_s=PAUSE_S)


@pytest.mark.parametrize(("kind", "source"), [("one", GUESSER), ("names", NEW), ("many", NEW)])
def test_users_log_in_while_passwords_are_guessed(front: Front, kind: str, source: str) -> None:
    assert log_in(front, "known", HOME) == 0
    with guessing(front, kind) as guesser:
        assert log_in(front, "known", HOME) == 0
        assert log_in(front, "known", WORK) == 0
        assert front.reload().split()[-1] == "reloaded"
        assert log_in(front, "known", GUESSER) == 0
        log_in_eventually(front, "stranger0", source)
        assert log_in(front, "stranger0", WORK) == 0
        guesser.await_more()
        codes = guesser.told["codes"]
    assert codes.keys() <= REFUSALS, codes
    assert codes.keys() & {"0x89", "0x9f"}, "guesses are refused without a look at the password"


def await_failed(front: Front, **wanted: bytes) -> None:
    """Waits until `$SYS/broker/sockets/failed/` has these values."""
    with Client(front.connect("proxied")) as client:
        client.send(connect_as(HOME, "counts", "known", "known"))
        assert client.expect(CONNACK)[1] == 0
        client.send(subscribe(1, ("$SYS/broker/sockets/failed/#", 0)))
        client.expect(SUBACK)
        while wanted:
            topic, payload, *_ = client.message()
            name = topic.rpartition("/")[2]
            if wanted.get(name) == payload:
                del wanted[name]


def test_every_refused_guess_is_counted_and_logged(front: Front) -> None:
    assert log_in(front, "known", HOME) == 0
    codes = [log_in(front, "mallory", GUESSER) for _ in range(PAIR.burst + 30)]
    assert codes == [0x86] * PAIR.burst + [0x9F] * 30
    await_failed(front, pair=b"30", password=b"%d" % PAIR.burst)

    def are_logged() -> bool:
        lines = [line for line in front.log().splitlines() if "client_refused" in line]
        if len(lines) + sum(int(more) for more in re.findall(r" more=(\d+)", "\n".join(lines))) == len(codes):
            return True
        codes.append(log_in(front, f"other{len(codes)}", WORK))  # the next line counts the refusals before it
        return False

    until(are_logged, "all refusals in the log", PATIENCE, found=front.log, glance_s=PAUSE_S)


@contextmanager
def local_client(front: Front) -> Iterator[Raw]:
    """A known client that is connected and receives its own messages."""
    with Client(front.connect("proxied")) as client:
        client.send(connect_as(HOME, "at home", "known", "known"))
        assert client.expect(CONNACK)[1] == 0
        client.send(subscribe(1, ("of/known/#", 1)))
        client.expect(SUBACK)
        yield client


def round_trip(client: Raw, number: int) -> float:
    """Publishes at QoS 1. Returns the seconds until the client has received its own message and the
    PUBACK."""
    began = time.monotonic()
    client.send(publish("of/known/x", str(number).encode(), qos=1, packet_id=number % 0xFFFF + 1))
    is_heard = is_acknowledged = False
    while not (is_heard and is_acknowledged):
        first, body = client.read()
        if first >> 4 == PUBACK:
            is_acknowledged = True
        else:
            assert body.endswith(str(number).encode())
            client.send(ack(PUBACK, int.from_bytes(body[12:14], "big")))
            is_heard = True
    return time.monotonic() - began


@dataclass
class FloodMeasurements:
    """The measurements during a flood. Waits in seconds: of new users until they are logged in, of a known
    user for CONNACK, and for a message of its own. `most`: the memory of the gateway in bytes."""

    strangers: list[float] = field(default_factory=list)
    logins: list[float] = field(default_factory=list)
    messages: list[float] = field(default_factory=list)
    most: int = 0

    def run(self, front: Front, client: Raw, source: str) -> None:
        began = time.monotonic()
        while (now := time.monotonic()) < began + SECONDS:
            assert log_in(front, "known", WORK) == 0
            self.logins.append(time.monotonic() - now)
            self.messages.append(round_trip(client, len(self.messages)))
            if len(self.strangers) < STRANGERS:
                asked = time.monotonic()
                log_in_eventually(front, f"stranger{len(self.strangers)}", source)
                self.strangers.append(time.monotonic() - asked)
            self.most = max(self.most, front.own_bytes())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "source"), [("one", GUESSER), ("names", NEW), ("many", NEW)])
def test_users_log_in_during_ten_thousand_guesses_a_second(
    in_long_form: None, front: Front, kind: str, source: str
) -> None:
    """No user waits for long, and the gateway needs at most 32 MiB more."""
    assert log_in(front, "known", HOME) == 0
    before, measurements = front.own_bytes(), FloodMeasurements()
    with local_client(front) as client, guessing(front, kind, int(RATE * 1.1)) as guesser:
        guesser.await_more()
        first, began = guesser.told["guesses"], time.monotonic()
        measurements.run(front, client, source)
        guesser.await_more()
        rate = (guesser.told["guesses"] - first) / (time.monotonic() - began)
        codes = guesser.told["codes"]
    print(
        f"{kind}: {rate:.0f} guesses a second, {(measurements.most - before) / 2**20:.1f} MiB more;", end=" "
    )
    waits = {
        "strangers": measurements.strangers,
        "logins": measurements.logins,
        "messages": measurements.messages,
    }
    print({who: f"{len(each)}, {max(each):.2f} s at most" for who, each in waits.items()}, codes)
    assert codes.keys() <= REFUSALS, codes
    assert rate >= RATE
    assert measurements.most - before <= MOST_BYTES
    assert len(measurements.strangers) == STRANGERS
    assert max(measurements.strangers) < 10.0
    assert max(measurements.logins + measurements.messages) < 2.0
