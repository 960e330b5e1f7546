"""`hbroker doctor`: what is wrong with a host, and the command that mends it."""

from __future__ import annotations

import json
import resource
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from hbroker.cli import main
from hbroker.cli.exits import DONE, FAILED, USAGE
from hbroker.cli.hosts import doctor
from hbroker.identity.authority import Authority
from hbroker.runtime.hosts.checks import disk, system
from hbroker.runtime.hosts.checks.finding import Level

Capture = pytest.CaptureFixture[str]


class Kitchen:
    """A node with a certificate, in a folder as `hbroker join` makes it."""

    def __init__(self, folder: Path, capsys: Capture) -> None:
        self.folder = folder
        self._capsys = capsys
        self.authority = Authority.create("house", time.time())
        self.certify("home/kitchen")
        (folder / "authority.crt").write_bytes(_pem(self.authority, folder))
        (folder / "join.key").write_text("0123456789abcdef")
        (folder / "join.key").chmod(0o600)
        self.write(root="127.0.0.1:9")

    def certify(self, subtree: str, validity_s: int = 90 * 86_400, since: float = 0) -> None:
        now = time.time() - since
        self.authority.issue("kitchen", [subtree], now, validity_s=validity_s).save(self.folder)

    def write(self, **keys: str) -> None:
        known = {
            "name": "kitchen",
            "subtree": "home/kitchen",
            "listen": "127.0.0.1:0",
            "join_key_file": "join.key",
            "authority": "authority.crt",
            "identity": ".",
            "memory": "kitchen.cuts",
        }
        (self.folder / "node.yaml").write_text(
            "".join(f"{key}: {value}\n" for key, value in (known | keys).items())
        )

    def examine(self) -> tuple[int, dict[str, dict[str, Any]]]:
        """The exit code, and the last finding of each check that is the worst."""
        code = main(["doctor", "--config", str(self.folder / "node.yaml"), "--json"])
        result = json.loads(self._capsys.readouterr().out)
        assert result["ok"] is (code == DONE)
        order = ["ok", "warning", "error"]
        findings = sorted(result["findings"], key=lambda finding: order.index(finding["level"]))
        assert all(bool(finding["remedy"]) is (finding["level"] != "ok") for finding in findings)
        return code, {finding["check"]: finding for finding in findings}


def _pem(authority: Authority, folder: Path) -> bytes:
    authority.save(folder / "signer")
    return (folder / "signer" / "authority.crt").read_bytes()


@pytest.fixture
def kitchen(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Kitchen:
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.2)
    return Kitchen(tmp_path, capsys)


def test_of_a_host_nothing_but_warnings(capsys: Capture, tmp_path: Path) -> None:
    assert main(["doctor", "--state-dir", str(tmp_path)]) == DONE
    printed = capsys.readouterr().out
    checks = ("versions", "buffers", "segmentation", "clock", "open files", "disk space", "disk sync")
    assert all(f"  {check}" in printed for check in checks)


def test_a_node_that_can_run_has_no_error(kitchen: Kitchen) -> None:
    code, found = kitchen.examine()
    assert code == DONE
    assert found["certificate"]["what"] == "that of kitchen is valid for 89 days"
    assert found["path"]["what"].startswith("from 127.0.0.1 to 127.0.0.1, MTU ")
    assert found["root"]["level"] == "warning", "nobody is there"


@pytest.mark.parametrize(
    ("certify", "said"),
    [
        ({"subtree": "home/attic"}, "does not allow home/kitchen"),
        ({"subtree": "home/kitchen", "validity_s": 86_400, "since": 86_500}, "is not valid at"),
    ],
)
def test_a_certificate_that_will_be_refused_is_an_error(
    kitchen: Kitchen, certify: dict[str, Any], said: str
) -> None:
    kitchen.certify(**certify)
    code, found = kitchen.examine()
    assert (code, found["certificate"]["level"]) == (FAILED, "error")
    assert said in found["certificate"]["what"]
    assert found["certificate"]["remedy"].startswith("hbroker keys issue kitchen home/kitchen")


def test_a_certificate_of_another_authority_is_an_error(kitchen: Kitchen, tmp_path: Path) -> None:
    other = Authority.create("house", time.time())
    (kitchen.folder / "authority.crt").write_bytes(_pem(other, tmp_path / "other"))
    assert "was not signed by the authority" in kitchen.examine()[1]["certificate"]["what"]


def test_a_certificate_with_little_time_left_is_a_warning(kitchen: Kitchen) -> None:
    kitchen.certify("home/kitchen", validity_s=30 * 86_400, since=25 * 86_400)
    code, found = kitchen.examine()
    assert (code, found["certificate"]["level"]) == (DONE, "warning")
    assert found["certificate"]["what"] == "that of kitchen expires in 4 days"


@pytest.mark.parametrize("name", ["kitchen.key", "join.key"])
def test_a_secret_that_others_can_read_is_an_error(kitchen: Kitchen, name: str) -> None:
    (kitchen.folder / name).chmod(0o640)
    code, found = kitchen.examine()
    assert (code, found["secrets"]["remedy"]) == (FAILED, f"chmod 600 {kitchen.folder / name}")


def test_a_port_in_use_and_an_address_of_another_host(kitchen: Kitchen) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        kitchen.write(root="127.0.0.1:9", listen=f"127.0.0.1:{port}")
        code, found = kitchen.examine()
    assert (code, found["port"]["level"]) == (DONE, "warning")
    assert f"127.0.0.1:{port} is in use" in found["port"]["what"]
    kitchen.write(root="127.0.0.1:9", listen="192.0.2.1:7701")
    code, found = kitchen.examine()
    assert (code, found["port"]["level"]) == (FAILED, "error")


def test_listeners_of_gateways_are_checked(tmp_path: Path, capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file = tmp_path / "house.yaml"
        file.write_text(
            'security: off\nnodes: [{name: root, subtree: "", listen: "127.0.0.1:0"}]\n'
            f'gateways: [{{name: door, listeners: [{{address: "127.0.0.1:{port}"}}]}}]\n'
        )
        assert main(["doctor", str(file), "--state-dir", str(tmp_path)]) == DONE
    assert f"127.0.0.1:{port} is in use: good if door runs" in capsys.readouterr().out


def test_wrong_files_are_no_findings(kitchen: Kitchen, capsys: Capture) -> None:
    kitchen.write(root="127.0.0.1:9", wokers="2")
    assert main(["doctor", "--config", str(kitchen.folder / "node.yaml")]) == USAGE
    assert "unknown key 'wokers'" in capsys.readouterr().err
    assert main(["doctor", "one.yaml", "--config", "other.yaml"]) == USAGE


def test_a_clock_that_nobody_sets_is_a_warning() -> None:
    assert system.check_clock(lambda: 0x40).level is Level.WARNING
    assert system.check_clock(lambda: 0x2001).level is Level.OK
    assert system.check_clock(lambda: None).level is Level.OK
    assert system.check_clock().level is not Level.ERROR


def test_few_open_files_are_a_warning() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
    try:
        assert system.check_open_files(has_gateway=False).level is Level.OK
        assert system.check_open_files(has_gateway=True).level is Level.WARNING
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_full_slow_or_missing_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "SLOW_S", 0.0)
    assert disk.check_sync(tmp_path / "not" / "there").level is Level.WARNING
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(disk, "NO_BYTES", 1 << 60)
    assert disk.check_space(tmp_path).level is Level.ERROR
    assert disk.check_sync(Path("/proc/self/fdinfo")).level is Level.ERROR
