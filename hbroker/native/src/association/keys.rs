//! The keys of one direction of an association: a sender's and a receiver's.
//!
//! Both derive them from a secret that the handshake made. A key seals a limited number of datagrams. Then the
//! sender goes on to the next *epoch*: it derives the next secret, and cannot go back. The receiver follows when a
//! datagram of the next epoch opens, and keeps the keys of the epoch before for late datagrams. Numbers go on over
//! epochs.
//!
//! An idle association keeps only the secrets. The keys are derived again when they are needed.

use ring::aead::{Aad, Algorithm, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

use crate::association::packet::{AssociationId, SEALED_HEADER, SealedHeader, TAG};

/// The bytes of a secret.
pub const SECRET: usize = 32;
/// How many datagrams one key seals. RFC 9001 §6.6 allows 2^23.
pub const DATAGRAMS_PER_EPOCH: u64 = 1 << 22;
/// How many of the last numbers are known. An older datagram is discarded.
const WINDOW: u64 = 512;
const WINDOW_WORDS: usize = WINDOW as usize / 64;

/// The secret of one epoch of one direction.
#[derive(Clone)]
struct Secret([u8; SECRET]);

/// What seals and opens the datagrams of one epoch.
struct Key {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Secret {
    fn derive<const N: usize>(&self, label: &[u8]) -> [u8; N] {
        let mut derived = [0; N];
        Prk::new_less_safe(HKDF_SHA256, &self.0)
            .expand(&[b"hbroker ", label], Length(N))
            .and_then(|key| key.fill(&mut derived))
            .expect("the length is below the limit of HKDF");
        derived
    }

    fn next(&self) -> Self {
        Self(self.derive(b"next"))
    }

    fn key(&self, algorithm: &'static Algorithm) -> Box<Key> {
        let bytes: [u8; 32] = self.derive(b"key");
        let key = UnboundKey::new(algorithm, &bytes[..algorithm.key_len()]).expect("it has the right length");
        Box::new(Key { key: LessSafeKey::new(key), iv: self.derive(b"iv") })
    }
}

impl Key {
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_number) in nonce[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Seals the datagrams of one direction.
pub struct Sealer {
    algorithm: &'static Algorithm,
    to: AssociationId,
    secret: Secret,
    key: Option<Box<Key>>,
    epoch: u64,
    /// Of the next datagram.
    number: u64,
    /// How many datagrams the present epoch may still seal.
    left: u64,
    per_epoch: u64,
}

impl Sealer {
    /// For datagrams to the association that its receiver calls `to`.
    pub fn new(algorithm: &'static Algorithm, secret: [u8; SECRET], to: AssociationId) -> Self {
        Self {
            algorithm,
            to,
            secret: Secret(secret),
            key: None,
            epoch: 0,
            number: 0,
            left: DATAGRAMS_PER_EPOCH,
            per_epoch: DATAGRAMS_PER_EPOCH,
        }
    }

    /// Seals the datagram in `buffer` from `start` on. There are [`SEALED_HEADER`] bytes of room in front of it,
    /// which belong to the datagram.
    pub fn seal(&mut self, buffer: &mut Vec<u8>, start: usize) {
        if self.left == 0 {
            self.update();
        }
        self.left -= 1;
        let number = self.number;
        self.number += 1;
        let header = SealedHeader { epoch: self.epoch as u8, number: number as u32 }.emit(self.to);
        buffer[start..start + SEALED_HEADER].copy_from_slice(&header);
        let key = self.key.get_or_insert_with(|| self.secret.key(self.algorithm));
        let body = &mut buffer[start + SEALED_HEADER..];
        let tag = key
            .key
            .seal_in_place_separate_tag(key.nonce(number), Aad::from(header), body)
            .expect("a datagram is short");
        buffer.extend_from_slice(tag.as_ref());
    }

    /// Goes on to the next epoch.
    pub fn update(&mut self) {
        self.secret = self.secret.next();
        self.epoch += 1;
        self.key = None;
        self.left = self.per_epoch;
    }

    /// Drops the keys. They are derived again when they are needed.
    pub fn rest(&mut self) {
        self.key = None;
    }

    /// From now on an epoch seals this many datagrams.
    #[cfg(test)]
    pub fn limit_epochs(&mut self, datagrams: u64) {
        self.per_epoch = datagrams.clamp(1, DATAGRAMS_PER_EPOCH);
        self.left = self.left.min(self.per_epoch);
    }
}

/// Why a datagram was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was opened before, or is older than what is known.
    Replayed,
    /// It was not sealed with these keys, or was changed.
    Forged,
}

/// Opens the datagrams of one direction.
pub struct Opener {
    algorithm: &'static Algorithm,
    epoch: u64,
    secret: Secret,
    key: Option<Box<Key>>,
    /// Of the epoch before.
    previous: Option<Box<Key>>,
    /// Of the epoch after, once a datagram said that it is of that one.
    next: Option<(Secret, Box<Key>)>,
    window: Window,
}

impl Opener {
    pub fn new(algorithm: &'static Algorithm, secret: [u8; SECRET]) -> Self {
        Self {
            algorithm,
            epoch: 0,
            secret: Secret(secret),
            key: None,
            previous: None,
            next: None,
            window: Window::default(),
        }
    }

    /// Opens a datagram where it lies. Returns what was sealed, and whether no later datagram was opened before.
    ///
    /// # Errors
    /// It was not sealed for this end, or was opened before. Then its bytes may have changed.
    pub fn open<'a>(
        &mut self,
        header: SealedHeader,
        datagram: &'a mut [u8],
    ) -> Result<(&'a mut [u8], bool), Refused> {
        let number = self.window.full(header.number);
        if !self.window.is_new(number) {
            return Err(Refused::Replayed);
        }
        let (sealed_header, body) = datagram.split_at_mut(SEALED_HEADER);
        let ahead = header.epoch.wrapping_sub(self.epoch as u8) & 3;
        let key = match ahead {
            0 => self.key.get_or_insert_with(|| self.secret.key(self.algorithm)),
            1 => {
                let (_, key) = self.next.get_or_insert_with(|| {
                    let secret = self.secret.next();
                    let key = secret.key(self.algorithm);
                    (secret, key)
                });
                key
            }
            3 => self.previous.as_mut().ok_or(Refused::Forged)?,
            _ => return Err(Refused::Forged),
        };
        let length = body.len() - TAG;
        key.key
            .open_in_place(key.nonce(number), Aad::from(&*sealed_header), body)
            .map_err(|_| Refused::Forged)?;
        if ahead == 1 {
            self.follow();
        }
        let is_newest = number >= self.window.end;
        self.window.note(number);
        Ok((&mut body[..length], is_newest))
    }

    /// Drops the keys. They are derived again when they are needed; datagrams of the epoch before are not opened
    /// any more.
    pub fn rest(&mut self) {
        (self.key, self.previous, self.next) = (None, None, None);
    }

    fn follow(&mut self) {
        let Some((secret, key)) = self.next.take() else {
            return;
        };
        self.previous = self.key.replace(key);
        self.secret = secret;
        self.epoch += 1;
    }
}

/// Which of the last numbers have come.
#[derive(Default)]
struct Window {
    /// The highest number that has come, and one more.
    end: u64,
    /// A bit for each of the last numbers, at its place modulo the length.
    bits: [u64; WINDOW_WORDS],
}

impl Window {
    /// The number whose lower half this is: the one closest to the next expected (RFC 9000 A.3).
    fn full(&self, lower: u32) -> u64 {
        const SPAN: u64 = 1 << 32;
        let candidate = self.end & !(SPAN - 1) | u64::from(lower);
        if candidate + SPAN / 2 <= self.end {
            candidate + SPAN
        } else if candidate > self.end + SPAN / 2 && candidate >= SPAN {
            candidate - SPAN
        } else {
            candidate
        }
    }

    fn is_new(&self, number: u64) -> bool {
        number >= self.end || number + WINDOW >= self.end && self.bits[word(number)] & bit(number) == 0
    }

    fn note(&mut self, number: u64) {
        if number >= self.end {
            let passed = number + 1 - self.end;
            if passed >= WINDOW {
                self.bits = [0; WINDOW_WORDS];
            } else {
                (self.end..=number).for_each(|other| self.bits[word(other)] &= !bit(other));
            }
            self.end = number + 1;
        }
        self.bits[word(number)] |= bit(number);
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::seq::SliceRandom;
    use rand::{Rng, RngCore, SeedableRng};
    use ring::aead::{AES_128_GCM, CHACHA20_POLY1305};

    use super::*;
    use crate::association::packet::{OVERHEAD, Packet};

    fn pair(algorithm: &'static Algorithm) -> (Sealer, Opener) {
        (Sealer::new(algorithm, [7; SECRET], 9), Opener::new(algorithm, [7; SECRET]))
    }

    fn sealed(sealer: &mut Sealer, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = [&[0; SEALED_HEADER][..], bytes].concat();
        sealer.seal(&mut buffer, 0);
        assert_eq!(buffer.len(), bytes.len() + OVERHEAD);
        buffer
    }

    fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, Refused> {
        let Some(Packet::Sealed { header, .. }) = Packet::parse(datagram) else {
            return Err(Refused::Forged);
        };
        opener.open(header, &mut datagram.to_vec()).map(|(bytes, _)| bytes.to_vec())
    }

    /// Datagrams are lost, repeated, reordered and changed: each is opened once, or not at all, and is what was
    /// sealed. Keys change often.
    #[test]
    fn what_is_opened_was_sealed_and_comes_once() {
        for seed in 0..40 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut sealer, mut opener) =
                pair(if seed % 2 == 0 { &AES_128_GCM } else { &CHACHA20_POLY1305 });
            sealer.limit_epochs(50);
            let mut opened = vec![0; 3_000];
            let mut sent = Vec::new();
            for number in 0..opened.len() {
                if rng.random_bool(0.01) {
                    sealer.rest();
                }
                let length = rng.random_range(0..200);
                let bytes = [&(number as u32).to_be_bytes()[..], &vec![number as u8; length]].concat();
                sent.push((bytes.clone(), sealed(&mut sealer, &bytes)));
            }
            for part in sent.chunks_mut(40) {
                part.shuffle(&mut rng);
                for (bytes, datagram) in &*part {
                    for _ in 0..rng.random_range(0..3) {
                        let mut changed = datagram.clone();
                        changed[rng.random_range(0..datagram.len())] ^= 1 << rng.random_range(0..8);
                        assert!(open(&mut opener, &changed).is_err());
                        if let Ok(found) = open(&mut opener, datagram) {
                            assert_eq!(found, *bytes);
                            opened[u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize] += 1;
                        }
                    }
                }
            }
            assert!(opened.iter().all(|times| *times <= 1), "seed {seed}");
            assert!(opened.iter().sum::<u32>() > 1_500, "seed {seed}");
        }
    }

    #[test]
    fn other_keys_open_nothing() {
        let (mut sealer, _) = pair(&AES_128_GCM);
        let mut opener = Opener::new(&AES_128_GCM, [8; SECRET]);
        let datagram = sealed(&mut sealer, b"secret");
        assert_eq!(open(&mut opener, &datagram), Err(Refused::Forged));
        assert!(!datagram.windows(6).any(|bytes| bytes == b"secret"));
    }

    #[test]
    fn a_receiver_that_misses_a_whole_epoch_cannot_follow() {
        let (mut sealer, mut opener) = pair(&AES_128_GCM);
        sealer.update();
        sealer.update();
        assert_eq!(open(&mut opener, &sealed(&mut sealer, b"1")), Err(Refused::Forged));
    }

    #[test]
    fn keys_that_were_dropped_are_derived_again() {
        let (mut sealer, mut opener) = pair(&AES_128_GCM);
        for number in 0..3_u8 {
            assert_eq!(open(&mut opener, &sealed(&mut sealer, &[number])), Ok(vec![number]));
            sealer.rest();
            opener.rest();
            sealer.update();
        }
    }

    #[test]
    fn forged_datagrams_of_the_next_epoch_change_nothing() {
        let (mut sealer, mut opener) = pair(&AES_128_GCM);
        let mut rng = SmallRng::seed_from_u64(1);
        let datagram = sealed(&mut sealer, b"1");
        for _ in 0..100 {
            let mut forged = datagram.clone();
            rng.fill_bytes(&mut forged[SEALED_HEADER..]);
            forged[0] |= 1 << 3;
            assert_eq!(open(&mut opener, &forged), Err(Refused::Forged));
        }
        assert_eq!(open(&mut opener, &datagram), Ok(b"1".to_vec()));
    }

    #[test]
    fn numbers_go_on_beyond_32_bits() {
        let mut window = Window { end: (1 << 32) - 2, ..Window::default() };
        for number in (1_u64 << 32) - 5..(1 << 32) + 5 {
            assert_eq!(window.full(number as u32), number);
            assert_eq!(window.is_new(number), number >= (1 << 32) - 5);
            window.note(number);
            assert!(!window.is_new(number));
        }
    }

    #[test]
    fn the_window_is_that_of_a_set_of_numbers() {
        for seed in 0..50 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut window, mut come, mut end) = (Window::default(), std::collections::BTreeSet::new(), 0);
            for _ in 0..2_000 {
                let number = u64::saturating_sub(end, 700) + rng.random_range(0..1_000);
                let is_new = number >= end || number + WINDOW >= end && !come.contains(&number);
                assert_eq!(window.is_new(number), is_new, "{number} below {end}, seed {seed}");
                if is_new {
                    window.note(number);
                    come.insert(number);
                    end = end.max(number + 1);
                }
            }
        }
    }
}
