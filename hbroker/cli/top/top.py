"""`hbroker top`: watches a network in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import RunningNetwork, root_flag, state_dir_flag, timeout_flag
from hbroker.errors import ConfigError

_TEXT = """\
Four tables, which nodes keep up to date: the hierarchy with rates, processor time, queues and lag;
the topics with the most messages; the sessions with the longest queues; events as they come.
Nodes say their counters every ten seconds.

keys: 1 nodes, 2 topics, 3 sessions, 4 events, s tree or by load, p pause, q quit; arrows, Page
Up and Down, Home and End move in a table

It needs the extra `top`: pip install 'hbroker[top]'. In a network that requires tokens, the token
has to allow to read $SYS/#; that of a network of `hbroker up` on this host is found.

examples:
  hbroker top
  hbroker top --root 192.0.2.1:7700

exit codes: 0 ended as asked, 1 this is not a terminal, 2 wrong flags or files
"""


@command("top", _TEXT)
@root_flag
@timeout_flag()
@state_dir_flag
def top(root: str, timeout: float, state_dir: Path) -> int:
    """Returns when the user quits. Raises ConfigError and ConfigErrors."""

    if not sys.stdout.isatty():
        print(
            "hbroker: `hbroker top` needs a terminal; for scripts there is `hbroker tree --json`",
            file=sys.stderr,
        )
        return FAILED
    try:
        from hbroker.cli.top.app import TopApp
    except ModuleNotFoundError as error:
        remedy = "pip install 'hbroker[top]'"
        text = f"the extra `top` is not installed: {error}"
        raise ConfigError(text, file="command line", remedy=remedy) from None
    from hbroker.runtime.client.async_client import Connecting, connect

    network = RunningNetwork(root, timeout, None, state_dir)
    authority, token = network.authority(), network.token()

    def connecting() -> Connecting:
        return connect(root, timeout=timeout, authority=authority, token=token)

    TopApp(connecting, root).run()
    return DONE
