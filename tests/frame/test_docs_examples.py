"""The examples of the documentation run, against a real network, and print what they should."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.frame.checkout import ROOT, run

EXAMPLES = ROOT / "docs" / "examples"
PRINTED = {
    "publish_subscribe.py": "home/kitchen/oven/temperature 180\n",
    "blocking.py": "home/kitchen/oven/temperature 180\n",
    "resolve.py": (
        "securitycams owns home/outside/securitycams\n"
        "REFERRAL from root\nREFERRAL from outside\nPUBACCEPT from securitycams\n"
    ),
    "outcomes.py": "distributed: home/bedroom/lamp at QoS 1\na wildcard is no topic\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the root of a launched `home.yaml`."""
    state = tmp_path_factory.mktemp("state")
    command = [sys.executable, "-m", "hbroker", "up", "topologies/home.yaml", "--any-port", "--json"]
    launcher = subprocess.Popen(
        [*command, "--state-dir", state],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield _root_of(launcher)
    finally:
        launcher.terminate()
        launcher.communicate(timeout=20)


def test_every_example_is_run_and_shown() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == PRINTED.keys()
    api = (ROOT / "docs" / "api.md").read_text("utf-8")
    for name in PRINTED:
        assert f'--8<-- "docs/examples/{name}"' in api


@pytest.mark.parametrize("name", PRINTED)
def test_example_prints_what_it_should(root: str, name: str) -> None:
    ran = run([sys.executable, EXAMPLES / name, root], PYTHONPATH=str(ROOT))
    assert (ran.returncode, ran.stdout) == (0, PRINTED[name]), ran.stderr


def test_readme_shows_the_first_example() -> None:
    """README cannot include a file: its code is the example's, but for the address."""
    example = (EXAMPLES / "publish_subscribe.py").read_text("utf-8").partition("\n\n")[2]
    shown = example.replace("import sys\n", "").replace("main(sys.argv[1])", 'main("127.0.0.1:7700")')
    assert f"```python\n{shown.strip()}\n```" in (ROOT / "README.md").read_text("utf-8")


def _root_of(launcher: subprocess.Popen[str]) -> str:
    assert launcher.stdout is not None
    for line in launcher.stdout:
        event = json.loads(line)
        if event["event"] == "ready":
            return str(event["root"])
    raise AssertionError("the network did not get ready")
