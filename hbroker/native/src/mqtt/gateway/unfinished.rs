//! Limits the memory of incomplete packets. All connections together have one limit, and within it each host
//! has a [share](crate::shares).
//!
//! A client that announces a large packet has not sent it yet, and only the bytes that have arrived take
//! memory. An incomplete packet is worth nothing without its rest. So if a packet finds no room its
//! connection is closed; the host that holds most finds no room first. The limit is checked after each read,
//! so the bytes of one read come on top. A complete packet that waits until the network has room counts, but
//! is never refused: its connection is not read meanwhile.

use std::net::IpAddr;

use parking_lot::Mutex;

use crate::keyed_hash::KeyedHash;
use crate::prefix::Prefix;
use crate::shares::{Share, Shares};

/// Bytes are counted in steps of this size. A connection itself costs more than one step.
const STEP: usize = 4_096;

/// The incomplete packets of all workers.
pub struct UnfinishedPackets {
    shares: Mutex<Shares<Prefix>>,
}

impl UnfinishedPackets {
    /// `most`: bytes of all packets together. `seed`: random and secret.
    pub fn new(most: usize, seed: u64) -> Self {
        Self { shares: Mutex::new(Shares::new(most, KeyedHash::new(seed))) }
    }

    /// A connection of this client now holds so many bytes. `waits`: it is not read. False: there is no room
    /// for the bytes.
    #[must_use]
    pub fn set(&self, share: &mut Share<Prefix>, client: IpAddr, bytes: usize, waits: bool) -> bool {
        let bytes = bytes / STEP * STEP;
        if bytes == share.bytes() {
            return true;
        }
        let (mut shares, host) = (self.shares.lock(), client.into());
        let fits = waits || bytes < share.bytes() || shares.fits_in(share, host, bytes - share.bytes());
        if fits {
            shares.set(share, host, bytes);
        }
        fits
    }

    /// A connection has ended.
    pub fn free(&self, share: Share<Prefix>) {
        if share.bytes() > 0 {
            self.shares.lock().free(share);
        }
    }

    /// The bytes that all connections hold.
    pub fn bytes(&self) -> usize {
        self.shares.lock().used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 100 * STEP;

    #[test]
    fn one_address_leaves_as_much_as_it_has_to_others() {
        let unfinished = UnfinishedPackets::new(MOST, 1);
        let [one, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let mut allotted: Vec<Share<Prefix>> = (0..10).map(|_| Share::default()).collect();
        let mut held = 0;
        for bytes in (STEP..=MOST).step_by(STEP) {
            held += allotted
                .iter_mut()
                .map(|share| usize::from(!unfinished.set(share, one, bytes, false)))
                .sum::<usize>();
        }
        assert!(held > 0 && unfinished.bytes() == MOST / 2, "{}", unfinished.bytes());
        let mut late = Share::default();
        assert!(
            unfinished.set(&mut late, other, MOST / 4, false)
                && !unfinished.set(&mut late, other, MOST / 2, false)
        );
        assert!(unfinished.set(&mut late, other, MOST / 2, true), "it waits");
        assert!(unfinished.set(&mut late, other, STEP - 1, false), "it was whole, and the next has begun");
        assert_eq!((late.bytes(), unfinished.bytes()), (0, MOST / 2));
        allotted.into_iter().for_each(|share| unfinished.free(share));
        assert_eq!(unfinished.bytes(), 0);
    }

    #[test]
    fn the_largest_packet_comes_where_twice_as_much_is_free() {
        let largest = 268_435_460;
        let unfinished = UnfinishedPackets::new(512 << 20, 1);
        let (mut share, client) = (Share::default(), IpAddr::from([192, 0, 2, 1]));
        assert!((0..largest).step_by(10_000).all(|bytes| unfinished.set(&mut share, client, bytes, false)));
        assert!(unfinished.set(&mut share, client, largest - 1, false));
    }
}
