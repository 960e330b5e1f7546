//! MQTT and NATS as a client speaks them: whatever the pieces in which bytes come, and whatever the bytes are.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::bench::mqtt::Mqtt;
use crate::bench::nats::Nats;
use crate::bench::protocol::{Fault, Listener, StreamProtocol};
use crate::mqtt::codec::packets::Version;

#[derive(Debug, Default, PartialEq)]
struct Received {
    messages: Vec<Vec<u8>>,
    answers: Vec<bool>,
}

impl Listener for Received {
    fn message(&mut self, payload: &[u8]) {
        self.messages.push(payload.to_vec());
    }

    fn answer(&mut self, is_success: bool) {
        self.answers.push(is_success);
    }
}

/// What is understood of bytes that come in one piece; all of them are.
fn hear(protocol: &mut impl StreamProtocol, input: &[u8]) -> (Received, Vec<u8>) {
    let (mut received, mut out) = (Received::default(), Vec::new());
    assert_eq!(protocol.understand(input, &mut out, &mut received), Ok(input.len()));
    (received, out)
}

fn said(speak: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    speak(&mut out);
    out
}

fn mqtt(version: Version, qos: u8) -> Mqtt {
    Mqtt::new(version, qos, "me".into(), &["a/b".into(), "a/c".into()], Some("a/+"))
}

/// A session of each language, from the broker's side: the client, what comes, how many messages and answers that are.
fn sessions() -> Vec<(&'static str, Vec<u8>, usize, usize)> {
    let nats =
        b"INFO {\"x\":1}\r\n+OK\r\nPONG\r\nMSG a.b 1 5\r\nhe\r\no\r\nPING\r\nMSG a.b 1 reply 0\r\n\r\n";
    let v311 = [
        &[0x20, 2, 0, 0][..],
        &[0x90, 3, 0, 1, 1],
        &[0x30, 6, 0, 1, b'a', 1, 2, 3],
        &[0x32, 6, 0, 1, b'a', 0, 9, 7],
        &[0x34, 5, 0, 1, b'a', 0, 8],
        &[0x62, 2, 0, 8],
        &[0xD0, 0],
        &[0x40, 2, 0, 1],
        &[0x50, 2, 0, 2],
        &[0x70, 2, 0, 2],
    ];
    // Receive Maximum 2, Maximum Packet Size, a user property, Retain Available.
    let mut v5 = vec![0x20, 20, 0, 0, 17, 0x21, 0, 2, 0x27, 0, 1, 0, 0];
    v5.extend([0x26, 0, 1, b'k', 0, 1, b'v', 0x25, 1]);
    v5.extend([0x90, 4, 0, 1, 0, 2]);
    v5.extend([0x30, 9, 0, 1, b'a', 4, 0x0B, 7, 0x01, 1, 42]);
    v5.extend([0x40, 4, 0, 1, 0x97, 0]);
    v5.extend([0x50, 3, 0, 2, 0x97]);
    vec![("nats", nats.to_vec(), 2, 0), ("mqtt", v311.concat(), 3, 2), ("mqtt5", v5, 1, 2)]
}

/// What a client makes of bytes.
type Understand = Box<dyn FnMut(&[u8], &mut Vec<u8>, &mut Received) -> Result<usize, Fault>>;

fn client(language: &str) -> Understand {
    fn of(mut protocol: impl StreamProtocol) -> Understand {
        // Two messages are out, for the answers to be for.
        let mut ignored = Vec::new();
        assert!(protocol.publish(&mut ignored, 0, b"x") && protocol.publish(&mut ignored, 0, b"x"));
        Box::new(move |input, out, received| protocol.understand(input, out, received))
    }
    match language {
        "nats" => of(Nats::new(&["a.b".into(), "a.c".into()], Some("a.*"))),
        "mqtt" => of(mqtt(Version::V311, 2)),
        _ => of(mqtt(Version::V5, 2)),
    }
}

#[test]
fn a_session_means_the_same_in_whatever_pieces_it_comes() {
    for (language, input, messages, answers) in sessions() {
        let (mut whole, mut reply) = (Received::default(), Vec::new());
        assert_eq!(client(language)(&input, &mut reply, &mut whole), Ok(input.len()), "{language}");
        assert_eq!((whole.messages.len(), whole.answers.len()), (messages, answers), "{language}");
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut received, mut out, mut understand) = (Received::default(), Vec::new(), client(language));
            let (mut begin, mut end) = (0, 0);
            while end < input.len() {
                end = (end + rng.random_range(1..9)).min(input.len());
                begin += understand(&input[begin..end], &mut out, &mut received).unwrap();
            }
            assert_eq!((begin, &received, &out), (input.len(), &whole, &reply), "{language}, seed {seed}");
        }
    }
}

/// Whatever comes: a fault, or so many bytes of it; never a panic, and never the same bytes again for ever.
#[test]
fn hostile_bytes_are_a_fault_or_are_taken() {
    for seed in 0..3_000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        for (language, mut input, ..) in sessions() {
            for _ in 0..rng.random_range(1..6) {
                let position = rng.random_range(0..input.len());
                match rng.random_range(0..3) {
                    0 => input[position] = rng.random(),
                    1 => input.truncate(position.max(1)),
                    _ => input.insert(position, rng.random()),
                }
            }
            let (mut received, mut out) = (Received::default(), Vec::new());
            if let Ok(taken) = client(language)(&input, &mut out, &mut received) {
                assert!(taken <= input.len());
            }
            let noise: Vec<u8> = (0..rng.random_range(0..64)).map(|_| rng.random()).collect();
            let _ = client(language)(&noise, &mut out, &mut received);
        }
    }
}

