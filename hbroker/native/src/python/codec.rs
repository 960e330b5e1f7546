//! The wire codec as tuples of plain values, for the tests that compare it with Python's protobuf.
//!
//! A datagram is `(header, packets)`:
//!
//! - header: `(session, incarnation, number, ack, token, ack_every)`; ack: `(largest, delay_us, [(low,
//!   high)])` or None
//! - packet: `(delivery, after, (retained_for, shared_for), kind, content)`. The kind is the field name of
//!   the body. The content is
//!   - `"publish"`: `(topic, payload, (publisher, sequence), (qos, retain, ack_queued), published_at_us,
//!     expiry_s, (index, count, total) or None, properties, field)`; properties: `(content_type,
//!     payload_format, response_topic, correlation_data, [(name, value)], origin)`; field: the bytes that a
//!     relay copies
//!   - `"again"`: payload
//!   - `"puback"`: `(reason, topic, [(first, last)], referral)`; referral: `(subtree, node, (ip, port) or
//!     None, epoch)` or None
//!   - `"ping"`, `"pong"`: `sent_at_us`
//!   - `"reset"`: `(session, token, reason)`
//!   - `"challenge"`: `(token, lifetime_s)`
//!   - `"credit"`: `(messages, bytes, for_many)`
//!   - any other: the whole packet as received
//!   - `""`, a packet without a body: None

use std::net::{IpAddr, SocketAddr};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::wire::{
    self, AckOut, AckView, Body, CutView, DatagramView, FragmentView, Header, HeaderOut, Kind, MeantFor,
    PacketView, PubAckView, PublishOut, PublishView,
};

type Ranges = Vec<(u64, u64)>;
type Cut = (String, String, Option<(IpAddr, u16)>, u64);
type Properties = (String, Option<i32>, String, Vec<u8>, Vec<(String, String)>, u64);
type Publish<'py> = (
    String,
    Vec<u8>,
    (u64, u64),
    (u8, bool, bool),
    u64,
    Option<u32>,
    Option<(u32, u32, u64)>,
    Properties,
    Bound<'py, PyAny>,
);
type Packet<'py> = (u64, u64, (Option<u64>, u64), String, Bound<'py, PyAny>);
type HeaderIn = (u64, u64, u64, Option<(u64, u64, Ranges)>, Vec<u8>, u32);

/// The values of a datagram; None if it is malformed.
#[pyfunction]
pub fn decode<'py>(py: Python<'py>, datagram: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(view) = DatagramView::parse(datagram) else {
        return Ok(None);
    };
    let packets =
        view.packets().iter().map(|packet| packet_values(py, &packet)).collect::<PyResult<Vec<_>>>()?;
    object(py, (header_values(py, &view.header)?, packets)).map(Some)
}

/// A datagram with these values, and `padding` bytes of padding.
#[pyfunction]
#[pyo3(signature = (header, packets, padding = 0))]
pub fn encode<'py>(
    py: Python<'py>,
    header: HeaderIn,
    packets: Vec<Packet<'py>>,
    padding: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    let (session, incarnation, number, ack, token, ack_every) = &header;
    let ack = ack.as_ref().map(|(_, delay_us, ranges)| AckOut { delay_us: *delay_us, ranges });
    wire::put_header(
        &mut out,
        &HeaderOut {
            session: *session,
            incarnation: *incarnation,
            number: *number,
            ack,
            token,
            ack_every: *ack_every,
        },
    );
    for (delivery, after, (retained_for, shared_for), kind, content) in &packets {
        let mut body = Vec::new();
        put_body(&mut body, kind, content)?;
        let before = out.len();
        let meant_for = MeantFor::of(*retained_for, *shared_for);
        wire::put_packet(&mut out, *delivery, *after, meant_for, &body);
        if out.len() - before != wire::packet_len(*delivery, *after, meant_for, body.len()) {
            return Err(PyValueError::new_err("packet_len is not the length of the packet"));
        }
    }
    wire::put_padding(&mut out, padding);
    Ok(PyBytes::new(py, &out))
}

// Views to values

fn header_values<'py>(py: Python<'py>, header: &Header<'_>) -> PyResult<Bound<'py, PyAny>> {
    let ack = |ack: AckView<'_>| (ack.largest, ack.delay_us, ack.ranges().collect::<Ranges>());
    let token = PyBytes::new(py, header.token);
    object(
        py,
        (header.session, header.incarnation, header.number, header.ack.map(ack), token, header.ack_every),
    )
}

