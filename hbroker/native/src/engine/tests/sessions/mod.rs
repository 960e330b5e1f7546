//! Sessions that stall, go away and come back, and what becomes of their messages (§6.4, §7.3, §7.7, §7.8).
//!
//! ```text
//! absence, stalls, restarts    who answers nothing, or not enough, and who comes back over another link
//! groups                       what was a member's goes to another
//! bounds, memory, connected    how much may wait: for a session, for those that are offline, for the others
//! host_limits, idle            how many links and sessions a node takes, and how little an idle one takes
//! storing                      what the store has survives a loss of power
//! unclaimed                    what comes before an application asks for it
//! lives                        all of this in any order
//! ```

mod absence;
mod bounds;
mod connected;
mod groups;
mod host_limits;
mod idle;
mod lives;
mod memory;
mod restarts;
mod stalls;
mod storing;
mod unclaimed;

use std::collections::HashMap;

use crate::Micros;
use crate::engine::Engine;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::session::{Session, Status};
use crate::engine::sessions::table::CHECK_INTERVAL;
use crate::engine::tests::network::{MILLISECOND, Network, credit_field, message};
use crate::engine::transport::outbound::Outbound;
use crate::link_id::LinkId;
use crate::prefix::Prefix;
use crate::tables::subscriber::Subscriber;

/// The bounds of a queue that the node's settings give.
pub const OWN: Bounds = Bounds { messages: 0, bytes: 0 };

/// A client whose session outlives its links, subscribed at a node.
pub fn add_persistent(network: &mut Network, node: usize, filter: &str, qos: u8, bounds: Bounds) -> usize {
    let client = network.add_client();
    network.listen(client, 1, filter, qos);
    network.connect(client, node);
    let session = network.open_bounded(client, node, true, bounds);
    subscribe(network, node, filter, "", Subscriber::new(session, qos));
    client
}

/// Subscribes a session with every worker of a node.
pub fn subscribe(network: &mut Network, node: usize, filter: &str, group: &str, subscriber: Subscriber) {
    for engine in &mut network.hosts[node].engines {
        assert!(engine.subscribe(filter, group, subscriber).is_some());
    }
}

/// What a node tells of a client's session.
pub fn status(network: &Network, node: usize, client: usize) -> Status {
    let session = network.hosts[client].session;
    let mut all = network.hosts[node].engines.iter().flat_map(|engine| engine.sessions(usize::MAX));
    all.find(|status| status.session == session).expect("the session is there")
}

/// How many messages for a session were dropped for this reason.
pub fn dropped(status: &Status, why: &str) -> u64 {
    status.session_counters.dropped().find(|(name, _)| *name == why).map_or(0, |(_, count)| count)
}

/// Ends the link at both its ends, if there is one.
pub fn go_offline(network: &mut Network, node: usize, client: usize) {
    let (now, session) = (network.now, network.hosts[client].session);
    for engine in &mut network.hosts[node].engines {
        engine.out.links.by_session(session).into_iter().for_each(|link| engine.close(now, link));
    }
    let link = link_to(network, client, node);
    link.into_iter().for_each(|link| network.hosts[client].engines[0].close(now, link));
    network.run(10 * MILLISECOND);
}

/// A client's link to a node.
pub fn link_to(network: &Network, client: usize, node: usize) -> Option<LinkId> {
    network.hosts[client].engines[0].out.links.by_address(network.hosts[node].address)
}

/// A client grants a node credit for so many messages more.
pub fn grant(network: &mut Network, client: usize, node: usize, messages: u32, bytes: u64) {
    let field = credit_field(messages, bytes, false);
    let link = link_to(network, client, node).expect("it is connected");
    assert!(network.hosts[client].engines[0].out.queue_control(link, field.into()));
}

/// Publishes, one message a millisecond.
pub fn publish_many(network: &mut Network, publisher: usize, count: u64, qos: u8) {
    publish_together(network, publisher, count, 1, qos);
}

