//! The associations of one address: who may begin one, who is answered, and which keys a datagram gets.
//!
//! All workers of an address share them ([`Shared`]), because any worker may have to send to a peer. Each has an
//! [`Associations`], with its timers and its answers.
//!
//! - A node answers a handshake only from an address that is proved by a token (docs/protocol.md §4), with a part
//!   of its time, and as long as few are under way.
//! - Nothing that is not sealed changes an association that has keys.
//! - A datagram for which there are no keys yet is held, within bounds. Links send again what was dropped.
//! - A client answers the first datagram of a node's handshake with a handshake of its own: it has no certificate
//!   with which it could answer. So a node that has to speak first to a client gets an association, too.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use rustls::Connection;
use siphasher::sip128::SipHasher24;

use crate::Micros;
use crate::association::credentials::Credentials;
use crate::association::handshake::Handshake;
use crate::association::keys::{Opener, Refused, Sealer};
use crate::association::packet::{self, AssociationId, PROOF, Packet, RESET_BYTES, SealedHeader, Segment};
use crate::config::Config;
use crate::engine::transport::token_bucket::RateLimit;
use crate::keyed_hash::KeyedHash;
use crate::token::TokenKeys;

/// The datagrams that wait for the keys of one association, in bytes.
const MOST_HELD: usize = 64 * 1_024;
/// How many retries an initiator takes.
const MOST_RETRIES: u8 = 4;
/// The handshakes under way.
const MOST_HANDSHAKES: usize = 4_096;
/// Handshakes that a worker answers in a second, and at once. One costs about 0.25 ms.
const HANDSHAKES_PER_SECOND: u32 = 3_000;
const HANDSHAKES_AT_ONCE: u32 = 500;
/// An association on which nothing was sent or received for this time drops its keys, and derives them again.
const REST_AFTER: Micros = 60_000_000;
/// One from which nothing came for this time is forgotten.
const FORGET_AFTER: Micros = 600_000_000;
const SWEEP: Micros = 30_000_000;
/// A node's first datagram has at least so many bytes of TLS. A client that answers a shorter one with its own could be
/// used to send far more to somebody else than what was sent to it.
const LEAST_GREETING: usize = 180;

/// What the workers of one address share.
pub struct Shared {
    credentials: RwLock<Credentials>,
    token_keys: TokenKeys,
    /// For the proofs of resets. The next run of a node has the same, so that its peers soon learn that their keys
    /// are gone. Secret.
    reset_key: [u8; 16],
    /// For the ids that the workers choose; secret.
    seed: u64,
    strangers: u32,
    most: usize,
    by_id: RwLock<HashMap<AssociationId, Arc<Association>, KeyedHash>>,
    /// Through which association to send to an address.
    by_address: RwLock<HashMap<SocketAddr, Arc<Association>, KeyedHash>>,
    /// Acceptors whose handshake is under way, by the address and the id of the initiator.
    greeted: Mutex<HashMap<(SocketAddr, AssociationId), Arc<Association>, KeyedHash>>,
}

/// One association.
pub struct Association {
    local: AssociationId,
    state: Mutex<State>,
}

struct State {
    peer: SocketAddr,
    /// The id that the peer chose; 0: not known yet.
    remote: AssociationId,
    /// `None`: the handshake is over.
    handshake: Option<Box<Handshake>>,
    /// `None`: the handshake has not made them yet.
    keys: Option<Keys>,
    /// The peer has used its keys.
    is_confirmed: bool,
    /// For the initiator's first datagrams.
    token: Vec<u8>,
    retries: u8,
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    /// What a reset of the peer holds.
    peer_proof: Option<[u8; PROOF]>,
    certificate: Option<Vec<u8>>,
    heard_at: Micros,
    sent_at: Micros,
    is_resting: bool,
}

struct Keys {
    sealer: Sealer,
    opener: Opener,
}

/// What one worker has of the associations of its address.
pub struct Associations {
    shared: Arc<Shared>,
    rng: SmallRng,
    timers: BTreeSet<(Micros, AssociationId)>,
    outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    strangers: RateLimit,
    handshakes: RateLimit,
    /// When to look for associations to forget; worker 0 alone does.
    sweep_at: Micros,
    counters: Counters,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handshakes that made keys.
    pub handshakes: u64,
    /// Handshakes that failed, or took too long.
    pub handshakes_failed: u64,
    /// First datagrams that were dropped because too many handshakes were under way.
    pub handshakes_refused: u64,
    /// Datagrams that were opened before.
    pub replayed: u64,
    /// Datagrams that were not sealed with the association's keys, or are no datagram of an association.
    pub forged: u64,
    /// Sealed datagrams of no known association.
    pub unknown: u64,
    /// Datagrams for which there was no room while they waited for keys.
    pub not_held: u64,
    /// Associations that ended by a reset.
    pub reset: u64,
}

