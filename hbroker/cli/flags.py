"""Flags and values of flags that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from hbroker.cli.commands import Option
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hbroker._native import Credentials
    from hbroker.addresses import Address
    from hbroker.config import GatewaySettings, NodeSettings, SecuritySettings
    from hbroker.identity.authority import Authority
    from hbroker.operations.http_client import HttpApi
    from hbroker.runtime.launcher.run_directory import RunDirectory
    from hbroker.sync import Client
    from hbroker.topology import Topology

    Process = TypeVar("Process", NodeSettings, GatewaySettings)

Function = TypeVar("Function", bound=Callable[..., Any])

ORDER_TIMEOUT_S: Final = 30.0
"""How long a command waits until an order is carried out."""


class Value(click.ParamType[Any]):
    """A value that `read` reads. `read` raises ValueError, which says what is wrong."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value of a text. A value that is no text was read before."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def address(text: str) -> str:
    """A host, with or without a port. Raises ValueError."""
    from hbroker.addresses import DEFAULT_PORT, format_address, parse_address

    return format_address(parse_address(text, default_port=DEFAULT_PORT))


def positive(text: str) -> float:
    """A number greater than 0. Raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ValueError(f"{text!r} is not a number over 0")
    return value


def not_negative(text: str) -> float:
    """A number of at least 0. Raises ValueError."""
    return 0.0 if text.strip() == "0" else positive(text)


ADDRESS: Final = Value("host:port", address)
SECONDS: Final = Value("seconds", positive)
WHOLE: Final = click.IntRange(1, 1_000_000)
FILE: Final = click.Path(readable=False)
"""A path, as text. Whether it is there, and what it is, shows when it is used."""
PATH: Final = click.Path(readable=False, path_type=Path)


def all_of(*flags: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Declares these flags, in this order."""

    def declare(function: Function) -> Function:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return declare


def key_flags(*flags: tuple[str, str, str]) -> Callable[[Function], Function]:
    """Declares flags that stand for keys of a topology file: name, metavar and help of each."""
    return all_of(*(key_flag(name, metavar=metavar, help=text) for name, metavar, text in flags))


