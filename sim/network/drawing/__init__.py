"""The plan of a seed. Each folder and module below draws one part of it.

    nodes/               the nodes and their subtrees, which pass from one node to another
    clients/             what clients do: subscriptions, messages, sessions, wills
    failures/            what fails: paths, hosts, clocks, disks
    attacks, impostors   replayed packets, and clients that publish under another client's publisher id

`clients` and `failures` import `nodes`. All import the actions or the plan of `hbroker.sim.network`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from ..actions import Action, Join
from ..plan import SECOND, Plan
from .attacks import draw_attacks
from .clients.expiry import draw_expiries
from .clients.groups import draw_groups
from .clients.paces import SLOW_CREDIT, draw_paces
from .clients.queues import draw_for_many, draw_queues
from .clients.sessions import draw_sessions
from .clients.traffic import draw_messages, draw_subscriptions, handovers
from .clients.wills import draw_wills
from .failures.clocks import draw_clocks
from .failures.disks import draw_disks, draw_store_faults, draw_stores
from .failures.faults import draw_faults, draw_paths, draw_suspensions
from .failures.waiting import draw_waiting
from .impostors import draw_impostors
from .nodes.hierarchy import draw_nodes
from .nodes.moves import draw_moves
from .nodes.returns import draw_returns
from .nodes.successions import draw_successions

__all__ = ["draw"]

SEALED: Final = 0.5
"""The share of runs whose datagrams are sealed."""
WITH_TOKENS: Final = 0.5
"""The share of these in which clients show tokens."""


def draw(seed: int) -> Plan:
    """The plan of a seed.

    A part that is drawn from a generator of its own leaves the rest of the plan unchanged.
    """
    random = Random(seed)
    nodes = draw_nodes(random)
    late = {n.name for n in nodes[1:] if random.random() < random.choice((0.0, 0.2, 0.5))}
    clients = tuple(f"p{n}" for n in range(random.choice((1, 1, 2, 2, 3, 4, 5))))
    clients += tuple(f"s{n}" for n in range(random.choice((1, 2, 2, 3, 3, 4, 5, 7))))
    owned = random.sample(nodes, min(len(nodes), 8))
    topics = tuple(sorted({f"{n.subtree or 'other'}/t{random.randint(0, 1)}" for n in owned}))
    length = random.randint(5, 45) * SECOND
    actions: list[Action] = [Join(random.randrange(length), name) for name in sorted(late)]
    actions += draw_faults(random, nodes, clients, length)
    actions += draw_subscriptions(random, clients, topics, length, handovers(actions))
    actions += draw_messages(random, clients, topics, length)
    actions += draw_suspensions(Random(f"{seed} suspensions"), nodes, length)
    actions += draw_moves(Random(f"{seed} moves"), nodes, topics, length)
    expiries, absences = draw_sessions(Random(f"{seed} sessions"), clients, length)
    actions += absences
    members, meetings = draw_groups(Random(f"{seed} groups"), topics, length)
    actions += [*meetings, *draw_impostors(Random(f"{seed} impostors"), clients, topics, length)]
    actions += draw_wills(Random(f"{seed} wills"), clients, topics, length)
    paths, actions = draw_successions(
        Random(f"{seed} successions"), nodes, clients, topics, draw_paths(random), actions
    )
    paces, queue_messages, paths, actions = draw_paces(
        Random(f"{seed} paces"), clients, topics, length, paths, actions
    )
    nodes, paths, actions = draw_disks(Random(f"{seed} disks"), nodes, clients, topics, paths, actions)
    waiting, paths, actions = draw_waiting(
        Random(f"{seed} waiting"), nodes, late, clients, topics, paths, actions
    )
    if not waiting:
        paths, actions = draw_returns(Random(f"{seed} returns"), nodes, late, clients, topics, paths, actions)
    nodes = draw_stores(Random(f"{seed} stores"), nodes)
    actions = [*actions, *draw_store_faults(Random(f"{seed} store faults"), nodes, actions)]
    credits, actions = draw_queues(Random(f"{seed} queues"), clients, actions)
    actions = draw_expiries(Random(f"{seed} expiry"), actions)
    actions = draw_clocks(Random(f"{seed} clocks"), nodes, actions)
    join_key, attacks = draw_attacks(Random(f"{seed} attacks"), length)
    actions += attacks
    plan = Plan(
        seed,
        tuple(nodes),
        tuple(n.name for n in nodes if n.name not in late),
        (*clients, *members, *waiting),
        expiries | {name: expiry for name, expiry in members.items() if expiry} | waiting,
        topics,
        paths,
        random.choice((None, None, None, 2_000_000, 20_000_000)),
        tuple(sorted(actions, key=lambda action: action.at)),
        credits | dict.fromkeys(paces, SLOW_CREDIT),
        join_key,
        paces,
        queue_messages,
        draw_for_many(Random(f"{seed} many"), clients),
    )
    return _with_security(plan)


def _with_security(plan: Plan) -> Plan:
    is_sealed = Random(f"{plan.seed} security").random() < SEALED
    requires_tokens = is_sealed and Random(f"{plan.seed} tokens").random() < WITH_TOKENS
    return replace(plan, is_sealed=is_sealed, requires_tokens=requires_tokens)
