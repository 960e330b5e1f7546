"""Nodes of a topology that run by themselves, with the keys that `hbroker keys init` made for them."""

from __future__ import annotations

from pathlib import Path

from hbroker import sync
from tests.product.network import PATIENCE, run_hbroker
from tests.product.node import started

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:0", durability: none}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:0", durability: none}
"""


def test_nodes_find_the_keys_that_were_made_for_them(tmp_path: Path) -> None:
    file, state = tmp_path / "flat.yaml", tmp_path / "state"
    file.write_text(FILE)
    flags = ["--config", str(file), "--state-dir", str(state), "--name"]
    without = run_hbroker("node", *flags, "root")
    assert (without.returncode, "hbroker keys init" in without.stderr) == (2, True)
    run_hbroker("keys", "init", str(file), "--state-dir", str(state), check=True)
    authority, token = state / "flat" / "authority" / "authority.crt", state / "flat" / "operator.token"
    with started("node", *flags, "root") as (_, ready):
        root = ready.split()[-1]
        with (
            started("node", *flags, "kitchen", "--root", root),
            sync.connect(root, authority=authority, token=token) as client,
            client.subscribe("home/#", qos=1) as messages,
        ):
            assert client.resolve("home/kitchen/oven").owner == "kitchen"
            client.publish("home/kitchen/oven", "180", qos=1)
            message = messages.next(timeout=PATIENCE)
            assert message is not None
            assert message.payload == b"180"
