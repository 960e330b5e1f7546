//! Associations over a path that loses, repeats, reorders and changes datagrams, and that others write to.

mod admission;
mod probes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Micros;
use crate::association::credentials::{Credentials, Identity, NODE_NAME};
use crate::association::packet::{self, OVERHEAD, SEALED_HEADER, Segment};
use crate::association::table::{Destination, Shared};
use crate::association::worker::Associations;
use crate::token::TokenKeys;

const MS: Micros = 1_000;
const SECOND: Micros = 1_000_000;
const BEGIN: Micros = 1_800_000_000 * SECOND;
const NODE: u16 = 7_700;
const PATIENCE: Duration = Duration::from_secs(30);

/// An authority, and what it has signed.
struct Authority {
    certificate: CertificateDer<'static>,
    identities: BTreeMap<&'static str, (CertificateDer<'static>, Vec<u8>)>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, &key);
        let identities = ["kitchen", "attic", "client"].map(|name| {
            let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
            let names = if name == "client" { vec![] } else { vec![NODE_NAME.to_owned()] };
            let params = CertificateParams::new([vec![name.to_owned()], names].concat()).unwrap();
            (name, (params.signed_by(&key, &issuer).unwrap().der().clone(), key.serialize_der()))
        });
        Self { certificate, identities: identities.into() }
    }

    fn identity(&self, name: &str) -> Identity {
        let (certificate, key) = &self.identities[name];
        (vec![certificate.clone()], PrivateKeyDer::try_from(key.clone()).unwrap())
    }

    fn credentials(&self, name: Option<&str>) -> Credentials {
        let identity = name.map(|name| self.identity(name));
        Credentials::new(vec![self.certificate.clone()], identity).unwrap()
    }
}

/// The network's authority, and one of another network.
fn authorities() -> &'static [Authority; 2] {
    static MADE: OnceLock<[Authority; 2]> = OnceLock::new();
    MADE.get_or_init(|| [Authority::new(), Authority::new()])
}

pub fn node() -> Credentials {
    authorities()[0].credentials(Some("kitchen"))
}

pub fn client() -> Credentials {
    // A client with a certificate would answer handshakes, too: its configuration has one.
    authorities()[0].credentials(None)
}

struct End {
    associations: Associations,
    shared: Arc<Shared>,
    opened: Vec<Vec<u8>>,
}

impl End {
    fn new(credentials: Credentials, seed: u64) -> Self {
        let keys = TokenKeys::new(vec![[seed as u8; 16]]);
        let shared = Arc::new(Shared::new(credentials, keys, 1_000, 1_000, seed));
        let associations = Associations::new(Arc::clone(&shared), 0);
        Self { associations, shared, opened: Vec::new() }
    }
}

/// Ends by their ports, and what is between them.
struct Net {
    now: Micros,
    ends: BTreeMap<u16, End>,
    /// Datagrams that are under way: source, destination, bytes.
    flying: Vec<(u16, u16, Vec<u8>)>,
    seen: Vec<(u16, u16, Vec<u8>)>,
}

fn address(port: u16) -> SocketAddr {
    ([192, 0, 2, 1], port).into()
}

impl Net {
    fn new(ends: impl IntoIterator<Item = (u16, Credentials)>) -> Self {
        let ends =
            ends.into_iter().map(|(port, credentials)| (port, End::new(credentials, port.into()))).collect();
        Self { now: BEGIN, ends, flying: Vec::new(), seen: Vec::new() }
    }

    /// A node, and a client.
    fn pair() -> Self {
        Self::new([(NODE, node()), (1, client())])
    }

    fn end(&mut self, port: u16) -> &mut End {
        self.ends.get_mut(&port).unwrap()
    }

    fn send(&mut self, from: u16, to: u16, bytes: &[u8]) {
        let now = self.now;
        let mut buffer = [&[0; SEALED_HEADER][..], bytes].concat();
        if self.end(from).associations.seal(now, &Destination::node(address(to)), &mut buffer, 0) {
            assert_eq!(buffer.len(), bytes.len() + OVERHEAD);
            self.flying.push((from, to, buffer));
        }
        self.collect(from);
    }

    fn collect(&mut self, from: u16) {
        while let Some((to, bytes)) = self.end(from).associations.poll_transmit() {
            self.flying.push((from, to.port(), bytes));
        }
    }

