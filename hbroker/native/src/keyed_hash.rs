//! Hashing under a secret key.
//!
//! Clients choose topics, filters and publisher ids. With a hash function that they can compute, they could
//! choose them so that all fall into one bucket (Crosby and Wallach, 2003). SipHash with a secret key
//! prevents this.

use std::hash::BuildHasher;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use siphasher::sip::SipHasher13;

/// Builds hashers with one key.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    keys: (u64, u64),
}

impl KeyedHash {
    /// The key is derived from `seed`, which must be random and stay secret.
    pub fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        Self { keys: (random.next_u64(), random.next_u64()) }
    }

    /// Hashes a string of bytes.
    pub fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        self.build_hasher().hash(bytes)
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.keys.0, self.keys.1)
    }
}
