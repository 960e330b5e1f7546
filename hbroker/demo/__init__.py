"""`make demo`: a house of six brokers on this machine, live for about ten seconds.

`house` runs the programs that are already there (`hbroker up`, `capture`, `tree`, `resolve`), `devices`
makes the readings, `life` publishes and watches them, `display` shows how far it is, `report` says what
came of it. Needs the extras `demo` and `capture`.
"""
