"""What the flags of several commands mean. Whoever only reads a command line needs no Spark."""

from __future__ import annotations

import argparse

__all__ = ["setting"]


def setting(text: str) -> tuple[str, str]:
    """A setting of Spark, given as KEY=VALUE. Raises argparse.ArgumentTypeError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