    fn deliver(&mut self, from: u16, to: u16, bytes: &[u8]) {
        let now = self.now;
        let Some(end) = self.ends.get_mut(&to) else {
            return;
        };
        let mut bytes = bytes.to_vec();
        if let Some(opened) = end.associations.handle_datagram(now, address(from), &mut bytes) {
            end.opened.push(opened.to_vec());
        }
        self.collect(to);
    }

    /// Delivers all that is under way, and what that causes.
    fn settle(&mut self) {
        while !self.flying.is_empty() {
            let (from, to, bytes) = self.flying.remove(0);
            self.seen.push((from, to, bytes.clone()));
            self.deliver(from, to, &bytes);
        }
    }

    fn advance(&mut self, by: Micros) {
        self.now += by;
        let ports: Vec<u16> = self.ends.keys().copied().collect();
        for port in ports {
            let now = self.now;
            self.end(port).associations.handle_timeout(now);
            self.collect(port);
        }
    }

    /// Lets time pass until an end has something to do, or for a second.
    fn advance_to_deadline(&mut self) {
        let due = self.ends.values().map(|end| end.associations.poll_timeout()).min().unwrap_or(Micros::MAX);
        self.advance(due.saturating_sub(self.now).min(SECOND));
    }

    fn opened(&mut self, port: u16) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.end(port).opened)
    }
}

#[test]
fn datagrams_pass_in_both_directions_once_there_are_keys() {
    let mut net = Net::pair();
    net.send(1, NODE, b"one");
    net.send(1, NODE, b"two");
    net.settle();
    assert_eq!(net.opened(NODE), [b"one", b"two"]);
    net.send(NODE, 1, b"three");
    net.send(1, NODE, b"four");
    net.settle();
    assert_eq!((net.opened(1), net.opened(NODE)), (vec![b"three".to_vec()], vec![b"four".to_vec()]));
    assert!(!net.seen.iter().any(|(.., bytes)| bytes.windows(4).any(|part| part == b"four")));
    assert!(net.seen.iter().all(|(.., bytes)| bytes.len() <= 1_232), "IPv6 carries it on every path");
    for port in [1, NODE] {
        assert_eq!(net.end(port).shared.len(), 1);
        let counters = net.end(port).associations.counters();
        assert_eq!((counters.handshakes, counters.handshakes_failed), (1, 0));
    }
}

#[test]
fn nodes_prove_themselves_to_each_other() {
    let mut net = Net::new([(NODE, node()), (7_701, node())]);
    net.send(7_701, NODE, b"join");
    net.settle();
    assert_eq!(net.opened(NODE), [b"join"]);
    let expected = authorities()[0].identities["kitchen"].0.to_vec();
    for (port, peer) in [(NODE, 7_701), (7_701, NODE)] {
        assert_eq!(net.end(port).shared.certificate(address(peer)), Some(expected.clone()));
    }
    let mut of_client = Net::pair();
    of_client.send(1, NODE, b"hello");
    of_client.settle();
    assert_eq!(of_client.end(NODE).shared.certificate(address(1)), None);
}

#[test]
fn every_datagram_that_is_sent_again_arrives_over_a_bad_path() {
    for seed in 0..30 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut net = Net::new([(NODE, node()), (1, client()), (2, client()), (7_701, node())]);
        let mut missing: Vec<(u16, u16, Vec<u8>)> = Vec::new();
        for number in 0..40_u8 {
            let (from, to) =
                if number % 2 == 0 { (1 + u16::from(number / 2 % 2), NODE) } else { (7_701, NODE) };
            missing.push((from, to, vec![number; 20]));
        }
        let all = missing.len();
        for _ in 0..3_000 {
            if missing.is_empty() {
                break;
            }
            for _ in 0..3 {
                if let Some((from, to, bytes)) = missing.choose(&mut rng) {
                    net.send(*from, *to, bytes);
                }
            }
            for _ in 0..6 {
                if net.flying.is_empty() {
                    break;
                }
                let index = rng.random_range(0..net.flying.len());
                let (from, to, mut bytes) = net.flying.remove(index);
                match rng.random_range(0..10) {
                    0..3 => continue,
                    3 => net.flying.push((from, to, bytes.clone())),
                    4 => {
                        let at = rng.random_range(0..bytes.len());
                        bytes[at] ^= 1 << rng.random_range(0..8);
                    }
                    _ => {}
                }
                net.deliver(from, to, &bytes);
            }
            net.advance(20 * MS);
            let opened = net.opened(NODE);
            assert!(opened.iter().all(|bytes| bytes.len() == 20), "only what was sent");
            missing.retain(|(_, _, bytes)| !opened.contains(bytes));
        }
        assert!(missing.is_empty(), "seed {seed}: {} of {all} are missing", missing.len());
    }
}

