"""The launcher's decisions in virtual time: when it starts, asks and kills a process."""

from __future__ import annotations

import signal
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker.runtime.launcher.supervisor import (
    FIRST_PAUSE,
    GATEWAY_TIMEOUT,
    GRACE,
    JITTER,
    LONGEST_PAUSE,
    RAN_WELL,
    STORED_GRACE,
    TRANSITIONS,
    Action,
    Backoff,
    Event,
    Signal,
    Start,
    State,
    Supervisor,
)

NAMES = ["root", "kitchen", "bedroom"]


def actions(supervisor: Supervisor) -> list[Action]:
    done = []
    while (action := supervisor.poll_action()) is not None:
        done.append(action)
    return done


def serving(now: float = 0.0) -> Supervisor:
    supervisor = Supervisor(dict.fromkeys(NAMES), now, Random(7))
    supervisor.handle_timeout(now)
    actions(supervisor)
    for name in NAMES:
        supervisor.handle_ready(now, name)
    return supervisor


def start_all(supervisor: Supervisor) -> None:
    """Starts the processes level by level. All of them serve."""
    while not supervisor.all_in(State.SERVING):
        supervisor.handle_timeout(0.0)
        for action in actions(supervisor):
            supervisor.handle_ready(0.0, action.name)


def test_nodes_without_parents_are_started_together() -> None:
    supervisor = Supervisor(dict.fromkeys(NAMES), 5.0, Random(7))
    assert supervisor.poll_timeout() == 5.0
    supervisor.handle_timeout(5.0)
    assert actions(supervisor) == [Start(name) for name in NAMES]
    assert supervisor.all_in(State.AWAITING_READY)
    assert supervisor.poll_timeout() is None


HOUSE = {"root": None, "outside": "root", "kitchen": "root", "securitycams": "outside"}


def test_a_node_is_first_started_once_its_parent_serves() -> None:
    supervisor = Supervisor(HOUSE, 0.0, Random(7))
    started = []
    for _ in range(3):
        supervisor.handle_timeout(0.0)
        wave = [action.name for action in actions(supervisor)]
        assert supervisor.poll_timeout() is None
        for name in wave:
            supervisor.handle_ready(0.0, name)
        started.append(wave)
    assert started == [["root"], ["outside", "kitchen"], ["securitycams"]]
    assert supervisor.all_in(State.SERVING)


def test_a_child_waits_on_if_its_parent_ends_before_it_serves() -> None:
    supervisor = Supervisor(HOUSE, 0.0, Random(7))
    supervisor.handle_timeout(0.0)
    supervisor.handle_exit(0.1, "root")
    assert supervisor.state("outside") is State.AWAITING_PARENT
    supervisor.stop(0.2)
    assert supervisor.all_in(State.ENDED)


def test_children_stay_up_when_their_parent_is_started_again() -> None:
    supervisor = Supervisor(HOUSE, 0.0, Random(7))
    for _ in range(3):
        supervisor.handle_timeout(0.0)
        for action in actions(supervisor):
            supervisor.handle_ready(0.0, action.name)
    supervisor.handle_exit(1.0, "outside")
    supervisor.handle_timeout(9.0)
    assert actions(supervisor) == [Start("outside")]
    supervisor.handle_ready(9.1, "outside")
    assert actions(supervisor) == []
    assert supervisor.state("securitycams") is State.SERVING


def test_a_node_that_ends_is_started_again_after_a_pause() -> None:
    supervisor = serving()
    pause = supervisor.handle_exit(100.0, "kitchen")
    assert pause is not None
    assert FIRST_PAUSE * (1 - JITTER) <= pause <= FIRST_PAUSE * (1 + JITTER)
    supervisor.handle_timeout(100.0 + pause - 0.001)
    assert actions(supervisor) == []
    assert supervisor.poll_timeout() == 100.0 + pause
    supervisor.handle_timeout(100.0 + pause)
    assert actions(supervisor) == [Start("kitchen")]
    assert supervisor.restarts("kitchen") == 1
    assert supervisor.restarts("root") == 0


