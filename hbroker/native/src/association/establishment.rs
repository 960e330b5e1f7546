//! How associations come about: who may begin one, who is answered, and how the handshake goes on until there are
//! keys.
//!
//! - A node answers a handshake only from an address that is proved by a token (docs/protocol.md §4), with a part
//!   of its time, and as long as few are under way.
//! - Nothing that is not sealed changes an association that has keys.
//! - A datagram for which there are no keys yet is held, within bounds. Links send again what was dropped.
//! - A client answers the first datagram of a node's handshake with a handshake of its own: it has no certificate
//!   with which it could answer. So a node that has to speak first to a client gets an association, too.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::association::admission::{Admission, Request};
use crate::association::packet::{self, AssociationId, Segment};
use crate::association::table::{Association, Destination, Keys, State};
use crate::association::worker::{Associations, probe};

/// How many retries an initiator takes.
const MOST_RETRIES: u8 = 4;
/// The handshakes under way.
const MOST_HANDSHAKES: usize = 4_096;
/// An initiator's first datagram has at least so many bytes of TLS. Who answers a shorter one could be used to send more
/// to somebody else than what was sent to it.
const LEAST_GREETING: usize = 180;

impl Associations {
    /// Handles the first datagram of an initiator, or its repetition.
    pub(super) fn greet(
        &mut self,
        now: Micros,
        source: SocketAddr,
        from: AssociationId,
        token: &[u8],
        segment: &Segment<'_>,
    ) {
        if let Some(association) = self.shared.greeted_by(source, from) {
            return self.take_segment(now, &association, source, from, segment);
        }
        if from == 0 || segment.offset != 0 || segment.bytes.len() < LEAST_GREETING {
            return;
        }
        let Some(accepted) = self.shared.credentials().accept() else {
            if self.strangers.take(now) {
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
        let is_full = self.shared.greeted() >= MOST_HANDSHAKES || self.shared.is_full();
        let (false, Ok(tls), true) = (is_full, accepted, self.handshakes.take(now)) else {
            self.counters.handshakes_refused += 1;
            return;
        };
        let association = self.shared.insert(now, Destination::node(source), tls, &mut self.rng);
        self.shared.note_greeting(source, from, &association);
        self.take_segment(now, &association, source, from, segment);
    }

    /// A client answers the greeting of a node with one of its own, once for each: the source may be forged.
    fn answer_greeting(&mut self, now: Micros, source: SocketAddr) {
        let known = self.shared.of_destination(&Destination::node(source));
        let known = known.filter(|association| !association.state.lock().is_silent(now));
        let Some(association) = known.or_else(|| self.prepare(now, Destination::node(source))) else {
            return;
        };
        {
            let state = &mut *association.state.lock();
            if state.keys.is_some() {
                // A node with these keys sends through them again once it hears from this end.
                state.doubt(now);
                self.outgoing.extend(probe(now, state));
            }
            if let Some(handshake) = &mut state.handshake {
                handshake.repeat(now);
            }
        }
        self.drive(now, &association);
    }

    /// Begins an association; `None`: there are too many.
    pub(super) fn begin(&mut self, now: Micros, peer: Destination) -> Option<Arc<Association>> {
        let association = self.prepare(now, peer)?;
        self.drive(now, &association);
        Some(association)
    }

    /// Makes an association of which nothing is sent yet; `None`: there are too many.
    fn prepare(&mut self, now: Micros, peer: Destination) -> Option<Arc<Association>> {
        if self.shared.is_full() {
            return None;
        }
        let tls = self.shared.credentials().connect(peer.address).ok()?;
        let association = self.shared.insert(now, peer, tls, &mut self.rng);
        self.shared.route(peer, &association);
        Some(association)
    }

    pub(super) fn take_segment(
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
                (Err(_), true) if matches!(state.admission, Admission::NotAsked) => {
                    self.counters.handshakes_failed += 1; // The token cannot come any more.
                    return self.shared.remove(association, state);
                }
                (Err(_), true) => state.handshake = None,
                (Err(_), false) => {
                    self.counters.handshakes_failed += 1;
                    return self.shared.remove(association, state);
                }
            }
        }
        self.drive(now, association);
    }

