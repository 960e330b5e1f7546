//! Address tokens (§4.2): a stateless proof that a peer receives at its address.
//!
//! As the DNS cookies of RFC 9018: a version, a time, and a keyed hash of both and of the address. Every node
//! with the same key can verify a token of any other, and keeps no state for it.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher24};

/// The length of a token in bytes.
pub const TOKEN_BYTES: usize = 21;
/// How long a token is valid, in seconds.
pub const LIFETIME_S: u32 = 120;
/// How far the clock of the issuer may be ahead, in seconds.
const SKEW_S: u32 = 5;
const VERSION: u8 = 1;
const STAMP_BYTES: usize = 5;

/// The keys of a node, the newest first. The node issues tokens under the newest key and accepts all of them,
/// so that keys can be changed.
///
/// Clones share the keys.
#[derive(Clone, Debug)]
pub struct TokenKeys {
    keys: Arc<[[u8; 16]]>,
}

impl TokenKeys {
    /// Without keys (a client has none) it accepts no token, and no node accepts the tokens that it issues.
    pub fn new(keys: Vec<[u8; 16]>) -> Self {
        Self { keys: keys.into() }
    }

    /// A token for this address. `now_s`: seconds since the Unix epoch.
    pub fn issue(&self, now_s: u32, address: SocketAddr) -> [u8; TOKEN_BYTES] {
        let mut token = [0; TOKEN_BYTES];
        token[0] = VERSION;
        token[1..STAMP_BYTES].copy_from_slice(&now_s.to_be_bytes());
        if let Some(key) = self.keys.first() {
            let hash = keyed_hash(key, &token[..STAMP_BYTES], address);
            token[STAMP_BYTES..].copy_from_slice(&hash);
        }
        token
    }

    /// Another secret, which follows from the newest key. `None`: there is no key.
    pub fn derived(&self, label: &[u8]) -> Option<[u8; 16]> {
        self.keys.first().map(|key| SipHasher24::new_with_key(key).hash(label).as_bytes())
    }

    /// Whether a node with one of these keys issued this token for this address within the last `LIFETIME_S`.
    pub fn verify(&self, now_s: u32, address: SocketAddr, token: &[u8]) -> bool {
        let Ok(token) = <&[u8; TOKEN_BYTES]>::try_from(token) else {
            return false;
        };
        let (stamp, hash) = token.split_at(STAMP_BYTES);
        let issued_s = u32::from_be_bytes([stamp[1], stamp[2], stamp[3], stamp[4]]);
        stamp[0] == VERSION
            && issued_s <= now_s.saturating_add(SKEW_S)
            && now_s.saturating_sub(issued_s) <= LIFETIME_S
            && self.keys.iter().any(|key| equal_in_constant_time(&keyed_hash(key, stamp, address), hash))
    }
}

fn keyed_hash(key: &[u8; 16], stamp: &[u8], address: SocketAddr) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(stamp);
    // A socket for both families reports an IPv4 peer as a mapped IPv6 address: it is the same peer.
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => hasher.write(&ip.octets()),
        IpAddr::V6(ip) => hasher.write(&ip.octets()),
    }
    hasher.write(&address.port().to_be_bytes());
    hasher.finish128().as_bytes()
}

/// Takes the same time wherever the first difference is, so that timing reveals nothing about the right hash.
fn equal_in_constant_time(ours: &[u8; 16], theirs: &[u8]) -> bool {
    let difference = ours.iter().zip(theirs).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_800_000_000;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn is_valid_for_its_time_and_address_only() {
        let keys = TokenKeys::new(vec![[1; 16]]);
        let token = keys.issue(NOW, address("192.0.2.1:7700"));
        for (now, expected) in [
            (NOW, true),
            (NOW + 120, true),
            (NOW + 121, false),
            (NOW - 5, true),
            (NOW - 6, false),
            (0, false),
        ] {
            assert_eq!(keys.verify(now, address("192.0.2.1:7700"), &token), expected, "at {now}");
        }
        for other in ["192.0.2.1:7701", "192.0.2.2:7700", "[2001:db8::1]:7700", "[::c000:201]:7700"] {
            assert!(!keys.verify(NOW, address(other), &token), "{other}");
        }
        assert!(
            keys.verify(NOW, address("[::ffff:192.0.2.1]:7700"), &token),
            "the same peer, seen by another socket"
        );
    }

    #[test]
    fn every_bit_counts() {
        let keys = TokenKeys::new(vec![[1; 16]]);
        let peer = address("[2001:db8::1]:9");
        let token = keys.issue(NOW, peer);
        for bit in 0..TOKEN_BYTES * 8 {
            let mut forged = token;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!keys.verify(NOW, peer, &forged), "bit {bit}");
        }
        let longer = [&token[..], &[0]].concat();
        assert!(
            !keys.verify(NOW, peer, &longer)
                && !keys.verify(NOW, peer, &token[..20])
                && !keys.verify(NOW, peer, b"")
        );
    }

    #[test]
    fn keys_can_be_changed() {
        let peer = address("192.0.2.1:7700");
        let (old, new) = (TokenKeys::new(vec![[1; 16]]), TokenKeys::new(vec![[2; 16], [1; 16]]));
        assert!(new.verify(NOW, peer, &old.issue(NOW, peer)));
        assert!(new.verify(NOW, peer, &new.issue(NOW, peer)));
        assert!(!old.verify(NOW, peer, &new.issue(NOW, peer)));
    }

    #[test]
    fn without_keys_nothing_is_proved() {
        let (none, some) = (TokenKeys::new(vec![]), TokenKeys::new(vec![[0; 16]]));
        let peer = address("192.0.2.1:7700");
        let token = none.issue(NOW, peer);
        assert!(!none.verify(NOW, peer, &token) && !some.verify(NOW, peer, &token));
    }
}