def test_the_pause_grows_with_every_failure_up_to_a_bound() -> None:
    backoff = Backoff(Random(3))
    pauses = [backoff.after_failure(0.0) for _ in range(40)]
    for attempt, pause in enumerate(pauses):
        period = min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE)
        assert period * (1 - JITTER) <= pause <= period * (1 + JITTER)
    assert len(set(pauses)) == len(pauses)


def test_the_pause_is_reset_after_a_long_run() -> None:
    backoff = Backoff(Random(3))
    for _ in range(8):
        backoff.after_failure(0.0)
    assert backoff.after_failure(RAN_WELL - 0.1) > FIRST_PAUSE * 4
    assert backoff.after_failure(RAN_WELL) <= FIRST_PAUSE * (1 + JITTER)


def test_nodes_that_end_together_are_started_again_at_different_times() -> None:
    supervisor = serving()
    assert len({supervisor.handle_exit(1.0, name) for name in NAMES}) == len(NAMES)


def test_stop_asks_all_processes_and_then_kills_the_remaining_ones() -> None:
    supervisor = serving()
    supervisor.stop(50.0)
    assert actions(supervisor) == [Signal(name, signal.SIGTERM) for name in NAMES]
    assert supervisor.handle_exit(50.1, "root") is None
    assert supervisor.poll_timeout() == 50.0 + GRACE
    supervisor.handle_timeout(50.0 + GRACE)
    assert actions(supervisor) == [Signal("kitchen", signal.SIGKILL), Signal("bedroom", signal.SIGKILL)]
    supervisor.handle_exit(52.1, "kitchen")
    supervisor.handle_exit(52.1, "bedroom")
    assert supervisor.all_in(State.ENDED)
    assert supervisor.poll_timeout() is None


def test_a_parent_is_asked_to_end_once_its_children_have_ended() -> None:
    supervisor = Supervisor(HOUSE, 0.0, Random(7))
    start_all(supervisor)
    supervisor.stop(1.0)
    waves = []
    while not supervisor.all_in(State.ENDED):
        wave = [
            action.name for action in actions(supervisor) if action == Signal(action.name, signal.SIGTERM)
        ]
        for name in wave:
            supervisor.handle_exit(1.1, name)
        waves.append(wave)
        assert wave
    assert waves == [["kitchen", "securitycams"], ["outside"], ["root"]]


def test_a_node_that_keeps_what_it_has_is_not_asked_to_hand_it_back() -> None:
    supervisor = Supervisor(HOUSE, 0.0, Random(7), in_place={"root", "kitchen"})
    start_all(supervisor)
    supervisor.stop(1.0)
    told = []
    for name in ("securitycams", "kitchen", "outside"):
        told += actions(supervisor)
        supervisor.handle_exit(1.0, name)
    told += actions(supervisor)
    asked = {action.name: action.signal for action in told if isinstance(action, Signal)}
    kept, handed_back = signal.SIGUSR1, signal.SIGTERM
    assert asked == {"kitchen": kept, "securitycams": handed_back, "outside": handed_back, "root": kept}


def test_nodes_that_end_in_place_are_told_together_once_all_gateways_have_ended() -> None:
    parents = {**HOUSE, "gateway": "root"}
    supervisor = Supervisor(parents, 0.0, Random(7), {"gateway"}, in_place=set(HOUSE))
    start_all(supervisor)
    supervisor.stop(1.0)
    assert actions(supervisor) == [Signal("gateway", signal.SIGTERM)]
    supervisor.handle_exit(1.5, "gateway")
    assert actions(supervisor) == [Signal(name, signal.SIGUSR1) for name in HOUSE]
    assert supervisor.poll_timeout() == 1.0 + STORED_GRACE


def test_a_second_stop_kills_at_once() -> None:
    supervisor = serving()
    supervisor.stop(50.0)
    actions(supervisor)
    supervisor.stop_now()
    assert actions(supervisor) == [Signal(name, signal.SIGKILL) for name in NAMES]