/// Publishes, so many messages a millisecond.
pub fn publish_together(network: &mut Network, publisher: usize, count: u64, together: u64, qos: u8) {
    for number in 1..=count {
        network.publish(publisher, &message("a/b", b"x", qos));
        if number.is_multiple_of(together) {
            network.run(MILLISECOND);
        }
    }
}

/// What must hold of a node's sessions at any time.
pub fn check(network: &Network, node: usize) {
    check_places(network, node);
    for engine in &network.hosts[node].engines {
        for session in engine.out.sessions.iter() {
            assert!(
                session.is_ready() || session.tickets() == 0,
                "who is offline or stalled holds nobody up"
            );
            let (messages, bytes) = session.credit_used();
            assert!(messages <= 65_536 && bytes <= 64 << 20);
        }
        let waits = |session: &Session| if session.is_ready() { 0 } else { session.queue.bytes() };
        let offline: usize = engine.out.sessions.iter().map(waits).sum();
        assert_eq!(engine.out.sessions.offline_bytes(), offline);
        assert!(offline <= engine.config.queue_memory / engine.workers as usize / 2 + 1);
        let (session_counters, queued) = engine.balance();
        assert_eq!(session_counters.open(), queued, "{session_counters:?}");
        check_shares(engine, network.now);
    }
    let engines = &network.hosts[node].engines;
    if engines.iter().all(|engine| engine.out.handoffs.is_empty()) {
        let full_sessions = &engines[0].out.full_sessions;
        assert!(
            engines.iter().all(|engine| engine.out.full_sessions == *full_sessions),
            "every worker knows which sessions are full"
        );
    }
}

/// The charges of connected sessions count for their hosts, exactly if no check of the session is due. Each
/// check also decides anew whether the session is full.
fn check_shares(engine: &Engine, now: Micros) {
    let Outbound { sessions, full_sessions, .. } = &engine.out;
    let (mut sum, mut hosts) = (0, HashMap::<Prefix, usize>::new());
    for session in sessions.iter() {
        let (counted, held) = (session.counted_bytes(), session.shared_bytes());
        if session.is_watched {
            assert!(sessions.next_check() <= now + CHECK_INTERVAL);
        } else {
            assert_eq!((counted, session.is_capped), (held, false), "no check is due");
        }
        sum += counted;
        if counted > 0 {
            *hosts.entry(session.counted_for().expect("it has had a link")).or_default() += counted;
        }
    }
    let shares = sessions.connected();
    assert_eq!(shares.used(), sum);
    assert!(hosts.iter().all(|(&host, &held)| shares.held(host) == held), "{hosts:?}");
    let is_its = |session: &&Session| full_sessions.has(session.key());
    let own: Vec<&Session> = sessions.iter().filter(is_its).collect();
    assert!(own.iter().all(|session| session.is_watched && session.is_capped && session.link.is_some()));
    assert!(engine.workers > 1 || full_sessions.len() == own.len(), "a session that is gone is not full");
}

/// Every link that a client opened counts for its host, and so does every session that is offline.
fn check_places(network: &Network, node: usize) {
    let engines = &network.hosts[node].engines;
    let links = engines.iter().flat_map(|engine| engine.out.links.iter()).filter(|place| place.inbound());
    let offline = engines.iter().flat_map(|engine| engine.out.sessions.iter());
    let offline: Vec<_> = offline.filter(|session| session.link.is_none()).map(Session::host).collect();
    // The host of a restored session is not known before its client is back.
    let unknown = offline.iter().filter(|host| host.is_none()).count();
    let mut places: HashMap<Prefix, usize> = HashMap::new();
    for host in links.map(|place| place.address().ip().into()).chain(offline.into_iter().flatten()) {
        *places.entry(host).or_default() += 1;
    }
    let hosts = &engines[0].shared.hosts;
    assert_eq!(hosts.all(), places.values().sum::<usize>() + unknown);
    assert!(places.iter().all(|(&host, &count)| hosts.of(host) == count), "{places:?}");
}

/// What is left when repetitions are dropped.
pub fn firsts(sequences: &[u64]) -> Vec<u64> {
    let mut seen = std::collections::BTreeSet::new();
    sequences.iter().copied().filter(|&sequence| seen.insert(sequence)).collect()
}