fn packet_values<'py>(py: Python<'py>, packet: &PacketView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let (kind, content) = match packet.body {
        Body::None => ("", object(py, py.None())?),
        Body::Publish(message) if message.is_delta() => {
            ("again", object(py, PyBytes::new(py, message.payload))?)
        }
        Body::Delta(payload) => ("again", object(py, PyBytes::new(py, payload))?),
        Body::Publish(message) => ("publish", publish_values(py, &message)?),
        Body::PubAck(puback) => ("puback", puback_values(py, &puback)?),
        Body::Ping { sent_at_us } => ("ping", object(py, sent_at_us)?),
        Body::Pong { sent_at_us } => ("pong", object(py, sent_at_us)?),
        Body::Reset { session, token, reason } => {
            ("reset", object(py, (session, PyBytes::new(py, token), reason))?)
        }
        Body::Challenge { token, lifetime_s } => {
            ("challenge", object(py, (PyBytes::new(py, token), lifetime_s))?)
        }
        Body::Credit { messages, bytes, for_many } => ("credit", object(py, (messages, bytes, for_many))?),
        Body::Control(kind) => (kind_name(kind), PyBytes::new(py, packet.raw).into_any()),
    };
    let meant_for = (packet.retained_for, packet.shared_for);
    object(py, (packet.delivery, packet.after, meant_for, kind, content))
}

fn publish_values<'py>(py: Python<'py>, message: &PublishView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let properties = message.properties();
    let values = (
        message.topic,
        PyBytes::new(py, message.payload),
        (message.publisher, message.sequence),
        (message.qos, message.retain, message.ack_queued),
        message.published_at_us,
        message.expiry_s,
        message.fragment.map(|part| (part.index, part.count, part.total)),
        (
            properties.content_type,
            properties.payload_format,
            properties.response_topic,
            PyBytes::new(py, properties.correlation_data),
            message.user_properties().collect::<Vec<_>>(),
            message.origin,
        ),
        PyBytes::new(py, &message.field()),
    );
    object(py, values)
}

fn puback_values<'py>(py: Python<'py>, puback: &PubAckView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let cut = |cut: CutView<'_>| {
        let address = cut.address.map(|address| (address.ip().to_string(), address.port()));
        (cut.subtree.to_owned(), cut.node.to_owned(), address, cut.epoch)
    };
    let ranges: Ranges = puback.ranges().collect();
    object(py, (puback.reason, puback.topic, ranges, puback.referral().map(cut)))
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::PubConnect => "pubconnect",
        Kind::PubAccept => "pubaccept",
        Kind::Subscribe => "subscribe",
        Kind::SubAck => "suback",
        Kind::Unsubscribe => "unsubscribe",
        Kind::Join => "join",
        Kind::JoinAck => "joinack",
        Kind::Leave => "leave",
        Kind::Referral => "referral",
        Kind::Transfer => "transfer",
        Kind::Will => "will",
        Kind::WillAck => "willack",
        Kind::Order => "order",
        Kind::OrderAck => "orderack",
        Kind::Authenticated => "authenticated",
        Kind::Revoked => "revoked",
        Kind::Audit => "audit",
    }
}

fn object<'py>(py: Python<'py>, values: impl IntoPyObjectExt<'py>) -> PyResult<Bound<'py, PyAny>> {
    values.into_bound_py_any(py)
}

// Values to bytes

fn put_body(out: &mut Vec<u8>, kind: &str, content: &Bound<'_, PyAny>) -> PyResult<()> {
    match kind {
        "" => {}
        "publish" => put_publish(out, content.extract()?),
        "again" => wire::put_delta_field(out, content.extract()?),
        "puback" => put_puback(out, content.extract()?),
        "ping" => wire::put_ping_field(out, content.extract()?),
        "pong" => wire::put_pong_field(out, content.extract()?),
        "reset" => {
            let (session, token, reason): (u64, Vec<u8>, i32) = content.extract()?;
            wire::put_reset_field(out, session, &token, reason);
        }
        "challenge" => {
            let (token, lifetime_s): (Vec<u8>, u32) = content.extract()?;
            wire::put_challenge_field(out, &token, lifetime_s);
        }
        "credit" => {
            let (messages, bytes, for_many) = content.extract()?;
            wire::put_credit_field(out, messages, bytes, for_many);
        }
        _ => out.extend_from_slice(content.extract()?),
    }
    Ok(())
}

fn put_publish(out: &mut Vec<u8>, values: Publish<'_>) {
    let (topic, payload, id, flags, published_at_us, expiry_s, fragment, properties, _) = values;
    let (content_type, payload_format, response_topic, correlation_data, user_properties, origin) =
        properties;
    let message = PublishOut {
        topic: &topic,
        payload: &payload,
        publisher: id.0,
        sequence: id.1,
        qos: flags.0,
        retain: flags.1,
        ack_queued: flags.2,
        published_at_us,
        expiry_s,
        fragment: fragment.map(|(index, count, total)| FragmentView { index, count, total }),
        content_type: &content_type,
        payload_format,
        response_topic: &response_topic,
        correlation_data: &correlation_data,
        user_properties: &user_properties,
        origin,
    };
    wire::put_publish_field(out, &message);
}

fn put_puback(out: &mut Vec<u8>, values: (i32, String, Ranges, Option<Cut>)) {
    let (reason, topic, ranges, referral) = values;
    let cut = referral.as_ref().map(|(subtree, node, address, epoch)| CutView {
        subtree,
        node,
        address: address.map(SocketAddr::from),
        epoch: *epoch,
    });
    wire::put_puback_field(out, ranges, reason, &topic, cut.as_ref());
}
