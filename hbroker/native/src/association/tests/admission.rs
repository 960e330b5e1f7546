//! Nodes that require tokens: what a client may do is known before its datagrams are handled.

use super::*;
use crate::rights::{Rights, WriteRights};

const OTHERS_KEY: u64 = 9;

fn client_with(token: &[u8]) -> Credentials {
    let mut credentials = client();
    credentials.token = token.into();
    credentials
}

fn rights(key: u64) -> Arc<Rights> {
    let block = WriteRights { filters: vec!["#".to_owned()], retain: false };
    Arc::new(Rights { key, blocks: vec![block], is_empty: false })
}

impl End {
    fn requiring_tokens(credentials: Credentials, seed: u64) -> Self {
        let keys = TokenKeys::new(vec![[seed as u8; 16]]);
        let mut shared = Shared::new(credentials, keys, 1_000, 1_000, seed);
        shared.requires_tokens = true;
        let shared = Arc::new(shared);
        let associations = Associations::new(Arc::clone(&shared), 0);
        Self { associations, shared, opened: Vec::new() }
    }

    /// The associations of clients that have shown these tokens since the last call.
    fn requests(&mut self) -> Vec<(u64, Vec<u8>)> {
        let requests = std::iter::from_fn(|| self.associations.poll_request());
        requests.map(|request| (request.association, request.token)).collect()
    }

    /// Answers every question: a client's key is the first byte of its token.
    fn admit_all(&mut self) {
        for (association, token) in self.requests() {
            assert!(self.shared.set_rights(association, rights(token[0].into())));
        }
    }

    /// What may be handled after an answer: the keys of the senders' rights, and the bytes.
    fn admitted(&mut self, now: Micros) -> Vec<(u64, Vec<u8>)> {
        self.associations.handle_timeout(now);
        let mut admitted = Vec::new();
        while let Some((_, opened)) = self.associations.poll_admitted() {
            admitted.push((self.associations.rights().unwrap().key, opened));
        }
        admitted
    }
}

impl Net {
    /// A node that requires tokens, and a client with the token 1.
    fn with_tokens() -> Self {
        let mut net = Self::pair();
        net.ends.insert(NODE, End::requiring_tokens(node(), NODE.into()));
        net.ends.insert(1, End::new(client_with(&[1; 600]), 1));
        net
    }

    /// As `send`, from the node to a client with these rights.
    fn send_to(&mut self, to: u16, rights: u64, bytes: &[u8]) -> bool {
        let now = self.now;
        let mut buffer = [&[0; SEALED_HEADER][..], bytes].concat();
        let destination = Destination { address: address(to), rights };
        let is_sealed = self.end(NODE).associations.seal(now, &destination, &mut buffer, 0);
        if is_sealed {
            self.flying.push((NODE, to, buffer));
        }
        self.collect(NODE);
        is_sealed
    }
}

#[test]
fn what_a_client_sends_is_kept_until_its_rights_are_known() {
    let mut net = Net::with_tokens();
    net.send(1, NODE, b"one");
    net.send(1, NODE, b"two");
    net.settle();
    net.send(1, NODE, b"three");
    net.settle();
    assert_eq!(net.opened(NODE), Vec::<Vec<u8>>::new());
    let now = net.now;
    let requests = net.end(NODE).requests();
    let [(association, token)] = &requests[..] else { panic!("one question: {requests:?}") };
    assert_eq!(*token, [1; 600]);
    assert!(net.end(NODE).admitted(now).is_empty());
    assert!(net.end(NODE).shared.set_rights(*association, rights(1)));
    assert_eq!(net.end(NODE).associations.poll_timeout(), 0);
    let expected = [&b"one"[..], b"two", b"three"].map(|bytes| (1, bytes.to_vec()));
    assert_eq!(net.end(NODE).admitted(now), expected);
    net.send(1, NODE, b"four");
    net.settle();
    assert_eq!(net.opened(NODE), [b"four"]);
    assert_eq!(net.end(NODE).associations.rights().unwrap().key, 1);
}

#[test]
fn who_has_no_token_is_asked_about_too() {
    let mut net = Net::with_tokens();
    net.ends.insert(1, End::new(client(), 1));
    net.send(1, NODE, b"let me in");
    net.settle();
    let requests = net.end(NODE).requests();
    assert_eq!(requests.iter().map(|(_, token)| token.len()).collect::<Vec<_>>(), [0]);
}

#[test]
fn nodes_need_no_token() {
    let mut net = Net::with_tokens();
    net.ends.insert(7_701, End::requiring_tokens(node(), 7_701));
    net.send(1, NODE, b"client");
    net.settle();
    net.end(NODE).admit_all();
    let now = net.now;
    net.end(NODE).admitted(now);
    net.send(7_701, NODE, b"join");
    net.settle();
    assert_eq!((net.opened(NODE), net.end(NODE).requests()), (vec![b"join".to_vec()], vec![]));
    assert!(net.end(NODE).associations.rights().is_none());
}

#[test]
fn what_is_kept_is_bounded_and_not_kept_for_ever() {
    let mut net = Net::with_tokens();
    net.send(1, NODE, b"");
    net.settle();
    for _ in 0..100 {
        net.send(1, NODE, &[7; 1_000]);
        net.settle();
    }
    let [(association, _)] = net.end(NODE).requests()[..] else { panic!() };
    let now = net.now;
    assert!(net.end(NODE).shared.set_rights(association, rights(1)));
    let admitted = net.end(NODE).admitted(now).len();
    assert!((50..=64).contains(&admitted), "{admitted}");

    let mut net = Net::with_tokens();
    net.send(1, NODE, b"late");
    net.settle();
    let [(association, _)] = net.end(NODE).requests()[..] else { panic!() };
    net.advance(6 * SECOND);
    assert!(!net.end(NODE).shared.set_rights(association, rights(1)), "it has ended");
    let now = net.now;
    assert!(net.end(NODE).admitted(now).is_empty());
}

