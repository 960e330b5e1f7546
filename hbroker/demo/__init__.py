"""`make demo`: a house of six brokers on this machine, for about ten seconds.

    __main__   the demo, from begin to end
    house      its processes: `hbroker up`, the capture, `tree`, `resolve`
    devices    simulated devices, and readings of this machine
    life       publishes the readings, and counts what watchers receive
    display    progress on a terminal
    report     the results

`__main__` imports all others; `life` imports `devices`; `display` and `report` import types of `life`, and
`report` also of `house`. It needs the extras `demo` and `capture`.
"""
