"""Prints how many bytes an idle client of a pool takes, measured in a process that does nothing else."""

from __future__ import annotations

from random import Random

from hbroker._native import ClientPool, Config
from tests.memory import own_bytes

CLIENTS = 5_000


def bytes_of_an_idle_client() -> float:
    """Bytes for each of `CLIENTS` idle clients of a new pool."""
    random = Random(1)
    config = Config(node=False, session=1, incarnation=2, token_keys=[bytes(16)], seed=4)
    pool = ClientPool(config, ("127.0.0.1", 0))
    try:
        before = own_bytes()
        for _ in range(CLIENTS):
            pool.open_pool_client(random.getrandbits(63), persistent=True, incarnation=random.getrandbits(63))
        return (own_bytes() - before) / CLIENTS
    finally:
        pool.shutdown()


if __name__ == "__main__":
    print(bytes_of_an_idle_client())