impl Counters {
    /// The values by name.
    pub fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("association.handshakes", self.handshakes),
            ("association.resets", self.reset),
            ("drop.handshake_failed", self.handshakes_failed),
            ("drop.handshake_refused", self.handshakes_refused),
            ("drop.seal_replayed", self.replayed),
            ("drop.seal_forged", self.forged),
            ("drop.association_unknown", self.unknown),
            ("drop.not_held", self.not_held),
        ]
    }
}

impl Shared {
    /// The associations of an engine's address; `None`: security is off.
    pub fn of(config: &Config) -> Option<Arc<Self>> {
        let credentials = config.credentials.clone()?;
        let Config { token_keys, stranger_rate, max_links, seed, .. } = config;
        Some(Arc::new(Self::new(credentials, token_keys.clone(), *stranger_rate, *max_links, *seed)))
    }

    /// `strangers`: answers to unproved addresses that a worker gives in a second. `most`: the most
    /// associations. `seed` is secret.
    pub fn new(
        credentials: Credentials,
        token_keys: TokenKeys,
        strangers: u32,
        most: usize,
        seed: u64,
    ) -> Self {
        let hasher = KeyedHash::new(seed);
        let mut of_run = [0; 16];
        SmallRng::seed_from_u64(!seed).fill_bytes(&mut of_run);
        Self {
            reset_key: credentials.reset_key().unwrap_or(of_run),
            credentials: RwLock::new(credentials),
            token_keys,
            seed,
            strangers,
            most,
            by_id: RwLock::new(HashMap::with_hasher(hasher)),
            by_address: RwLock::new(HashMap::with_hasher(hasher)),
            greeted: Mutex::new(HashMap::with_hasher(hasher)),
        }
    }

    /// From now on handshakes use these. Associations that exist stay.
    pub fn set_credentials(&self, credentials: Credentials) {
        *self.credentials.write() = credentials;
    }

    /// The certificate with which the peer at an address proved itself, as DER; `None`: it has not.
    pub fn certificate(&self, address: SocketAddr) -> Option<Vec<u8>> {
        self.of_address(&address)?.state.lock().certificate.clone()
    }

    pub fn len(&self) -> usize {
        self.by_id.read().len()
    }

    fn of_id(&self, id: AssociationId) -> Option<Arc<Association>> {
        self.by_id.read().get(&id).cloned()
    }

    fn of_address(&self, address: &SocketAddr) -> Option<Arc<Association>> {
        self.by_address.read().get(address).cloned()
    }

    fn proof(&self, id: AssociationId) -> [u8; PROOF] {
        SipHasher24::new_with_key(&self.reset_key).hash(&id.to_be_bytes()).as_bytes()
    }

    /// Forgets an association, wherever it is listed.
    fn remove(&self, association: &Association, state: &State) {
        self.by_id.write().remove(&association.local);
        self.greeted.lock().remove(&(state.peer, state.remote));
        let mut by_address = self.by_address.write();
        if by_address.get(&state.peer).is_some_and(|other| other.local == association.local) {
            by_address.remove(&state.peer);
        }
    }
}

impl Associations {
    /// `worker`: its number.
    pub fn new(shared: Arc<Shared>, worker: usize) -> Self {
        let strangers = shared.strangers;
        Self {
            rng: SmallRng::seed_from_u64(shared.seed ^ (worker as u64 + 1)),
            shared,
            timers: BTreeSet::new(),
            outgoing: VecDeque::new(),
            strangers: RateLimit::new(strangers, strangers),
            handshakes: RateLimit::new(HANDSHAKES_PER_SECOND, HANDSHAKES_AT_ONCE),
            sweep_at: if worker == 0 { 0 } else { Micros::MAX },
            counters: Counters::default(),
        }
    }

    // In

