"""schemathesis over the description of the API, for ten minutes (`make soak`): no server error, every
refusal and every answer as it is described."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.http_api.api import api_of

SECONDS = 600
NOT_CALLED = r"(Leave|FollowEvents|FollowMessages)$"
"""The first would end the network; the others are streams, which do not end."""
NOT_CHECKED = (
    "ignored_auth",  # test_access does: here every route has a token.
    "positive_data_acceptance",  # Of a valid topic the network may say that it has no owner.
)


@pytest.mark.usefixtures("in_long_form")
def test_the_api_is_as_it_is_described(tmp_path: Path) -> None:
    with api_of(tmp_path) as api:
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{api.url}/openapi.json"),
            *("-H", f"Authorization: Bearer {api.operator}"),
            *("--max-time", str(SECONDS), "--max-examples", "100000", "--request-timeout", "30"),
            *("--checks", "all", "--exclude-checks", ",".join(NOT_CHECKED)),
            *("--exclude-operation-id-regex", NOT_CALLED),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        said = "\n".join(line[:1_000] for line in done.stdout.splitlines())
        assert done.returncode == 0, said[-8_000:].replace(api.operator, "TOKEN")
        assert "Unmatched filters" not in said
