//! The wire codec: received datagrams as views of their bytes, and packets that are appended to the bytes to
//! send (§2).
//!
//! ```text
//! received bytes ──> view (DatagramView::parse)   the datagram and its packets
//!     ──> reader       protobuf: tags, varints, lengths, one field at a time
//!                      (packets for Python are checked by the schema generated from the `.proto`)
//!     ──> acks, publish, fields                   acknowledgements; messages and their MQTT properties
//!     ──> packets, layout                         a packet that is like the one before it
//!   records (of a handover)
//! packets to send ──> emit, fields; delta builds a message from the one before it
//! ```
//!
//! A receiver accepts exactly what a conforming protobuf parser accepts (§2.1). So a node of this
//! implementation and a client of another never disagree about whether a datagram is valid.
//! [`DatagramView::parse`] is the only entry. It walks through the datagram once, refuses all of it if any
//! part is malformed, and records one view for each packet, or for several packets that are alike. The view
//! contains the fields that the fast path reads. Other fields are read from the bytes on demand, which cannot
//! fail then. Nothing is copied: a relay forwards the bytes of the field `publish` as received (§2.3).

mod acks;
mod datagram;
mod delta;
mod emit;
mod fields;
mod layout;
mod packets;
mod publish;
mod reader;
mod records;
mod view;

#[cfg(test)]
mod tests;

pub use crate::wire::delta::Delta;
pub use crate::wire::reader::Span;
pub use acks::{AckView, CutView, PubAckView};
pub use datagram::{DatagramView, ViewBuffers};
#[cfg(feature = "python")]
pub use emit::put_delta_field;
pub use emit::{
    AckOut, HeaderOut, PacketHead, PublishOut, delta_len, packet_len, put_challenge_field, put_credit_field,
    put_delta, put_fragment_field, put_header, put_packet, put_padding, put_ping_field, put_pong_field,
    put_puback_field, put_publish_field, put_reset_field,
};
pub use fields::{FragmentView, MeantFor};
pub use packets::{Packets, Section};
pub use publish::{MessageId, PublishId, PublishView, field_of, first_field, message_of};
pub use records::{
    ChoiceRecord, GoneRecord, QueuedRecord, SeenRecord, TransferRecords, Transfers, seen_record,
};
#[cfg(feature = "python")]
pub use records::{gone_record, queued_record};
pub use view::{Body, Header, Kind, PacketView, field_like, publish_of, put_whole, request_of, session_of};

/// The largest payload of a UDP datagram over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;

/// By how much a datagram is longer once it is sealed. The sizes of datagrams leave room for it, also if security is
/// off.
pub const SEAL_BYTES: usize = 29;

/// The bytes are not a datagram of the protocol: all of it is refused (§2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;
