"""Another size of a scenario, or another distribution of its traffic: pure changes of settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .scenario.settings import Room, Scenario, Transport

__all__ = ["apportion", "rate_factors", "scale", "without_mqtt"]


def scale(scenario: Scenario, devices: int) -> Scenario:
    """The scenario with this number of devices, people included.

    Each kind in each room gets the number that is nearest to the scenario's proportions.
    """
    people = scenario.people.count if scenario.people else 0
    weights = [count for room in scenario.rooms for _, count in room.devices]
    *counts, walking = apportion(devices, [*weights, people])
    left = iter(counts)
    rooms = tuple(
        Room(room.path, tuple((kind, next(left)) for kind, _ in room.devices)) for room in scenario.rooms
    )
    moved = replace(scenario.people, count=walking) if scenario.people else None
    return replace(scenario, rooms=rooms, people=moved)


def without_mqtt(scenario: Scenario) -> Scenario:
    """The scenario with native clients only, whatever its kinds and watchers say."""

    def moved(transport: Transport) -> Transport:
        return Transport.NATIVE if transport is Transport.MQTT else transport

    return replace(
        scenario,
        mqtt=0.0,
        kinds={name: replace(kind, transport=moved(kind.transport)) for name, kind in scenario.kinds.items()},
        watchers=tuple(replace(watcher, transport=moved(watcher.transport)) for watcher in scenario.watchers),
        people=scenario.people and replace(scenario.people, transport=moved(scenario.people.transport)),
    )


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers with the sum `total`, in proportion to the weights.

    Each is its exact share, rounded up or down (largest remainder method, Hamilton). All are 0 if the weights
    are.
    """
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    shares = [divmod(total * weight, whole) for weight in weights]
    counts = [quotient for quotient, _ in shares]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-shares[i][1], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def rate_factors(scenario: Scenario) -> dict[str, float]:
    """By room, the factor by which its devices publish more often than their kinds say.

    All are 1 without a skew. With a skew the total rate is unchanged, and the room has its share of it.
    """
    rates = {
        room.path: sum(scenario.kinds[kind].rate * count for kind, count in room.devices)
        for room in scenario.rooms
    }
    skew = scenario.skew
    total = sum(rates.values())
    if skew is None or not 0 < rates.get(skew.room, 0.0) < total:
        return dict.fromkeys(rates, 1.0)
    own = rates[skew.room]
    elsewhere = (1 - skew.share) * total / (total - own)
    return {path: skew.share * total / own if path == skew.room else elsewhere for path in rates}
