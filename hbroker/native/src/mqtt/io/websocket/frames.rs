//! Decodes a client's WebSocket frames as their bytes arrive (RFC 6455 §5).
//!
//! Message boundaries mean nothing to MQTT, so messages are not assembled. Only the header of a frame is
//! buffered, and the payload of a control frame (at most 125 bytes). So a frame that announces a large
//! payload costs no memory until its bytes arrive.

use std::io::Cursor;

use smallvec::SmallVec;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use crate::mqtt::io::output::Output;

/// Two bytes, a length of eight, a mask of four.
const LONGEST_HEAD: usize = 14;
/// The bytes of the masking key of a client's payload (RFC 6455 §5.3).
const MASK: usize = 4;
/// The largest payload of a control frame (RFC 6455 §5.5).
const LONGEST_CONTROL: u64 = 125;

/// The position in the client's stream.
#[derive(Debug, Default)]
pub struct Frames {
    /// The bytes of an incomplete frame header.
    head: SmallVec<[u8; LONGEST_HEAD]>,
    frame: Option<Frame>,
    /// The last frame of the message has not arrived.
    in_message: bool,
}

/// A frame whose payload is arriving.
#[derive(Debug)]
struct Frame {
    left: u64,
    /// The masking key, rotated for the next byte.
    mask: [u8; MASK],
    /// The opcode and the payload so far of a control frame; `None`: a data frame.
    control: Option<(Control, Vec<u8>)>,
}

impl Frames {
    /// Receives bytes. The payload of data frames is appended to `plain`; answers go to `wire`. True: the
    /// client sent Close.
    ///
    /// # Errors
    /// The client violated the protocol: the status code for its Close frame.
    pub fn read(
        &mut self,
        mut input: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Output,
    ) -> Result<bool, CloseCode> {
        loop {
            let Some(frame) = &mut self.frame else {
                if self.begin(&mut input)? {
                    continue;
                }
                return Ok(false);
            };
            frame.take(&mut input, plain);
            if frame.left > 0 {
                return Ok(false);
            }
            if let Some((control, payload)) = self.frame.take().and_then(|frame| frame.control)
                && obey(control, &payload, wire)?
            {
                return Ok(true);
            }
        }
    }

    /// Receives a frame header; false: it is incomplete.
    fn begin(&mut self, input: &mut &[u8]) -> Result<bool, CloseCode> {
        let before = self.head.len();
        let taken = (LONGEST_HEAD - before).min(input.len());
        self.head.extend_from_slice(&input[..taken]);
        let mut cursor = Cursor::new(&self.head[..]);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|_| CloseCode::Protocol)?;
        let Some((header, length)) = parsed else {
            *input = &input[taken..];
            return Ok(false);
        };
        *input = &input[cursor.position() as usize - before..];
        self.head.clear();
        self.frame = Some(self.check(&header, length)?);
        Ok(true)
    }

    fn check(&mut self, header: &FrameHeader, length: u64) -> Result<Frame, CloseCode> {
        let is_extended = header.rsv1 || header.rsv2 || header.rsv3;
        // RFC 6455 §5.1: a client masks its frames; §5.2: no extension was agreed on, and a length has 63
        // bits.
        let Some(mask) = header.mask.filter(|_| !is_extended && i64::try_from(length).is_ok()) else {
            return Err(CloseCode::Protocol);
        };
        let control = match header.opcode {
            OpCode::Control(control) if header.is_final && length <= LONGEST_CONTROL => Some(control),
            OpCode::Data(Data::Binary) if !self.in_message => None,
            OpCode::Data(Data::Continue) if self.in_message => None,
            // MQTT 5 §6.0: data frames other than binary frames close the connection.
            OpCode::Data(Data::Text) => return Err(CloseCode::Unsupported),
            _ => return Err(CloseCode::Protocol),
        };
        if control.is_none() {
            self.in_message = !header.is_final;
        }
        Ok(Frame { left: length, mask, control: control.map(|control| (control, Vec::new())) })
    }
}

impl Frame {
    /// Takes the part of the payload that has arrived.
    fn take(&mut self, input: &mut &[u8], plain: &mut Vec<u8>) {
        let count = usize::try_from(self.left).map_or(input.len(), |left| left.min(input.len()));
        let (piece, rest) = input.split_at(count);
        *input = rest;
        self.left -= count as u64;
        let target = self.control.as_mut().map_or(plain, |(_, payload)| payload);
        let start = target.len();
        target.extend_from_slice(piece);
        unmask(&mut target[start..], self.mask);
        self.mask.rotate_left(count % MASK);
    }
}

/// Unmasks a payload (RFC 6455 §5.3).
fn unmask(bytes: &mut [u8], mask: [u8; MASK]) {
    let mut words = bytes.chunks_exact_mut(MASK);
    for word in words.by_ref() {
        word.iter_mut().zip(mask).for_each(|(byte, key)| *byte ^= key);
    }
    words.into_remainder().iter_mut().zip(mask).for_each(|(byte, key)| *byte ^= key);
}

/// Acts on a control frame; true: the client sent Close.
fn obey(control: Control, payload: &[u8], wire: &mut Output) -> Result<bool, CloseCode> {
    match control {
        Control::Ping => put(OpCode::Control(Control::Pong), payload, wire),
        // RFC 6455 §5.5.1: a Close payload has at least two bytes, the status code. The answer repeats the
        // code.
        Control::Close if payload.len() == 1 => return Err(CloseCode::Protocol),
        Control::Close => put(OpCode::Control(Control::Close), &payload[..payload.len().min(2)], wire),
        Control::Pong | Control::Reserved(_) => {}
    }
    Ok(control == Control::Close)
}

/// Appends a Close frame with a status code (RFC 6455 §5.5.1).
pub fn put_close(code: CloseCode, wire: &mut Output) {
    put(OpCode::Control(Control::Close), &u16::from(code).to_be_bytes(), wire);
}

/// Appends the header of a server's frame.
pub fn put_head(opcode: OpCode, length: usize, wire: &mut Output) {
    let head = FrameHeader { opcode, ..FrameHeader::default() };
    // Writing to memory does not fail.
    let _ = head.format(length as u64, &mut **wire);
}

fn put(opcode: OpCode, payload: &[u8], wire: &mut Output) {
    put_head(opcode, payload.len(), wire);
    wire.extend_from_slice(payload);
}
