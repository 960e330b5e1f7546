//! The header of a datagram and its packets, as views of the received bytes (§2.2, §2.3).
//!
//! The client of a packet outside of a session is found by the request that the packet makes or answers
//! (`request_of`), or by a session.

use std::borrow::Cow;

use super::Malformed;
use super::acks::{AckView, PubAckView};
use super::emit::put_packet;
use super::fields::MeantFor;
use super::publish::PublishView;
use super::reader::{MAX_DEPTH, Reader, Span, check, occurrences};
use crate::schema::{
    Checks, challenge, checks, credit, datagram, header, leave, order, order_ack, packet, ping, pong,
    pub_accept, pub_connect, referral, reset, sub_ack, subscribe,
};
use crate::wire::layout::Layout;

/// The link header (§2.2).
#[derive(Debug, Clone, Copy, Default)]
pub struct Header<'a> {
    /// 0: outside of any session.
    pub session: u64,
    pub incarnation: u64,
    /// 0: unnumbered.
    pub number: u64,
    pub ack: Option<AckView<'a>>,
    pub token: &'a [u8],
    /// How many datagrams need not be acknowledged at once; 0: the default number.
    pub ack_every: u32,
}

/// One packet (§2.3).
#[derive(Debug, Clone, Copy)]
pub struct PacketView<'a> {
    /// 0: unreliable.
    pub delivery: u64,
    /// 0: none.
    pub after: u64,
    /// A retained message, for this listener (0: for all that match); `None`: a message that was published
    /// just now.
    pub retained_for: Option<u64>,
    /// The id of the shared subscription that it is for; 0: for those that are not shared.
    pub shared_for: u64,
    pub body: Body<'a>,
    /// The whole Packet, as received.
    pub raw: &'a [u8],
}