#[test]
fn peers_of_different_authorities_get_no_keys() {
    let [ours, theirs] = authorities();
    for (of_node, of_client) in [
        (ours.credentials(Some("kitchen")), theirs.credentials(None)),
        (node(), theirs.credentials(Some("kitchen"))),
    ] {
        let mut net = Net::new([(NODE, of_node), (1, of_client)]);
        net.send(1, NODE, b"let me in");
        for _ in 0..2_000 {
            net.settle();
            net.advance(10 * MS);
        }
        assert_eq!((net.opened(NODE), net.opened(1)), (vec![], vec![]));
        assert_eq!(net.end(NODE).associations.counters().handshakes, 0);
        assert_eq!((net.end(NODE).shared.len(), net.end(1).shared.len()), (0, 0));
    }
}

/// Nodes that were believed are forgotten, and have to prove themselves again.
#[test]
fn who_is_not_believed_any_more_is_shut_out() {
    let [ours, theirs] = authorities();
    let both = |name| {
        let authorities = vec![ours.certificate.clone(), theirs.certificate.clone()];
        Credentials::new(authorities, Some(theirs.identity(name))).unwrap()
    };
    let mut net = Net::new([(NODE, node()), (7_701, node()), (7_702, node())]);
    for port in [7_701, 7_702] {
        net.send(port, NODE, b"before");
    }
    net.settle();
    for port in [NODE, 7_701] {
        net.end(port).shared.set_credentials(both("kitchen"));
    }
    assert_eq!(net.end(NODE).shared.len(), 2, "the first authority is believed, too");
    net.opened(NODE);
    for port in [NODE, 7_701] {
        net.end(port).shared.set_credentials(theirs.credentials(Some("kitchen")));
    }
    assert_eq!(net.end(NODE).shared.len(), 0);
    for _ in 0..100 {
        for port in [7_701, 7_702] {
            net.send(port, NODE, &port.to_be_bytes());
        }
        net.settle();
        net.advance(100 * MS);
    }
    let opened = net.opened(NODE);
    assert!(opened.contains(&7_701_u16.to_be_bytes().to_vec()));
    assert!(!opened.contains(&7_702_u16.to_be_bytes().to_vec()));
}

/// The handshake began before the credentials were replaced.
#[test]
fn who_proves_itself_with_what_is_not_believed_any_more_is_shut_out() {
    let mut net = Net::new([(NODE, node()), (7_701, node())]);
    net.send(7_701, NODE, b"let me in");
    while net.end(NODE).shared.len() == 0 {
        let (from, to, bytes) = net.flying.remove(0);
        net.deliver(from, to, &bytes);
    }
    net.end(NODE).shared.set_credentials(authorities()[1].credentials(Some("kitchen")));
    net.settle();
    assert_eq!((net.opened(NODE), net.end(NODE).shared.len()), (vec![], 0));
}

/// From then on only clients of the other authority get in. Who is in stays.
#[test]
fn credentials_can_be_changed_while_associations_go_on() {
    let theirs = &authorities()[1];
    let mut net = Net::new([(NODE, node()), (1, client()), (2, client()), (3, theirs.credentials(None))]);
    net.send(1, NODE, b"1");
    net.settle();
    net.end(NODE).shared.set_credentials(theirs.credentials(Some("kitchen")));
    for port in [1, 2, 3] {
        net.send(port, NODE, &[port as u8]);
    }
    for _ in 0..300 {
        net.settle();
        net.advance_to_deadline();
    }
    assert_eq!(net.opened(NODE), [b"1".to_vec(), vec![1], vec![3]]);
}

#[test]
fn a_client_is_no_node() {
    let mut net = Net::new([(NODE, authorities()[0].credentials(Some("client"))), (1, client())]);
    net.send(1, NODE, b"to a node");
    for _ in 0..2_000 {
        net.settle();
        net.advance(10 * MS);
    }
    assert_eq!(net.opened(NODE), Vec::<Vec<u8>>::new());
}

#[test]
fn an_address_that_is_not_proved_gets_no_more_than_it_sent_and_costs_nothing() {
    let mut net = Net::pair();
    net.send(1, NODE, b"hello");
    let (_, _, first) = net.flying.pop().unwrap();
    let mut sent = 0;
    for port in 1_000..3_000 {
        net.deliver(port, NODE, &first);
        sent += first.len();
    }
    let answered: usize = net.flying.iter().map(|(.., bytes)| bytes.len()).sum();
    assert!(answered > 0 && answered * 5 < sent, "{answered} of {sent}");
    assert_eq!(net.end(NODE).shared.len(), 0);
}

