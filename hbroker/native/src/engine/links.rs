//! All links of one engine: how they are found, which have something to send, and which timer is next.
//!
//! An accepted link is found by its session, whatever the source address (§3.1); one that this side opened by its peer's address.
//! Timers lie in a heap with at most one live entry for each link: a link whose deadline moved back keeps its earlier entry,
//! and is looked at once for nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use hashbrown::HashMap;
use slab::Slab;

use crate::Micros;
use crate::engine::event::Peer;
use crate::engine::ledger::Ledger;
use crate::keyed::Keyed;
use crate::link::Link;
use crate::link_id::LinkId;

/// A link and what the engine knows of it beside the link layer.
pub struct Entry {
    pub link: Link,
    pub session: u64,
    /// The peer opened it.
    pub inbound: bool,
    /// Python was told that it is up.
    pub announced: bool,
    /// A PUBLISH came over it.
    pub published: bool,
    /// How often a RESET gave it a new token while it was opening.
    pub token_renewals: u8,
    /// What each delivery that needs a PUBACK stands for.
    pub ledger: Ledger,
    id: LinkId,
    dirty: bool,
    /// The earliest entry in the timer heap; `Micros::MAX`: none.
    scheduled: Micros,
}

impl Entry {
    pub fn peer(&self) -> Peer {
        Peer {
            link: self.id,
            address: self.link.peer(),
            session: self.session,
            inbound: self.inbound,
        }
    }
}

pub struct Links {
    worker: u8,
    generation: u32,
    entries: Slab<Entry>,
    by_session: HashMap<u64, LinkId, Keyed>,
    by_address: HashMap<SocketAddr, LinkId, Keyed>,
    dirty: Vec<LinkId>,
    timers: BinaryHeap<Reverse<(Micros, LinkId)>>,
}

impl Links {
    pub fn new(worker: u8, hasher: Keyed) -> Self {
        Self {
            worker,
            generation: 0,
            entries: Slab::new(),
            by_session: HashMap::with_hasher(hasher.clone()),
            by_address: HashMap::with_hasher(hasher),
            dirty: Vec::new(),
            timers: BinaryHeap::new(),
        }
    }

    /// Adds a link: found by session where the peer opened it, else by the peer's address.
    pub fn insert(&mut self, link: Link, session: u64, inbound: bool) -> LinkId {
        self.generation = self.generation.wrapping_add(1);
        let slot = self.entries.vacant_key();
        let id = LinkId::new(self.worker, self.generation, slot);
        if inbound {
            self.by_session.insert(session, id);
        } else {
            self.by_address.insert(link.peer(), id);
        }
        self.entries.insert(Entry {
            link,
            session,
            inbound,
            announced: false,
            published: false,
            token_renewals: 0,
            ledger: Ledger::default(),
            id,
            dirty: false,
            scheduled: Micros::MAX,
        });
        id
    }

    /// Takes a link out.
    pub fn remove(&mut self, id: LinkId) -> Option<Entry> {
        self.get(id)?;
        let entry = self.entries.remove(id.slot());
        if entry.inbound {
            self.by_session.remove(&entry.session);
        } else {
            self.by_address.remove(&entry.link.peer());
        }
        Some(entry)
    }

    pub fn by_session(&self, session: u64) -> Option<LinkId> {
        self.by_session.get(&session).copied()
    }

    pub fn by_address(&self, address: SocketAddr) -> Option<LinkId> {
        self.by_address.get(&address).copied()
    }

    pub fn get(&self, id: LinkId) -> Option<&Entry> {
        self.entries.get(id.slot()).filter(|entry| entry.id == id)
    }

    /// The link, to change it. The caller says with [`Self::touch`] that it may now have something to send.
    pub fn get_mut(&mut self, id: LinkId) -> Option<&mut Entry> {
        self.entries
            .get_mut(id.slot())
            .filter(|entry| entry.id == id)
    }

    /// Has the link looked at when datagrams are next sealed.
    pub fn touch(&mut self, id: LinkId) {
        if let Some(entry) = self
            .entries
            .get_mut(id.slot())
            .filter(|entry| entry.id == id && !entry.dirty)
        {
            entry.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Calls `seal` for each link that was touched, and sets its timer anew.
    pub fn drain_touched(&mut self, mut seal: impl FnMut(&mut Entry)) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let Some(entry) = self
                .entries
                .get_mut(id.slot())
                .filter(|entry| entry.id == id)
            else {
                continue;
            };
            entry.dirty = false;
            seal(entry);
            if let Some(deadline) = entry
                .link
                .poll_timeout()
                .filter(|&deadline| deadline < entry.scheduled)
            {
                entry.scheduled = deadline;
                self.timers.push(Reverse((deadline, id)));
            }
        }
        self.dirty = dirty;
    }

    pub fn has_touched(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The earliest time at which some link may need its timer.
    pub fn next_timeout(&self) -> Option<Micros> {
        self.timers.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// The next link whose timer is due; `None`: no more are.
    pub fn pop_due(&mut self, now: Micros) -> Option<LinkId> {
        while let Some(&Reverse((deadline, id))) = self.timers.peek() {
            if deadline > now {
                return None;
            }
            self.timers.pop();
            let Some(entry) = self
                .entries
                .get_mut(id.slot())
                .filter(|entry| entry.id == id)
            else {
                continue;
            };
            if entry.scheduled == deadline {
                entry.scheduled = Micros::MAX;
                return Some(id);
            }
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}
