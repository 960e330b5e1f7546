//! The spans of messages, for Python (docs/traces.md).

use std::borrow::Cow;

use pyo3::prelude::*;

use crate::load::spans::{self, SpanKind};

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct Span {
    kind: &'static str,
    trace: Cow<'static, [u8]>,
    parent: Cow<'static, [u8]>,
    publisher: u64,
    sequence: u64,
    topic: String,
    qos: u8,
    is_from_gateway: bool,
    started: u64,
    ended: u64,
    peer: Option<String>,
}

pub fn span_out(span: &spans::Span) -> Span {
    let traced = &span.traced;
    Span {
        kind: match span.kind {
            SpanKind::Gateway => "gateway",
            SpanKind::Owner => "owner",
            SpanKind::Delivery => "delivery",
            SpanKind::Client => "client",
        },
        trace: Cow::Owned(traced.context.trace.to_vec()),
        parent: Cow::Owned(traced.context.parent.to_vec()),
        publisher: traced.publisher,
        sequence: traced.sequence,
        topic: traced.topic.clone().into(),
        qos: traced.qos,
        is_from_gateway: traced.is_from_gateway,
        started: traced.started,
        ended: span.ended,
        peer: span.peer.map(|peer| peer.to_string()),
    }
}
