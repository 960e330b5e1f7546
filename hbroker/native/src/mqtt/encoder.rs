//! Fan-out: a message that goes to many clients is encoded once for each shape that it takes.

/// The encodings of the message in hand; one for each worker.
#[derive(Default)]
pub struct Encoder {}
