"""Invalid files of gateways: reported before a network starts, and in the log of a running gateway."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hbroker.cli import main
from hbroker.cli.exits import DONE, USAGE
from hbroker.gateway.access.password_file import hash_password
from tests.gateway.connect.test_web_tokens import Issuer
from tests.gateway.transports.certificates import Authority
from tests.product.network import PATIENCE, network_up
from tests.waiting import until

Capture = pytest.CaptureFixture[str]
LISTENER = {"address": "127.0.0.1:0"}


class Site:
    """A topology file and the files that it names, all of them valid."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory, "ours")
        self.users = directory / "users"
        self.rules = directory / "rules"
        self.keys = directory / "keys.json"
        self.file = directory / "site.yaml"
        self.users.write_text(f"alice:{hash_password('secret')}\n")
        self.rules.write_text("user alice\ntopic readwrite home/#\n")
        self.keys.write_text(json.dumps({"keys": [Issuer().key()]}))
        self.tls = dict(self.authority.asking(self.authority.server(), "required"))
        self.write()

    def write(self) -> None:
        topology: dict[str, Any] = {
            "nodes": [{"name": "root", "subtree": "", "listen": "127.0.0.1:0"}],
            "gateways": [
                {"name": name, "listeners": [LISTENER, {**LISTENER, "tls": self.tls}]}
                for name in ("one", "two")
            ],
            "auth": {"passwords": "users", "acl": "rules", "jwt_keys": "keys.json", "anonymous": False},
        }
        self.file.write_text(yaml.safe_dump(topology))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def break_users(site: Site) -> str:
    site.users.write_text("# users\nalice:secret\n")
    return f"{site.users}:2: behind 'alice' stands a password in plain text"


def lose_users(site: Site) -> str:
    site.users.unlink()
    return f"{site.users}: "


def break_rules(site: Site) -> str:
    site.rules.write_text("user alice\ntopic read a/#/b\n")
    return f"{site.rules}:2: 'a/#/b' is not a topic filter"


def break_keys(site: Site) -> str:
    site.keys.write_text("{}")
    return f"{site.keys}: not a JSON Web Key Set"


def break_certificate(site: Site) -> str:
    file = Path(site.tls["certificate"])
    file.write_text("this is none")
    return f"{file}: certificate: "


def lose_key(site: Site) -> str:
    Path(site.tls["key"]).unlink()
    return f"{site.tls['key']}: cannot read the file"


def exchange_keys(site: Site) -> str:
    Path(site.tls["key"]).write_bytes(Path(site.authority.client("c").key).read_bytes())
    return "key"


DAMAGES = [break_users, lose_users, break_rules, break_keys, break_certificate, lose_key, exchange_keys]


@pytest.mark.parametrize("damage", DAMAGES)
def test_check_and_up_report_an_invalid_gateway_file(
    site: Site, capsys: Capture, damage: Callable[[Site], str]
) -> None:
    assert main(["check", str(site.file)]) == DONE
    told = damage(site)
    capsys.readouterr()
    assert main(["check", str(site.file)]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert "; " in line, "what to do"
    state = site.directory / "state"
    for flags in ([], ["--detach"]):
        assert main(["up", str(site.file), "--state-dir", str(state), *flags]) == USAGE
        captured = capsys.readouterr()
        assert captured.err.splitlines() == [line]
        assert captured.out == ""
    assert not state.exists()


def test_all_invalid_gateway_files_are_reported_at_once(site: Site, capsys: Capture) -> None:
    told = [damage(site) for damage in (break_users, break_rules, lose_key)]
    assert main(["check", str(site.file), "--json"]) == USAGE
    (result,) = json.loads(capsys.readouterr().out)["files"]
    assert result["valid"] is False
    places = [f"{error['file']}:{error['line']}: {error['message']}" for error in result["errors"]]
    assert len(places) == len(told)
    assert places[0].startswith(told[0])
    assert [error["line"] for error in result["errors"]] == [2, 2, None]


def test_a_gateway_with_a_file_that_became_invalid_logs_it_and_starts_once_it_is_valid(site: Site) -> None:
    state = site.directory / "state"
    with network_up(site.file, state) as (network, _):
        right = site.users.read_text()
        break_users(site)
        run = next(run for run in network.state()["gateways"] if run["name"] == "one")
        os.kill(run["pid"], signal.SIGKILL)
        while "exit code" not in (ended := network.event("ended"))["how"]:
            pass
        assert ended["node"] == "one"
        assert ended["how"] == f"exit code {USAGE}"
        log = (state / "site" / "one.log").read_text()
        assert "Traceback" not in log
        lines = [line for line in log.splitlines() if "cannot_start" in line]
        assert f"{site.users}:2: behind 'alice'" in lines[0]
        assert "hbroker passwd" in lines[0]
        site.users.write_text(right)

        def is_back() -> bool:
            one = next(run for run in network.state()["gateways"] if run["name"] == "one")
            return bool(one["state"] == "up" and one["pid"] != run["pid"])

        until(is_back, "the gateway", PATIENCE, found=network.state)