def _networks(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The networks of the state directory whose names begin so; if there is none, files."""
    from click.shell_completion import CompletionItem

    state_dir: Path = ctx.params["state_dir"]
    names = sorted(file.parent.name for file in state_dir.glob("*/state.json"))
    items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return items or [CompletionItem(incomplete, type="file")]


key_flag: Final = partial(click.option, cls=Option, heading="In place of --config")
json_flag: Final = click.option("--json", "as_json", is_flag=True, help="print JSON")
network_argument: Final = click.argument(
    "network",
    required=False,
    shell_complete=_networks,
    help="a network's name (home) or its topology file; needed only where several run",
)
state_dir_flag: Final = click.option(
    "--state-dir",
    type=PATH,
    default=".hbroker",
    metavar="DIR",
    show_default=True,
    help="where launchers keep what runs, and logs",
)
join_key_file_flag: Final = click.option(
    "--join-key-file",
    type=PATH,
    metavar="FILE",
    help="the network's secret (default: that of the network which runs on this host)",
)
authority_flag: Final = click.option(
    "--authority",
    type=FILE,
    metavar="FILE",
    envvar="HBROKER_AUTHORITY",
    help="the certificate of the network's authority, if its security is on (default: "
    "$HBROKER_AUTHORITY, or that of the network which runs on this host)",
)
token_flag: Final = click.option(
    "--token",
    type=FILE,
    metavar="FILE",
    envvar="HBROKER_TOKEN",
    help="its token, if the network requires tokens (default: $HBROKER_TOKEN, or the operator's of the "
    "network which runs on this host)",
)
traces_flag: Final = click.option(
    "--traces",
    metavar="URL",
    help="send spans of messages to this OpenTelemetry collector (OTLP over HTTP)",
)
"""Adds `--traces`."""

telemetry_flag: Final = click.option(
    "--telemetry",
    type=FILE,
    metavar="DIR",
    help="write there what passes and what it costs (with --config: in place of the file's directory)",
)
log_flags: Final = all_of(
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
    ),
)


def _known_root(_: click.Context, __: click.Parameter, given: str | None) -> str:
    """The root that the flag or the environment gives, or else that of the context, or the default. Raises
    ConfigError and ConfigErrors."""
    from hbroker.addresses import format_address
    from hbroker.runtime.address import parse_place

    return given or format_address(parse_place(None))


root_flag: Final = click.option(
    "--root",
    type=ADDRESS,
    envvar="HBROKER_ROOT",
    callback=_known_root,
    help="the root of the network (default: $HBROKER_ROOT, that of the context, or 127.0.0.1:7700)",
)


url_flag: Final = click.option(
    "--url",
    metavar="URL",
    envvar="HBROKER_URL",
    help="go by the HTTP API of the network, as http://127.0.0.1:7780 (default: $HBROKER_URL, or directly)",
)


def timeout_flag(default: float = 5.0, what: str = "how long to wait") -> Callable[[Function], Function]:
    """Declares `--timeout`."""
    return click.option("--timeout", type=SECONDS, default=default, show_default=True, help=what)


@dataclass(frozen=True, slots=True)
class RunningNetwork:
    """A network to which a command gives orders. `timeout`: seconds for each. `url`: of the HTTP API by which
    they go; None: they go to nodes and gateways directly."""

    root: str
    timeout: float
    join_key_file: Path | None
    state_dir: Path
    url: str | None = None

    def api(self) -> HttpApi | None:
        """The HTTP API of `--url`; None: the network is operated directly. Raises ConfigError, OSError."""
        if self.url is None:
            return None
        from hbroker.operations.http_client import HttpApi

        file = self.token()
        return HttpApi(self.url, Path(file).read_text("ascii").strip() if file else "", self.timeout)

    def join_key(self) -> bytes:
        """The join key; empty if none was given and none is known here. Raises ConfigErrors."""
        from hbroker.topology.flags import join_key_from_file, root_from_flag

        if self.join_key_file is not None:
            return join_key_from_file(self.join_key_file)
        from hbroker.runtime.launcher.network_key import key_at

        return key_at(self.state_dir, root_from_flag(self.root))

    def credentials(self) -> Credentials | None:
        """With what its datagrams are sealed; None: its security is off, as far as is known. Raises
        ConfigError, ConfigErrors, OSError."""
        from hbroker.runtime.credentials import credentials_at
        from hbroker.topology.flags import root_from_flag

        return credentials_at(root_from_flag(self.root), self.authority(), self.token())

    def connect(self) -> Client:
        """A client of the network. Raises the errors of `hbroker.sync.connect`."""
        from hbroker import sync

        return sync.connect(self.root, timeout=self.timeout, authority=self.authority(), token=self.token())

    def authority(self) -> str | None:
        """The file with the certificate of its authority; None: its security is off, as far as is known."""
        from hbroker.runtime.credentials import known_authority
        from hbroker.topology.flags import root_from_flag

        return known_authority(root_from_flag(self.root), self.state_dir) or None

    def token(self) -> str | None:
        """The file with the token to show; None: no token is required, as far as is known."""
        from hbroker.runtime.credentials import known_token
        from hbroker.topology.flags import root_from_flag

        return known_token(root_from_flag(self.root), self.state_dir) or None


def order_flags(function: Callable[..., int]) -> Callable[..., int]:
    """Declares `--root`, `--timeout`, `--join-key-file` and `--state-dir`. The command gets them as
    `network`, a `RunningNetwork`."""

    @wraps(function)
    def call(
        root: str,
        timeout: float,
        join_key_file: Path | None,
        state_dir: Path,
        url: str | None = None,
        **others: Any,
    ) -> int:
        return function(network=RunningNetwork(root, timeout, join_key_file, state_dir, url), **others)

    return all_of(root_flag, timeout_flag(ORDER_TIMEOUT_S), join_key_file_flag, state_dir_flag)(call)


def completed(
    settings: Process,
    state_dir: Path,
    telemetry: str | None,
    security: SecuritySettings,
    network: Topology | None,
    requires_tokens: bool | None = None,
    traces: str | None = None,
) -> Process:
    """The settings, changed by `--telemetry` and `--traces` if they are given; without a join key, with the
    key of the network on this host that has the same root; and with the security of the flags, or of that
    network.

    Without the network's key, a gateway could not read the records of other gateways, nor they its own.
    `network`: the topology of `--config`. For it the keys of `hbroker keys init` serve, too.
    `requires_tokens`: whether a node requires tokens; None: it does as its network, and if security is on and
    nothing says otherwise, it does. Raises ConfigError if security is on in the topology, and nothing says
    with what; and if tokens are required and security is off, or a gateway has none.
    """
    from hbroker.runtime.launcher.network_key import key_at
    from hbroker.runtime.launcher.run_directory import RunDirectory

    made = RunDirectory(state_dir, network.name) if network else None
    is_secure = network is not None and network.is_secure
    if requires_tokens is None and network is not None:
        requires_tokens = network.requires_tokens
    security = _security(settings, state_dir, security, made if is_secure else None, requires_tokens)
    settings = replace(settings, security=security)
    if is_secure and not settings.security.is_on:
        remedy = "add --authority FILE, or make the keys with `hbroker keys init FILE`"
        raise ConfigError("the network's security is on", file="command line", remedy=remedy)
    if requires_tokens and not settings.security.is_on:
        remedy = "add --authority FILE, or leave out --tokens"
        raise ConfigError("tokens are required and security is off", file="command line", remedy=remedy)
    if telemetry:
        written = replace(settings.telemetry, enabled=True, directory=telemetry)
        settings = replace(settings, telemetry=written)
    if traces:
        from hbroker.topology.flags import traces_from_flag

        settings = replace(settings, traces=traces_from_flag(traces))
    if settings.join_key:
        return settings
    root: Address | None = settings.root
    key = key_at(state_dir, root) if root else b""
    if not key and made and made.join_key_file.exists():
        from hbroker.topology.flags import join_key_from_file

        key = join_key_from_file(made.join_key_file)
    if not key and is_secure:
        remedy = "name it in the file (`auth: {join_key_file: ...}`), or call `hbroker keys init FILE`"
        raise ConfigError("the network has no join key", file="command line", remedy=remedy)
    return replace(settings, join_key=key)


def _security(
    settings: Process,
    state_dir: Path,
    given: SecuritySettings,
    made: RunDirectory | None,
    requires_tokens: bool | None,
) -> SecuritySettings:
    """What the flags say, and for what they do not say, what the network on this host has, or `made`. Raises
    ConfigError."""
    from hbroker.config import NodeSettings, SecuritySettings
    from hbroker.runtime.launcher.run_directory import running_at

    authority, identity = given.authority, given.identity
    root: Address | None = settings.root
    found = running_at(state_dir, root) if root else []
    folders = [directory for directory, run in found if run.authority]
    if made and (made.authority / "authority.crt").exists():
        folders.append(made)
    for directory in folders:
        authority = authority or str(directory.authority / "authority.crt")
        identity = identity or str(directory.identities)
    if not authority:
        return given
    of_operator = next((run.token for _, run in found if run.token), "")
    if requires_tokens is None:
        is_named = any(run.authority for _, run in found)
        requires_tokens = bool(of_operator) if is_named else isinstance(settings, NodeSettings)
    if not isinstance(settings, NodeSettings):
        if made and requires_tokens and not of_operator and made.operator_token_file.exists():
            of_operator = str(made.operator_token_file)
        token = given.token or of_operator
        if requires_tokens and not token:
            remedy = "add --token FILE: `hbroker token create --out FILE` makes it"
            raise ConfigError("the network requires tokens", file="command line", remedy=remedy)
        return SecuritySettings(authority, token=token)
    _require_identity(settings, identity)
    return SecuritySettings(authority, identity, requires_tokens=requires_tokens)


def _require_identity(settings: NodeSettings, identity: str) -> None:
    """Raises ConfigError if the node has no certificate in the folder `identity`."""
    if not identity:
        remedy = f"add --identity DIR, with {settings.name}.crt and {settings.name}.key"
        raise ConfigError(
            "a node of a network with security has an identity", file="command line", remedy=remedy
        )
    if not Path(identity, f"{settings.name}.crt").exists():
        names = " ".join([settings.name, *(subtree or "''" for subtree in settings.subtrees)])
        raise ConfigError(
            f"the node {settings.name} has no certificate in {identity}",
            file="command line",
            remedy=f"`hbroker keys issue {names}` makes a token, with which `hbroker join` puts it there",
        )


def given_flags() -> list[str]:
    """The names of the flags and arguments that are on the command line, of the command that runs."""
    context = click.get_current_context()
    return [
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def refuse(flags: Collection[str], why: str, remedy: str) -> None:
    """Raises ConfigError if one of these flags is on the command line."""
    for name in given_flags():
        if name in flags:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} {why}", file="command line", remedy=remedy)


def refuse_beside_config(keys: Collection[str]) -> None:
    """Raises ConfigError if a flag is given that `--config` replaces, since the file has its value."""
    refuse(keys, "does not go with --config", "change the file, or leave out --config")


def with_authority(base: Path, network: str | None) -> RunDirectory:
    """The folder of the network, which has an authority. Raises ConfigError."""
    from hbroker.runtime.launcher.run_directory import RunDirectory

    names = [file.parent.parent.name for file in sorted(base.glob("*/authority/authority.crt"))]
    if network is not None and network not in names:
        remedy = "make it with `hbroker keys init FILE`, or name another network"
        raise ConfigError(f"the network {network!r} has no authority here", file=str(base), remedy=remedy)
    if network is None and not names:
        remedy = "make it with `hbroker keys init FILE`, or give --state-dir"
        raise ConfigError("no network has an authority here", file=str(base), remedy=remedy)
    if network is None and len(names) > 1:
        remedy = f"name one of {', '.join(names)} with --network"
        raise ConfigError("several networks have an authority here", file=str(base), remedy=remedy)
    return RunDirectory(base, network or names[0])


def authority_of(directory: RunDirectory) -> Authority:
    """The authority in the folder of a network, with its private key. Raises ConfigError and OSError."""
    from hbroker.identity.authority import Authority

    try:
        return Authority.load(directory.authority)
    except FileNotFoundError:
        file = str(directory.authority / "authority.key")
        raise ConfigError("the key of the authority is not here", file=file, remedy="put it back") from None
