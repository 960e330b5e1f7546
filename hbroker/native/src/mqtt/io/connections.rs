//! All connections of a worker, as the protocol accesses them.

use mio::event::Event;
use mio::net::TcpStream;
use slab::Slab;

use super::connection::{Connection, LINGER};
use super::output::Output;
use crate::Micros;
use crate::mqtt::io::timers::{Timer, TimerOf, Timers};

/// Identifies a connection. An id is not reused until the generation wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The bits of an id: worker, generation, slot.
const SLOT_BITS: u32 = 32;
const GENERATION_BITS: u32 = 24;

impl ConnectionId {
    fn new(worker: u8, generation: u32, slot: u32) -> Self {
        let worker = u64::from(worker) << (SLOT_BITS + GENERATION_BITS);
        Self(worker | u64::from(generation) << SLOT_BITS | u64::from(slot))
    }

    pub fn worker(self) -> u8 {
        (self.0 >> (SLOT_BITS + GENERATION_BITS)) as u8
    }

    fn generation(self) -> u32 {
        (self.0 >> SLOT_BITS) as u32 & ((1 << GENERATION_BITS) - 1)
    }

    pub(super) fn slot(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The state of a new connection.
pub struct Opening<C> {
    pub conversation: C,
    /// The deadline of `handle_timeout`.
    pub deadline: Option<Micros>,
    /// How many bytes the protocol takes from one read, at most.
    pub read_limit: usize,
}

/// A connection and the protocol's state of it, which is there until either side closes.
pub struct Entry<C> {
    pub(super) connection: Connection,
    pub(super) conversation: Option<C>,
}

/// The connections of a worker. `C`: the protocol's state of each.
pub struct Connections<C> {
    worker: u8,
    /// Boxed, because a slab moves its entries when it grows.
    entries: Slab<Box<Entry<C>>>,
    opened: u32,
    timers: Timers<ConnectionId>,
    /// Connections to write to at the end of the iteration.
    pub(super) dirty: Vec<ConnectionId>,
    /// Connections to read from in the next iteration.
    pub(super) ready: Vec<ConnectionId>,
}

impl<C> Connections<C> {
    pub(super) fn new(worker: u8) -> Self {
        Self {
            worker,
            entries: Slab::new(),
            opened: 0,
            timers: Timers::new(),
            dirty: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// The connection and its state; `None`: it has ended.
    pub fn get(&mut self, id: ConnectionId) -> Option<(&Connection, &mut C)> {
        let entry = self.entry(id)?;
        Some((&entry.connection, entry.conversation.as_mut()?))
    }

    /// The protocol's state, and the output to write to. The output is sent at the end of the iteration.
    pub fn write(&mut self, id: ConnectionId) -> Option<(&mut C, &mut Output)> {
        let entry = self.entries.get_mut(id.slot())?;
        let conversation =
            entry.conversation.as_mut().filter(|_| entry.connection.generation == id.generation())?;
        if entry.connection.mark_dirty() {
            self.dirty.push(id);
        }
        Some((conversation, &mut entry.connection.plain))
    }

    /// Sets the deadline of `handle_timeout`, in place of the last one. `None`: never.
    pub fn set_deadline(&mut self, id: ConnectionId, due: Option<Micros>) {
        if let Some(entry) = get(&mut self.entries, id).filter(|entry| entry.conversation.is_some()) {
            self.timers.set(id, &mut entry.connection.timer, due);
        }
    }

    /// Pauses or resumes reading. Meanwhile TCP's flow control slows the client down.
    pub fn set_paused(&mut self, id: ConnectionId, paused: bool) {
        if get(&mut self.entries, id).is_some_and(|entry| entry.connection.set_paused(paused)) {
            self.ready.push(id);
        }
    }

    /// Sets how many bytes the protocol takes from one read, at most. (A layer that buffered some may deliver
    /// more.)
    pub fn set_read_limit(&mut self, id: ConnectionId, limit: usize) {
        if let Some(entry) = self.entry(id) {
            entry.connection.read_limit = limit;
        }
    }

    /// Closes a connection once its output is sent. Returns the protocol's state.
    pub fn close(&mut self, id: ConnectionId) -> Option<C> {
        let entry = get(&mut self.entries, id)?;
        let conversation = entry.conversation.take()?;
        entry.connection.begin_close();
        if entry.connection.mark_dirty() {
            self.dirty.push(id);
        }
        Some(conversation)
    }

    /// Closes a connection at once; its output may be lost. Returns the protocol's state.
    pub fn abort(&mut self, id: ConnectionId) -> Option<C> {
        let entry = get(&mut self.entries, id)?;
        let conversation = entry.conversation.take();
        entry.connection.die();
        self.dirty.push(id);
        conversation
    }

    /// The open connections.
    pub fn ids(&self) -> Vec<ConnectionId> {
        let open = self.entries.iter().filter(|(_, entry)| entry.conversation.is_some());
        open.map(|(slot, entry)| ConnectionId::new(self.worker, entry.connection.generation, slot as u32))
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The id of the next connection.
    pub(super) fn next_id(&mut self) -> ConnectionId {
        self.opened = (self.opened + 1) & ((1 << GENERATION_BITS) - 1);
        ConnectionId::new(self.worker, self.opened, self.entries.vacant_key() as u32)
    }

    pub(super) fn insert(&mut self, id: ConnectionId, mut connection: Connection) {
        connection.generation = id.generation();
        let slot = self.entries.insert(Box::new(Entry { connection, conversation: None }));
        debug_assert_eq!(slot, id.slot());
    }

    pub(super) fn begin(&mut self, id: ConnectionId, opening: Opening<C>) {
        if let Some(entry) = self.entry(id) {
            entry.conversation = Some(opening.conversation);
            self.set_deadline(id, opening.deadline);
            self.set_read_limit(id, opening.read_limit);
        }
    }

    pub(super) fn entry(&mut self, id: ConnectionId) -> Option<&mut Entry<C>> {
        get(&mut self.entries, id)
    }

    /// Removes a connection. Its socket closes when it is dropped.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<TcpStream> {
        get(&mut self.entries, id)?;
        let entry = self.entries.remove(id.slot());
        Some(entry.connection.socket)
    }

    /// Gives the peer `LINGER` to take the rest of the output, and to close, too.
    pub(super) fn linger(&mut self, id: ConnectionId, now: Micros) {
        if let Some(entry) = get(&mut self.entries, id) {
            self.timers.set(id, &mut entry.connection.timer, Some(now + LINGER));
            if entry.connection.set_paused(false) {
                self.ready.push(id);
            }
        }
    }

    /// Handles an event of the poll for a slot.
    pub(super) fn handle_event(&mut self, slot: usize, event: &Event) {
        let Some(entry) = self.entries.get_mut(slot) else {
            return;
        };
        let id = ConnectionId::new(self.worker, entry.connection.generation, slot as u32);
        let last = event.is_read_closed() || event.is_error();
        if (event.is_readable() || last) && entry.connection.mark_readable(last) {
            self.ready.push(id);
        }
        if (event.is_writable() || event.is_error()) && entry.connection.mark_dirty() {
            self.dirty.push(id);
        }
    }

    /// The earliest time at which a deadline may be due.
    pub(super) fn next_deadline(&self) -> Option<Micros> {
        self.timers.next()
    }

    /// The next connection whose deadline has passed.
    pub(super) fn pop_due(&mut self, now: Micros) -> Option<ConnectionId> {
        self.timers.pop(now, &mut self.entries)
    }
}

impl<C> TimerOf<ConnectionId> for Slab<Box<Entry<C>>> {
    fn timer_of(&mut self, id: ConnectionId) -> Option<&mut Timer> {
        get(self, id).map(|entry| &mut entry.connection.timer)
    }
}

fn get<C>(entries: &mut Slab<Box<Entry<C>>>, id: ConnectionId) -> Option<&mut Entry<C>> {
    let entry = entries.get_mut(id.slot())?;
    (entry.connection.generation == id.generation()).then_some(&mut **entry)
}
