"""What is in packaging/: units, the compose file and the chart fit the commands and each other."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hbroker.cli import main
from hbroker.topology.node_file import load_node
from tests.frame.checkout import ROOT
from tests.needs import need

PACKAGING = ROOT / "packaging"
UNITS = sorted((PACKAGING / "systemd").glob("*.service"))
PROGRAM = "/opt/hbroker/bin/hbroker"


def loaded(*parts: str) -> Any:
    return yaml.safe_load(PACKAGING.joinpath(*parts).read_text())


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    need(shutil.which("systemd-analyze") is not None, "systemd-analyze is not installed")
    names = []
    for unit in UNITS:
        # An instance of a template. The program is where the tests have one.
        name = unit.name.replace("@.", "@kitchen.")
        text = unit.read_text()
        assert PROGRAM in text
        (tmp_path / unit.name).write_text(text.replace(PROGRAM, sys.executable))
        names.append(name)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    ours = [line for line in done.stderr.splitlines() if "hbroker" in line]
    assert (done.returncode, ours) == (0, [])
    for unit in UNITS:
        flat = tmp_path / unit.name.replace("@", "")
        if flat.name != unit.name:
            (tmp_path / unit.name).rename(flat)
        checked = subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", "--threshold=20", f"./{flat.name}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert checked.returncode == 0, checked.stdout.splitlines()[-1:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_call_commands_that_are_there(unit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [command] = re.findall(rf"ExecStart={PROGRAM} (\w+)", unit.read_text())
    assert main([command, "--help"]) == 0
    assert {"Type=notify", "WatchdogSec=30", "NoNewPrivileges=yes"} <= set(unit.read_text().splitlines())


def test_the_steps_of_the_compose_file_make_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "container"
    shutil.copytree(PACKAGING / "container", folder)
    monkeypatch.chdir(folder)
    text = (folder / "compose.yaml").read_text()
    steps = re.findall(r"^#\s+hbroker (keys .*)", text, re.MULTILINE)
    assert [step.split()[1] for step in steps] == ["init", "issue"]
    for node in ("kitchen", "attic"):
        for step in steps:
            assert main(step.replace("$node", node).split()) == 0, capsys.readouterr().err
    (folder / "secrets" / "passwords").touch()
    compose = yaml.safe_load(text)
    missing = [secret["file"] for secret in compose["secrets"].values() if not Path(secret["file"]).exists()]
    assert missing == []
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert set(service.get("secrets", [])) <= set(compose["secrets"])
    root = (folder / "root.yaml").read_text().replace("/run/secrets", str(folder / "secrets"))
    shutil.copy(folder / "secrets" / "house" / "join.key", folder / "secrets")
    (folder / "root.yaml").write_text(root)
    settings = load_node(folder / "root.yaml", {}).settings
    address = compose["services"]["root"]["networks"]["house"]["ipv4_address"]
    assert (settings.is_root, settings.listen) == (True, (address, 7700))


def test_the_image_runs_as_an_ordinary_user() -> None:
    lines = (PACKAGING / "container" / "Containerfile").read_text().splitlines()
    assert "USER 10001:10001" in lines
    assert 'ENTRYPOINT ["hbroker"]' in lines


def test_the_chart_is_a_chart() -> None:
    chart = loaded("helm", "hbroker", "Chart.yaml")
    assert (chart["apiVersion"], chart["name"]) == ("v2", "hbroker")
    values = loaded("helm", "hbroker", "values.yaml")
    texts = [path.read_text() for path in (PACKAGING / "helm" / "hbroker" / "templates").iterdir()]
    for key in re.findall(r"\.Values\.(\w+)", "\n".join(texts)):
        assert key in values, key


def test_helm_finds_nothing_wrong_with_the_chart(tmp_path: Path) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    chart = str(PACKAGING / "helm" / "hbroker")
    values = tmp_path / "values.yaml"
    values.write_text(
        yaml.safe_dump(
            {
                "nodes": [{"name": "kitchen", "port": 7701, "secret": "hbroker-kitchen"}],
                "gateway": {"enabled": True, "root": "192.0.2.1:7700"},
            }
        )
    )
    lint = subprocess.run([helm, "lint", "--strict", chart, "-f", values], capture_output=True, text=True)
    assert lint.returncode == 0, lint.stdout
    made = subprocess.run(
        [helm, "template", "house", chart, "-f", values], capture_output=True, text=True, check=True
    )
    kinds = [document["kind"] for document in yaml.safe_load_all(made.stdout) if document]
    assert kinds.count("StatefulSet") == 2
    assert {"ConfigMap", "Deployment", "Service"} <= set(kinds)
