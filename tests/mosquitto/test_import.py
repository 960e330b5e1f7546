"""`hbroker import`, and a network of what it writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbroker.cli import main
from hbroker.cli.exits import DONE, FAILED, USAGE
from tests.interop.lines import Place
from tests.interop.peer import connected
from tests.mosquitto.broker import mosquitto_with
from tests.needs import need_mosquitto
from tests.product.network import network_up

Capture = pytest.CaptureFixture[str]
PATIENCE_S = 30.0
FILE = """\
per_listener_settings false
listener 1883
allow_anonymous false
password_file {directory}/passwords
acl_file {directory}/acl
max_queued_messages 500
pid_file /run/mosquitto.pid
"""
RULES = "user ann\ntopic readwrite home/#\ntopic deny home/safe/#\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A mosquitto.conf with the users ann (PBKDF2) and bea (SHA-512)."""
    need_mosquitto()
    (tmp_path / "passwords").touch()
    for user, flags in (("ann", ()), ("bea", ("-H", "sha512"))):
        subprocess.run(["mosquitto_passwd", *flags, "-b", tmp_path / "passwords", user, "secret"], check=True)
    (tmp_path / "acl").write_text(RULES)
    file = tmp_path / "mosquitto.conf"
    file.write_text(FILE.format(directory=tmp_path))
    return file


@pytest.fixture
def other(tmp_path: Path) -> Iterator[int]:
    """The port of another mosquitto."""
    need_mosquitto()
    directory = tmp_path / "other"
    directory.mkdir()
    with mosquitto_with(directory, "") as port:
        yield port


def test_devices_log_in_as_before(file: Path, other: int, tmp_path: Path, capsys: Capture) -> None:
    bridge = f"connection cloud\naddress 127.0.0.1:{other}\ntopic home/# out 1\n"
    file.write_text(file.read_text() + bridge)
    assert main(["import", str(file), "--out", str(tmp_path / "site")]) == DONE
    out = capsys.readouterr().out
    assert f"{file}:4" in out
    assert "2 users, with their passwords" in out
    topology = tmp_path / "site" / "mosquitto.yaml"
    assert main(["check", str(topology)]) == DONE
    with network_up(topology, tmp_path / "state") as (network, _):
        port = network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]

        def publish(user: str, password: str, topic: str) -> int:
            login = ["-u", user, "-P", password] if user else []
            flags = ["-p", port, "-V", "5", "-q", "1", "-t", topic, "-m", "x"]
            done = subprocess.run(
                ["mosquitto_pub", *flags, *login], capture_output=True, timeout=PATIENCE_S, check=False
            )
            return 1 if b"Not authorized" in done.stderr else done.returncode

        with connected(Place("127.0.0.1", other, "watcher")) as watcher:
            watcher.subscribe(("home/#", 1))
            assert publish("ann", "secret", "home/lamp") == 0
            watcher.await_received(1)  # over the bridge
        assert publish("ann", "secret", "home/safe/door") != 0
        assert publish("bea", "secret", "home/lamp") != 0  # no rule lets her
        assert publish("ann", "wrong", "home/lamp") != 0
        assert publish("", "", "home/lamp") != 0


def test_what_is_left_to_do_shows_in_the_exit_code(file: Path, tmp_path: Path, capsys: Capture) -> None:
    file.write_text(file.read_text() + "crlfile /x\nmispelt 1\n")
    assert main(["import", str(file), "--out", str(tmp_path / "site"), "--json"]) == FAILED
    printed = json.loads(capsys.readouterr().out)
    left = [line for line in printed["lines"] if line["outcome"] in ("not converted", "unknown")]
    assert [(line["option"], line["place"]) for line in left] == [
        ("mispelt", f"{file}:9"),
        ("crlfile", f"{file}:8"),
    ]
    assert printed["topology"] in printed["files"]


def test_files_are_replaced_only_if_asked_for(file: Path, tmp_path: Path, capsys: Capture) -> None:
    out = ["--out", str(tmp_path)]
    (tmp_path / "users").write_text("mine")
    assert main(["import", str(file), *out]) == USAGE
    assert (tmp_path / "users").read_text() == "mine"
    assert not (tmp_path / "mosquitto.yaml").exists()
    assert "--force" in capsys.readouterr().err
    assert main(["import", str(file), *out, "--force"]) == DONE
    assert (tmp_path / "users").read_text().startswith("ann:$7$")
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    assert main(["import", str(tmp_path / "none.conf"), "--out", str(tmp_path / "site")]) == USAGE
    assert "none.conf" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()
