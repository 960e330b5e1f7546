//! A subtree moves to another node, with what its sessions have there (§5.4).
//!
//! `queued` moves all at once, `copying` while the subtree is served, and `given_up` begins a move and stops it.
//! `barrier` has what is on its way between workers, `adoption` the links of the next run. What the cores of both
//! owners do is here.

mod adoption;
mod barrier;
pub mod copying;
mod given_up;
pub mod queued;

use crate::Micros;
use crate::engine::Engine;
use crate::engine::handover::held_queues::{HeldQueue, HeldQueues};
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::tests::network::{MILLISECOND, Network};
use crate::topic::Region;
use crate::wire::Transfers;

pub type Records = Vec<Vec<u8>>;

/// What `Core` does with its workers at the old owner.
pub fn export<'a>(network: &mut Network, node: usize, region: impl Into<Region<'a>>) -> (Records, Records) {
    let region = region.into();
    raise_barrier(network, node, 1, region.subtree);
    while !has_passed(network, node, 1) {
        network.run(MILLISECOND);
    }
    let now = network.now;
    let engines = &mut network.hosts[node].engines;
    engines.iter_mut().for_each(|engine| engine.refuse_open(now, region));
    let queued = engines.iter_mut().flat_map(|engine| export_queued(engine, now, region)).collect();
    let seen = engines.iter_mut().flat_map(|engine| engine.export_seen(now)).collect();
    assert_eq!(unanswered_within(network, node, region), 0);
    (queued, seen)
}

/// Takes out at once what moves with a region, without a copy before: a TRANSFER for each message.
pub fn export_queued<'a>(engine: &mut Engine, now: Micros, region: impl Into<Region<'a>>) -> Records {
    let (held_queues, gone) = engine.finish_export(now, 0, region.into());
    assert_eq!(gone, []);
    let each = |held_queue: &HeldQueue, queued_message: &QueuedMessage| {
        let mut out = Transfers::default();
        held_queue.send(std::iter::once(queued_message), &mut out);
        out.into_all().concat()
    };
    held_queues
        .iter()
        .flat_map(|held_queue| held_queue.left_from(0).map(|queued_message| each(held_queue, queued_message)))
        .collect()
}

pub fn raise_barrier(network: &mut Network, node: usize, number: u64, subtree: &str) {
    network.hosts[node].engines.iter_mut().for_each(|engine| engine.raise_barrier(number, subtree));
}

pub fn has_passed(network: &Network, node: usize, number: u64) -> bool {
    network.hosts[node].engines.iter().all(|engine| engine.has_passed(number))
}

fn unanswered_within<'a>(network: &mut Network, node: usize, region: impl Into<Region<'a>>) -> usize {
    let region = region.into();
    network.hosts[node].engines.iter_mut().map(|engine| engine.unanswered_within(region)).sum()
}

/// And at the new one. How many records found no session or no room.
pub fn import(network: &mut Network, node: usize, queued: &Records, seen: &Records) -> usize {
    let mut held = HeldQueues::default();
    queued.iter().for_each(|transfer| assert_eq!(held.take(transfer, usize::MAX), (0, 0)));
    held.seen.clone_from(seen);
    install(network, node, held)
}

/// How many found no session or no room.
pub fn install(network: &mut Network, node: usize, held: HeldQueues) -> usize {
    let now = network.now;
    let engines = &mut network.hosts[node].engines;
    engines.iter_mut().for_each(|engine| engine.import_seen(now, &held.seen));
    let mut left = 0;
    for held_queue in held.queues {
        let home = engines.iter().position(|engine| engine.session_key(held_queue.session).is_some());
        left += home.map_or(held_queue.len(), |home| engines[home].install(now, vec![held_queue]));
    }
    left
}

/// A persistent session at a node with a subscription, for a client that has a link there or not.
pub fn subscribe_persistently(network: &mut Network, client: usize, node: usize, filter: &str) {
    network.connect(client, node);
    network.open_session(client, node, true);
    network.subscribe(client, node, filter, 2, false);
}

pub fn leave(network: &mut Network, client: usize, node: usize) {
    network.close(node, client);
    network.close(client, client);
}
