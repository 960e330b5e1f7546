"""Clients log in at a gateway whose passwords others guess, as fast as they can."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbroker.gateway.passwords import hash_password
from tests.gateway.transports.front import Client, Front, front_up
from tests.gateway.transports.guesser import GUESSER, connect_as
from tests.gateway_native.wire import CONNACK
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
    """A gateway behind a balancer, with passwords of its own: nothing is known of anybody."""
    users = ["known", *(f"stranger{n}" for n in range(STRANGERS))]
    (tmp_path / "users").write_text("".join(f"{user}:{hash_password(user)}\n" for user in users))
    listeners = {"proxied": {"proxy_protocol": True}}
    rules = "pattern readwrite of/%u/#"
    with front_up(tmp_path, listeners, rules=rules, passwords="users", anonymous=False) as front:
        yield front


class Guesser:
    """The program, and what it has told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.told: dict[str, Any] = {"guesses": 0, "codes": {}}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told = json.loads(line)

    def await_more(self) -> None:
        """Returns once it has told more."""
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
    """The reason code of CONNACK."""
    with Client(front.connect("proxied")) as client:
        client.send(connect_as(source, f"{name}'s", name, name))
        return client.expect(CONNACK)[1]


def log_in_at_last(front: Front, name: str, source: str) -> None:
    """Tries until it is taken."""
    codes: list[int] = []

    def is_taken() -> bool:
        codes.append(log_in(front, name, source))
        return codes[-1] == 0

    until(is_taken, f"{name} is taken", PATIENCE, found=lambda: codes, glance_s=PAUSE_S)


@pytest.mark.parametrize(("kind", "source"), [("one", GUESSER), ("names", NEW), ("many", NEW)])
def test_a_guesser_keeps_nobody_out(front: Front, kind: str, source: str) -> None:
    assert log_in(front, "known", HOME) == 0
    with guessing(front, kind) as guesser:
        assert log_in(front, "known", HOME) == 0
        assert log_in(front, "known", WORK) == 0
        assert front.reload().split()[-1] == "reloaded"
        assert log_in(front, "known", GUESSER) == 0
        log_in_at_last(front, "stranger0", source)
        assert log_in(front, "stranger0", WORK) == 0
        guesser.await_more()
        codes = guesser.told["codes"]
    assert codes.keys() <= REFUSALS, codes
    assert codes.keys() & {"0x89", "0x9f"}, "guesses are refused without a look at the password"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "source"), [("one", GUESSER), ("names", NEW), ("many", NEW)])
def test_ten_thousand_guesses_a_second(in_long_form: None, front: Front, kind: str, source: str) -> None:
    """Nobody waits for long, and the gateway needs no more than 32 MiB for it."""
    assert log_in(front, "known", HOME) == 0
    before = most = front.own_bytes()
    with guessing(front, kind, RATE) as guesser:
        waits: list[float] = []
        began = time.monotonic()
        while time.monotonic() < began + SECONDS:
            assert log_in(front, "known", WORK) == 0
            if len(waits) < STRANGERS:
                asked = time.monotonic()
                log_in_at_last(front, f"stranger{len(waits)}", source)
                waits.append(time.monotonic() - asked)
            most = max(most, front.own_bytes())
        rate = guesser.told["guesses"] / (time.monotonic() - began)
        print(f"{kind}: {rate:.0f} guesses a second, {(most - before) / 2**20:.1f} MiB more,", end=" ")
        print(f"strangers wait {max(waits):.2f} s at most; answers: {guesser.told['codes']}")
    assert most - before <= MOST_BYTES
    assert len(waits) == STRANGERS
    assert max(waits) < 10.0
