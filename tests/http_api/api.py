"""A network of `hbroker up` with `hbroker admin`, and requests to it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from hbroker.identity.authority import Authority
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create
from tests.product.network import PATIENCE, PROJECT, Network, environment, hbroker, network_of
from tests.waiting import until

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
  - {name: attic, subtree: home/attic, listen: "127.0.0.1:7702"}
gateways:
  - name: gateway
    listeners:
      - {address: "127.0.0.1:1883"}
      - {address: "127.0.0.1:1884", workspace: acme}
      - {address: "127.0.0.1:1885", workspace: other}
workspaces:
  acme: {sessions: 1000, messages_per_second: 100000}
"""


class Api:
    """The API of a running network. `root`: HOST:PORT."""

    def __init__(self, network: Network, root: str, url: str) -> None:
        self.network, self.root, self.url = network, root, url
        (state,) = (file.parent for file in network.directory.glob("*/state.json"))
        self.state = state
        self.authority = state / "authority" / "authority.crt"
        self._key = Authority.load(state / "authority").key
        self.operator = (state / "operator.token").read_text().strip()

    def port(self, workspace: str | None = None) -> str:
        """The port at which MQTT clients of a workspace connect."""
        listeners = self.network.state()["gateways"][0]["listeners"]
        url: str = listeners[(None, "acme", "other").index(workspace)]
        return url.rpartition(":")[2]

    def token(self, *, valid_s: float = 3_600, workspace: str | None = None, **rights: Any) -> str:
        """A token with these rights, as of `BlockRights`."""
        block = Block(BlockRights(**rights), expires_at=int(time.time() + valid_s), workspace=workspace)
        return create(self._key, block)

    def request(self, method: str, path: str, token: str | None = "", status: int = 200, **more: Any) -> Any:
        """Requests, with the operator's token if none is given (None: without one). Returns the JSON of the
        answer, which has this status."""
        shown = self.operator if token == "" else token
        headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
        answer = httpx.request(method, self.url + path, headers=headers, timeout=PATIENCE, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    def get(self, path: str, token: str | None = "", status: int = 200, **query: Any) -> Any:
        """As `request`, with GET."""
        return self.request("GET", path, token, status, params=query)

    def post(self, path: str, body: object, token: str | None = "", status: int = 201) -> Any:
        """As `request`, with POST."""
        return self.request("POST", path, token, status, json=body)

    @contextmanager
    def events(self, path: str, token: str = "", **query: Any) -> Iterator[Iterator[tuple[str, Any]]]:
        """The server-sent events of a stream: the name of each, and its data from JSON."""
        headers = {"Authorization": f"Bearer {token or self.operator}"}
        url = self.url + path
        with httpx.stream("GET", url, params=query, headers=headers, timeout=PATIENCE) as answer:
            assert answer.status_code == 200, answer.read()
            yield _events(answer.iter_lines())


@contextmanager
def api_of(folder: Path) -> Iterator[Api]:
    """A network in this folder, and its API. Both end with the block."""
    with network_of(FILE, folder) as (network, root), admin_of(network, root) as (url, _):
        api = Api(network, root, url)
        until(lambda: len(api.get("/v1/nodes")["items"]) == 3, "all nodes are known", PATIENCE)
        yield api


@contextmanager
def admin_of(network: Network, root: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL and the process of an API of this network. It has to end well."""
    flags = ("--root", root, "--listen", "127.0.0.1:0", "--state-dir", str(network.directory))
    with subprocess.Popen(
        [*hbroker("admin"), *flags], stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment()
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready admin: http://"), ready
            yield ready.removeprefix("ready admin: ").strip(), process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name, data = "", ""
    for line in lines:
        if line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            data = line.removeprefix("data:").strip()
        elif not line and name:
            yield name, json.loads(data)
            name = ""
