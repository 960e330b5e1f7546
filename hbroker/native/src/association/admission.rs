//! What a client may do, before its datagrams are handled: Python reads its token, and says so.
//!
//! ```text
//!     NotAsked --its token is here--> Asked --Python has answered--> Granted      a client
//!     Open                                                                        a node; no tokens are required
//! ```
//!
//! Until `Granted` the client's datagrams are opened and kept, within bounds, and nothing is sent to it. Rights may
//! change later: a token expires, or is revoked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::Micros;
use crate::association::packet::AssociationId;
use crate::association::table::{Association, Shared};
use crate::association::worker::Associations;
use crate::rights::Rights;

/// The opened datagrams of one client that are kept, and those of all clients of a worker, in bytes.
const MOST_OF_ONE: usize = 64 * 1_024;
const MOST_OF_ALL: usize = 16 * 1_024 * 1_024;
/// What each counts beside its bytes.
const COST: usize = 64;
/// They are kept for this time.
const KEPT_FOR: Micros = 5_000_000;

/// Whether it is known what the peer of an association may do.
pub enum Admission {
    Open,
    NotAsked,
    Asked,
    Granted(Arc<Rights>),
}

/// Somebody has to say what a client may do.
pub struct Request {
    pub association: AssociationId,
    pub source: SocketAddr,
    pub token: Vec<u8>,
}

impl Admission {
    pub fn is_decided(&self) -> bool {
        matches!(self, Self::Open | Self::Granted(_))
    }

    /// Copies the rights, if they are others. False: they are not known yet.
    pub fn give(&self, rights: &mut Option<Arc<Rights>>) -> bool {
        match self {
            Self::Open => *rights = None,
            Self::Granted(granted) => {
                if !rights.as_ref().is_some_and(|known| Arc::ptr_eq(known, granted)) {
                    *rights = Some(Arc::clone(granted));
                }
            }
            Self::NotAsked | Self::Asked => return false,
        }
        true
    }
}

/// The associations that a worker has to look at, because Python has answered: by worker, with the association that
/// was begun for the same destination before.
#[derive(Default)]
pub struct Admitted {
    count: AtomicUsize,
    listed: Mutex<Vec<(usize, AssociationId, Option<Arc<Association>>)>>,
}

impl Admitted {
    fn add(&self, worker: usize, id: AssociationId, replaced: Option<Arc<Association>>) {
        let mut listed = self.listed.lock();
        listed.push((worker, id, replaced));
        self.count.store(listed.len(), Ordering::Release);
    }

    pub fn has_some_for(&self, worker: usize) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.listed.lock().iter().any(|(of, ..)| *of == worker)
    }

    fn take(&self, worker: usize) -> Vec<(AssociationId, Option<Arc<Association>>)> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut listed = self.listed.lock();
        let taken =
            listed.extract_if(.., |(of, ..)| *of == worker).map(|(_, id, replaced)| (id, replaced)).collect();
        self.count.store(listed.len(), Ordering::Release);
        taken
    }
}

/// What a worker has opened, and keeps until the rights of who sent it are known.
#[derive(Default)]
pub struct Waiting {
    by_id: HashMap<AssociationId, Kept>,
    bytes: usize,
    /// What may be handled now, with the rights of who sent it.
    ready: std::collections::VecDeque<(Option<Arc<Rights>>, SocketAddr, Vec<u8>)>,
}

struct Kept {
    until: Micros,
    bytes: usize,
    datagrams: Vec<(SocketAddr, Vec<u8>)>,
}

impl Waiting {
    /// Forgets what waits for this association, if it waits for too long.
    pub fn forget_late(&mut self, now: Micros, id: AssociationId) {
        if self.by_id.get(&id).is_some_and(|kept| kept.until <= now) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: AssociationId) -> Vec<(SocketAddr, Vec<u8>)> {
        let kept = self.by_id.remove(&id);
        self.bytes -= kept.as_ref().map_or(0, |kept| kept.bytes);
        kept.map_or_else(Vec::new, |kept| kept.datagrams)
    }

    /// False: there is no room.
    fn keep(&mut self, now: Micros, id: AssociationId, source: SocketAddr, opened: &[u8]) -> bool {
        let cost = opened.len() + COST;
        let kept = self.by_id.get(&id).map_or(0, |kept| kept.bytes);
        if kept + cost > MOST_OF_ONE || self.bytes + cost > MOST_OF_ALL {
            return false;
        }
        let first = || Kept { until: now + KEPT_FOR, bytes: 0, datagrams: Vec::new() };
        let kept = self.by_id.entry(id).or_insert_with(first);
        kept.bytes += cost;
        kept.datagrams.push((source, opened.to_vec()));
        self.bytes += cost;
        true
    }
}

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
        self.end_routes(&association, state);
        state.rights = rights.key;
        state.admission = Admission::Granted(rights);
        let mut replaced = self.route(state.destination(), &association);
        if is_first {
            let keepers = std::mem::take(&mut state.keepers);
            for worker in if keepers.is_empty() { vec![0] } else { keepers } {
                self.admitted.add(worker, id, replaced.take());
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
        let (rights, source, opened) = self.waiting.ready.pop_front()?;
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
        let is_first = !self.waiting.by_id.contains_key(&id);
        if !self.waiting.keep(now, id, source, opened) {
            self.counters.not_held += 1;
            return;
        }
        if !is_first {
            return;
        }
        let state = &mut *association.state.lock();
        if state.admission.is_decided() {
            self.shared.admitted.add(self.worker, id, None); // Python has answered just now.
        } else {
            state.keepers.push(self.worker);
            self.timers.insert((now + KEPT_FOR, id));
        }
    }

    /// Takes up what waited for an answer of Python.
    pub(super) fn take_admitted(&mut self) {
        for (id, replaced) in self.shared.admitted.take(self.worker) {
            let kept = self.waiting.remove(id);
            let Some(association) = self.shared.of_id(id) else {
                continue;
            };
            if let Some(replaced) = replaced {
                self.take_over(&association, &replaced);
            }
            let mut rights = None;
            if association.state.lock().admission.give(&mut rights) {
                let kept = kept.into_iter().map(|(source, opened)| (rights.clone(), source, opened));
                self.waiting.ready.extend(kept);
            }
        }
    }
}
