"""One gateway with a listener of each kind, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.gateway.transports.certificates import Authority
from tests.gateway.transports.front import Front, front_up

RULES = """
topic readwrite public/#
topic read $SYS/broker/#
pattern readwrite of/%u/#
pattern deny ann/open/#
user ann
topic readwrite ann/#
topic deny ann/shut/#
"""
_NUMBERS = count(1)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that clients and the gateway trust."""
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("others"), "others")


@pytest.fixture(scope="session")
def front(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Front]:
    """The gateway."""
    directory = tmp_path_factory.mktemp("front")
    with front_up(directory, _listeners(authority), rules=RULES, anonymous=True) as front:
        yield front


@pytest.fixture
def name() -> str:
    """A name for a client or a topic that no other test uses."""
    return f"n{next(_NUMBERS)}"


def _listeners(authority: Authority) -> dict[str, dict[str, Any]]:
    server = authority.server()
    tls = server.tls
    return {
        "tls": {"tls": tls},
        "asks": {"tls": authority.asking(server, "optional")},
        "needs": {"tls": authority.asking(server, "required")},
        "own id": {"tls": {**authority.asking(server, "required"), "names_client": True}},
        "wss": {"tls": tls, "websocket": "/mqtt"},
        "proxied": {"proxy_protocol": True},
        "proxied tls": {"proxy_protocol": True, "tls": tls},
        "six": {"address": "[::1]:0"},
        "both": {"address": "[::]:0"},
        "six tls": {"address": "[::1]:0", "tls": tls},
        "few": {"connections": 2},
        "slow": {"connect_rate": 3, "tls": tls},
        "small": {"packet_bytes": 1_000, "tls": tls},
    }
