//! The associations of one address, which all its workers share: any worker may have to send to a peer.
//!
//! The lock of an association is taken before those of the table, and never together with that of another
//! association.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use rustls::Connection;
use siphasher::sip128::SipHasher24;

use crate::Micros;
use crate::association::admission::{Admission, Admitted};
use crate::association::credentials::Credentials;
use crate::association::handshake::{Handshake, Secrets};
use crate::association::keys::{Opener, Sealer};
use crate::association::packet::{AssociationId, PROOF};
use crate::config::Config;
use crate::keyed_hash::KeyedHash;
use crate::token::TokenKeys;

/// After this time without an answer, also to probes, what is sent to a peer begins a new handshake.
const SILENT_AFTER: Micros = 5_000_000;
/// A peer that was sent datagrams for this time, and was not heard, is sent a probe; then another, each time that this
/// time is over and there is something to send.
const PROBE_AFTER: Micros = 500_000;
/// So many probes go before a handshake begins.
const PROBES: u8 = 3;
/// The addresses of a peer that are known beside its latest.
const MOST_FORMER: usize = 3;

/// What the workers of one address share.
pub struct Shared {
    credentials: RwLock<Credentials>,
    /// How often the credentials were replaced.
    generation: AtomicU32,
    pub(super) token_keys: TokenKeys,
    /// For the proofs of resets. The next run of a node has the same, so that its peers soon learn that their keys
    /// are gone. Secret.
    reset_key: [u8; 16],
    /// For the ids that the workers choose; secret.
    pub(super) seed: u64,
    /// Answers to unproved addresses that a worker gives in a second.
    pub(super) strangers: u32,
    most: usize,
    /// Whether a client has to show a token.
    pub(super) requires_tokens: bool,
    pub(super) admitted: Admitted<Association>,
    by_id: RwLock<HashMap<AssociationId, Arc<Association>, ById>>,
    /// Through which association to send.
    by_destination: RwLock<HashMap<Destination, Arc<Association>, KeyedHash>>,
    /// Acceptors whose handshake is under way, by the address and the id of the initiator.
    greeted: Mutex<HashMap<(SocketAddr, AssociationId), Arc<Association>, KeyedHash>>,
}

/// Where datagrams go: an address, and the rights of who is meant there. Somebody on the path, with a token of his own,
/// may make an association for an address that is another client's. What is for that client does not go through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    pub address: SocketAddr,
    /// The key of the rights ([`crate::rights::Rights`]); 0: a node, or any client where no tokens are required.
    pub rights: u64,
}

impl Destination {
    /// Of a node.
    pub fn node(address: SocketAddr) -> Self {
        Self { address, rights: 0 }
    }
}

/// One association.
pub struct Association {
    pub(super) local: AssociationId,
    /// Changes when datagrams to a destination no longer go through this association.
    routes: AtomicU32,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub peer: SocketAddr,
    /// Addresses that the peer had before. What is sent to them goes through this association, too: the layer
    /// above decides to which address it sends, when one is proved.
    former: Vec<SocketAddr>,
    /// The id that the peer chose; 0: not known yet.
    pub remote: AssociationId,
    /// `None`: the handshake is over.
    pub handshake: Option<Box<Handshake>>,
    /// `None`: the handshake has not made them yet.
    pub keys: Option<Keys>,
    /// The peer has used its keys.
    pub is_confirmed: bool,
    /// For the initiator's first datagrams.
    pub token: Vec<u8>,
    pub retries: u8,
    /// Datagrams that wait for keys.
    pub held: VecDeque<Vec<u8>>,
    pub held_bytes: usize,
    /// What a reset of the peer holds.
    pub peer_proof: Option<[u8; PROOF]>,
    pub certificate: Option<Vec<u8>>,
    pub admission: Admission,
    /// The workers that have opened datagrams of the peer, and keep them until its rights are known.
    pub waiting_workers: Vec<usize>,
    /// Those of the peer, in what is sent through this association: see [`Destination`].
    pub rights: u64,
    pub heard_at: Micros,
    pub sent_at: Micros,
    /// The first probe since the peer was heard, or before it the first datagram; `Micros::MAX`: there was none.
    unanswered_since: Micros,
    /// How many probes were sent since the peer was heard, and when the last one was.
    probes: u8,
    probed_at: Micros,
    /// The peer was silent, so another association was begun for its address.
    pub is_replaced: bool,
    pub is_resting: bool,
    /// Of the credentials with which it began, or earlier.
    generation: u32,
}

