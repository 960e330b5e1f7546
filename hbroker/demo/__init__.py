"""`make demo`: a house of six brokers on this machine, for about ten seconds.

    __main__   the demo, from begin to end
    house      its processes: `hbroker up`, `sim`, the capture, `tree`, `resolve`
    report     the packets between brokers

`__main__` imports both; `report` imports a type of `house`. It needs the extra `capture`.
"""
