"""Flags that several commands share, and how commands are declared."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from hbroker.config import GatewaySettings, NodeSettings, TelemetrySettings

    Process = TypeVar("Process", NodeSettings, GatewaySettings)

    Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

Run = Callable[[argparse.Namespace], int]


def command(commands: Commands, name: str, run: Run, summary: str, text: str) -> argparse.ArgumentParser:
    """Declares a command. `text`: the end of its help, with examples."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser, shape: str = "print JSON") -> None:
    """Declares `--json`."""
    parser.add_argument("--json", action="store_true", help=shape)


def add_state_directory(parser: argparse.ArgumentParser) -> None:
    """Declares `--state-dir`."""
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=Path(".hbroker"),
        metavar="DIR",
        help="where launchers keep what runs, and logs (default: %(default)s)",
    )


def add_network(parser: argparse.ArgumentParser) -> None:
    """Declares NETWORK, the network that a command is about."""
    parser.add_argument(
        "network",
        nargs="?",
        metavar="NETWORK",
        help="a network's name (home) or its topology file; needed only where several run",
    )


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Declares `--log-format` and `--log-level`."""
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="default: %(default)s",
    )


def add_telemetry(parser: argparse.ArgumentParser) -> None:
    """Declares `--telemetry`."""
    parser.add_argument(
        "--telemetry",
        metavar="DIR",
        help="write there what passes and what it costs (with --config: in place of the file's directory)",
    )


def telemetry_in(settings: TelemetrySettings, options: argparse.Namespace) -> TelemetrySettings:
    """The settings, changed by `--telemetry` if it is given."""
    from dataclasses import replace

    return replace(settings, enabled=True, directory=options.telemetry) if options.telemetry else settings


def with_key_of_this_host(settings: Process, options: argparse.Namespace) -> Process:
    """The settings; without a join key, with the key of the network on this host that has the same root.

    Without the network's key, a gateway could not read the records of other gateways, nor they its own.
    """
    from dataclasses import replace

    from hbroker.runtime.launcher.network_key import key_at

    if settings.join_key or settings.root is None:
        return settings
    return replace(settings, join_key=key_at(options.state_dir, settings.root))


def add_root(parser: argparse.ArgumentParser) -> None:
    """Declares `--root` and `--timeout`, for commands that ask a running network."""
    parser.add_argument(
        "--root",
        type=address,
        default=os.environ.get("HBROKER_ROOT") or "127.0.0.1:7700",
        metavar="HOST:PORT",
        help="the root of the network (default: $HBROKER_ROOT, or 127.0.0.1:7700)",
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait (default: %(default)s)",
    )


def address(text: str) -> str:
    """A host, with or without a port. Raises argparse.ArgumentTypeError."""
    from hbroker.addresses import DEFAULT_PORT, format_address, parse_address

    try:
        return format_address(parse_address(text, default_port=DEFAULT_PORT))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> float:
    """A number greater than 0. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number over 0")
    return value


def not_negative(text: str) -> float:
    """A number of at least 0. Raises argparse.ArgumentTypeError."""
    return 0.0 if text.strip() == "0" else positive(text)


def whole(text: str) -> int:
    """A whole number from 1 to 1,000,000. Raises argparse.ArgumentTypeError."""
    value = int(text) if text.isdecimal() else 0
    if not 0 < value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1,000,000")
    return value


def refuse_beside_config(options: argparse.Namespace, keys: Iterable[str]) -> None:
    """Raises ConfigError for a flag that `--config` replaces, since the file has its value."""
    from hbroker.errors import ConfigError

    for key in keys:
        if getattr(options, key) is not None:
            raise ConfigError(
                f"--{key.replace('_', '-')} does not go with --config",
                file="command line",
                line=None,
                remedy="change the file, or leave out --config",
            )