#[test]
fn a_node_answers_no_datagram_that_is_shorter_than_its_answer() {
    let mut net = Net::pair();
    for length in 0..180 {
        let segment = Segment { offset: 0, acked: 0, bytes: &vec![22; length] };
        net.deliver(9, NODE, &packet::stream(0, 77, &[], &segment));
    }
    for length in 0..=packet::RESET_BYTES {
        net.deliver(9, NODE, &vec![7; length]);
    }
    assert_eq!(net.flying, []);
}

#[test]
fn who_does_not_answer_gets_two_flights_for_each_datagram_that_is_for_it() {
    let mut net = Net::pair();
    net.ends.remove(&NODE);
    for round in 0..3 {
        net.send(1, NODE, b"is anybody there?");
        let mut flights = 0;
        for _ in 0..100 {
            flights += net.flying.drain(..).count();
            net.advance(20 * MS);
        }
        assert_eq!(flights, 2, "round {round}");
    }
}

/// The source may be forged: what the client sends goes to somebody else.
#[test]
fn a_client_sends_no_stranger_three_times_as_much_as_it_got() {
    for length in [0, 1, 100, 179, 180, 1_000] {
        let mut net = Net::pair();
        let segment = Segment { offset: 0, acked: 0, bytes: &vec![1; length] };
        let greeting = packet::stream(0, 77, &[], &segment);
        (0..3).for_each(|_| net.deliver(5, 1, &greeting));
        let mut sent = 0;
        for _ in 0..500 {
            sent += net.flying.drain(..).map(|(.., bytes)| bytes.len()).sum::<usize>();
            net.advance(20 * MS);
        }
        assert_eq!(sent > 0, length >= 180);
        assert!(sent < 3 * 3 * greeting.len(), "{sent} for 3 times {}", greeting.len());
    }
}

impl Net {
    /// The next run of the node, which has none of its associations. `key`: for address tokens and resets.
    fn restart_node(&mut self, key: u8) {
        let keys = TokenKeys::new(vec![[key; 16]]);
        let credentials = authorities()[0].credentials(Some("attic"));
        let shared = Arc::new(Shared::new(credentials, keys, 1_000, 1_000, 5));
        let associations = Associations::new(Arc::clone(&shared), 0);
        *self.end(NODE) = End { associations, shared, opened: Vec::new() };
    }
}

/// Also if its private key is another one now.
#[test]
fn a_peer_learns_from_a_reset_that_its_keys_are_gone() {
    let mut net = Net::pair();
    net.send(1, NODE, b"before");
    net.settle();
    for (key, is_believed) in [(3, false), (NODE as u8, true)] {
        net.restart_node(key);
        net.send(1, NODE, b"lost with the keys");
        net.settle();
        assert_eq!(net.end(1).associations.counters().reset, u64::from(is_believed));
        net.send(1, NODE, b"after");
        net.settle();
        let expected = if is_believed { vec![b"after".to_vec()] } else { vec![] };
        assert_eq!(net.opened(NODE), expected);
    }
}

/// Its resets are not believed: it has another key.
#[test]
fn a_peer_that_does_not_answer_for_long_is_asked_for_new_keys() {
    let mut net = Net::pair();
    net.send(1, NODE, b"before");
    net.settle();
    net.restart_node(3);
    let mut seconds = 0;
    while net.opened(NODE).is_empty() {
        net.send(1, NODE, b"after");
        net.settle();
        net.advance(SECOND);
        seconds += 1;
    }
    assert!((5..10).contains(&seconds), "{seconds}");
    assert_eq!(net.end(1).associations.counters().handshakes, 2);
}

#[test]
fn a_peer_that_has_nothing_to_say_keeps_its_keys() {
    let mut net = Net::pair();
    for pause in [1, 4, 6, 30, 70, 6, 6] {
        net.send(1, NODE, b"no answer is due");
        net.settle();
        net.advance(pause * SECOND);
    }
    net.send(NODE, 1, b"now there is one");
    for _ in 0..20 {
        net.send(1, NODE, b"more");
        net.send(NODE, 1, b"answers");
        net.settle();
        net.advance(SECOND);
    }
    assert_eq!(net.end(1).associations.counters().handshakes, 1);
}