/// Until `admit` says so, nobody answers what a client may do. Returns after how many seconds it is let in.
fn seconds_until_it_is_let_in(net: &mut Net, admits: impl Fn(usize) -> bool) -> usize {
    for tries in 0..100 {
        net.send(1, NODE, b"again");
        net.settle();
        if admits(tries) {
            net.end(NODE).admit_all();
        } else {
            net.end(NODE).requests();
        }
        let now = net.now;
        if !net.end(NODE).admitted(now).is_empty() {
            return tries / 4;
        }
        net.advance(250 * MS);
        net.settle();
    }
    panic!("it is never let in");
}

#[test]
fn a_client_about_which_nobody_answered_begins_again() {
    let mut net = Net::with_tokens();
    let seconds = seconds_until_it_is_let_in(&mut net, |tries| tries > 0);
    assert!((4..12).contains(&seconds), "{seconds}");
}

/// Somebody on the path puts a part of his own in the place of that with the token.
#[test]
fn a_client_whose_token_cannot_come_begins_again() {
    let mut net = Net::with_tokens();
    net.send(1, NODE, b"hello");
    let mut forged = false;
    while !net.flying.is_empty() {
        let (from, to, bytes) = net.flying.remove(0);
        let is_last_flight = from == 1 && net.end(NODE).shared.len() == 1 && bytes.len() > 600;
        if let (true, Some(packet::Packet::Stream { to: id, from: own, segment, .. })) =
            (is_last_flight && !forged, packet::Packet::parse(&bytes))
        {
            let half = segment.bytes.len() / 2;
            let cut = Segment { bytes: &segment.bytes[..half], ..segment };
            net.deliver(1, NODE, &packet::stream(id, own, &[], &cut));
            let offset = segment.offset + half as u32;
            let false_part = Segment { offset, bytes: &[0xff; 700], ..segment };
            net.deliver(1, NODE, &packet::stream(id, own, &[], &false_part));
            forged = true;
        }
        net.deliver(from, to, &bytes);
    }
    assert!(forged);
    let seconds = seconds_until_it_is_let_in(&mut net, |_| true);
    assert!(seconds < 12, "{seconds}");
}

#[test]
fn what_is_for_a_client_goes_through_no_association_of_somebody_else() {
    let mut net = Net::with_tokens();
    net.send(1, NODE, b"hello");
    net.settle();
    net.end(NODE).admit_all();
    let now = net.now;
    net.end(NODE).admitted(now);
    // Somebody on the path has a token, and takes all that is sent to the client's address.
    let victim = net.ends.insert(1, End::new(client_with(&[OTHERS_KEY as u8; 600]), 2)).unwrap();
    net.send(1, NODE, b"I am at this address");
    net.settle();
    net.end(NODE).admit_all();
    assert_eq!(net.end(NODE).admitted(now).len(), 1);
    assert!(net.send_to(1, OTHERS_KEY, b"yours"));
    net.settle();
    assert!(net.send_to(1, 1, b"secret"));
    let (.., for_victim) = net.flying.pop().unwrap();
    net.deliver(NODE, 1, &for_victim);
    assert_eq!(net.opened(1), [b"yours"]);
    net.ends.insert(1, victim);
    net.flying.clear();
    net.deliver(NODE, 1, &for_victim);
    assert_eq!(net.opened(1), [b"secret"]);
}

/// As in a handover: the node knows the client's address and rights, and has no association with it.
#[test]
fn a_node_that_speaks_first_speaks_to_who_has_the_rights() {
    for (key, expected) in [(1, vec![b"yours".to_vec()]), (OTHERS_KEY, vec![])] {
        let mut net = Net::with_tokens();
        assert!(!net.send_to(1, key, b"yours"), "it has no keys yet");
        for _ in 0..200 {
            net.settle();
            net.end(NODE).admit_all();
            net.advance(20 * MS);
        }
        assert_eq!(net.opened(1), expected);
    }
}

#[test]
fn rights_change_at_once() {
    let mut net = Net::with_tokens();
    net.send(1, NODE, b"hello");
    net.settle();
    let [(association, _)] = net.end(NODE).requests()[..] else { panic!() };
    let now = net.now;
    for key in [1, 2] {
        assert!(net.end(NODE).shared.set_rights(association, rights(key)));
        net.end(NODE).admitted(now);
        net.send(1, NODE, b"again");
        net.settle();
        assert_eq!(net.end(NODE).associations.rights().unwrap().key, key);
        assert!(net.send_to(1, key, b"answer"));
    }
    assert!(!net.send_to(1, 1, b"for the rights before"));
    assert!(!net.end(NODE).shared.set_rights(association + 1, rights(1)), "there is no such association");
}

#[test]
fn a_client_with_another_token_begins_another_association() {
    let mut net = Net::with_tokens();
    net.send(1, NODE, b"before");
    net.settle();
    net.end(NODE).admit_all();
    net.end(1).shared.set_credentials(client_with(&[1; 600]));
    net.send(1, NODE, b"the same");
    net.settle();
    assert_eq!(net.end(NODE).requests(), []);
    net.end(1).shared.set_credentials(client_with(&[2; 600]));
    net.send(1, NODE, b"after");
    net.settle();
    net.end(NODE).admit_all();
    let now = net.now;
    let admitted = net.end(NODE).admitted(now);
    assert!(admitted.contains(&(2, b"after".to_vec())), "{admitted:?}");
}
