//! What a gateway counts of its clients' messages, for telemetry (docs/telemetry.md).

pub mod counters;

use crate::load::latency::Sample;
use crate::load::spans::SpanKind;
use crate::mqtt::Turn;
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::message::Message;

/// Counts a message that the network took from a client.
pub fn note_in(turn: &mut Turn<'_>, topic: &str, bytes: usize) {
    if let Some(load) = &mut turn.load {
        let topic_slot = load.topics.topic_slot(topic);
        load.topics.count_in(topic_slot, 1, bytes as u64);
    }
}

/// Counts a message that was written to a client.
pub fn note_out(turn: &mut Turn<'_>, message: &Message) {
    if let Some(load) = &mut turn.load {
        let topic_slot = load.topics.topic_slot(&message.topic);
        load.topics.count_out(topic_slot, 1, message.payload.len() as u64);
        if let Some(received) = message.sample.as_deref().and_then(Sample::end) {
            load.latency.note(turn.now.saturating_sub(received));
        }
    }
    if let Some(traced) = message.sample.as_deref().and_then(Sample::spans) {
        traced.end(SpanKind::Client, turn.now, None);
    }
}

/// Counts a batch of messages that was written to a client.
pub fn note_batch_out(turn: &mut Turn<'_>, batch: &MessageBatch) {
    if let Some(load) = &mut turn.load {
        let topic_slot = load.topics.topic_slot(batch.topic());
        load.topics.count_out(topic_slot, batch.len() as u32, batch.payload_bytes() as u64);
        for received in batch.samples().filter_map(Sample::end) {
            load.latency.note(turn.now.saturating_sub(received));
        }
    }
}
