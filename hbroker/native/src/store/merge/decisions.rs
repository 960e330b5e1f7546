//! Which messages of two stores are not needed: they wait in the other store, too, or were settled there.

use std::io;
use std::thread;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::link::receive::ranges::RangeSet;
use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::merge::order::Order;
use crate::store::merge::{Fields, Identity, MergeError};
use crate::store::record::{Kind, MessageBody, SettledBody, Target};
use crate::store::segment::Damage;

/// About the memory that a range, and a set of them, take.
const RANGE: usize = 16;
const SET: usize = 96;
/// The sessions are divided into this many parts at most.
const MOST_PARTS: u64 = 64;

/// One bit for each of many things.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
    length: usize,
}

impl Bits {
    pub fn push(&mut self, bit: bool) {
        if self.length % 64 == 0 {
            self.words.push(0);
        }
        self.words[self.length / 64] |= u64::from(bit) << (self.length % 64);
        self.length += 1;
    }

    pub fn set(&mut self, at: u64) {
        let word = (at / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (at % 64);
    }

    pub fn has(&self, at: u64) -> bool {
        self.words.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub fn len(&self) -> usize {
        self.length
    }
}

/// What was decided.
pub struct Decided {
    /// For each store: of its live targets, in the order of the log, those that are not needed.
    pub dropped: [Bits; 2],
    /// For each store: the sequences of all messages that are needed.
    pub orders: [Order; 2],
    pub common: u64,
    pub settled: u64,
    pub damage: [Vec<Damage>; 2],
}

/// Messages of some sessions: by session, shared subscription and publisher, their sequences.
#[derive(Default)]
struct Known {
    sets: HashMap<(u64, u64, u64), RangeSet, FxBuildHasher>,
    bytes: usize,
}

impl Known {
    fn add(&mut self, key: (u64, u64, u64), sequence: u64) {
        let set = self.sets.entry(key).or_insert_with(|| {
            self.bytes += SET;
            RangeSet::new(usize::MAX)
        });
        let extends = set.highest().is_some_and(|highest| sequence <= highest + 1);
        set.insert_range(sequence, sequence);
        self.bytes += if extends { 0 } else { RANGE };
    }

    fn has(&self, key: (u64, u64, u64), sequence: u64) -> bool {
        self.sets.get(&key).is_some_and(|set| set.contains(sequence))
    }
}

/// What one store knows of some sessions.
#[derive(Default)]
struct Knowledge {
    waiting: Known,
    settled: Known,
}

impl Knowledge {
    fn bytes(&self) -> usize {
        self.waiting.bytes + self.settled.bytes
    }
}

/// By session, the numbers that were delivered or discarded.
type Delivered = HashMap<u64, RangeSet, FxBuildHasher>;

/// Decides what is needed of two stores.
///
/// # Errors
/// A disk fails, or the memory is too small.
pub fn decide<D: Disk + Sync, I: Index + Sync>(
    stores: [&Store<D, I>; 2],
    fields: Fields,
    memory: usize,
) -> Result<Decided, MergeError> {
    let [first, second] = stores;
    let delivered = both(|| delivered_of(first), || delivered_of(second))?;
    let mut parts = 1;
    let (dropped, counts) = 'parts: loop {
        let (mut dropped, mut counts) = (<[Bits; 2]>::default(), [0; 2]);
        for part in 0..parts {
            let sessions = Sessions { part, parts };
            let learn = |at: usize| {
                let with_waiting = at == 0;
                knowledge_of(stores[at], &delivered[at].0, fields, sessions, with_waiting, memory / 2)
            };
            let [of_first, of_second] = both(|| learn(0), || learn(1))?;
            let (Some(of_first), Some(of_second)) = (of_first, of_second) else {
                if parts >= MOST_PARTS {
                    return Err(MergeError::Memory);
                }
                parts *= 4;
                continue 'parts;
            };
            let [from_first, from_second] = &mut dropped;
            let found = both(
                || drop_known(first, from_first, &of_second, fields, sessions),
                || drop_known(second, from_second, &of_first, fields, sessions),
            )?;
            for (common, settled) in found {
                counts[0] += common;
                counts[1] += settled;
            }
        }
        break (dropped, counts);
    };
    let order = |at: usize| order_of(stores[at], &dropped[at], fields, memory / 2);
    let [Some(first_order), Some(second_order)] = both(|| order(0), || order(1))? else {
        return Err(MergeError::Memory);
    };
    let [(_, first_damage), (_, second_damage)] = delivered;
    Ok(Decided {
        dropped,
        orders: [first_order, second_order],
        common: counts[0],
        settled: counts[1],
        damage: [first_damage, second_damage],
    })
}

/// Some of the sessions.
#[derive(Clone, Copy)]
struct Sessions {
    part: u64,
    parts: u64,
}

impl Sessions {
    fn has(self, session: u64) -> bool {
        session.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (self.parts - 1) == self.part
    }
}

/// Does two things side by side.
fn both<R: Send>(
    first: impl FnOnce() -> io::Result<R> + Send,
    second: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<[R; 2]> {
    thread::scope(|scope| {
        let other = scope.spawn(second);
        let first = first();
        let second = other.join().unwrap_or_else(|_| Err(io::Error::other("a thread has ended")));
        Ok([first?, second?])
    })
}

fn delivered_of<D: Disk, I: Index>(store: &Store<D, I>) -> io::Result<(Delivered, Vec<Damage>)> {
    let mut delivered = Delivered::default();
    let damage = store.each_record(|kind, body| {
        if let Some(settled) = SettledBody::parse(body).filter(|_| kind == Kind::Settled) {
            let numbers = delivered.entry(settled.session).or_insert_with(|| RangeSet::new(usize::MAX));
            settled.ranges().for_each(|(first, last)| numbers.insert_range(first, last));
        }
    })?;
    Ok((delivered, damage))
}

/// What a store knows. `None`: it takes more memory.
fn knowledge_of<D: Disk, I: Index>(
    store: &Store<D, I>,
    delivered: &Delivered,
    fields: Fields,
    sessions: Sessions,
    with_waiting: bool,
    memory: usize,
) -> io::Result<Option<Knowledge>> {
    let mut knowledge = Knowledge::default();
    if !with_waiting && delivered.is_empty() {
        return Ok(Some(knowledge));
    }
    each_target(store, fields, |identity, target, is_live| {
        if !sessions.has(target.session) || knowledge.bytes() > memory {
            return;
        }
        let key = (target.session, (fields.share)(target.options), identity.publisher);
        if is_live {
            if with_waiting {
                knowledge.waiting.add(key, identity.sequence);
            }
        } else if delivered.get(&target.session).is_some_and(|numbers| numbers.contains(target.number)) {
            knowledge.settled.add(key, identity.sequence);
        }
    })?;
    Ok((knowledge.bytes() <= memory).then_some(knowledge))
}

/// Notes which live targets the other store has. Returns how many wait there, and how many were settled there.
fn drop_known<D: Disk, I: Index>(
    store: &Store<D, I>,
    dropped: &mut Bits,
    other: &Knowledge,
    fields: Fields,
    sessions: Sessions,
) -> io::Result<(u64, u64)> {
    let (mut common, mut settled, mut live) = (0, 0, 0);
    if other.bytes() == 0 {
        return Ok((0, 0));
    }
    each_target(store, fields, |identity, target, is_live| {
        let at = live;
        live += u64::from(is_live);
        if !is_live || !sessions.has(target.session) || identity.publisher == 0 {
            return;
        }
        let key = (target.session, (fields.share)(target.options), identity.publisher);
        let (waits, is_settled) =
            (other.waiting.has(key, identity.sequence), other.settled.has(key, identity.sequence));
        common += u64::from(waits && !is_settled);
        settled += u64::from(is_settled);
        if waits || is_settled {
            dropped.set(at);
        }
    })?;
    Ok((common, settled))
}

/// The sequences of the messages that are needed. `None`: they take more memory.
fn order_of<D: Disk, I: Index>(
    store: &Store<D, I>,
    dropped: &Bits,
    fields: Fields,
    memory: usize,
) -> io::Result<Option<Order>> {
    let (mut order, mut live) = (Order::default(), 0);
    each_message(store, |message| {
        let mut is_needed = false;
        for target in message.targets() {
            let is_live = store.queues.is_live(target.session, target.number);
            is_needed |= is_live && !dropped.has(live);
            live += u64::from(is_live);
        }
        if is_needed && order.bytes() <= memory {
            order.add(&(fields.identity)(message.field).unwrap_or_default());
        }
    })?;
    Ok((order.bytes() <= memory).then_some(order))
}

/// Calls `each` with each target of each message: who published the message, and whether it is live.
fn each_target<D: Disk, I: Index>(
    store: &Store<D, I>,
    fields: Fields,
    mut each: impl FnMut(Identity, &Target<'_>, bool),
) -> io::Result<()> {
    each_message(store, |message| {
        let identity = (fields.identity)(message.field).unwrap_or_default();
        for target in message.targets() {
            each(identity, &target, store.queues.is_live(target.session, target.number));
        }
    })
}

fn each_message<D: Disk, I: Index>(
    store: &Store<D, I>,
    mut each: impl FnMut(&MessageBody<'_>),
) -> io::Result<()> {
    store.each_record(|kind, body| {
        if let Some(message) = MessageBody::parse(body).filter(|_| kind == Kind::Message) {
            each(&message);
        }
    })?;
    Ok(())
}