    /// Handles a token: the first datagram is sent again with it.
    pub(super) fn retry(&mut self, now: Micros, source: SocketAddr, to: AssociationId, token: &[u8]) {
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

    /// Goes on with a handshake: takes its keys once they are there, sends what is due, and sets its timer.
    pub(super) fn drive(&mut self, now: Micros, association: &Arc<Association>) {
        let replaced = self.advance(now, association);
        if let Some(replaced) = replaced {
            self.take_over(association, &replaced);
        }
    }

    /// Does what is due of a handshake. Returns the association that had the peer's address until now, if this
    /// one has got its keys.
    fn advance(&mut self, now: Micros, association: &Arc<Association>) -> Option<Arc<Association>> {
        let state = &mut *association.state.lock();
        let handshake = state.handshake.as_mut()?;
        let (local, remote, is_acceptor) = (association.local, state.remote, handshake.is_acceptor());
        // Before the keys are used, so that the peer has them when it gets the first sealed datagram.
        let segments = handshake.poll_segments(now);
        let datagrams =
            segments.iter().map(|segment| (state.peer, packet::stream(remote, local, &state.token, segment)));
        self.outgoing.extend(datagrams);
        let mut replaced = None;
        if handshake.is_proved() && state.keys.is_none() {
            let secrets = handshake.secrets();
            if let Some(log) = self.shared.credentials().key_log {
                log.note(remote, secrets.algorithm, &secrets.sent);
                log.note(local, secrets.algorithm, &secrets.received);
            }
            state.keys = Some(Keys::new(&secrets, remote));
            state.certificate = handshake.peer_certificate().map(|certificate| certificate.to_vec());
            if !self.shared.is_believed(state) {
                self.counters.handshakes_failed += 1;
                self.shared.remove(association, state);
                return None;
            }
            self.counters.handshakes += 1;
            if is_acceptor && state.certificate.is_none() && self.shared.requires_tokens {
                state.admission = Admission::NotAsked;
            } else {
                replaced = self.shared.route(state.destination(), association);
                self.send_held(state);
            }
        }
        let Some(handshake) = &mut state.handshake else {
            return replaced;
        };
        if matches!(state.admission, Admission::NotAsked)
            && let Some(token) = handshake.peer_token()
        {
            state.admission = Admission::Asked;
            self.requests.push_back(Request {
                association: local,
                source: state.peer,
                token: token.to_vec(),
            });
        }
        state.peer_proof = handshake.peer_proof();
        let has_failed = state.keys.is_none()
            || !state.is_confirmed && !handshake.is_acked()
            || matches!(state.admission, Admission::NotAsked);
        if handshake.has_timed_out(now) && has_failed {
            self.counters.handshakes_failed += 1;
            self.counters.not_held += state.held.len() as u64;
            self.shared.remove(association, state);
        } else if handshake.is_over() || handshake.has_timed_out(now) {
            state.handshake = None;
            state.token = Vec::new();
            self.shared.forget_greeting(state.peer, remote);
        } else {
            self.timers.insert((handshake.poll_timeout(), local));
        }
        replaced
    }

    /// What was held for an association that has no keys goes through this one, and that one is forgotten.
    pub(super) fn take_over(&mut self, association: &Association, replaced: &Association) {
        let held = {
            let other = &mut *replaced.state.lock();
            if other.keys.is_some() {
                return; // Its peer may still send through it.
            }
            self.shared.remove(replaced, other);
            other.take_held()
        };
        let state = &mut *association.state.lock();
        held.into_iter().for_each(|datagram| state.hold(datagram));
        self.send_held(state);
    }

    fn send_held(&mut self, state: &mut State) {
        let held = state.take_held();
        let Some(keys) = &mut state.keys else {
            return;
        };
        for mut datagram in held {
            keys.sealer.seal(&mut datagram, 0);
            self.outgoing.push_back((state.peer, datagram));
        }
    }
}