def test_a_node_that_waits_for_its_restart_is_not_started_after_stop() -> None:
    supervisor = serving()
    supervisor.handle_exit(1.0, "kitchen")
    supervisor.stop(1.01)
    assert supervisor.state("kitchen") is State.ENDED
    supervisor.handle_timeout(60.0)
    assert Start("kitchen") not in actions(supervisor)


def test_every_state_can_be_stopped_and_every_process_can_end() -> None:
    assert {state for state, event in TRANSITIONS if event is Event.STOP} == set(State)
    never_started = {State.AWAITING_PARENT, State.AWAITING_START}
    assert {state for state, event in TRANSITIONS if event is Event.EXIT} == set(State) - never_started


def test_a_node_that_left_by_order_is_not_started_again() -> None:
    supervisor = serving()
    supervisor.handle_leave(1.0, "kitchen")
    assert supervisor.handle_exit(2.0, "kitchen") is None
    supervisor.handle_timeout(60.0)
    assert supervisor.state("kitchen") is State.LEFT
    assert Start("kitchen") not in actions(supervisor)
    supervisor.stop(61.0)
    assert supervisor.state("kitchen") is State.ENDED


def test_a_node_that_leaves_during_the_stop_is_awaited() -> None:
    supervisor = serving()
    supervisor.stop(1.0)
    supervisor.handle_leave(1.1, "kitchen")
    assert supervisor.state("kitchen") in (State.AWAITING_CHILDREN, State.AWAITING_EXIT)
    assert supervisor.handle_exit(1.2, "kitchen") is None
    assert supervisor.state("kitchen") is State.ENDED


def test_a_gateway_waits_for_all_nodes_up_to_a_time_limit() -> None:
    """A gateway that resolves topics earlier would find other owners. A node that never becomes ready does
    not stop the gateway."""
    parents = {"root": None, "kitchen": "root", "bedroom": "root", "gateway": "root"}
    for last in ("bedroom", None):
        supervisor = Supervisor(parents, 0.0, Random(7), {"gateway"})
        supervisor.handle_timeout(0.0)
        for name in ("root", "kitchen"):
            supervisor.handle_ready(0.1, name)
            supervisor.handle_timeout(0.1)
        assert Start("gateway") not in actions(supervisor)
        assert supervisor.poll_timeout() == 0.1 + GATEWAY_TIMEOUT
        if last is not None:
            supervisor.handle_ready(0.2, last)
        supervisor.handle_timeout(0.2)
        assert (Start("gateway") in actions(supervisor)) == (last is not None)
        supervisor.handle_timeout(0.1 + GATEWAY_TIMEOUT)
        assert (Start("gateway") in actions(supervisor)) == (last is None)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["exit", "ready", "time", "stop"]), st.integers(0, 2)), max_size=60)
)
def test_no_process_is_started_twice_and_none_is_left(steps: list[tuple[str, int]]) -> None:
    """A model of the processes: random events, and then a stop. No process remains."""
    now = 0.0
    supervisor = Supervisor({"root": None, "kitchen": "root", "bedroom": "kitchen"}, now, Random(1))
    alive: dict[str, bool] = {}
    """Running processes, and whether each has reported that it is ready."""

    def act() -> None:
        for action in actions(supervisor):
            match action:
                case Start(name=name):
                    assert name not in alive
                    alive[name] = False
                case Signal(name=name, signal=signal.SIGKILL):
                    del alive[name]
                    supervisor.handle_exit(now, name)
                case Signal(name=name):
                    assert name in alive

    supervisor.handle_timeout(now)
    act()
    for event, choice in [*steps, ("stop", 0), ("time", 2)]:
        name = NAMES[choice]
        if event == "exit" and name in alive:
            del alive[name]
            supervisor.handle_exit(now, name)
        elif event == "ready" and alive.get(name) is False:
            alive[name] = True
            supervisor.handle_ready(now, name)
        elif event == "time":
            now += 0.05 if choice < 2 else GRACE
            supervisor.handle_timeout(now)
        elif event == "stop":
            supervisor.stop(now)
        act()
    assert alive == {}
    assert supervisor.all_in(State.ENDED)
