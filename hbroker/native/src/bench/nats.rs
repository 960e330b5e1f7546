//! The client side of NATS's text protocol, core messages only, as in its documentation ("Client Protocol").

use std::str;

use crate::bench::protocol::{Fault, Listener, StreamProtocol};

/// The longest line of a server (the documented limit is 4,096; INFO of a large cluster may be longer).
const MOST_LINE: usize = 65_536;
/// The largest payload, which is the server's own limit.
const MOST_PAYLOAD: usize = 64 << 20;
const HELLO: &[u8] = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"tls_required\":false,\"lang\":\"hbroker-bench\",\"version\":\"1\",\"protocol\":1}\r\n";

/// A connection: it publishes to subjects, has one subscription, or both.
pub struct Nats {
    /// For each subject: `PUB <subject> `
    publish: Vec<Vec<u8>>,
    subscribe: Option<String>,
    is_ready: bool,
}

impl Nats {
    /// The subjects must not contain spaces.
    pub fn new(publish: &[String], subscribe: Option<&str>) -> Self {
        Self {
            publish: publish.iter().map(|subject| format!("PUB {subject} ").into_bytes()).collect(),
            subscribe: subscribe.map(str::to_owned),
            is_ready: false,
        }
    }
}

impl StreamProtocol for Nats {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(HELLO);
        if let Some(subject) = &self.subscribe {
            out.extend_from_slice(format!("SUB {subject} 1\r\n").as_bytes());
        }
        // PONG means that the server has handled everything before it.
        out.extend_from_slice(b"PING\r\n");
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn understand(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<usize, Fault> {
        let mut taken = 0;
        while let Some((line, after)) = line_at(input, taken)? {
            if let Some(rest) = line.strip_prefix(b"MSG ") {
                let length = payload_length(rest)?;
                let Some(payload) = input.get(after..after + length + 2) else { break };
                let Some(payload) = payload.strip_suffix(b"\r\n") else {
                    return Err(Fault::new("a message does not end where it says"));
                };
                listener.message(payload);
                taken = after + length + 2;
                continue;
            }
            match line {
                b"PING" => out.extend_from_slice(b"PONG\r\n"),
                b"PONG" => self.is_ready = true,
                _ if line.starts_with(b"-ERR") => return Err(Fault::new(String::from_utf8_lossy(line))),
                _ if line.starts_with(b"INFO") || line.starts_with(b"+OK") => {}
                _ => return Err(Fault::new("no line of this protocol")),
            }
            taken = after;
        }
        Ok(taken)
    }

    fn publish(&mut self, out: &mut Vec<u8>, topic: usize, payload: &[u8]) -> bool {
        let Some(start) = self.publish.get(topic) else { return false };
        out.extend_from_slice(start);
        put_number(out, payload.len());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
        true
    }
}

/// The line that begins at `start`, without its end, and the start of the next; `None`: it is incomplete.
fn line_at(input: &[u8], start: usize) -> Result<Option<(&[u8], usize)>, Fault> {
    let rest = &input[start..];
    let Some(end) = rest.iter().take(MOST_LINE).position(|&byte| byte == b'\n') else {
        return if rest.len() >= MOST_LINE { Err(Fault::new("a line without an end")) } else { Ok(None) };
    };
    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    Ok(Some((line, start + end + 1)))
}

/// The last field of `<subject> <sid> [reply-to] <#bytes>`.
fn payload_length(fields: &[u8]) -> Result<usize, Fault> {
    let last = fields.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    let length = str::from_utf8(last).ok().and_then(|digits| digits.parse().ok());
    length.filter(|&length| length <= MOST_PAYLOAD).ok_or_else(|| Fault::new("a message without a length"))
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut left = number;
    while left > 0 || start == digits.len() {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    out.extend_from_slice(&digits[start..]);
}
