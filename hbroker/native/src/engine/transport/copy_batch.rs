//! Messages of `QoS` 0 for sessions of another worker.
//!
//! While a worker handles a receive batch, it collects the copies for the same sessions of another worker
//! into one handoff. So memory, a slot in the mailbox, and reading the packets are paid once for many
//! messages. The other worker reads them like the packets of a datagram.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::metrics::message_metrics::MessageMetrics;
use crate::link_id::SessionKey;
use crate::load::latency::Sample;
use crate::wire;

/// A handoff has at most this number of bytes, unless it is a single message; so the memory of a mailbox
/// stays small.
pub const MOST_BYTES: usize = 16 * 1024;

/// The messages of one handoff, and the sessions of the receiving worker that get a copy of each.
#[derive(Clone, Debug)]
pub struct CopyBatch {
    /// Fields `packets`, end to end.
    pub(in crate::engine) packets: Vec<u8>,
    /// The number of messages.
    pub(in crate::engine) count: u32,
    pub(in crate::engine) sessions: SmallVec<[SessionKey; 4]>,
    /// The timed messages, by their positions.
    pub(in crate::engine) timed: Vec<(u32, Arc<Sample>)>,
}

impl CopyBatch {
    /// Adds `count` messages: fields `packets` without numbers, end to end. `timed`: the timed ones among
    /// them, by their positions in `packets`.
    pub fn add(&mut self, packets: &[u8], count: u32, timed: impl Iterator<Item = (u32, Arc<Sample>)>) {
        if self.count > 0 {
            self.packets.reserve(MOST_BYTES.saturating_sub(self.packets.len()).max(packets.len()));
        }
        self.packets.extend_from_slice(packets);
        self.timed.extend(timed.map(|(position, sample)| (self.count + position, sample)));
        self.count += count;
    }

    /// Adds a message, of which this is the field `publish`.
    pub fn add_one(&mut self, field: &[u8], message_metrics: &MessageMetrics) {
        wire::put_packet(&mut self.packets, 0, 0, None, field);
        self.timed.extend(message_metrics.sample().map(|sample| (self.count, Arc::clone(sample))));
        self.count += 1;
    }
}

/// The timed messages among `count` messages from `first` on, by their positions among these.
pub(in crate::engine) fn timed_of(
    timed: &[(u32, Arc<Sample>)],
    first: u32,
    count: u32,
) -> impl Iterator<Item = (u32, Arc<Sample>)> {
    let timed = timed.iter().filter(move |(position, _)| (first..first + count).contains(position));
    timed.map(move |(position, sample)| (position - first, Arc::clone(sample)))
}
