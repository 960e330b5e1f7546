//! The input of one iteration: one buffer for all connections of a worker, so that an idle connection holds
//! none.

use std::ops::Range;

use super::connection::{Connection, Ending};
use super::connections::ConnectionId;

/// All bytes that are read in one iteration. It should stay in the CPU cache until they are handled.
const BUFFER: usize = 512 * 1024;
/// The most that one connection may read in an iteration, so that other connections are read, too.
pub const SHARE: usize = 64 * 1024;
/// A larger buffer of decoded bytes is freed at the end of the iteration.
const KEPT: usize = 2 * BUFFER;

/// The input, in order.
pub struct Arrivals {
    raw: Box<[u8]>,
    filled: usize,
    /// The bytes that TLS and WebSocket decoded.
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

/// The input of one connection.
pub enum Input<'t> {
    Bytes(&'t [u8]),
    Ended(Ending),
}

impl Arrivals {
    pub fn new() -> Self {
        Self { raw: vec![0; BUFFER].into_boxed_slice(), filled: 0, opened: Vec::new(), list: Vec::new() }
    }

    /// Drops the input.
    pub fn clear(&mut self) {
        self.filled = 0;
        self.list.clear();
        self.opened.clear();
        if self.opened.capacity() > KEPT {
            self.opened = Vec::new();
        }
    }

    /// Whether there is no room left in this iteration.
    pub fn is_full(&self) -> bool {
        BUFFER - self.filled < SHARE || self.opened.len() > BUFFER
    }

    /// Each input with its connection, in order of arrival.
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

    /// A buffer for bytes that are read and discarded.
    pub fn scratch(&mut self) -> &mut [u8] {
        &mut self.raw[self.filled..]
    }

    /// Reads once from a connection, and returns the number of bytes. The end of a connection is added to the
    /// input.
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

    /// Adds the end of a connection to the input. Returns 0, as the number of bytes that were read.
    pub fn end(&mut self, id: ConnectionId, why: Ending) -> usize {
        self.list.push(Arrival { id, what: What::Ended(why) });
        0
    }
}
