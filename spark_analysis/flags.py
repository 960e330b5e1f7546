"""Values of flags that several commands have. Importing this does not import Spark."""

from __future__ import annotations

from typing import Any, Final

import click

__all__ = ["SETTING"]


class _Setting(click.ParamType[Any]):
    name = "key=value"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, equals, setting = value.partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, setting


SETTING: Final = _Setting()
"""A Spark setting, given as KEY=VALUE. Its value is the pair."""
