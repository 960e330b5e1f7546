//! MQTT over WebSocket (MQTT 5 §6, RFC 6455), the server's side, sans-IO.
//!
//! Frame boundaries mean nothing to MQTT: a packet may span several frames, and a frame may contain several
//! packets. The bytes that are sent together form one binary frame. The server agrees to no compression,
//! because payloads are mostly small or already compressed.
//!
//! [`Frames`] decodes a client's frames as their bytes arrive (RFC 6455 §5). Messages are not assembled. Only the
//! header of a frame is buffered, and the payload of a control frame (at most 125 bytes). So a frame that announces
//! a large payload costs no memory until its bytes arrive.

use std::io::Cursor;

use smallvec::SmallVec;
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::{HeaderMap, HeaderValue};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use super::Failure;
use crate::mqtt::io::output::Output;

/// The size limit of a request. Browsers send cookies with it.
const LONGEST_REQUEST: usize = 16_384;
/// The subprotocols, in order of preference.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// Two bytes, a length of eight, a mask of four.
const LONGEST_HEAD: usize = 14;
/// The bytes of the masking key of a client's payload (RFC 6455 §5.3).
const MASK: usize = 4;
/// The largest payload of a control frame (RFC 6455 §5.5).
const LONGEST_CONTROL: u64 = 125;

/// The WebSocket of one connection.
#[derive(Debug)]
pub struct WebSocket {
    state: State,
}

#[derive(Debug)]
enum State {
    /// The request is incomplete.
    ExpectRequest {
        buffered: Vec<u8>,
        path: Box<str>,
    },
    Open(Frames),
    /// Refused, closed, or failed.
    Over,
}

impl WebSocket {
    /// `path`: the path that is served; empty: any.
    pub fn new(path: &str) -> Self {
        Self { state: State::ExpectRequest { buffered: Vec::new(), path: path.into() } }
    }

    /// Receives bytes; true: the peer has closed.
    pub fn receive(&mut self, input: &[u8], plain: &mut Vec<u8>, wire: &mut Output) -> Result<bool, Failure> {
        match &mut self.state {
            State::ExpectRequest { buffered, path } => {
                buffered.extend_from_slice(input);
                match answer(buffered, path) {
                    Ok(None) => Ok(false),
                    Ok(Some((length, response))) => {
                        wire.extend_from_slice(&response);
                        let rest = buffered.split_off(length);
                        self.state = State::Open(Frames::default());
                        self.receive(&rest, plain, wire)
                    }
                    Err(refusal) => {
                        wire.extend_from_slice(refusal.as_bytes());
                        self.state = State::Over;
                        Err(Failure::WebSocket)
                    }
                }
            }
            State::Open(frames) => {
                let received = frames.read(input, plain, wire).map_err(|code| {
                    put_close(code, wire);
                    Failure::WebSocket
                });
                if received != Ok(false) {
                    self.state = State::Over;
                }
                received
            }
            State::Over => Err(Failure::WebSocket),
        }
    }

    /// Puts plain bytes into one frame.
    pub fn encrypt(&mut self, plain: &mut Output, wire: &mut Output) {
        if matches!(self.state, State::Open(_)) && !plain.is_done() {
            put_head(OpCode::Data(Data::Binary), plain.pending(), wire);
            wire.take(plain);
        }
        plain.clear();
    }

    /// Sends a Close frame: nothing follows.
    pub fn close(&mut self, wire: &mut Output) {
        if matches!(self.state, State::Open(_)) {
            put_close(CloseCode::Normal, wire);
        }
        self.state = State::Over;
    }
}

/// The length of a complete request, and the answer to it. `Err`: the refusal to send.
fn answer(buffered: &[u8], path: &str) -> Result<Option<(usize, Vec<u8>)>, String> {
    let (length, request) = match Request::try_parse(buffered) {
        Ok(Some(parsed)) => parsed,
        Ok(None) if buffered.len() < LONGEST_REQUEST => return Ok(None),
        Ok(None) => return Err(refusal("431 Request Header Fields Too Large", "")),
        Err(_) => return Err(refusal("400 Bad Request", "")),
    };
    if !path.is_empty() && request.uri().path() != path {
        return Err(refusal("404 Not Found", ""));
    }
    let Ok(mut response) = create_response(&request) else {
        return Err(refusal("426 Upgrade Required", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"));
    };
    let Some(subprotocol) = subprotocol(request.headers()) else {
        return Err(refusal("400 Bad Request", ""));
    };
    response.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(subprotocol));
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response).map_err(|_| refusal("400 Bad Request", ""))?;
    Ok(Some((length, bytes)))
}

fn refusal(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n")
}

fn subprotocol(headers: &HeaderMap) -> Option<&'static str> {
    let offers = headers.get_all("Sec-WebSocket-Protocol").iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offers.flat_map(|value| value.split(',')).map(str::trim).collect();
    SUBPROTOCOLS.into_iter().find(|ours| offered.contains(ours))
}

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
fn put_close(code: CloseCode, wire: &mut Output) {
    put(OpCode::Control(Control::Close), &u16::from(code).to_be_bytes(), wire);
}

/// Appends the header of a server's frame.
fn put_head(opcode: OpCode, length: usize, wire: &mut Output) {
    let head = FrameHeader { opcode, ..FrameHeader::default() };
    // Writing to memory does not fail.
    let _ = head.format(length as u64, &mut **wire);
}

fn put(opcode: OpCode, payload: &[u8], wire: &mut Output) {
    put_head(opcode, payload.len(), wire);
    wire.extend_from_slice(payload);
}
