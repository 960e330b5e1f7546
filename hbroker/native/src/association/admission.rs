//! What a client may do, before its datagrams are handled: Python reads its token, and says so.
//!
//! ```text
//!     NotAsked --its token is here--> Asked --Python has answered--> Granted      a client
//!     Open                                                                        a node; no tokens are required
//! ```
//!
//! Until `Granted` the client's datagrams are opened and kept, within bounds, and nothing is sent to it. Rights may
//! change later: a token expires, or is revoked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::Micros;
use crate::association::packet::AssociationId;
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

/// The clients of which Python has said something, for the workers that have to look at them.
pub struct Admitted<A> {
    count: AtomicUsize,
    listed: Mutex<Vec<AdmittedClient<A>>>,
}

/// `replaced`: the association that was begun for the same destination before.
pub struct AdmittedClient<A> {
    pub worker: usize,
    pub id: AssociationId,
    pub replaced: Option<Arc<A>>,
}

impl<A> Default for Admitted<A> {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), listed: Mutex::default() }
    }
}

impl<A> Admitted<A> {
    pub fn add(&self, admitted: AdmittedClient<A>) {
        let mut listed = self.listed.lock();
        listed.push(admitted);
        self.count.store(listed.len(), Ordering::Release);
    }

    pub fn has_some_for(&self, worker: usize) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.listed.lock().iter().any(|one| one.worker == worker)
    }

    pub fn take(&self, worker: usize) -> Vec<AdmittedClient<A>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut listed = self.listed.lock();
        let taken = listed.extract_if(.., |one| one.worker == worker).collect();
        self.count.store(listed.len(), Ordering::Release);
        taken
    }
}

/// What a worker has opened, and keeps until the rights of who sent it are known.
#[derive(Default)]
pub struct Waiting {
    by_id: HashMap<AssociationId, Kept>,
    bytes: usize,
    ready: VecDeque<ReadyDatagram>,
}

/// What may be handled now. `rights`: of who sent it.
pub struct ReadyDatagram {
    pub rights: Option<Arc<Rights>>,
    pub source: SocketAddr,
    pub opened: Vec<u8>,
}

struct Kept {
    until: Micros,
    bytes: usize,
    datagrams: Vec<(SocketAddr, Vec<u8>)>,
}

impl Waiting {
    /// Forgets what waits for this association, if it waits for too long. True: it did.
    pub fn forget_late(&mut self, now: Micros, id: AssociationId) -> bool {
        let is_late = self.by_id.get(&id).is_some_and(|kept| kept.until <= now);
        if is_late {
            self.remove(id);
        }
        is_late
    }

    pub fn has(&self, id: AssociationId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// What was kept for a client may be handled now.
    pub fn release(&mut self, id: AssociationId, rights: &Option<Arc<Rights>>) {
        for (source, opened) in self.remove(id) {
            self.ready.push_back(ReadyDatagram { rights: rights.clone(), source, opened });
        }
    }

    pub fn poll_ready(&mut self) -> Option<ReadyDatagram> {
        self.ready.pop_front()
    }

    pub fn remove(&mut self, id: AssociationId) -> Vec<(SocketAddr, Vec<u8>)> {
        let kept = self.by_id.remove(&id);
        self.bytes -= kept.as_ref().map_or(0, |kept| kept.bytes);
        kept.map_or_else(Vec::new, |kept| kept.datagrams)
    }

    /// Returns until when the datagram is kept; `None`: there is no room.
    pub fn keep(
        &mut self,
        now: Micros,
        id: AssociationId,
        source: SocketAddr,
        opened: &[u8],
    ) -> Option<Micros> {
        let cost = opened.len() + COST;
        let kept = self.by_id.get(&id).map_or(0, |kept| kept.bytes);
        if kept + cost > MOST_OF_ONE || self.bytes + cost > MOST_OF_ALL {
            return None;
        }
        let first = || Kept { until: now + KEPT_FOR, bytes: 0, datagrams: Vec::new() };
        let kept = self.by_id.entry(id).or_insert_with(first);
        kept.bytes += cost;
        kept.datagrams.push((source, opened.to_vec()));
        self.bytes += cost;
        Some(kept.until)
    }
}
