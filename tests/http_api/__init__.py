"""The HTTP API: its parts, and real requests to `hbroker admin` of a real network.

api              the fixture: a network with its API, and tokens for it
dashboard        the dashboard, in a browser
test_access      who may call what
test_routes      what the routes do
test_paging, test_live_network, test_metrics    parts
"""
