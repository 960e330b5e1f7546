"""Asks all gateways of a network, for `hbroker clients` and `hbroker kick`, and says which did not answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hbroker.cli.output import Style, styled
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.cli.flags import RunningNetwork
    from hbroker.operations.gateway_requests import Replies


def ask(network: RunningNetwork, kind: str, client_id: str = "") -> Replies:
    """As `gateway_requests.ask_gateways`. Raises Unreachable, and ConfigError if the join key is missing or
    wrong."""
    from hbroker.operations.gateway_requests import JoinKeyError, ask_gateways

    key = network.join_key()
    try:
        with network.connect() as client:
            return ask_gateways(client, key, kind, client_id, timeout=network.timeout)
    except JoinKeyError as error:
        file = "command line" if error.is_missing else str(network.join_key_file or network.state_dir)
        remedy = (
            "give --join-key-file, or the --state-dir of its `hbroker up` on this host"
            if error.is_missing
            else f"give --join-key-file with the key of the network whose root is at {network.root}"
        )
        raise ConfigError(str(error), file=file, remedy=remedy) from None


def complain(replies: Replies) -> None:
    """Prints which gateways did not answer."""
    for name in replies.silent:
        why = "has another join key" if name in replies.foreign else "does not answer"
        print(styled(f"{name} {why}", Style.BAD), file=sys.stderr)
