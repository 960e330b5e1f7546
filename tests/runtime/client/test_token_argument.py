"""Every way to connect takes the file with the client's token, and reads it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import hbroker
from hbroker import sync
from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority


async def test_a_file_that_is_no_token_is_an_error_of_each(tmp_path: Path) -> None:
    Authority.create("house", time.time()).save(tmp_path / "authority")
    authority, token = tmp_path / "authority" / "authority.crt", tmp_path / "token"
    token.write_text("no token")
    with pytest.raises(ConfigError, match="not a token"):
        await hbroker.connect("127.0.0.1:9", authority=authority, token=token)
    with pytest.raises(ConfigError, match="not a token"):
        async with hbroker.client_pool("127.0.0.1:9", authority=authority, token=token):
            pass
    with pytest.raises(ConfigError, match="not a token"):
        sync.connect("127.0.0.1:9", authority=authority, token=token)
