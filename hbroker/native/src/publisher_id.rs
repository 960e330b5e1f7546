//! Which publisher id a session may use (§7.9).
//!
//! Every subscriber sees the publisher ids of its messages, and an owner keeps a publisher's duplicate window
//! by its id alone. So an id must be useful only to the run of the client that it belongs to. It is a hash of
//! the session id, which only that client and the owners know, and of the run. An owner computes it from the
//! header of the first datagram of a link, for any session, and stores nothing.

use ring::digest::{Context, SHA256};

/// The lower bits of an incarnation count the links of its run; the others identify the run (§3.6).
pub const LINK_BITS: u32 = 32;

/// The publisher id of a client's messages.
pub fn publisher_id(session: u64, incarnation: u64) -> u64 {
    hash(b"hbroker publisher", session, incarnation)
}

/// The publisher id of the wills that owners publish for a client (§6.6).
pub fn will_publisher_id(session: u64, incarnation: u64) -> u64 {
    hash(b"hbroker will", session, incarnation)
}

/// The first 64 bits of the SHA-256 hash; 1 for 0.
fn hash(purpose: &[u8], session: u64, incarnation: u64) -> u64 {
    let run = (incarnation >> LINK_BITS) as u32;
    let mut context = Context::new(&SHA256);
    context.update(purpose);
    context.update(&session.to_be_bytes());
    context.update(&run.to_be_bytes());
    let first = context.finish().as_ref().first_chunk().copied();
    u64::from_be_bytes(first.expect("a SHA-256 hash has 32 bytes")).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_of_a_session_and_a_run_and_of_a_purpose() {
        let (session, run) = (0x0123_4567_89ab_cdef, 0xfeed_beef_0000_0000);
        // By Python's hashlib.
        assert_eq!(publisher_id(session, run), PUBLISHER);
        assert_eq!(will_publisher_id(session, run), WILL);
        assert_eq!(publisher_id(session, run | 0xffff_ffff), PUBLISHER, "another link of the same run");
        assert_ne!(publisher_id(session, run + (1 << LINK_BITS)), PUBLISHER, "another run");
        assert_ne!(publisher_id(session ^ 1, run), PUBLISHER, "another session");
    }

    const PUBLISHER: u64 = 0x1e3c26455e4644bf;
    const WILL: u64 = 0x9af6b5e592800935;
}