pub(super) struct Keys {
    pub sealer: Sealer,
    pub opener: Opener,
}

impl Keys {
    /// `remote`: the id that the peer chose.
    pub fn new(secrets: &Secrets, remote: AssociationId) -> Self {
        Self {
            sealer: Sealer::new(secrets.algorithm, secrets.sent, remote),
            opener: Opener::new(secrets.algorithm, secrets.received),
        }
    }
}

impl Shared {
    /// The associations of an engine's address; `None`: security is off.
    pub fn of(config: &Config) -> Option<Arc<Self>> {
        let credentials = config.credentials.clone()?;
        let Config { token_keys, stranger_rate, max_links, seed, requires_tokens, .. } = config;
        let shared = Self::new(credentials, token_keys.clone(), *stranger_rate, *max_links, *seed);
        Some(Arc::new(Self { requires_tokens: *requires_tokens, ..shared }))
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
            reset_key: token_keys.derived(b"hbroker reset").unwrap_or(of_run),
            credentials: RwLock::new(credentials),
            generation: AtomicU32::new(0),
            token_keys,
            seed,
            strangers,
            most,
            requires_tokens: false,
            admitted: Admitted::default(),
            by_id: RwLock::new(HashMap::with_hasher(ById)),
            by_destination: RwLock::new(HashMap::with_hasher(hasher)),
            greeted: Mutex::new(HashMap::with_hasher(hasher)),
        }
    }

    /// From now on handshakes use these. Peers whose certificates are not believed any more are forgotten. If the
    /// token of this end is another one, what it sends next begins other associations.
    pub fn set_credentials(&self, credentials: Credentials) {
        let before = std::mem::replace(&mut *self.credentials.write(), credentials.clone());
        self.generation.fetch_add(1, Ordering::Release);
        for association in self.all() {
            let state = &*association.state.lock();
            if before.token != credentials.token {
                self.end_routes(&association, state);
            }
            if state.certificate.as_ref().is_some_and(|certificate| !credentials.believes(certificate)) {
                self.remove(&association, state);
            }
        }
    }

    /// Whether the peer of an association, whose handshake has ended just now, is still believed.
    pub(super) fn is_believed(&self, state: &State) -> bool {
        let is_current = state.generation == self.generation.load(Ordering::Acquire);
        let certificate = state.certificate.as_ref().filter(|_| !is_current);
        certificate.is_none_or(|certificate| self.credentials().believes(certificate))
    }

    pub fn credentials(&self) -> Credentials {
        self.credentials.read().clone()
    }

    /// The certificate with which the peer at an address proved itself, as DER; `None`: it has not.
    pub fn certificate(&self, address: SocketAddr) -> Option<Vec<u8>> {
        self.of_destination(&Destination::node(address))?.state.lock().certificate.clone()
    }

    #[cfg(test)]
    pub fn knows(&self, address: SocketAddr) -> bool {
        self.by_destination.read().contains_key(&Destination::node(address))
    }

    pub fn len(&self) -> usize {
        self.by_id.read().len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    pub(super) fn all(&self) -> Vec<Arc<Association>> {
        self.by_id.read().values().cloned().collect()
    }

    /// Whether there is an association with this id.
    pub fn has(&self, id: AssociationId) -> bool {
        self.by_id.read().contains_key(&id)
    }

    pub(super) fn of_id(&self, id: AssociationId) -> Option<Arc<Association>> {
        self.by_id.read().get(&id).cloned()
    }

    /// The association through which to send.
    pub(super) fn of_destination(&self, destination: &Destination) -> Option<Arc<Association>> {
        self.by_destination.read().get(destination).cloned()
    }

    /// An acceptor whose handshake is under way.
    pub(super) fn greeted_by(&self, initiator: SocketAddr, from: AssociationId) -> Option<Arc<Association>> {
        self.greeted.lock().get(&(initiator, from)).cloned()
    }

    /// How many acceptors' handshakes are under way.
    pub(super) fn greeted(&self) -> usize {
        self.greeted.lock().len()
    }

    /// What a reset of an association of this end holds.
    pub(super) fn proof(&self, id: AssociationId) -> [u8; PROOF] {
        SipHasher24::new_with_key(&self.reset_key).hash(&id.to_be_bytes()).as_bytes()
    }

    /// Inserts an association with an end that has none of its keys yet.
    pub(super) fn insert(
        &self,
        now: Micros,
        peer: Destination,
        tls: Connection,
        rng: &mut SmallRng,
    ) -> Arc<Association> {
        let mut by_id = self.by_id.write();
        let local = loop {
            let id = rng.next_u64();
            if id != 0 && !by_id.contains_key(&id) {
                break id;
            }
        };
        let handshake = Handshake::new(now, tls, self.proof(local), &self.credentials().token);
        let generation = self.generation.load(Ordering::Acquire);
        let state = Mutex::new(State::new(now, peer, handshake, generation));
        let association = Arc::new(Association { local, routes: AtomicU32::new(0), state });
        by_id.insert(local, Arc::clone(&association));
        association
    }

    /// The initiator's first datagram came for this association. Its repetitions come, too.
    pub(super) fn note_greeting(
        &self,
        initiator: SocketAddr,
        from: AssociationId,
        association: &Arc<Association>,
    ) {
        self.greeted.lock().insert((initiator, from), Arc::clone(association));
    }

    /// No repetitions of the first datagram are expected any more.
    pub(super) fn forget_greeting(&self, initiator: SocketAddr, from: AssociationId) {
        self.greeted.lock().remove(&(initiator, from));
    }

    /// From now on what is sent to a destination goes through this association. Returns the one before.
    pub(super) fn route(
        &self,
        destination: Destination,
        association: &Arc<Association>,
    ) -> Option<Arc<Association>> {
        let before = self.by_destination.write().insert(destination, Arc::clone(association))?;
        (before.local != association.local).then(|| {
            before.end_routes();
            before
        })
    }

    /// A datagram of the peer came from another address. Somebody on the path may have sent it on from there.
    pub(super) fn move_to(&self, association: &Arc<Association>, state: &mut State, address: SocketAddr) {
        self.route(Destination { address, rights: state.rights }, association);
        state.former.retain(|former| *former != address);
        state.former.push(state.peer);
        if state.former.len() > MOST_FORMER {
            let (address, rights) = (state.former.remove(0), state.rights);
            self.end_route(association, Destination { address, rights });
        }
        state.peer = address;
    }

    /// Forgets an association, wherever it is listed.
    pub(super) fn remove(&self, association: &Association, state: &State) {
        self.by_id.write().remove(&association.local);
        self.forget_greeting(state.peer, state.remote);
        self.end_routes(association, state);
    }

    /// What is sent from now on does not go through this association.
    pub(super) fn end_routes(&self, association: &Association, state: &State) {
        for address in state.former.iter().chain([&state.peer]) {
            self.end_route(association, Destination { address: *address, rights: state.rights });
        }
    }

    fn end_route(&self, association: &Association, destination: Destination) {
        let mut by_destination = self.by_destination.write();
        if by_destination.get(&destination).is_some_and(|other| other.local == association.local) {
            by_destination.remove(&destination);
        }
        association.end_routes();
    }
}

