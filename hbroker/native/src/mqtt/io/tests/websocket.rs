//! WebSocket clients, good and bad.

use std::io::{Read, Write};
use std::net::TcpStream;

use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};
use tungstenite::{Error, Message, WebSocket};

use super::echo::{Bench, Entry, expect_end};
use crate::mqtt::io::listener::Settings;
use crate::mqtt::io::output::Output;
use crate::mqtt::io::transport::Layers;
use crate::mqtt::io::transport::websocket::Frames;

fn bench() -> Bench {
    let websocket = Some("/mqtt".into());
    let layers = Layers { websocket, ..Layers::default() };
    Bench::new(Settings { layers, ..Settings::default() })
}

fn connect(bench: &Bench, path: &str, subprotocols: &str) -> Result<WebSocket<TcpStream>, Box<Error>> {
    let mut request = format!("ws://localhost{path}").into_client_request().unwrap();
    if !subprotocols.is_empty() {
        request.headers_mut().insert("Sec-WebSocket-Protocol", subprotocols.parse().unwrap());
    }
    match tungstenite::client(request, bench.connect()) {
        Ok((client, _)) => Ok(client),
        Err(tungstenite::HandshakeError::Failure(error)) => Err(Box::new(error)),
        Err(tungstenite::HandshakeError::Interrupted(_)) => panic!("the stream blocks"),
    }
}

/// The bytes of the next data frames, until there are so many.
fn expect(client: &mut WebSocket<TcpStream>, bytes: &[u8]) {
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        match client.read().unwrap() {
            Message::Binary(part) => got.extend_from_slice(&part),
            other => panic!("{other:?}"),
        }
    }
    assert!(got == bytes);
}

