"""Values of flags that several commands have. Importing this does not import Spark."""

from __future__ import annotations

import argparse

__all__ = ["setting"]


def setting(text: str) -> tuple[str, str]:
    """A Spark setting, given as KEY=VALUE. Raises argparse.ArgumentTypeError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
