"""`hbroker admin`: serves the HTTP API of a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbroker.cli.commands import command
from hbroker.cli.flags import ADDRESS, FILE, RunningNetwork, log_flags, order_flags
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.runtime.logs import Style

DEFAULT_LISTEN = "127.0.0.1:7780"

_TEXT = """\
One process answers for the whole network: it subscribes to what nodes and gateways say of
themselves, and gives orders as the commands do. Its address shows a dashboard in a browser.
Routes are below /v1; /openapi.json describes them; /metrics is for Prometheus; /healthz and
/readyz need no token.

Each request has a token of the network: `Authorization: Bearer TOKEN` (`hbroker token create`).
Who may read $SYS/# sees the network, who may write $SYS/# changes it. What is published and
subscribed goes to the owners with the caller's token, and they decide.

The API itself needs the token of an operator; that of a network of `hbroker up` on this host is
found. On another address than one of loopback it needs a certificate, and a network that
requires tokens. It needs the extra `admin`: pip install 'hbroker[admin]'.

examples:
  hbroker admin
  curl -H "Authorization: Bearer $(cat .hbroker/home/operator.token)" http://127.0.0.1:7780/v1/nodes
  hbroker admin --listen 192.0.2.1:7780 --tls-certificate host.pem --tls-key host.key

exit codes: 0 ended as asked, 1 it could not run, 2 wrong flags or files
"""


@command("admin", _TEXT)
@click.option(
    "--listen",
    type=ADDRESS,
    default=DEFAULT_LISTEN,
    show_default=True,
    help="where it serves; port 0: any",
)
@click.option("--host", multiple=True, metavar="NAME", help="a name by which it is called (repeat)")
@click.option("--tls-certificate", type=FILE, metavar="FILE", help="serve HTTPS, with this certificate (PEM)")
@click.option("--tls-key", type=FILE, metavar="FILE", help="its private key (PEM)")
@order_flags
@log_flags
def admin(
    listen: str,
    host: tuple[str, ...],
    tls_certificate: str | None,
    tls_key: str | None,
    network: RunningNetwork,
    log_format: Style,
    log_level: str,
) -> int:
    """Returns when the process was told to end. Raises ConfigError, ConfigErrors, OSError."""
    if (tls_certificate is None) != (tls_key is None):
        raise click.UsageError("--tls-certificate and --tls-key go together")
    try:
        from hbroker.http_api.server import ServerSettings, serve
    except ModuleNotFoundError as error:
        remedy = "pip install 'hbroker[admin]'"
        raise ConfigError(
            f"the extra `admin` is not installed: {error}", file="command line", remedy=remedy
        ) from None

    import hbroker
    from hbroker.cli.output import print_ready
    from hbroker.http_api.context import NetworkAccess
    from hbroker.runtime import logs
    from hbroker.runtime.address import parse_place
    from hbroker.topology.flags import root_from_flag

    authority, token = network.authority(), network.token()
    access = NetworkAccess(
        root_from_flag(network.root),
        Path(authority) if authority else None,
        Path(token) if token else None,
        network.join_key(),
    )
    logs.configure(node="admin", style=log_format, level=log_level)
    settings = ServerSettings(
        parse_place(listen),
        access,
        host,
        Path(tls_certificate) if tls_certificate else None,
        Path(tls_key) if tls_key else None,
    )
    return serve(settings, hbroker.__version__, on_ready=lambda url: print_ready("admin", url))