    /// Opens a datagram where it lies. Returns what was sealed; `None`: the datagram was for the associations
    /// themselves, or was dropped. `now`: microseconds since the Unix epoch, because tokens have a time.
    pub fn handle_datagram<'a>(
        &mut self,
        now: Micros,
        source: SocketAddr,
        datagram: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        match Packet::parse(datagram) {
            Some(Packet::Sealed { to, header }) => return self.open(now, source, to, header, datagram),
            Some(Packet::Stream { to: 0, from, token, segment }) => {
                self.greet(now, source, from, token, &segment);
            }
            Some(Packet::Stream { to, from, segment, .. }) => {
                if let Some(association) = self.shared.of_id(to) {
                    self.take_segment(now, &association, source, from, &segment);
                }
            }
            Some(Packet::Retry { to, token }) => self.retry(now, source, to, token),
            Some(Packet::Reset { proof }) => self.reset(source, proof),
            None => self.counters.forged += 1,
        }
        None
    }

    /// Sends again what was not acknowledged, and forgets what has ended.
    pub fn handle_timeout(&mut self, now: Micros) {
        while let Some(&(due, id)) = self.timers.first()
            && due <= now
        {
            self.timers.pop_first();
            if let Some(association) = self.shared.of_id(id) {
                self.drive(now, &association);
            }
        }
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP;
            self.sweep(now);
        }
    }

    // Out

    /// Seals the datagram in `buffer` from `start` on, behind [`packet::SEALED_HEADER`] bytes of room. False: there are no
    /// keys yet. Then the buffer is cut off at `start`, and the datagram is held until there are.
    pub fn seal(
        &mut self,
        now: Micros,
        destination: &SocketAddr,
        buffer: &mut Vec<u8>,
        start: usize,
    ) -> bool {
        let Some(association) = self.shared.of_address(destination).or_else(|| self.begin(now, *destination))
        else {
            self.counters.not_held += 1;
            buffer.truncate(start);
            return false;
        };
        let state = &mut *association.state.lock();
        if let Some(keys) = &mut state.keys {
            keys.sealer.seal(buffer, start);
            (state.sent_at, state.is_resting) = (now, false);
            return true;
        }
        if state.held_bytes + buffer.len() - start > MOST_HELD {
            self.counters.not_held += 1;
        } else {
            state.hold(buffer[start..].to_vec());
        }
        buffer.truncate(start);
        if state.handshake.as_mut().is_some_and(|handshake| handshake.ask_again(now)) {
            self.timers.insert((now, association.local));
        }
        false
    }

    /// The next datagram of the associations themselves, and where it goes.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outgoing.pop_front()
    }

    /// When `handle_timeout` is due.
    pub fn poll_timeout(&self) -> Micros {
        self.timers.first().map_or(Micros::MAX, |(due, _)| *due).min(self.sweep_at)
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether no datagram waits for keys.
    pub fn is_drained(&self) -> bool {
        self.shared.by_id.read().values().all(|association| association.state.lock().held.is_empty())
    }

    fn open<'a>(
        &mut self,
        now: Micros,
        source: SocketAddr,
        to: AssociationId,
        header: SealedHeader,
        datagram: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let Some(association) = self.shared.of_id(to) else {
            self.counters.unknown += 1;
            if datagram.len() > RESET_BYTES && self.strangers.take(now) {
                self.outgoing.push_back((source, packet::reset(self.shared.proof(to))));
            }
            return None;
        };
        let state = &mut *association.state.lock();
        // The initiator's last flight may still be on its way. The link sends this datagram again.
        let keys = state.keys.as_mut()?;
        match keys.opener.open(header, datagram) {
            Ok((bytes, is_newest)) => {
                (state.heard_at, state.is_resting, state.is_confirmed) = (now, false, true);
                if is_newest && source != state.peer {
                    self.shared.move_to(&association, state, source);
                }
                Some(bytes)
            }
            Err(Refused::Replayed) => {
                self.counters.replayed += 1;
                None
            }
            Err(Refused::Forged) => {
                self.counters.forged += 1;
                None
            }
        }
    }

    /// Handles the first datagram of an initiator, or its repetition.
    fn greet(
        &mut self,
        now: Micros,
        source: SocketAddr,
        from: AssociationId,
        token: &[u8],
        segment: &Segment<'_>,
    ) {
        let known = self.shared.greeted.lock().get(&(source, from)).cloned();
        if let Some(association) = known {
            return self.take_segment(now, &association, source, from, segment);
        }
        if from == 0 || segment.offset != 0 {
            return;
        }
        let accepted = self.shared.credentials.read().accept();
        let Some(accepted) = accepted else {
            if segment.bytes.len() >= LEAST_GREETING && self.strangers.take(now) {
                self.answer_greeting(now, source);
            }
            return;
        };
        let now_s = (now / 1_000_000) as u32;
        if !self.shared.token_keys.verify(now_s, source, token) {
            if self.strangers.take(now) {
                let token = self.shared.token_keys.issue(now_s, source);
                self.outgoing.push_back((source, packet::retry(from, &token)));
            }
            return;
        }
        let under_way = self.shared.greeted.lock().len();
        let is_full = under_way >= MOST_HANDSHAKES || self.shared.len() >= self.shared.most;
        let (false, Ok(tls), true) = (is_full, accepted, self.handshakes.take(now)) else {
            self.counters.handshakes_refused += 1;
            return;
        };
        let association = self.insert(now, source, from, tls);
        self.shared.greeted.lock().insert((source, from), Arc::clone(&association));
        self.take_segment(now, &association, source, from, segment);
    }

    /// A client answers the greeting of a node with one of its own, once for each: the source may be forged.
    fn answer_greeting(&mut self, now: Micros, source: SocketAddr) {
        let known = self.shared.of_address(&source);
        let Some(association) = known.or_else(|| self.prepare(now, source)) else {
            return;
        };
        if let Some(handshake) = &mut association.state.lock().handshake {
            handshake.repeat(now);
        }
        self.drive(now, &association);
    }

    /// Begins an association with a node; `None`: there are too many.
    fn begin(&mut self, now: Micros, peer: SocketAddr) -> Option<Arc<Association>> {
        let association = self.prepare(now, peer)?;
        self.drive(now, &association);
        Some(association)
    }

    /// Makes an association with a node, of which nothing is sent yet; `None`: there are too many.
    fn prepare(&mut self, now: Micros, peer: SocketAddr) -> Option<Arc<Association>> {
        if self.shared.len() >= self.shared.most {
            return None;
        }
        let tls = self.shared.credentials.read().connect().ok()?;
        let association = self.insert(now, peer, 0, tls);
        self.shared.by_address.write().insert(peer, Arc::clone(&association));
        Some(association)
    }

    fn insert(
        &mut self,
        now: Micros,
        peer: SocketAddr,
        remote: AssociationId,
        tls: Connection,
    ) -> Arc<Association> {
        let mut by_id = self.shared.by_id.write();
        let local = loop {
            let id = self.rng.next_u64();
            if id != 0 && !by_id.contains_key(&id) {
                break id;
            }
        };
        let state = State {
            peer,
            remote,
            handshake: Some(Box::new(Handshake::new(now, tls, self.shared.proof(local)))),
            keys: None,
            is_confirmed: false,
            token: Vec::new(),
            retries: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            peer_proof: None,
            certificate: None,
            heard_at: now,
            sent_at: now,
            is_resting: false,
        };
        let association = Arc::new(Association { local, state: Mutex::new(state) });
        by_id.insert(local, Arc::clone(&association));
        association
    }

    fn take_segment(
        &mut self,
        now: Micros,
        association: &Arc<Association>,
        source: SocketAddr,
        from: AssociationId,
        segment: &Segment<'_>,
    ) {
        {
            let state = &mut *association.state.lock();
            let is_of_peer = state.peer == source && (state.remote == 0 || state.remote == from);
            let Some(handshake) = state.handshake.as_mut().filter(|_| is_of_peer && from != 0) else {
                return;
            };
            let taken = handshake.handle_segment(now, segment);
            state.remote = from;
            state.heard_at = now;
            match (taken, state.keys.is_some()) {
                (Ok(()), _) => {}
                // The keys are there, and stay. Somebody on the path may have made this part up.
                (Err(_), true) => state.handshake = None,
                (Err(_), false) => {
                    self.counters.handshakes_failed += 1;
                    return self.shared.remove(association, state);
                }
            }
        }
        self.drive(now, association);
    }

    /// Goes on with a handshake: takes its keys once they are there, sends what is due, and sets its timer.
    fn drive(&mut self, now: Micros, association: &Arc<Association>) {
        let state = &mut *association.state.lock();
        let Some(handshake) = &mut state.handshake else {
            return;
        };
        let (local, remote) = (association.local, state.remote);
        // Before the keys are used, so that the peer has them when it gets the first sealed datagram.
        let segments = handshake.poll_segments(now);
        let datagrams =
            segments.iter().map(|segment| (state.peer, packet::stream(remote, local, &state.token, segment)));
        self.outgoing.extend(datagrams);
        if handshake.is_proved() && state.keys.is_none() {
            let secrets = handshake.secrets(remote);
            state.keys = Some(Keys { sealer: secrets.sealer, opener: secrets.opener });
            state.certificate = handshake.peer_certificate().map(|certificate| certificate.to_vec());
            self.counters.handshakes += 1;
            let handshake = state.handshake.take();
            self.adopt(association, state);
            state.handshake = handshake;
            self.send_held(state);
        }
        let Some(handshake) = &mut state.handshake else {
            return;
        };
        state.peer_proof = handshake.peer_proof();
        let has_failed = state.keys.is_none() || !state.is_confirmed && !handshake.is_acked();
        if handshake.has_timed_out(now) && has_failed {
            self.counters.handshakes_failed += 1;
            self.counters.not_held += state.held.len() as u64;
            return self.shared.remove(association, state);
        }
        if handshake.is_over() || handshake.has_timed_out(now) {
            state.handshake = None;
            state.token = Vec::new();
            self.shared.greeted.lock().remove(&(state.peer, remote));
        } else {
            self.timers.insert((handshake.poll_timeout(), local));
        }
    }

    /// From now on this association is the one through which its peer is sent to. What was held for another one
    /// to the same address goes with it.
    fn adopt(&mut self, association: &Arc<Association>, state: &mut State) {
        let before = self.shared.by_address.write().insert(state.peer, Arc::clone(association));
        let Some(before) = before.filter(|other| other.local != association.local) else {
            return;
        };
        let other = &mut *before.state.lock();
        if other.keys.is_none() {
            other.held.drain(..).for_each(|datagram| state.hold(datagram));
            self.shared.by_id.write().remove(&before.local);
        }
    }

    fn send_held(&mut self, state: &mut State) {
        state.held_bytes = 0;
        let Some(keys) = &mut state.keys else {
            return;
        };
        for mut datagram in state.held.drain(..) {
            keys.sealer.seal(&mut datagram, 0);
            self.outgoing.push_back((state.peer, datagram));
        }
    }

    /// Handles a token: the first datagram is sent again with it.
    fn retry(&mut self, now: Micros, source: SocketAddr, to: AssociationId, token: &[u8]) {
        let Some(association) = self.shared.of_id(to) else {
            return;
        };
        {
            let state = &mut *association.state.lock();
            let is_awaited = state.peer == source && state.remote == 0 && state.retries < MOST_RETRIES;
            let Some(handshake) = state.handshake.as_mut().filter(|_| is_awaited) else {
                return;
            };
            state.retries += 1;
            state.token = token.to_vec();
            handshake.retry_now(now);
        }
        self.drive(now, &association);
    }

    /// Forgets an association whose peer has lost it. What is sent next begins another.
    fn reset(&mut self, source: SocketAddr, proof: [u8; PROOF]) {
        let Some(association) = self.shared.of_address(&source) else {
            return;
        };
        let state = &*association.state.lock();
        if state.peer_proof == Some(proof) {
            self.counters.reset += 1;
            self.shared.remove(&association, state);
        }
    }

    fn sweep(&mut self, now: Micros) {
        let all: Vec<_> = self.shared.by_id.read().values().cloned().collect();
        for association in all {
            let state = &mut *association.state.lock();
            if state.heard_at.max(state.sent_at) + REST_AFTER > now {
                continue;
            }
            if state.heard_at + FORGET_AFTER <= now {
                self.shared.remove(&association, state);
            } else if let Some(keys) = state.keys.as_mut().filter(|_| !state.is_resting) {
                keys.sealer.rest();
                keys.opener.rest();
                state.is_resting = true;
            }
        }
    }
}

impl Shared {
    /// The peer's address has changed.
    fn move_to(&self, association: &Arc<Association>, state: &mut State, address: SocketAddr) {
        let mut by_address = self.by_address.write();
        if by_address.get(&state.peer).is_some_and(|other| other.local == association.local) {
            by_address.remove(&state.peer);
        }
        by_address.insert(address, Arc::clone(association));
        state.peer = address;
    }
}

impl State {
    fn hold(&mut self, datagram: Vec<u8>) {
        self.held_bytes += datagram.len();
        self.held.push_back(datagram);
    }
}
