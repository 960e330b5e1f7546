"""Every transcript of this folder agrees with the nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.runner import replay

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.txt")))
def test_a_transcript_agrees_with_the_nodes(name: str) -> None:
    path = FOLDER / name
    expected, actual = replay(path)
    if os.environ.get("HBROKER_REWRITE"):
        path.write_text(actual)
    else:
        assert actual == expected
