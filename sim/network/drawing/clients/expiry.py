"""The messages that expire, and their expiry (§7.2, §7.8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from ...actions import Action, Publish

__all__ = ["draw_expiries"]


def draw_expiries(random: Random, actions: Iterable[Action]) -> list[Action]:
    """The actions, with an expiry for some messages, or for all. Half of all plans have none."""
    share = random.choice((0.0, 0.0, 0.0, 0.1, 0.5, 1.0))
    return [
        replace(action, expiry=random.choice((1, 1, 3, 10, 60)))
        if isinstance(action, Publish) and random.random() < share
        else action
        for action in actions
    ]