/// The body of a packet.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// No body, or one that this version does not know.
    None,
    Publish(PublishView<'a>),
    /// A delta with this payload of the message in the packet before. That packet has no such message (§2.4).
    Delta(&'a [u8]),
    PubAck(PubAckView<'a>),
    Ping {
        sent_at_us: u64,
    },
    Pong {
        sent_at_us: u64,
    },
    Reset {
        session: u64,
        token: &'a [u8],
        /// Why the peer opens no session; 0: it knows none.
        reason: i32,
    },
    Challenge {
        token: &'a [u8],
        lifetime_s: u32,
    },
    /// How much the peer accepts without having acknowledged it (§7.7).
    Credit {
        messages: u32,
        bytes: u64,
        for_many: bool,
    },
    /// Passed to Python, as [`PacketView::raw`]. It is valid.
    Control(Kind),
}

/// The packets that Python decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    PubConnect,
    PubAccept,
    Subscribe,
    SubAck,
    Unsubscribe,
    Join,
    JoinAck,
    Leave,
    Referral,
    Transfer,
    Will,
    WillAck,
    Order,
    OrderAck,
    Authenticated,
    Revoked,
    Audit,
}

impl<'a> Header<'a> {
    pub(super) fn merge(&mut self, mut message: Reader<'a>) -> Result<(), Malformed> {
        while let Some(tag) = message.tag()? {
            match tag {
                header::SESSION => self.session = message.fixed64()?,
                header::INCARNATION => self.incarnation = message.fixed64()?,
                header::NUMBER => self.number = message.varint()?,
                header::ACK => self.ack.get_or_insert_default().merge(message.message()?)?,
                header::TOKEN => self.token = message.bytes()?,
                header::ACK_EVERY => self.ack_every = message.varint32()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(())
    }
}

impl<'a> PacketView<'a> {
    /// The message of which the next packet may be a delta (§2.4).
    pub(super) fn model(&self) -> Option<&PublishView<'a>> {
        match &self.body {
            Body::Publish(publish) if self.is_bare() && publish.is_model() => Some(publish),
            _ => None,
        }
    }

    /// Whether it is unreliable, and contains one message and nothing else.
    pub fn is_bare(&self) -> bool {
        let is_all = matches!(&self.body, Body::Publish(publish) if publish.fields_len() == self.raw.len());
        is_all && self.delivery == 0 && self.after == 0 && self.meant_for().is_none()
    }

    /// Which subscriptions it is for; `None`: all that match and are not shared.
    #[inline]
    pub fn meant_for(&self) -> Option<MeantFor> {
        MeantFor::of(self.retained_for, self.shared_for)
    }

    /// Parses a packet from its bytes: those of [`Self::raw`], or of a body field alone.
    pub fn from_raw(raw: &'a [u8]) -> Result<Self, Malformed> {
        let mut view = Self::empty(raw);
        view.read(Reader::new(raw, MAX_DEPTH - 1), &mut Layout::default())?;
        Ok(view)
    }

    pub(super) fn empty(raw: &'a [u8]) -> Self {
        Self { delivery: 0, after: 0, retained_for: None, shared_for: 0, body: Body::None, raw }
    }

    /// Parses a packet, whose bytes are `message`, and records its layout.
    pub(super) fn read(&mut self, mut message: Reader<'a>, layout: &mut Layout) -> Result<(), Malformed> {
        let raw = self.raw;
        // The position of the body. Bodies of one kind are merged; a body of another kind replaces the one
        // before.
        let mut start = 0;
        loop {
            let field = raw.len() - message.left();
            let Some(tag) = message.tag()? else {
                return Ok(());
            };
            match tag {
                packet::DELIVERY => self.delivery = message.varint_at(raw, &mut layout.delivery)?,
                packet::AFTER => self.after = message.varint_at(raw, &mut layout.after)?,
                packet::RETAINED_FOR => self.retained_for = Some(message.varint()?),
                packet::SHARED_FOR => self.shared_for = message.fixed64()?,
                packet::AGAIN => {
                    let payload = message.bytes()?;
                    layout.payload = Span::of(payload, raw);
                    self.body = Body::Delta(payload);
                }
                packet::PUBLISH => {
                    if !matches!(self.body, Body::Publish(_)) {
                        self.body = Body::Publish(PublishView::default());
                        let Layout { delivery, after, .. } = *layout;
                        *layout = Layout { delivery, after, ..Layout::default() };
                        start = field;
                    }
                    if let Body::Publish(publish) = &mut self.body {
                        publish.merge(message.message()?, raw, layout)?;
                        publish.add_field(&raw[start..raw.len() - message.left()]);
                    }
                }
                packet::PUBACK => {
                    if !matches!(self.body, Body::PubAck(_)) {
                        self.body = Body::PubAck(PubAckView::default());
                        start = field;
                    }
                    if let Body::PubAck(puback) = &mut self.body {
                        puback.merge(message.message()?)?;
                        puback.set_fields(&raw[start..raw.len() - message.left()]);
                    }
                }
                packet::PING | packet::PONG | packet::RESET | packet::CHALLENGE | packet::CREDIT => {
                    self.body.merge(tag, message.message()?)?;
                }
                _ => match control(tag) {
                    Some((kind, checks)) => {
                        check(message.message()?, checks)?;
                        self.body = Body::Control(kind);
                    }
                    None => message.skip(tag)?,
                },
            }
        }
    }
}

impl<'a> Body<'a> {
    /// Merges the content of the field `tag`, which is one of the link's own packets.
    fn merge(&mut self, tag: u32, content: Reader<'a>) -> Result<(), Malformed> {
        *self = match (tag, *self) {
            (packet::PING, Self::Ping { sent_at_us }) => {
                Self::Ping { sent_at_us: merge_sent_at(content, ping::SENT_AT_US, sent_at_us)? }
            }
            (packet::PING, _) => Self::Ping { sent_at_us: merge_sent_at(content, ping::SENT_AT_US, 0)? },
            (packet::PONG, Self::Pong { sent_at_us }) => {
                Self::Pong { sent_at_us: merge_sent_at(content, pong::SENT_AT_US, sent_at_us)? }
            }
            (packet::PONG, _) => Self::Pong { sent_at_us: merge_sent_at(content, pong::SENT_AT_US, 0)? },
            (packet::RESET, before) => merge_reset(content, before)?,
            (packet::CREDIT, before) => merge_credit(content, before)?,
            (_, before) => merge_challenge(content, before)?,
        };
        Ok(())
    }
}

/// The field `publish` of a delta (§2.4): the message `position` after `model`, which is that field of the
/// model, with another payload.
pub fn field_like(model: &[u8], position: u64, payload: &[u8]) -> Vec<u8> {
    let model = PacketView::from_raw(model).ok();
    let field =
        model.as_ref().and_then(PacketView::model).map(|model| model.again(position, payload, &[]).field());
    field.map_or_else(Vec::new, Cow::into_owned)
}

/// Expands a delta (§2.4) to a complete message. `model`: the field `packets` of the complete message;
/// `position`: how many messages the delta comes after it; `again`: the delta's own field. False: they are
/// not a model and a delta.
pub fn put_whole(out: &mut Vec<u8>, model: &[u8], position: u64, again: &[u8]) -> bool {
    let packet = |field| {
        let mut reader = Reader::new(field, MAX_DEPTH);
        let is_packet = reader.tag() == Ok(Some(datagram::PACKETS));
        is_packet.then(|| PacketView::from_raw(reader.bytes().ok()?).ok()).flatten()
    };
    let (Some(model), Some(PacketView { body: Body::Delta(payload), raw, .. })) =
        (packet(model), packet(again))
    else {
        return false;
    };
    let Some(publish) = model.model() else {
        return false;
    };
    put_packet(out, 0, 0, None, &publish.again(position, payload, raw).field());
    true
}

fn merge_sent_at(mut message: Reader<'_>, field: u32, mut sent_at_us: u64) -> Result<u64, Malformed> {
    while let Some(tag) = message.tag()? {
        if tag == field {
            sent_at_us = message.varint()?;
        } else {
            message.skip(tag)?;
        }
    }
    Ok(sent_at_us)
}

fn merge_reset<'a>(mut message: Reader<'a>, before: Body<'a>) -> Result<Body<'a>, Malformed> {
    let (mut session, mut token, mut reason) = match before {
        Body::Reset { session, token, reason } => (session, token, reason),
        _ => Default::default(),
    };
    while let Some(tag) = message.tag()? {
        match tag {
            reset::SESSION => session = message.fixed64()?,
            reset::TOKEN => token = message.bytes()?,
            reset::REASON => reason = message.open_enum()?,
            _ => message.skip(tag)?,
        }
    }
    Ok(Body::Reset { session, token, reason })
}

fn merge_challenge<'a>(mut message: Reader<'a>, before: Body<'a>) -> Result<Body<'a>, Malformed> {
    let (mut token, mut lifetime_s) = match before {
        Body::Challenge { token, lifetime_s } => (token, lifetime_s),
        _ => Default::default(),
    };
    while let Some(tag) = message.tag()? {
        match tag {
            challenge::TOKEN => token = message.bytes()?,
            challenge::LIFETIME_S => lifetime_s = message.varint32()?,
            _ => message.skip(tag)?,
        }
    }
    Ok(Body::Challenge { token, lifetime_s })
}

fn merge_credit<'a>(mut message: Reader<'a>, before: Body<'a>) -> Result<Body<'a>, Malformed> {
    let (mut messages, mut bytes, mut for_many) = match before {
        Body::Credit { messages, bytes, for_many } => (messages, bytes, for_many),
        _ => Default::default(),
    };
    while let Some(tag) = message.tag()? {
        match tag {
            credit::MESSAGES => messages = message.varint32()?,
            credit::BYTES => bytes = message.varint()?,
            credit::FOR_MANY => for_many = message.varint()? != 0,
            _ => message.skip(tag)?,
        }
    }
    Ok(Body::Credit { messages, bytes, for_many })
}

/// The packets for Python: the kind of each, and the checks of its content.
fn control(tag: u32) -> Option<(Kind, Checks)> {
    Some(match tag {
        packet::PUBCONNECT => (Kind::PubConnect, checks::PUB_CONNECT),
        packet::PUBACCEPT => (Kind::PubAccept, checks::PUB_ACCEPT),
        packet::SUBSCRIBE => (Kind::Subscribe, checks::SUBSCRIBE),
        packet::SUBACK => (Kind::SubAck, checks::SUB_ACK),
        packet::UNSUBSCRIBE => (Kind::Unsubscribe, checks::UNSUBSCRIBE),
        packet::JOIN => (Kind::Join, checks::JOIN),
        packet::JOINACK => (Kind::JoinAck, checks::JOIN_ACK),
        packet::LEAVE => (Kind::Leave, checks::LEAVE),
        packet::REFERRAL => (Kind::Referral, checks::REFERRAL),
        packet::TRANSFER => (Kind::Transfer, checks::TRANSFER),
        packet::WILL => (Kind::Will, checks::WILL),
        packet::WILLACK => (Kind::WillAck, checks::WILL_ACK),
        packet::ORDER => (Kind::Order, checks::ORDER),
        packet::ORDERACK => (Kind::OrderAck, checks::ORDER_ACK),
        packet::AUTHENTICATED => (Kind::Authenticated, checks::AUTHENTICATED),
        packet::REVOKED => (Kind::Revoked, checks::REVOKED),
        packet::AUDIT => (Kind::Audit, checks::AUDIT),
        _ => return None,
    })
}

/// The number of the request that a client makes with this packet, or that the packet answers; `None`:
/// neither.
pub fn request_of(view: &PacketView<'_>) -> Option<u64> {
    let Body::Control(kind) = view.body else { return None };
    let (body, field) = match kind {
        Kind::PubConnect => (packet::PUBCONNECT, pub_connect::REQUEST),
        Kind::PubAccept => (packet::PUBACCEPT, pub_accept::REQUEST),
        Kind::Subscribe => (packet::SUBSCRIBE, subscribe::REQUEST),
        Kind::SubAck => (packet::SUBACK, sub_ack::REQUEST),
        Kind::Referral => (packet::REFERRAL, referral::REQUEST),
        Kind::Order => (packet::ORDER, order::REQUEST),
        Kind::OrderAck => (packet::ORDERACK, order_ack::REQUEST),
        _ => return None,
    };
    last_fixed64(view, body, field)
}

/// The session that was taken over, according to LEAVE (§6.4); `None`: another packet.
pub fn session_of(view: &PacketView<'_>) -> Option<u64> {
    let is_leave = matches!(view.body, Body::Control(Kind::Leave));
    is_leave.then(|| last_fixed64(view, packet::LEAVE, leave::SESSION)).flatten()
}

/// A field of a packet's body. If it occurs several times, the last value counts (§2.1).
fn last_fixed64(view: &PacketView<'_>, body: u32, field: u32) -> Option<u64> {
    let in_body = |content| {
        let (mut reader, mut value) = (Reader::new(content, MAX_DEPTH), None);
        // It was parsed when it was received.
        while let Ok(Some(tag)) = reader.tag() {
            if tag == field {
                value = reader.fixed64().ok();
            } else {
                reader.skip(tag).ok()?;
            }
        }
        value
    };
    occurrences(view.raw, body).filter_map(in_body).last()
}

/// The message in a field `publish`.
pub fn publish_of(field: &[u8]) -> Option<PublishView<'_>> {
    match PacketView::from_raw(field).ok()?.body {
        Body::Publish(publish) => Some(publish),
        _ => None,
    }
}