#[test]
fn a_node_that_speaks_first_gets_the_client_to_begin() {
    let mut net = Net::pair();
    net.send(NODE, 1, b"messages of a session that was handed over");
    net.settle();
    assert_eq!(net.opened(1).len(), 1);
    assert_eq!((net.end(NODE).shared.len(), net.end(1).shared.len()), (1, 1));
}

#[test]
fn two_nodes_may_begin_at_the_same_time() {
    let mut net = Net::new([(NODE, node()), (7_701, node())]);
    for _ in 0..3 {
        net.send(NODE, 7_701, b"down");
        net.send(7_701, NODE, b"up");
    }
    for _ in 0..300 {
        net.settle();
        net.advance(10 * MS);
    }
    assert_eq!((net.opened(NODE).len(), net.opened(7_701).len()), (3, 3));
    net.send(NODE, 7_701, b"down");
    net.send(7_701, NODE, b"up");
    net.settle();
    assert_eq!((net.opened(NODE).len(), net.opened(7_701).len()), (1, 1));
}

/// A worker of a node, in a thread of its own: it sends and receives until both nodes have opened enough.
fn exchange(
    mut associations: Associations,
    peer: SocketAddr,
    inbox: &Receiver<Vec<u8>>,
    peers: &[Sender<Vec<u8>>],
    opened: &[AtomicUsize; 2],
    end: usize,
) {
    let mut rng = SmallRng::seed_from_u64(end as u64);
    let mut send = |bytes| _ = peers.choose(&mut rng).unwrap().send(bytes);
    let began = Instant::now();
    while opened.iter().any(|count| count.load(Ordering::Relaxed) < 20) && began.elapsed() < PATIENCE {
        let now = BEGIN + began.elapsed().as_micros() as Micros;
        let mut buffer = [&[0; SEALED_HEADER][..], b"hello"].concat();
        if associations.seal(now, &Destination::node(peer), &mut buffer, 0) {
            send(buffer);
        }
        while let Ok(mut bytes) = inbox.try_recv() {
            if associations.handle_datagram(now, peer, &mut bytes).is_some() {
                opened[end].fetch_add(1, Ordering::Relaxed);
            }
        }
        associations.handle_timeout(now);
        while let Some((_, bytes)) = associations.poll_transmit() {
            send(bytes);
        }
        thread::yield_now();
    }
}

/// Each worker may take a lock of an association while another one has that of the other association to the same
/// peer.
#[test]
fn all_workers_of_two_nodes_may_begin_at_the_same_moment() {
    for round in 0..20 {
        let opened: Arc<[AtomicUsize; 2]> = Arc::default();
        let (done, all_done) = mpsc::channel();
        let channels = [0; 4].map(|_| mpsc::channel::<Vec<u8>>());
        let senders: Vec<_> = channels.iter().map(|(sender, _)| sender.clone()).collect();
        let ends = [NODE, NODE + 1].map(|port| End::new(node(), u64::from(port) + round).shared);
        for (number, (_, inbox)) in channels.into_iter().enumerate() {
            let (end, worker) = (number / 2, number % 2);
            let associations = Associations::new(Arc::clone(&ends[end]), worker);
            let peers = senders[2 * (1 - end)..2 * (2 - end)].to_vec();
            let (opened, done) = (Arc::clone(&opened), done.clone());
            thread::spawn(move || {
                let peer = address(NODE + 1 - end as u16);
                exchange(associations, peer, &inbox, &peers, &opened, end);
                _ = done.send(());
            });
        }
        for _ in 0..4 {
            all_done.recv_timeout(2 * PATIENCE).expect("no worker waits for ever");
        }
        assert!(opened.iter().all(|count| count.load(Ordering::Relaxed) >= 20), "round {round}: {opened:?}");
    }
}

#[test]
fn idle_associations_rest_and_are_forgotten_in_the_end() {
    let mut net = Net::pair();
    net.send(1, NODE, b"1");
    net.settle();
    net.opened(NODE);
    for _ in 0..5 {
        (0..4).for_each(|_| net.advance(40 * SECOND));
        net.send(1, NODE, b"2");
        net.settle();
        assert_eq!(net.opened(NODE), [b"2"]);
    }
    (0..40).for_each(|_| net.advance(40 * SECOND));
    assert_eq!((net.end(NODE).shared.len(), net.end(1).shared.len()), (0, 0));
}

