//! The rights of clients: Python says what a client may do, and the workers take up what they have kept of it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::association::admission::{Admission, AdmittedClient, ReadyDatagram, Request};
use crate::association::packet::AssociationId;
use crate::association::table::{Association, Shared};
use crate::association::worker::Associations;
use crate::rights::Rights;

impl Shared {
    /// From now on the client at the other end of an association may do this. False: there is no such association.
    /// Afterwards the workers have to run.
    pub fn set_rights(&self, id: AssociationId, rights: Arc<Rights>) -> bool {
        let Some(association) = self.of_id(id) else {
            return false;
        };
        let state = &mut *association.state.lock();
        let is_first = !state.admission.is_decided();
        if matches!(state.admission, Admission::Open) {
            return false;
        }
        let mut replaced = None;
        if is_first || state.rights != rights.key {
            self.end_routes(&association, state);
            state.rights = rights.key;
            replaced = self.route(state.destination(), &association);
        }
        state.admission = Admission::Granted(rights);
        if is_first {
            let workers = std::mem::take(&mut state.waiting_workers);
            for worker in if workers.is_empty() { vec![0] } else { workers } {
                self.admitted.add(AdmittedClient { worker, id, replaced: replaced.take() });
            }
        }
        true
    }
}

impl Associations {
    /// The rights of who sent the datagram that was opened last; `None`: it may do everything.
    pub fn rights(&self) -> Option<&Arc<Rights>> {
        self.rights.as_ref()
    }

    /// The next client of whom somebody has to say what it may do ([`Shared::set_rights`]).
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Nobody can say now what a client may do. It has to begin again.
    pub fn refuse(&mut self, request: &Request) {
        self.counters.handshakes_refused += 1;
        if let Some(association) = self.shared.of_id(request.association) {
            self.shared.remove(&association, &association.state.lock());
        }
    }

    /// The next datagram of those that were kept ([`Self::rights`]: who sent it), and its source.
    pub fn poll_admitted(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let ReadyDatagram { rights, source, opened } = self.waiting.poll_ready()?;
        self.rights = rights;
        Some((source, opened))
    }

    pub(super) fn keep_opened(
        &mut self,
        now: Micros,
        association: &Arc<Association>,
        source: SocketAddr,
        opened: &[u8],
    ) {
        if opened.is_empty() {
            return;
        }
        let id = association.local;
        let is_first = !self.waiting.has(id);
        let Some(until) = self.waiting.keep(now, id, source, opened) else {
            self.counters.not_held += 1;
            return;
        };
        if !is_first {
            return;
        }
        let state = &mut *association.state.lock();
        if state.admission.is_decided() {
            // Python has answered just now.
            self.shared.admitted.add(AdmittedClient { worker: self.worker, id, replaced: None });
        } else {
            state.waiting_workers.push(self.worker);
            self.timers.insert((until, id));
        }
    }

    /// Python has not answered in time, or the token did not come: the client has to begin again.
    pub(super) fn end_undecided(&mut self, id: AssociationId) {
        if let Some(association) = self.shared.of_id(id) {
            let state = &*association.state.lock();
            if !state.admission.is_decided() {
                self.counters.handshakes_refused += 1;
                self.shared.remove(&association, state);
            }
        }
    }

    /// Takes up what waited for an answer of Python.
    pub(super) fn take_admitted(&mut self) {
        for AdmittedClient { id, replaced, .. } in self.shared.admitted.take(self.worker) {
            let Some(association) = self.shared.of_id(id) else {
                self.waiting.remove(id);
                continue;
            };
            if let Some(replaced) = replaced {
                self.take_over(&association, &replaced);
            }
            let mut rights = None;
            if association.state.lock().admission.give(&mut rights) {
                self.waiting.release(id, &rights);
            }
        }
    }
}
