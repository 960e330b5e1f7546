//! Limits how many passwords may be guessed, by address and by user name.
//!
//! An attempt takes a token from three buckets: that of its address and name together, that of its address,
//! and that of its name. Unless the password was wrong, the attempt gives the tokens back. So only wrong
//! guesses and running checks count. If the bucket of address and name refuses an attempt, the attempt takes
//! nothing from the other two buckets: a device with an old password does not use up the tokens of other
//! clients behind its address or with its name.
//!
//! With only a bucket for each name, a stranger could lock the name's owner out. So the buckets of the name
//! and of the address do not apply to an address from which somebody has logged in with this name before. An
//! attempt without a name has an address alone.
//!
//! Python takes the tokens of an attempt, has the password checked, and reports the result. A worker asks
//! before that ([`Attempts::refuse`]), so a guess beyond the limits ends in the worker. An attempt whose name
//! and password were right before always goes to Python.
//!
//! An address is an IPv4 address, or the first 64 bits of an IPv6 address: a host that has one address of
//! such a prefix can use all of them (RFC 6177). Names and passwords are kept as hashes under a secret key.
//! All tables are bounded ([`Recent`]).

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::Micros;
use crate::keyed_hash::KeyedHash;
use crate::mqtt::codec::packets::{CloseReason, Connect};
use crate::mqtt::codec::reason::Reason;
use crate::prefix::Prefix;

/// Tokens: `burst` at once, and another one after each `interval`.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    pub burst: u64,
    pub interval: Micros,
}

/// The limits on attempts.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Wrong passwords of one address for one name.
    pub pair: Bucket,
    /// Wrong passwords of one address for any name.
    pub address: Bucket,
    /// Wrong passwords of any address for one name.
    pub name: Bucket,
    /// Attempts of one address, right or wrong.
    pub asked: Bucket,
    /// The least number of entries that each table keeps.
    pub entries: usize,
    /// The least number of right passwords that are remembered.
    pub known: usize,
}

pub type Texts = [String; Refused::ALL.len()];

/// Why an attempt is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Pair,
    Address,
    Name,
    /// The queue of password checks is full, and the address has used up its `asked` bucket.
    Busy,
}

impl Refused {
    pub const ALL: [Self; 4] = [Self::Pair, Self::Address, Self::Name, Self::Busy];

    fn reason(self) -> Reason {
        match self {
            Self::Busy => Reason::SERVER_BUSY,
            Self::Pair | Self::Address | Self::Name => Reason::CONNECTION_RATE_EXCEEDED,
        }
    }
}

/// Where an attempt comes from, as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub address: u64,
    pub named: Option<Named>,
}

/// The hashes of an attempt with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    pub name: u64,
    /// Of address and name together.
    pub pair: u64,
}

/// See the module.
pub struct Attempts {
    keyed: KeyedHash,
    tables: Mutex<Tables>,
    /// The queue of password checks is full.
    is_full: AtomicBool,
    /// The reason strings for clients, in the order of [`Refused::ALL`].
    pub texts: Texts,
    /// How many attempts `refuse` has refused.
    refused: [AtomicU64; Refused::ALL.len()],
}

struct Tables {
    pairs: Buckets,
    addresses: Buckets,
    names: Buckets,
    asked: Buckets,
    /// Pairs of address and name with a successful login.
    trusted: Recent<()>,
    /// The last right password of each name.
    known: Recent<u64>,
}

impl Attempts {
    /// `seed`: random and secret. `texts`: the reason strings for clients, in the order of [`Refused::ALL`].
    pub fn new(seed: u64, bounds: Bounds, texts: Texts) -> Self {
        let table = |bucket| Buckets { bucket, full_at: Recent::new(bounds.entries) };
        Self {
            keyed: KeyedHash::new(seed),
            tables: Mutex::new(Tables {
                pairs: table(bounds.pair),
                addresses: table(bounds.address),
                names: table(bounds.name),
                asked: table(bounds.asked),
                trusted: Recent::new(bounds.entries),
                known: Recent::new(bounds.known),
            }),
            is_full: AtomicBool::new(false),
            texts,
            refused: Default::default(),
        }
    }

    pub fn source(&self, host: IpAddr, name: Option<&str>) -> Source {
        let address = self.keyed.hash_bytes(&Prefix::from(host).bits().to_be_bytes());
        let named = name.map(|name| Named {
            name: self.keyed.hash_bytes(name.as_bytes()),
            pair: self.hash_two(&address.to_be_bytes(), name.as_bytes()),
        });
        Source { address, named }
    }

    /// Takes the tokens of an attempt. If a bucket refuses the attempt, returns which, and takes none.
    pub fn take(&self, now: Micros, source: &Source) -> Option<Refused> {
        let mut tables = self.tables.lock();
        tables.asked.take(now, source.address);
        let refused = tables.bound(now, source);
        if refused.is_none() {
            tables.each(source, |buckets, key| buckets.take(now, key));
        }
        refused
    }

    /// Gives the tokens back: the attempt was not a wrong guess.
    pub fn give_back(&self, now: Micros, source: &Source) {
        self.tables.lock().each(source, |buckets, key| buckets.give_back(now, key));
    }

    /// The password was right: gives the tokens back, and trusts this address with this name.
    pub fn succeeded(&self, now: Micros, source: &Source) {
        let mut tables = self.tables.lock();
        tables.each(source, |buckets, key| buckets.give_back(now, key));
        tables.asked.give_back(now, source.address);
        if let Some(named) = source.named {
            tables.trusted.put(named.pair, ());
        }
    }

