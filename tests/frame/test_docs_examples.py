"""The examples of the documentation run in a real network, and print what they should."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.frame.checkout import ROOT, run
from tests.product.network import network_up

EXAMPLES = ROOT / "docs" / "examples"
PRINTED = {
    "publish_subscribe.py": "home/kitchen/oven/temperature 180\n",
    "blocking.py": "home/kitchen/oven/temperature 180\n",
    "resolve.py": (
        "securitycams owns home/outside/securitycams\n"
        "REFERRAL from root\nREFERRAL from outside\nPUBACCEPT from securitycams\n"
    ),
    "persistent.py": "resumed: True on\n",
    "client_pool.py": "100 of 100 lamps\n",
    "results.py": "distributed: home/bedroom/lamp at QoS 1\na wildcard is no topic\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the root of a launched `home.yaml`."""
    with network_up(ROOT / "topologies" / "home.yaml", tmp_path_factory.mktemp("state")) as (_, address):
        yield address


def test_every_example_is_run_and_shown() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == PRINTED.keys()
    api = (ROOT / "docs" / "api.md").read_text("utf-8")
    for name in PRINTED:
        assert f'--8<-- "docs/examples/{name}"' in api


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(root: str, name: str) -> None:
    ran = run([sys.executable, EXAMPLES / name, root], PYTHONPATH=str(ROOT))
    assert (ran.returncode, ran.stdout) == (0, PRINTED[name]), ran.stderr


def test_the_readme_shows_the_first_example() -> None:
    """README cannot include a file. Its code is that of the example, except for the address."""
    example = (EXAMPLES / "publish_subscribe.py").read_text("utf-8").partition("\n\n")[2]
    shown = example.replace("import sys\n", "").replace("main(sys.argv[1])", 'main("127.0.0.1:7700")')
    assert f"```python\n{shown.strip()}\n```" in (ROOT / "README.md").read_text("utf-8")