#[test]
fn what_is_too_long_is_a_fault_before_it_is_kept() {
    let refused = |language: &str, input: &[u8]| {
        client(language)(input, &mut Vec::new(), &mut Received::default()).is_err()
    };
    assert!(refused("nats", &[b'x'; 70_000]));
    assert!(refused("nats", b"MSG a 1 99999999999\r\n"));
    assert!(refused("nats", b"MSG a 1 x\r\n"));
    assert!(refused("nats", b"-ERR 'no'\r\n"));
    assert!(refused("mqtt", &[0x30, 0xFF, 0xFF, 0xFF, 0x7F]));
    assert!(refused("mqtt", &[0x30, 0xFF, 0xFF, 0xFF, 0xFF]));
    assert!(refused("mqtt", &[0x20, 2, 0, 5]), "a refused connection");
    assert!(refused("mqtt", &[0x90, 3, 0, 1, 0x80]), "a refused subscription");
    assert!(refused("mqtt", &[0x40, 2, 0, 99]), "an answer to nothing");
}

#[test]
fn mqtt_says_what_the_specification_has() {
    let mut client = mqtt(Version::V311, 1);
    assert_eq!(
        said(|out| client.greet(out)),
        [&[0x10, 14, 0, 4][..], b"MQTT", &[4, 2, 0, 0, 0, 2], b"me"].concat()
    );
    assert!(!client.is_ready());
    let (_, subscribe) = hear(&mut client, &[0x20, 2, 0, 0]);
    assert_eq!(subscribe, [&[0x82, 8, 0, 1, 0, 3][..], b"a/+", &[1]].concat());
    assert!(!client.is_ready());
    hear(&mut client, &[0x90, 3, 0, 1, 1]);
    assert!(client.is_ready());
    let publish = said(|out| assert!(client.publish(out, 0, b"hi")));
    assert_eq!(publish, [&[0x32, 9, 0, 3][..], b"a/b", &[0, 1], b"hi"].concat());
    let another = said(|out| assert!(client.publish(out, 1, b"")));
    assert_eq!(another, [&[0x32, 7, 0, 3][..], b"a/c", &[0, 2]].concat());
    assert!(!client.publish(&mut Vec::new(), 2, b""), "it has two topics");
    let (received, out) = hear(&mut client, &[0x40, 2, 0, 1]);
    assert_eq!((received.answers, out), (vec![true], vec![]));
    let (received, out) = hear(&mut client, &[0x32, 6, 0, 1, b'a', 0, 9, 7]);
    assert_eq!((received.messages, out), (vec![vec![7]], vec![0x40, 2, 0, 9]));
}

#[test]
fn mqtt_5_keeps_to_the_receive_maximum_of_the_broker() {
    let mut client = mqtt(Version::V5, 2);
    hear(&mut client, &[0x20, 6, 0, 0, 3, 0x21, 0, 2]);
    let mut out = Vec::new();
    assert!(
        client.publish(&mut out, 0, b"")
            && client.publish(&mut out, 0, b"")
            && !client.publish(&mut out, 0, b"")
    );
    let (received, out) = hear(&mut client, &[0x50, 2, 0, 1]);
    assert_eq!((received.answers.len(), out), (0, vec![0x62, 2, 0, 1]));
    assert!(!client.publish(&mut Vec::new(), 0, b""), "until PUBCOMP");
    assert_eq!(hear(&mut client, &[0x70, 2, 0, 1]).0.answers, [true]);
    assert!(client.publish(&mut Vec::new(), 0, b""));
}

#[test]
fn a_packet_id_is_used_again_only_once_it_is_free() {
    let mut client = mqtt(Version::V311, 1);
    let mut out = Vec::new();
    (1..=u16::MAX).for_each(|_| assert!(client.publish(&mut out, 0, b"")));
    assert!(!client.publish(&mut out, 0, b""));
    hear(&mut client, &[0x40, 2, 0x12, 0x34]);
    out.clear();
    assert!(client.publish(&mut out, 0, b""));
    assert_eq!(out[out.len() - 2..], [0x12, 0x34]);
}

#[test]
fn nats_says_what_its_documentation_has() {
    let mut client = Nats::new(&["a.b".into(), "a.c".into()], Some("a.*"));
    let greeting = said(|out| client.greet(out));
    assert!(greeting.starts_with(b"CONNECT {") && greeting.ends_with(b"\r\nSUB a.* 1\r\nPING\r\n"));
    let (received, out) = hear(&mut client, b"INFO {}\r\nPONG\r\nPING\r\nMSG a.b 1 2\r\nhi\r\n");
    assert!(client.is_ready());
    assert_eq!((received.messages, out), (vec![b"hi".to_vec()], b"PONG\r\n".to_vec()));
    let publish = said(|out| assert!(client.publish(out, 0, b"0123456789")));
    assert_eq!(publish, b"PUB a.b 10\r\n0123456789\r\n");
    assert_eq!(said(|out| assert!(client.publish(out, 1, b""))), b"PUB a.c 0\r\n\r\n");
    assert!(!client.publish(&mut Vec::new(), 2, b""), "it has two subjects");
}
