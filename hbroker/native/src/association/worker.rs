//! What one worker has of the associations of its address: it opens and seals datagrams, and runs their timers.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::Micros;
use crate::association::admission::{Request, Waiting};
use crate::association::counters::Counters;
use crate::association::keys::Refused;
use crate::association::packet::{self, AssociationId, PROOF, Packet, RESET_BYTES, SealedHeader};
use crate::association::table::{Association, Destination, RecentRoutes, Shared, State};
use crate::engine::transport::token_bucket::RateLimit;
use crate::rights::Rights;

/// The datagrams that wait for the keys of one association, in bytes.
const MOST_HELD: usize = 64 * 1_024;
/// Handshakes that a worker answers in a second, and at once. One costs about 0.25 ms.
const HANDSHAKES_PER_SECOND: u32 = 3_000;
const HANDSHAKES_AT_ONCE: u32 = 500;
/// An association on which nothing was sent or received for this time drops its keys, and derives them again.
const REST_AFTER: Micros = 60_000_000;
/// One from which nothing came for this time is forgotten.
const FORGET_AFTER: Micros = 600_000_000;
const SWEEP: Micros = 30_000_000;

/// The associations of an address, for one of its workers.
pub struct Associations {
    pub(super) shared: Arc<Shared>,
    pub(super) worker: usize,
    pub(super) rng: SmallRng,
    recent: RecentRoutes,
    pub(super) timers: BTreeSet<(Micros, AssociationId)>,
    pub(super) outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) strangers: RateLimit,
    pub(super) handshakes: RateLimit,
    /// Clients of whom somebody has to say what they may do.
    pub(super) requests: VecDeque<Request>,
    pub(super) waiting: Waiting,
    /// Of the sender of the datagram that was opened last; `None`: a node, or any client where no tokens are required.
    pub(super) rights: Option<Arc<Rights>>,
    /// When to look for associations to forget; worker 0 alone does.
    sweep_at: Micros,
    pub(super) counters: Counters,
}

impl Associations {
    /// `worker`: its number.
    pub fn new(shared: Arc<Shared>, worker: usize) -> Self {
        let strangers = shared.strangers;
        Self {
            rng: SmallRng::seed_from_u64(shared.seed ^ (worker as u64 + 1)),
            shared,
            worker,
            requests: VecDeque::new(),
            waiting: Waiting::default(),
            rights: None,
            recent: RecentRoutes::new(),
            timers: BTreeSet::new(),
            outgoing: VecDeque::new(),
            strangers: RateLimit::new(strangers, strangers),
            handshakes: RateLimit::new(HANDSHAKES_PER_SECOND, HANDSHAKES_AT_ONCE),
            sweep_at: if worker == 0 { 0 } else { Micros::MAX },
            counters: Counters::default(),
        }
    }

    // In

