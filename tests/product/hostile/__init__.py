"""Floods, forgeries and replays at real nodes.

    test_control_flood, test_fair_control              more requests than a node can answer
    test_strangers, test_hostile_datagrams, test_hostile_sessions   peers without a session, and with one
    test_recorded_datagrams, test_recorded_sessions    what an attacker recorded (`sniffed`), and sends again

Beside them an honest publisher and subscriber lose nothing (`loss_check`).
"""
