"""A node that is told to keep nothing on disk any more puts its store aside."""

from __future__ import annotations

from pathlib import Path

from tests.product.dying.test_long_queues import client_of, node_up, publish


def test_a_store_is_renamed_if_durability_is_none(tmp_path: Path) -> None:
    with node_up(tmp_path, "fsync", 1_000) as (_, root):
        with client_of(root) as client:
            client.subscribe("a/#", qos=1)
        publish(root, 1)
    (store,) = tmp_path.glob("state/*/root.cuts.store")
    with node_up(tmp_path, "none", 1_000) as (_, root):
        assert not store.exists()
        (aside,) = store.parent.glob("root.cuts.store.unused-*")
        assert any(aside.glob("log/*.log"))
        with client_of(root) as client, client.subscribe("a/#", qos=1) as messages:
            assert not messages.resumed
            assert messages.next(timeout=0.1) is None
