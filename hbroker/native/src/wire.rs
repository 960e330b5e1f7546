//! The wire codec: datagrams as views of the bytes that came, and packets appended to the bytes
//! that go (§2).
//!
//! A receiver takes exactly what a conforming protobuf parser takes (§2.1), so that a node of this
//! implementation and a client of another never disagree on whether a datagram was valid.
//! [`DatagramView::parse`] is the only door: it walks the datagram once, refuses it whole if any
//! part is malformed, and records one view for each packet, or for several that are alike. What the fast path reads of a message
//! stands in its view; the rest is found in the bytes when it is asked for, and cannot fail then.
//! Nothing is copied: a relay passes on the bytes of the field `publish` as they came (§2.3).
//!
//! - `reader`: varints, tags, lengths: protobuf's encoding, one field at a time
//! - `check`: walks the messages that the core hands up unread, by the schema generated from the `.proto`
//! - `view`, `publish`, `properties`, `acks`: datagram and packets; the message; what only applications read of it; acknowledgements
//! - `meant_for`: which subscriptions of a session a message is for
//! - `packets`, `layout`: packets that are like the one before them, and how they are known; `delta`: how one is written
//! - `records`: what a handover moves
//! - `requests`: whose a packet outside of a session is
//! - `emit`: the other direction

mod acks;
mod check;
mod delta;
mod emit;
mod layout;
mod meant_for;
mod packets;
mod properties;
mod publish;
mod reader;
mod records;
mod requests;
mod view;

#[cfg(test)]
mod tests;

pub use crate::wire::delta::Delta;
pub use crate::wire::layout::Span;
pub use acks::{AckView, CutView, PubAckView};
#[cfg(feature = "python")]
pub use emit::put_delta_field;
pub use emit::{
    AckOut, HeaderOut, PacketHead, PublishOut, delta_len, packet_len, put_challenge_field, put_credit_field,
    put_delta, put_fragment_field, put_header, put_packet, put_padding, put_ping_field, put_pong_field,
    put_puback_field, put_publish_field, put_reset_field,
};
pub use meant_for::MeantFor;
pub use packets::{Packets, Section};
pub use publish::{FragmentView, PublishView, field_of, first_field, message_of};
pub use records::{GoneRecord, QueuedRecord, SeenRecord, Transfers, Waiting, seen_record};
#[cfg(feature = "python")]
pub use records::{gone_record, queued_record};
pub use requests::{request_of, session_of};
pub use view::{Body, DatagramView, Header, Kind, PacketView, ViewBuffers, field_like, put_whole};

/// The largest payload of a UDP datagram over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;

/// The bytes are not a datagram of the protocol: they are refused whole (§2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;