/// Expects that the server closes, and says so.
fn expect_close(client: &mut WebSocket<TcpStream>, code: CloseCode) {
    loop {
        match client.read() {
            Ok(Message::Close(Some(frame))) => return assert_eq!(frame.code, code),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn subprotocols_and_paths() {
    let bench = bench();
    for (offered, chosen) in [
        ("mqtt", "mqtt"),
        ("mqttv3.1", "mqttv3.1"),
        ("x, mqttv3.1, mqtt", "mqtt"),
        ("mqttv3.1,y", "mqttv3.1"),
    ] {
        let mut request = "ws://localhost/mqtt?token=1".into_client_request().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", offered.parse().unwrap());
        let (_, response) = tungstenite::client(request, bench.connect()).unwrap();
        assert_eq!(response.headers()["Sec-WebSocket-Protocol"], chosen);
    }
    for (path, offered, status) in [("/other", "mqtt", 404), ("/mqtt", "amqp", 400), ("/mqtt", "", 400)] {
        match *connect(&bench, path, offered).unwrap_err() {
            Error::Http(response) => assert_eq!(response.status(), status),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn plain_http_is_told_to_upgrade() {
    let bench = bench();
    for (request, status) in [
        ("GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 426 "),
        ("POST /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400 "),
        ("\x10\x0c\0\x04MQTT\x04\x02\0\x0a\0\0", "HTTP/1.1 400 "),
    ] {
        let mut client = bench.connect();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(status), "{request:?}: {answer:?}");
    }
    let mut endless = bench.connect();
    let mut answer = String::new();
    endless.write_all(b"GET /mqtt HTTP/1.1\r\n").unwrap();
    (0..4).for_each(|_| endless.write_all(format!("X: {}\r\n", "y".repeat(5_000)).as_bytes()).unwrap());
    endless.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:?}");
    assert_eq!(bench.counter("mqtt.websocket_failed"), 4);
}

#[test]
fn where_frames_end_means_nothing() {
    let bench = bench();
    let mut client = connect(&bench, "/mqtt", "mqtt").unwrap();
    let bytes: Vec<u8> = (0..60_000_u32).map(|at| at as u8).collect();
    for piece in bytes.chunks(7_001) {
        client.write(Message::binary(piece.to_vec())).unwrap();
    }
    client.flush().unwrap();
    expect(&mut client, &bytes);
    // One message in fragments, with a ping between them.
    let fragment = |opcode: Data, is_final: bool, part: &[u8]| {
        let header = FrameHeader { is_final, opcode: OpCode::Data(opcode), ..FrameHeader::default() };
        Message::Frame(Frame::from_payload(header, part.to_vec().into()))
    };
    client.send(fragment(Data::Binary, false, &bytes[..10])).unwrap();
    expect(&mut client, &bytes[..10]);
    client.send(Message::Ping(b"there?".to_vec().into())).unwrap();
    assert_eq!(client.read().unwrap(), Message::Pong(b"there?".to_vec().into()));
    client.send(fragment(Data::Continue, true, &bytes[10..300])).unwrap();
    expect(&mut client, &bytes[10..300]);
    client.send(Message::binary(vec![])).unwrap();
    client.send(Message::binary(vec![1])).unwrap();
    expect(&mut client, &[1]);
}

#[test]
fn what_mqtt_does_not_allow_ends_the_connection() {
    let bench = bench();
    let mut text = connect(&bench, "/mqtt", "mqtt").unwrap();
    text.send(Message::text("hello")).unwrap();
    expect_close(&mut text, CloseCode::Unsupported);
    let mut unmasked = connect(&bench, "/mqtt", "mqtt").unwrap();
    unmasked.get_mut().write_all(&[0x82, 0x01, 0x00]).unwrap();
    expect_close(&mut unmasked, CloseCode::Protocol);
    drop((text, unmasked));
    bench.wait_empty();
    assert_eq!(bench.journal.count(|entry| matches!(entry, Entry::Spoke(..))), 0);
}

#[test]
fn a_frame_of_any_length_is_passed_on_as_it_comes() {
    let bench = bench();
    let mut client = connect(&bench, "/mqtt", "mqtt").unwrap();
    let mut head = vec![0x82, 0xff];
    head.extend_from_slice(&(1_u64 << 62).to_be_bytes());
    head.extend_from_slice(&[1, 2, 3, 4]);
    client.get_mut().write_all(&head).unwrap();
    for masked in [&[1, 3, 1][..], &[7], &[0, 0, 0, 0, 0]] {
        client.get_mut().write_all(masked).unwrap();
    }
    expect(&mut client, &[0, 1, 2, 3, 1, 2, 3, 4, 1]);
}

#[test]
fn frames_in_pieces_of_any_size_are_the_same_frames() {
    let frame = |first: u8, payload: &[u8]| {
        let mask = [0x81, 0x02, 0xf3, 0x44];
        let mut bytes = vec![first, 0x80 | u8::try_from(payload.len()).unwrap()];
        bytes.extend_from_slice(&mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        bytes
    };
    let large = [&[0x80, 0xfe, 0x01, 0x00, 0, 0, 0, 0][..], &[9; 256]].concat();
    let stream = [frame(0x02, b"one"), frame(0x89, b"ping"), frame(0x00, b""), large, frame(0x82, b"two")];
    let stream = [stream.concat(), frame(0x88, &[0x03, 0xe8, b'b', b'y', b'e'])].concat();
    for piece in 1..stream.len() {
        let (mut frames, mut plain, mut wire) = (Frames::default(), Vec::new(), Output::default());
        let mut ended = false;
        for bytes in stream.chunks(piece) {
            ended = frames.read(bytes, &mut plain, &mut wire).unwrap();
        }
        assert!(ended && plain == [b"one", &[9; 256][..], b"two"].concat(), "{piece}");
        assert_eq!(**wire, *b"\x8a\x04ping\x88\x02\x03\xe8", "{piece}");
    }
}

#[test]
fn frames_that_must_not_be() {
    for (bytes, code) in [
        (&[0x81, 0x80, 0, 0, 0, 0][..], CloseCode::Unsupported),
        (&[0x82, 0x00], CloseCode::Protocol),
        (&[0xc2, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
        (&[0x83, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
        (&[0x80, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
        (&[0x02, 0x80, 0, 0, 0, 0, 0x82, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
        (&[0x09, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
        (&[0x89, 0xfe, 0, 126, 0, 0, 0, 0], CloseCode::Protocol),
        (&[0x8b, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
        (&[0x88, 0x81, 0, 0, 0, 0, 1], CloseCode::Protocol),
        (&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], CloseCode::Protocol),
    ] {
        let (mut plain, mut wire) = (Vec::new(), Output::default());
        assert_eq!(Frames::default().read(bytes, &mut plain, &mut wire), Err(code), "{bytes:x?}");
        assert!(plain.is_empty());
    }
}

#[test]
fn a_close_is_answered() {
    let bench = bench();
    let mut client = connect(&bench, "/mqtt", "mqtt").unwrap();
    client.send(Message::binary(vec![1, 2, 3])).unwrap();
    client.close(None).unwrap();
    expect(&mut client, &[1, 2, 3]);
    assert!(matches!(client.read(), Ok(Message::Close(_))));
    assert!(matches!(client.read(), Err(Error::ConnectionClosed)));
    expect_end(client.get_mut());
    drop(client);
    bench.wait_empty();
}
