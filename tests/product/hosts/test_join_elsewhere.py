"""A node on another host joins a network of `hbroker up`, by one line and one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hbroker.sim.lab import Lab, why_impossible
from tests.lab.network import PATIENCE_S, PORT, Program
from tests.needs import need
from tests.product.network import PROJECT, environment

HBROKER = [sys.executable, "-m", "hbroker"]


@pytest.mark.usefixtures("in_long_form")
def test_one_line_makes_a_host_part_of_a_network(tmp_path: Path) -> None:
    reason = why_impossible()
    need(reason is None, str(reason))
    with Lab(["root", "one", "two"]) as lab:
        root = f"{lab.address('root')}:{PORT}"
        file, state = tmp_path / "house.yaml", tmp_path / "state"
        file.write_text(f'nodes: [{{name: root, subtree: "", listen: "{root}", durability: none}}]')
        launched = Program(
            lab, "root", [*HBROKER, "up", str(file), "--state-dir", str(state)], tmp_path / "up.log"
        )
        launched.start()
        assert any(line.startswith("ready") for line in launched.process.stdout or ())
        token = tmp_path / "kitchen.join"
        issue = ["keys", "issue", "kitchen", "home/kitchen", "--out", str(token), "--state-dir", str(state)]
        subprocess.run([*HBROKER, *issue], check=True, cwd=PROJECT, env=environment(), timeout=PATIENCE_S)
        join = ["join", "--token", str(token), "--name", "kitchen", "--dir", str(tmp_path / "kitchen")]
        joined = Program(lab, "one", [*HBROKER, *join], tmp_path / "join.log")
        joined.start()
        address = f"{lab.address('one')}:{PORT}"
        said = next(line for line in joined.process.stdout or () if line.startswith("ready"))
        assert said.rstrip().endswith(address), "it binds to the address of its host towards the root"
        house = state / "house"
        resolve = ["resolve", "home/kitchen/oven", "--root", root]
        found = lab.start(
            "two",
            [*HBROKER, *resolve],
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env={
                **environment(),
                "HBROKER_AUTHORITY": str(house / "authority" / "authority.crt"),
                "HBROKER_TOKEN": str(house / "operator.token"),
            },
        )
        assert "kitchen" in found.communicate(timeout=PATIENCE_S)[0]
        joined.end()
        launched.end()
