"""The HTTP API of a network, and its dashboard (docs/http-api.md, ADR 41): the extra `admin`.

    server              the process: uvicorn, until it is told to end
    application         the application: all routes, who may call them, and their description
    middleware/         what happens to each request before its route
    routes/             what each route does
    models/             what requests and responses contain
    dashboard/          the page: HTML, CSS and ES modules
    context             what the routes need: the network, and how to reach it
    moves, plans        moves of subtrees, and plans, that were begun here
    caller_clients      clients of the network with the tokens of callers
    signing             tokens that are made for callers
    paging              lists in pages
    problems            errors as responses

`application` imports the routes, and these import the rest. `problems` imports none of them.
"""