#[test]
fn a_client_resumes_with_each_node_that_it_knows() {
    const ATTIC: u16 = 7_701;
    let attic = authorities()[0].credentials(Some("attic"));
    let mut net = Net::new([(NODE, node()), (ATTIC, attic), (1, client())]);
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let mut answered = BTreeMap::<u16, usize>::new();
        [NODE, ATTIC].into_iter().for_each(|to| net.send(1, to, b"1"));
        net.settle();
        for (from, _, bytes) in net.seen.drain(..).filter(|(from, ..)| *from != 1) {
            *answered.entry(from).or_default() += bytes.len();
        }
        assert_eq!((net.opened(NODE).len(), net.opened(ATTIC).len()), (1, 1));
        rounds.push((answered[&NODE], answered[&ATTIC]));
        (0..20).for_each(|_| net.advance(40 * SECOND));
        assert_eq!(net.end(1).shared.len(), 0, "all are forgotten");
    }
    let [first, later @ ..] = &rounds[..] else { unreachable!() };
    for (kitchen, attic) in later {
        assert!(kitchen + 300 < first.0 && attic + 300 < first.1, "no certificates: {rounds:?}");
    }
}

#[test]
fn a_peer_may_change_its_address() {
    let mut net = Net::pair();
    net.send(1, NODE, b"1");
    net.settle();
    let end = net.ends.remove(&1).unwrap();
    net.ends.insert(2, end);
    net.send(2, NODE, b"2");
    net.settle();
    net.send(NODE, 2, b"3");
    net.settle();
    assert_eq!((net.opened(NODE), net.opened(2)), (vec![b"1".to_vec(), b"2".to_vec()], vec![b"3".to_vec()]));
    assert_eq!(net.end(NODE).shared.len(), 1);
}

/// Somebody on the path sends a datagram on from another address. The layer above goes on with the address that it
/// knows, and needs no other keys for it.
#[test]
fn a_datagram_from_another_address_takes_no_address_away() {
    let mut net = Net::pair();
    net.send(1, NODE, b"1");
    net.settle();
    for elsewhere in 2..20 {
        net.send(1, NODE, b"2");
        let (.., datagram) = net.flying.pop().unwrap();
        net.deliver(elsewhere, NODE, &datagram);
        net.send(NODE, 1, b"3");
        assert_eq!(net.flying.len(), 1, "no handshake");
        net.settle();
        net.send(1, NODE, b"4");
        net.settle();
    }
    assert_eq!((net.end(NODE).shared.len(), net.end(1).shared.len()), (1, 1));
    let shared = Arc::clone(&net.end(NODE).shared);
    assert!((1..20).filter(|port| shared.knows(address(*port))).count() <= 4);
}

/// Somebody on the path repeats, changes, cuts and joins what was sent, and makes datagrams up.
#[test]
fn nothing_is_opened_that_was_not_sent_and_service_goes_on() {
    for seed in 0..4 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut net = Net::new([(NODE, node()), (1, client()), (7_701, node())]);
        let mut opened = 0;
        for round in 0..3_000_u32 {
            let bytes = [&round.to_be_bytes()[..], &[7; 30]].concat();
            let from = *[1, 7_701].choose(&mut rng).unwrap();
            net.send(from, NODE, &bytes);
            net.settle();
            opened += usize::from(net.opened(NODE) == [bytes]);
            for _ in 0..10 {
                let (from, to, datagram) = attack(&net.seen, &mut rng);
                net.deliver(from, to, &datagram);
                net.flying.clear();
            }
            assert_eq!((net.opened(NODE), net.opened(1), net.opened(7_701)), (vec![], vec![], vec![]));
            net.advance(5 * MS);
            net.flying.clear();
            net.seen.drain(..net.seen.len().saturating_sub(50));
        }
        assert!(opened > 2_990, "seed {seed}: {opened}");
        for port in [NODE, 1, 7_701] {
            assert!(net.end(port).shared.len() < 100, "{}", net.end(port).shared.len());
        }
    }
}

fn attack(seen: &[(u16, u16, Vec<u8>)], rng: &mut SmallRng) -> (u16, u16, Vec<u8>) {
    let (from, to, mut bytes) = seen.choose(rng).unwrap().clone();
    match rng.random_range(0..5) {
        0 => {}
        1 => {
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
        2 => bytes.truncate(rng.random_range(0..bytes.len())),
        3 => bytes.extend_from_slice(&seen.choose(rng).unwrap().2),
        _ => {
            let kept = rng.random_range(0..bytes.len().min(20));
            rng.fill_bytes(&mut bytes[kept..]);
        }
    }
    (from, to, bytes)
}
