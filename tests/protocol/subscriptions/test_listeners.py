"""Many listeners with few different options."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hbroker.protocol.subscriptions.client.options import Listeners, Options

STEPS = st.lists(st.tuples(st.integers(0, 5), st.none() | st.builds(Options, qos=st.integers(0, 2))))


@given(STEPS)
def test_listeners_agree_with_a_dictionary(steps: list[tuple[int, Options | None]]) -> None:
    listeners, plain = Listeners(), dict[int, Options]()
    for listener, options in steps:
        if options is not None:
            listeners[listener] = plain[listener] = options
        elif listener in plain:
            del listeners[listener], plain[listener]
        assert dict(listeners) == plain
        assert set(listeners.kinds) == set(plain.values())
        assert len(listeners) == len(plain)
