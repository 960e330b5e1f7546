//! MQTT over WebSocket (MQTT 5 §6, RFC 6455), the server's side, sans-IO. `frames` decodes the client's
//! frames.
//!
//! Frame boundaries mean nothing to MQTT: a packet may span several frames, and a frame may contain several
//! packets. The bytes that are sent together form one binary frame. The server agrees to no compression,
//! because payloads are mostly small or already compressed.

pub(super) mod frames;

use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::{HeaderMap, HeaderValue};
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use self::frames::Frames;
use super::output::Output;

/// The size limit of a request. Browsers send cookies with it.
const LONGEST_REQUEST: usize = 16_384;
/// The subprotocols, in order of preference.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

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

/// The peer violated the protocol, or asked for a path or subprotocol that is not served. The answer is in
/// the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketFailed;

impl WebSocket {
    /// `path`: the path that is served; empty: any.
    pub fn new(path: &str) -> Self {
        Self { state: State::ExpectRequest { buffered: Vec::new(), path: path.into() } }
    }

    /// Receives bytes; true: the peer has closed.
    pub fn receive(
        &mut self,
        input: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Output,
    ) -> Result<bool, WebSocketFailed> {
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
                        Err(WebSocketFailed)
                    }
                }
            }
            State::Open(frames) => {
                let received = frames.read(input, plain, wire).map_err(|code| {
                    frames::put_close(code, wire);
                    WebSocketFailed
                });
                if received != Ok(false) {
                    self.state = State::Over;
                }
                received
            }
            State::Over => Err(WebSocketFailed),
        }
    }

    /// Puts plain bytes into one frame.
    pub fn encrypt(&mut self, plain: &mut Output, wire: &mut Output) {
        if matches!(self.state, State::Open(_)) && !plain.is_done() {
            frames::put_head(OpCode::Data(Data::Binary), plain.pending(), wire);
            wire.take(plain);
        }
        plain.clear();
    }

    /// Sends a Close frame: nothing follows.
    pub fn close(&mut self, wire: &mut Output) {
        if matches!(self.state, State::Open(_)) {
            frames::put_close(CloseCode::Normal, wire);
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