impl Association {
    fn end_routes(&self) {
        self.routes.fetch_add(1, Ordering::Relaxed);
    }
}

impl State {
    fn new(now: Micros, peer: Destination, handshake: Handshake, generation: u32) -> Self {
        Self {
            peer: peer.address,
            rights: peer.rights,
            admission: Admission::Open,
            waiting_workers: Vec::new(),
            former: Vec::new(),
            remote: 0,
            handshake: Some(Box::new(handshake)),
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
            unanswered_since: Micros::MAX,
            probes: 0,
            probed_at: 0,
            is_replaced: false,
            is_resting: false,
            generation,
        }
    }

    /// Whom datagrams reach through it.
    pub fn destination(&self) -> Destination {
        Destination { address: self.peer, rights: self.rights }
    }

    /// Seals the datagram in `buffer` from `start` on. False: there are no keys yet, or the peer is silent.
    pub fn seal(&mut self, now: Micros, buffer: &mut Vec<u8>, start: usize) -> bool {
        if self.is_silent(now) {
            return false;
        }
        let Some(keys) = &mut self.keys else {
            return false;
        };
        keys.sealer.seal(buffer, start);
        self.unanswered_since = self.unanswered_since.min(now);
        (self.sent_at, self.is_resting) = (now, false);
        true
    }

