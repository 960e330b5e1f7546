"""What must hold of every network, whatever happens to it; and that its watchers can see it broken.

The seeds here are fixed; `make soak` runs as many as asked. Each broken variant takes one safeguard out of
the control: a checker that finds nothing then would find nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from hbroker.protocol import timers
from hbroker.protocol.jurisdiction import Grant, Jurisdiction
from hbroker.protocol.subscribers import Subscription
from hbroker.protocol.subscribing import Subscribing
from hbroker.sim import soak
from hbroker.sim.network import ClientHost, Host
from hbroker.sim.network.invariants import Invariant
from hbroker.sim.network.plan import Publish, draw
from hbroker.sim.network.trial import Trial, Verdict

SEEDS = range(1, 17)
MOST_SEEDS = 500
"""A broken variant is found within so many."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds(seed: int) -> None:
    verdict = soak.run(seed)
    assert verdict.violation is None, soak.report(verdict)


def test_a_seed_is_the_same_run_every_time() -> None:
    assert soak.run(7) == soak.run(7)
    assert draw(7) == draw(7)
    assert soak.run(7) != soak.run(8)


def test_the_seeds_are_of_every_kind() -> None:
    plans = [draw(seed) for seed in range(1, 101)]
    kinds = {type(action).__name__ for plan in plans for action in plan.actions}
    assert kinds == {
        "Join", "Leave", "Part", "Heal", "Stop", "Continue", "Crash", "Restart", "Subscribe", "Publish"
    }  # fmt: skip
    assert {plan.paths.loss for plan in plans} == {0.0, 0.01, 0.1, 0.3}
    assert min(len(plan.nodes) for plan in plans) == 1
    assert max(len(plan.nodes) for plan in plans) > 20
    assert {a.qos for plan in plans for a in plan.actions if isinstance(a, Publish)} == {0, 1, 2}


def find(expected: set[Invariant], seeds: Sequence[int] = range(1, MOST_SEEDS + 1)) -> Verdict:
    """The first seed that breaks something: it has to be one of these invariants."""
    verdicts = (soak.run(seed) for seed in seeds)
    found = next((verdict for verdict in verdicts if verdict.violation is not None), None)
    assert found is not None, "nothing was found"
    assert found.violation is not None
    assert found.violation.invariant in expected, soak.report(found)
    return found


def test_an_owner_that_outlives_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is told of no end, and the parent takes back too soon."""
    hold = Jurisdiction.hold

    def hold_for_ever(self: Jurisdiction, grant: Grant) -> None:
        hold(self, grant)
        self._core.grant(grant.subtree, grant.epoch, grant.serving, None)

    monkeypatch.setattr(Jurisdiction, "hold", hold_for_ever)
    monkeypatch.setattr(timers, "LEASE_DRIFT", -timers.SECOND)
    find({Invariant.ONE_OWNER})


def test_epochs_that_do_not_rise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every delegation is made under the same epoch."""
    monkeypatch.setattr("hbroker.protocol.node.Node._epoch_at", lambda self, now: 1)
    monkeypatch.setattr("hbroker.protocol.delegating.Delegating._next_epoch", lambda *_: 1)
    find({Invariant.EPOCHS_RISE, Invariant.RECOVERS})


def test_an_owner_that_inherits_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions are not handed over with a subtree."""

    def take_nothing_over(self: Subscribing, subscriptions: Iterable[Subscription]) -> None:
        pass

    monkeypatch.setattr(Subscribing, "take_over", take_nothing_over)
    find({Invariant.COMPLETE})


def test_a_message_acknowledged_before_it_is_distributed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers ask for the acknowledgement that comes when the message is queued."""
    monkeypatch.setattr("hbroker.sim.network.trial.ACK_QUEUED", True)
    find({Invariant.NOTHING_LOST})


def test_a_message_that_comes_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application gets the last message that it read once more."""
    acted = Trial._acted

    def read_again(self: Trial, host: Host) -> None:
        if isinstance(host, ClientHost) and len(host.messages) == 5 and host.messages[-1].qos == 2:
            host.messages.append(host.messages[-1])
        acted(self, host)

    monkeypatch.setattr(Trial, "_acted", read_again)
    find({Invariant.NOTHING_DOUBLED})


def test_a_failure_is_reported_with_how_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Subscribing, "take_over", lambda self, subscriptions: None)
    seed = find({Invariant.COMPLETE}).seed
    assert soak.main(["--seed", str(seed), "--jobs", "1"]) == soak.FAILED
    told = capsys.readouterr().out
    assert f"python -m hbroker.sim.soak --seed {seed}" in told
    assert "VIOLATION: an owner has every subscription" in told
    assert "node n1" in told
