"""The invariants of every simulated network, and the checkers that must notice a violation.

The seeds here are fixed. `make soak` runs as many seeds as requested, and tries every defect of
`tests.defects`: a checker that finds no defect would find nothing at all. The defects here are those that
show soon.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hbroker import _native
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions
from hbroker.sim import soak
from hbroker.sim.network import drawing
from hbroker.sim.network.actions import USUAL, Action, Overflow, Publish, Restart, Subscribe
from hbroker.sim.network.drawing import draw
from hbroker.sim.network.drawing.clients.paces import QUEUES, SLOW_CREDIT, STEADY, TRICKLE
from hbroker.sim.network.drawing.failures.clocks import STEPS
from hbroker.sim.network.plan import Plan
from hbroker.sim.network.trial import Trial
from tests.defects.variants import CONTROL, CORE, Variant
from tests.product.network import PROJECT

SEEDS = range(1, 17)
TEARS = range(1, 33)
SHOWS_SOON = {
    "an owner keeps nothing for a session that is offline",
    "a lease's end drops what waits for sessions that are offline",
    "every member of a shared group gets each message",
    "epochs begin anew with each run of a node",
    "a new owner inherits no subscriptions",
    "a subscription is complete when the root has answered",
    "an owner keeps subscriptions that have ended",
    "a client asks again for what it has",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds(seed: int) -> None:
    verdict = soak.run(seed)
    assert verdict.violation is None, soak.report(verdict)


def test_a_process_that_died_while_it_was_stopped_does_not_go_on() -> None:
    """In this run a node has left, is stopped before its process ends, and dies."""
    assert soak.run(1522).violation is None


def test_an_exception_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seed: int) -> None:
        raise KeyError(seed)

    monkeypatch.setattr(soak, "run", fail)
    with pytest.raises(KeyError) as raised:
        soak.main(["--seed", "5"])
    assert raised.value.__notes__ == ["in the run of seed 5"]


def test_one_seed_gives_one_run() -> None:
    assert soak.run(7) == soak.run(7)
    assert draw(7) == draw(7)
    assert soak.run(7) != soak.run(8)


def test_the_seeds_cover_every_kind_of_action() -> None:
    plans = [draw(seed) for seed in range(1, 101)]
    kinds = {type(action).__name__ for plan in plans for action in plan.actions}
    assert kinds == {
        "Join", "Leave", "Part", "Heal", "Stop", "Continue", "Crash", "Restart", "Roam", "Subscribe",
        "Unsubscribe", "Publish", "Dismiss", "Move", "Depart", "SetWill", "Suspend", "Wake",
        "Succeed", "Replay", "FillDisk", "Exhaust", "FailDisk", "MendDisk", "LosePower", "Falter",
        "Impersonate", "FailSync", "FlipBit",
    }  # fmt: skip
    assert {plan.paths.loss for plan in plans} == {0.0, 0.01, 0.1, 0.3}
    assert {plan.bandwidth_bps for plan in plans} == {None, 2_000_000, 20_000_000}
    assert min(len(plan.nodes) for plan in plans) == 1
    assert max(len(plan.nodes) for plan in plans) > 20
    messages = [action for plan in plans for action in plan.actions if isinstance(action, Publish)]
    assert {message.qos for message in messages} == {0, 1, 2}
    assert {message.size for message in messages if message.retain} == {0, 20, 200, 2_000, 20_000}
    assert {message.expiry for message in messages} == {None, 1, 3, 10, 60}
    queues = [action.queue for plan in plans for action in plan.actions if isinstance(action, Subscribe)]
    assert {queue.overflow for queue in queues} == set(Overflow)
    assert {queue.messages for queue in queues} == {0, 1, 5, 30}
    assert {credit for plan in plans for credit in plan.credits.values()} == {1, 4, 30}
    assert {pace for plan in plans for pace in plan.paces.values()} == {TRICKLE, *STEADY}
    assert {plan.queue_messages for plan in plans} == {0, *QUEUES}
    again = [action for plan in plans for action in plan.actions if isinstance(action, Restart)]
    assert {action.clock_step_s for action in again} == {0, *STEPS}


def test_queues_and_expiry_do_not_change_the_rest_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [draw(seed) for seed in SEEDS]
    monkeypatch.setattr(drawing, "draw_queues", lambda random, clients, actions: ({}, actions))
    monkeypatch.setattr(drawing, "draw_expiries", lambda random, actions: actions)
    assert [draw(seed) for seed in SEEDS] == [without_queues_and_expiry(plan) for plan in drawn]


def without_queues_and_expiry(plan: Plan) -> Plan:
    def stripped(action: Action) -> Action:
        if isinstance(action, Publish):
            return replace(action, expiry=None)
        return replace(action, queue=USUAL) if isinstance(action, Subscribe) else action

    return replace(
        plan, credits=dict.fromkeys(plan.paces, SLOW_CREDIT), actions=tuple(map(stripped, plan.actions))
    )


@pytest.mark.parametrize("variant", [v for v in CONTROL if v.name in SHOWS_SOON], ids=lambda v: v.name)
def test_a_defect_is_found_by_the_invariant_that_it_breaks(
    variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*variant.patch())
    verdicts = (soak.run(seed) for seed in SEEDS)
    found = next((verdict for verdict in verdicts if verdict.violation is not None), None)
    assert found is not None, "nothing was found"
    assert found.violation is not None
    assert found.violation.invariant is variant.breaks, soak.report(found)


@pytest.mark.parametrize("variant", [v for v in CONTROL if v.plan is not draw], ids=lambda v: v.name)
def test_a_defect_of_the_state_files_is_found(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [variant.plan(seed) for seed in TEARS]
    assert [Trial(plan).run().violation for plan in plans] == [None] * len(plans)
    monkeypatch.setattr(*variant.patch())
    violations = [Trial(plan).run().violation for plan in plans]
    assert {violation.invariant for violation in violations if violation is not None} == {variant.breaks}


@pytest.mark.parametrize("variant", CONTROL, ids=lambda v: v.name)
def test_a_defect_replaces_an_attribute_of_the_product(variant: Variant) -> None:
    owner, attribute, _ = variant.patch()
    assert hasattr(owner, attribute)


def test_each_defect_of_the_core_is_tried() -> None:
    declared = (PROJECT / "hbroker/native/src/broken.rs").read_text().partition("const ALL")[2]
    assert {variant.defect for variant in CORE} == set(re.findall(r"Self::(\w+),", declared))


def test_the_core_contains_no_defects() -> None:
    assert b"HBROKER_BROKEN" not in Path(_native.__file__).read_bytes()


def test_a_failure_is_reported_with_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnerSubscriptions, "_restore", lambda self, subscription: None)
    seed = next(seed for seed in SEEDS if soak.run(seed).violation is not None)
    ran = CliRunner().invoke(soak.main, ["--seed", str(seed), "--jobs", "1"])
    assert ran.exit_code == soak.FAILED
    told = ran.stdout
    assert f"python -m hbroker.sim.soak --seed {seed}" in told
    assert "VIOLATION: an owner has every subscription" in told
    assert "node n1" in told


def test_the_progress_is_printed_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "EVERY_S", 0.0)
    ran = CliRunner().invoke(soak.main, ["--seeds", "7-8", "--jobs", "1"])
    assert ran.exit_code == 0
    assert ran.stderr.splitlines() == ["2 runs: seeds 7 to 8", "1/2, 0 failed", "2/2, 0 failed"]
    monkeypatch.undo()
    ran = CliRunner().invoke(soak.main, ["--seed", "7", "--jobs", "1"])
    assert ran.exit_code == 0
    assert ran.stderr.splitlines() == ["1 run: seed 7"]