    /// Opens a datagram where it lies. Returns what was sealed ([`Self::rights`]: who sent it); `None`: the datagram
    /// was for the associations themselves, is kept until somebody has said what its sender may do, or was dropped. `now`: microseconds since the Unix epoch, because tokens have a time.
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
            if self.waiting.forget_late(now, id) {
                self.end_undecided(id);
            }
            if let Some(association) = self.shared.of_id(id) {
                self.drive(now, &association);
            }
        }
        self.take_admitted();
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP;
            self.sweep(now);
        }
    }

    /// Tells all peers that the keys are gone, so that they begin anew at once.
    pub fn reset_peers(&mut self) {
        for association in self.shared.all() {
            let state = &*association.state.lock();
            if state.keys.is_some() {
                self.outgoing.push_back((state.peer, packet::reset(self.shared.proof(association.local))));
            }
        }
    }

    // Out

    /// Seals the datagram in `buffer` from `start` on, behind [`packet::SEALED_HEADER`] bytes of room. False: there are no
    /// keys yet. Then the buffer is cut off at `start`, and the datagram is held until there are.
    pub fn seal(
        &mut self,
        now: Micros,
        destination: &Destination,
        buffer: &mut Vec<u8>,
        start: usize,
    ) -> bool {
        if let Some(association) = self.recent.get(destination) {
            let state = &mut *association.state.lock();
            if state.seal(now, buffer, start) {
                self.outgoing.extend(probe(now, state));
                return true;
            }
        }
        let known = self.recent.look_up(&self.shared, destination);
        let known = known.filter(|association| {
            let state = &mut *association.state.lock();
            state.is_replaced |= state.is_silent(now);
            !state.is_replaced
        });
        let Some(association) = known.or_else(|| self.begin(now, *destination)) else {
            self.counters.not_held += 1;
            buffer.truncate(start);
            return false;
        };
        let state = &mut *association.state.lock();
        if state.seal(now, buffer, start) {
            self.outgoing.extend(probe(now, state));
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
        if self.shared.admitted.has_some_for(self.worker) {
            return 0;
        }
        self.timers.first().map_or(Micros::MAX, |(due, _)| *due).min(self.sweep_at)
    }

    /// As [`Shared::certificate`].
    pub fn certificate(&self, peer: SocketAddr) -> Option<Vec<u8>> {
        self.shared.certificate(peer)
    }

    /// As [`Shared::has`].
    pub fn has(&self, association: AssociationId) -> bool {
        self.shared.has(association)
    }

    /// As [`Shared::set_rights`].
    pub fn set_rights(&self, association: AssociationId, rights: Arc<Rights>) -> bool {
        self.shared.set_rights(association, rights)
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether no datagram waits for keys.
    pub fn is_drained(&self) -> bool {
        self.shared.all().iter().all(|association| association.state.lock().held.is_empty())
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
        let (is_replaced, is_admitted) = {
            let state = &mut *association.state.lock();
            // The initiator's last flight may still be on its way. The link sends this datagram again.
            let keys = state.keys.as_mut()?;
            match keys.opener.open(header, datagram) {
                Ok((_, is_newest)) => {
                    state.heard(now);
                    if is_newest && source != state.peer && state.admission.is_decided() {
                        self.shared.move_to(&association, state, source);
                    }
                }
                Err(Refused::Replayed) => {
                    self.counters.replayed += 1;
                    return None;
                }
                Err(Refused::Forged) => {
                    self.counters.forged += 1;
                    return None;
                }
            }
            (std::mem::take(&mut state.is_replaced), state.admission.give(&mut self.rights))
        };
        if is_replaced {
            self.reinstate(&association);
        }
        let opened = packet::body(datagram);
        if *opened == packet::PROBE && !is_admitted {
            return None; // If it is never admitted, the peer begins again.
        }
        if *opened == packet::PROBE {
            let state = &mut *association.state.lock();
            self.outgoing.push_back((state.peer, sealed(now, state, &[])));
            return None;
        }
        if !is_admitted {
            self.keep_opened(now, &association, source, opened);
            return None;
        }
        (!opened.is_empty()).then_some(opened)
    }

    /// A peer that was silent is heard again. What is for it goes through its association, unless another one has
    /// keys.
    fn reinstate(&mut self, association: &Arc<Association>) {
        let peer = association.state.lock().destination();
        let other = self.shared.of_destination(&peer).filter(|other| other.local != association.local);
        if other.as_ref().is_some_and(|other| other.state.lock().keys.is_some()) {
            return;
        }
        self.shared.route(peer, association);
        if let Some(other) = other {
            self.take_over(association, &other);
        }
    }

    /// Forgets an association whose peer has lost it. What is sent next begins another.
    fn reset(&mut self, source: SocketAddr, proof: [u8; PROOF]) {
        let Some(association) = self.shared.of_destination(&Destination::node(source)) else {
            return;
        };
        let state = &*association.state.lock();
        if state.peer_proof == Some(proof) {
            self.counters.reset += 1;
            self.shared.remove(&association, state);
        }
    }

    fn sweep(&mut self, now: Micros) {
        for association in self.shared.all() {
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

/// The probe that is due to a peer.
pub(super) fn probe(now: Micros, state: &mut State) -> Option<(SocketAddr, Vec<u8>)> {
    state.takes_probe(now).then(|| (state.peer, sealed(now, state, &packet::PROBE)))
}

/// Seals a datagram of the associations themselves. There are keys.
fn sealed(now: Micros, state: &mut State, bytes: &[u8]) -> Vec<u8> {
    let mut datagram = [&[0; packet::SEALED_HEADER][..], bytes].concat();
    if let Some(keys) = &mut state.keys {
        keys.sealer.seal(&mut datagram, 0);
        (state.sent_at, state.is_resting) = (now, false);
    }
    datagram
}
