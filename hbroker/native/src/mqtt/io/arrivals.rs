//! What one turn read: one buffer for all connections of a worker, so that an idle one holds none.

use std::ops::Range;

use super::connection::{Connection, Ending};
use super::connections::ConnectionId;

/// All that is read in a turn. It should stay in the cache until it is worked through.
const BUFFER: usize = 512 * 1024;
/// What one connection may bring in a turn, so that others get theirs.
pub const SHARE: usize = 64 * 1024;
/// A buffer of opened layers is not kept where a turn made it larger.
const KEPT: usize = 2 * BUFFER;

/// What came, in order.
pub struct Arrivals {
    raw: Box<[u8]>,
    filled: usize,
    /// What TLS and WebSocket held.
    opened: Vec<u8>,
    list: Vec<Arrival>,
}

struct Arrival {
    id: ConnectionId,
    what: What,
}

enum What {
    Raw(Range<usize>),
    Opened(Range<usize>),
    Ended(Ending),
}

/// What came on one connection.
pub enum Input<'t> {
    Bytes(&'t [u8]),
    Ended(Ending),
}

impl Arrivals {
    pub fn new() -> Self {
        Self { raw: vec![0; BUFFER].into_boxed_slice(), filled: 0, opened: Vec::new(), list: Vec::new() }
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.filled = 0;
        self.list.clear();
        self.opened.clear();
        if self.opened.capacity() > KEPT {
            self.opened = Vec::new();
        }
    }

    /// There is no room in this turn.
    pub fn is_full(&self) -> bool {
        BUFFER - self.filled < SHARE || self.opened.len() > BUFFER
    }

    /// Each with its connection, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, Input<'_>)> {
        self.list.iter().map(|arrival| {
            let input = match &arrival.what {
                What::Raw(span) => Input::Bytes(&self.raw[span.clone()]),
                What::Opened(span) => Input::Bytes(&self.opened[span.clone()]),
                What::Ended(why) => Input::Ended(*why),
            };
            (arrival.id, input)
        })
    }

    /// A place for what nobody wants.
    pub fn scratch(&mut self) -> &mut [u8] {
        &mut self.raw[self.filled..]
    }

    /// Reads from a connection, once; how many bytes. A connection that ended is told of among the arrivals.
    pub fn read(&mut self, id: ConnectionId, connection: &mut Connection) -> usize {
        let share = SHARE.min(connection.read_limit).clamp(1, BUFFER - self.filled);
        let end = self.filled + share;
        let count = match connection.read(&mut self.raw[self.filled..end]) {
            None => return 0,
            Some(Ok(0)) => return self.end(id, Ending::Closed),
            Some(Ok(count)) => count,
            Some(Err(_)) => return self.end(id, Ending::Failed),
        };
        let span = self.filled..self.filled + count;
        if connection.transport.is_plain() {
            self.filled = span.end;
            self.list.push(Arrival { id, what: What::Raw(span) });
            return count;
        }
        let start = self.opened.len();
        let result = connection.open_layers(&self.raw[span], &mut self.opened);
        if self.opened.len() > start {
            self.list.push(Arrival { id, what: What::Opened(start..self.opened.len()) });
        }
        match result {
            Ok(false) => {}
            Ok(true) => _ = self.end(id, Ending::Closed),
            Err(failure) => _ = self.end(id, Ending::Broken(failure)),
        }
        count
    }

    /// Adds word of a connection's end; 0, as the bytes that it brought.
    pub fn end(&mut self, id: ConnectionId, why: Ending) -> usize {
        self.list.push(Arrival { id, what: What::Ended(why) });
        0
    }
}
