//! Spans: what became of a message that carries a `traceparent` (W3C Trace Context), and when (docs/traces.md).
//!
//! Its publisher decides which messages have spans: those whose `traceparent` says that it is sampled. The
//! property goes on unaltered (MQTT 5 §3.3.2.3.7), so spans are joined by what all of them know of a message: the
//! publisher's span, the publisher, and the sequence number.
//!
//! A reader takes the spans out from time to time. If it is too slow, the newest are dropped and counted.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::Micros;

/// The most spans that wait for the reader, and messages that wait for their answer.
const MOST: usize = 10_000;
/// The user property.
const NAME: &str = "traceparent";

/// The span of the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: [u8; 16],
    pub parent: [u8; 8],
}

impl TraceContext {
    /// The context among the user properties of a message; `None`: there is none, or it is not sampled.
    pub fn among<'a>(mut user_properties: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        user_properties.find(|(name, _)| *name == NAME).and_then(|(_, value)| Self::parse(value))
    }

    /// Reads `version-trace-parent-flags`. A later version may have more behind it.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = bytes_of(version)?;
        let context = Self { trace: bytes_of(trace)?, parent: bytes_of(parent)? };
        let [flags] = bytes_of(flags)?;
        let is_valid = version != 0xff
            && (version != 0 || parts.next().is_none())
            && context.trace != [0; 16]
            && context.parent != [0; 8];
        (is_valid && flags & 1 == 1).then_some(context)
    }
}

/// The bytes of lower-case hexadecimal digits.
fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = [0; N];
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// What a span is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A gateway: from the PUBLISH of its client until the network has answered (at `QoS` 0: taken it).
    Gateway,
    /// The owner: from the message until it was acknowledged (at `QoS` 0: taken over).
    Owner,
    /// The owner: from the message until a copy was sent to a subscriber.
    Delivery,
    /// A gateway: from the message until it was written to its client.
    Client,
}

/// A message that has spans.
#[derive(Debug)]
pub struct Traced {
    pub log: Arc<SpanLog>,
    pub context: TraceContext,
    pub publisher: u64,
    pub sequence: u64,
    pub topic: Box<str>,
    pub qos: u8,
    /// It came to its owner from a gateway.
    pub is_from_gateway: bool,
    pub started: Micros,
}

impl Traced {
    /// Records a span of it, from its start on. `peer`: to whom it was sent.
    pub fn end(self: &Arc<Self>, kind: SpanKind, ended: Micros, peer: Option<SocketAddr>) {
        let span = Span { traced: Arc::clone(self), kind, ended, peer };
        let mut state = self.log.state.lock();
        if state.spans.len() < MOST {
            state.spans.push(span);
        } else {
            state.dropped += 1;
        }
    }
}

#[derive(Debug)]
pub struct Span {
    pub traced: Arc<Traced>,
    pub kind: SpanKind,
    pub ended: Micros,
    pub peer: Option<SocketAddr>,
}

/// The spans of one process that wait for their reader.
#[derive(Debug, Default)]
pub struct SpanLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    spans: Vec<Span>,
    dropped: u64,
    /// At a gateway: the messages that the network has not answered, by sequence number.
    open: FxHashMap<u64, Arc<Traced>>,
}

impl SpanLog {
    /// The network will answer this message.
    pub fn await_answer(&self, traced: Arc<Traced>) {
        let mut state = self.state.lock();
        if state.open.len() < MOST {
            state.open.insert(traced.sequence, traced);
        } else {
            state.dropped += 1;
        }
    }

    /// The network has answered the message with this sequence number, which need not have spans.
    pub fn note_answer(&self, sequence: u64, now: Micros) {
        let answered = self.state.lock().open.remove(&sequence);
        if let Some(traced) = answered {
            traced.end(SpanKind::Gateway, now, None);
        }
    }

    /// Takes out the spans, and how many were dropped since the last time.
    pub fn take(&self) -> (Vec<Span>, u64) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.spans), std::mem::take(&mut state.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parsed(text: &str) -> Option<TraceContext> {
        TraceContext::among([("other", "x"), ("traceparent", text)].into_iter())
    }

    #[test]
    fn a_sampled_context_is_read() {
        let context = parsed(CONTEXT).expect("it is valid");
        assert_eq!(context.trace[..2], [0x0a, 0xf7]);
        assert_eq!(context.parent, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        assert_eq!(parsed(&CONTEXT.replace("-01", "-03")), Some(context), "other flags do not matter");
        assert_eq!(parsed(&format!("{}-later", CONTEXT.replacen("00", "cc", 1))), Some(context));
    }

    #[test]
    fn what_is_not_sampled_or_not_valid_has_no_spans() {
        for wrong in [
            "",
            "00",
            &CONTEXT.replace("-01", "-00"),
            &CONTEXT.replace("0af", "0AF"),
            &CONTEXT.replace("0af", "0ag"),
            &CONTEXT.replacen("00", "ff", 1),
            &CONTEXT.replace("b7ad6b7169203331", "0000000000000000"),
            &CONTEXT.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            &format!("{CONTEXT}-x"),
            &CONTEXT[1..],
            "00-\u{e4}",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert_eq!(TraceContext::among(std::iter::empty()), None);
    }

    fn traced(log: &Arc<SpanLog>, sequence: u64) -> Arc<Traced> {
        Arc::new(Traced {
            log: Arc::clone(log),
            context: parsed(CONTEXT).expect("it is valid"),
            publisher: 1,
            sequence,
            topic: "a".into(),
            qos: 1,
            is_from_gateway: false,
            started: 5,
        })
    }

    #[test]
    fn spans_are_taken_once_and_bounded() {
        let log = Arc::new(SpanLog::default());
        log.await_answer(traced(&log, 7));
        log.note_answer(8, 10);
        log.note_answer(7, 11);
        log.note_answer(7, 12);
        let (spans, dropped) = log.take();
        assert_eq!((spans.len(), spans[0].kind, spans[0].ended, dropped), (1, SpanKind::Gateway, 11, 0));
        for number in 0..MOST as u64 + 3 {
            traced(&log, number).end(SpanKind::Owner, number, None);
            log.await_answer(traced(&log, number));
        }
        let (spans, dropped) = log.take();
        assert_eq!((spans.len(), dropped), (MOST, 6));
        assert_eq!(log.take().0.len(), 0);
    }
}