    /// Handles that a datagram of the peer was opened.
    pub fn heard(&mut self, now: Micros) {
        (self.heard_at, self.is_resting, self.is_confirmed) = (now, false, true);
        (self.unanswered_since, self.probes) = (Micros::MAX, 0);
    }

    /// Whether the peer is to be asked, with a probe, if it still has its keys. True: it is now. Somebody who only
    /// listens answers nothing else.
    pub fn takes_probe(&mut self, now: Micros) -> bool {
        let since = if self.probes == 0 { self.unanswered_since } else { self.probed_at };
        let is_due = now >= since.saturating_add(PROBE_AFTER) && self.probes < PROBES;
        if is_due && self.probes == 0 {
            self.unanswered_since = now;
        }
        if is_due {
            self.probes += 1;
            self.probed_at = now;
        }
        is_due
    }

    /// The peer may have lost its keys: a probe is due now, unless there was one just now.
    pub fn doubt(&mut self, now: Micros) {
        self.unanswered_since = self.unanswered_since.min(now.saturating_sub(PROBE_AFTER));
    }

    /// The peer has been sent datagrams and probes again and again, and has not been heard. It may have lost its keys,
    /// without a reset that this end believes.
    pub fn is_silent(&self, now: Micros) -> bool {
        self.probes == PROBES && now > self.unanswered_since.saturating_add(SILENT_AFTER)
    }

    pub fn hold(&mut self, datagram: Vec<u8>) {
        self.held_bytes += datagram.len();
        self.held.push_back(datagram);
    }

    pub fn take_held(&mut self) -> VecDeque<Vec<u8>> {
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }
}

/// The routes that a worker used last. They save it the table's lock and a hash under a key for each datagram.
pub(super) struct RecentRoutes(Vec<Option<Route>>);

struct Route {
    destination: Destination,
    association: Arc<Association>,
    /// Of the association, when the route was found.
    routes: u32,
}

impl RecentRoutes {
    const SLOTS: usize = 64;

    pub fn new() -> Self {
        Self((0..Self::SLOTS).map(|_| None).collect())
    }

    /// `None`: the table has to be asked.
    pub fn get(&self, destination: &Destination) -> Option<&Association> {
        let route = self.0[Self::slot(destination)].as_ref()?;
        let is_valid = route.destination == *destination
            && route.routes == route.association.routes.load(Ordering::Relaxed);
        is_valid.then_some(&*route.association)
    }

    /// Asks the table.
    pub fn look_up(&mut self, shared: &Shared, destination: &Destination) -> Option<Arc<Association>> {
        let by_destination = shared.by_destination.read();
        let association = by_destination.get(destination)?;
        let routes = association.routes.load(Ordering::Relaxed);
        let route = Route { destination: *destination, association: Arc::clone(association), routes };
        self.0[Self::slot(destination)] = Some(route);
        Some(Arc::clone(association))
    }

    fn slot(destination: &Destination) -> usize {
        let address = &destination.address;
        let host = match address {
            SocketAddr::V4(address) => address.ip().to_bits() as usize,
            SocketAddr::V6(address) => address.ip().to_bits() as usize,
        };
        (host ^ usize::from(address.port())) % Self::SLOTS
    }
}

/// Ids were drawn at random by this end, and so are their own hashes.
#[derive(Clone, Copy)]
struct ById;

struct IdHasher(u64);

impl BuildHasher for ById {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(0)
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("an id is a u64");
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