    /// How many attempts of the address count at present. Successful ones do not.
    pub fn asked(&self, now: Micros, source: &Source) -> u64 {
        self.tables.lock().asked.taken(now, source.address)
    }

    /// Remembers that this password is right for this name.
    pub fn remember(&self, name: &str, password: &[u8]) {
        let (name, password) = self.credentials(name, password);
        self.tables.lock().known.put(name, password);
    }

    /// Sets whether the queue of password checks is full.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Why this attempt is refused without a password check; `None` if it is to be checked.
    pub fn refuse(&self, now: Micros, host: IpAddr, name: &str, password: &[u8]) -> Option<Refused> {
        let source = self.source(host, Some(name));
        let (known, right) = self.credentials(name, password);
        let mut tables = self.tables.lock();
        if tables.known.get(known) == Some(&right) {
            return None;
        }
        let is_full = self.is_full.load(Ordering::Relaxed);
        let is_busy = |tables: &Tables| is_full && tables.asked.is_empty(now, source.address);
        let refused = tables.bound(now, &source).or_else(|| is_busy(&tables).then_some(Refused::Busy))?;
        tables.asked.take(now, source.address);
        drop(tables);
        self.refused[refused as usize].fetch_add(1, Ordering::Relaxed);
        Some(refused)
    }

    /// Refuses a CONNECT whose name and password `refuse` refuses.
    pub fn refuse_connect(&self, now: Micros, host: IpAddr, connect: &Connect) -> Option<CloseReason> {
        let (Some(name), Some(password), None) =
            (&connect.user, &connect.password, &connect.authentication_method)
        else {
            return None;
        };
        let refused = self.refuse(now, host, name, password)?;
        let text = &self.texts[refused as usize];
        let text = if connect.wants_problem_information { text.clone() } else { String::new() };
        Some(CloseReason { text, ..refused.reason().into() })
    }

    /// How many attempts `refuse` has refused, in the order of [`Refused::ALL`].
    pub fn refused(&self) -> [u64; Refused::ALL.len()] {
        Refused::ALL.map(|why| self.refused[why as usize].load(Ordering::Relaxed))
    }

    /// The number of entries of the largest table of attempts, and the number of known passwords.
    pub fn sizes(&self) -> (usize, usize) {
        let tables = self.tables.lock();
        let buckets = [&tables.pairs, &tables.addresses, &tables.names, &tables.asked];
        let most = buckets.into_iter().map(|table| table.full_at.len()).max().unwrap_or(0);
        (most.max(tables.trusted.len()), tables.known.len())
    }

    fn credentials(&self, name: &str, password: &[u8]) -> (u64, u64) {
        (self.keyed.hash_bytes(name.as_bytes()), self.hash_two(name.as_bytes(), password))
    }

    fn hash_two(&self, first: &[u8], second: &[u8]) -> u64 {
        let bytes = [&(first.len() as u64).to_be_bytes(), first, second].concat();
        self.keyed.hash_bytes(&bytes)
    }
}

impl Tables {
    fn bound(&self, now: Micros, source: &Source) -> Option<Refused> {
        let is_empty = |buckets: &Buckets, key| buckets.is_empty(now, key);
        match source.named {
            Some(named) if is_empty(&self.pairs, named.pair) => Some(Refused::Pair),
            Some(named) if self.trusted.get(named.pair).is_some() => None,
            _ if is_empty(&self.addresses, source.address) => Some(Refused::Address),
            Some(named) if is_empty(&self.names, named.name) => Some(Refused::Name),
            _ => None,
        }
    }

    fn each(&mut self, source: &Source, mut act: impl FnMut(&mut Buckets, u64)) {
        act(&mut self.addresses, source.address);
        if let Some(named) = source.named {
            act(&mut self.pairs, named.pair);
            act(&mut self.names, named.name);
        }
    }
}

/// Token buckets by key. An entry is the time at which the bucket is full again; a full bucket needs no
/// entry.
struct Buckets {
    bucket: Bucket,
    full_at: Recent<Micros>,
}

impl Buckets {
    fn taken(&self, now: Micros, key: u64) -> u64 {
        self.full_at.get(key).map_or(0, |at| at.saturating_sub(now).div_ceil(self.bucket.interval))
    }

    fn is_empty(&self, now: Micros, key: u64) -> bool {
        self.taken(now, key) >= self.bucket.burst
    }

    fn take(&mut self, now: Micros, key: u64) {
        let Bucket { burst, interval } = self.bucket;
        let full_at = self.full_at.get(key).map_or(now, |at| now.max(*at)) + interval;
        self.full_at.put(key, full_at.min(now + burst * interval));
    }

    fn give_back(&mut self, now: Micros, key: u64) {
        let Some(full_at) = self.full_at.remove(key) else {
            return;
        };
        if full_at > now + self.bucket.interval {
            self.full_at.put(key, full_at - self.bucket.interval);
        }
    }
}

/// Holds at least the last `most` entries that were written and at most twice as many: when the younger of
/// two generations is full, the older is dropped. Keys are hashes that no client can choose.
pub struct Recent<V> {
    most: usize,
    young: FxHashMap<u64, V>,
    old: FxHashMap<u64, V>,
}

impl<V> Recent<V> {
    pub fn new(most: usize) -> Self {
        Self { most, young: FxHashMap::default(), old: FxHashMap::default() }
    }

    pub fn get(&self, key: u64) -> Option<&V> {
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    pub fn put(&mut self, key: u64, value: V) {
        self.old.remove(&key);
        self.young.insert(key, value);
        if self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
    }

    pub fn remove(&mut self, key: u64) -> Option<V> {
        self.young.remove(&key).or_else(|| self.old.remove(&key))
    }

    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests;
