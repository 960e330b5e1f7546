//! Shared groups (§6.5): the names that are in use, what a match finds of them, and who of a group gets a message.
//!
//! A filter that members of one group subscribed to is matched as any other; but a message goes to one of them. Which one follows from
//! the message and the members alone (rendezvous hashing; Thaler and Ravishankar, 1998): so each worker and each owner comes to the
//! same choice, all parts of a message go to one member, one that comes again goes where it went before, and where a member comes or
//! goes only that member's share moves.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashMap;
use rustc_hash::FxHasher;
use siphasher::sip::SipHasher24;

use crate::keyed_hash::KeyedHash;
use crate::link_id::SessionKey;
use crate::tables::arena::Arena;
use crate::tables::match_set::Subscriber;

/// Instead of the number of a group, or of a shared subscription: a subscription of the session's own.
pub const OWN: u32 = u32::MAX;

/// How fit a member is to take a message now. The fittest are chosen among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// It has no link, and its session waits for one.
    Away,
    /// It has a link.
    Connected,
    /// It has a link, takes what it is sent, and has credit (§7.7).
    Ready,
}

/// The members of one group that subscribed to one filter.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The group's name.
    pub name: &'a Arc<str>,
    /// That of its shared subscription.
    pub id: u64,
    /// At least one.
    pub members: &'a [Subscriber],
}

/// The id of a shared subscription (§6.5): it follows from group and filter, so an owner and a member come to the same one, in every
/// run and at every gateway; and it has 64 bits, so that nobody finds a name for a group that gives it the id of another's. Never 0.
pub fn shared_id(group: &str, filter: &str) -> u64 {
    let mut hasher = SipHasher24::new();
    for part in [group, "/", filter] {
        hasher.write(part.as_bytes());
    }
    hasher.finish().max(1)
}

impl Group<'_> {
    /// The member that gets a message, whose id is (publisher, sequence number of its first part). `load_of`: the session id of a
    /// member, and how fit it is; `None` where it is gone. `None`: no member is left.
    pub fn choose(
        &self,
        message: (u64, u64),
        load_of: impl Fn(&Subscriber) -> Option<(u64, Fitness)>,
    ) -> Option<Subscriber> {
        let rated = self.members.iter().filter_map(|member| {
            let (session, fitness) = load_of(member)?;
            Some(((fitness, weight(message, session), session), *member))
        });
        rated.max_by_key(|(rating, _)| *rating).map(|(_, member)| member)
    }
}

/// What a message weighs at a member: even over all members, and unlike that of any other message.
fn weight((publisher, sequence): (u64, u64), session: u64) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(publisher);
    hasher.write_u64(sequence);
    // Fx does not mix its last input well; the finaliser of MurmurHash3 does (Appleby, 2011).
    let mut hash = hasher.finish() ^ session;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The groups that a topic's filters have, each with its members: a buffer, to be used again.
#[derive(Clone, Debug, Default)]
pub struct GroupList {
    members: Vec<Subscriber>,
    /// (name, id of its shared subscription, where its members end), in the members' order.
    groups: Vec<(Arc<str>, u64, usize)>,
}

impl GroupList {
    pub const NONE: Self = Self { members: Vec::new(), groups: Vec::new() };

    /// Each group and filter that matches.
    pub fn iter(&self) -> impl Iterator<Item = Group<'_>> {
        let starts = std::iter::once(0).chain(self.groups.iter().map(|(.., end)| *end));
        self.groups.iter().zip(starts).map(|((name, id, end), start)| Group {
            name,
            id: *id,
            members: &self.members[start..*end],
        })
    }

    /// The group of this name that has the shared subscription with this id.
    pub fn find(&self, name: &str, id: u64) -> Option<Group<'_>> {
        self.iter().find(|group| group.id == id && **group.name == *name)
    }

    /// Whether a session is a member of a group that is there.
    pub fn has_member(&self, name: &str, id: u64, session: SessionKey) -> bool {
        self.find(name, id).is_some_and(|group| group.members.iter().any(|member| member.session == session))
    }

    /// Who has the shared subscription with this id.
    pub fn members_of(&self, id: u64) -> impl Iterator<Item = &Subscriber> {
        self.iter().filter(move |group| group.id == id).flat_map(|group| group.members)
    }

    /// Members, of all groups.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    pub fn clear(&mut self) {
        self.members.clear();
        self.groups.clear();
    }

    /// Adds a group's next member. `begins`: it is the first.
    pub(super) fn push(&mut self, begins: bool, name: &Arc<str>, id: u64, member: Subscriber) {
        self.members.push(member);
        match self.groups.last_mut() {
            Some((.., end)) if !begins => *end += 1,
            _ => self.groups.push((Arc::clone(name), id, self.members.len())),
        }
    }

    /// Bytes that its lists take.
    pub fn bytes(&self) -> usize {
        self.members.capacity() * size_of::<Subscriber>()
            + self.groups.capacity() * size_of::<(Arc<str>, u64, usize)>()
    }
}

/// What subscriptions have in common, each stored once, under a number: the names of groups that have members, or the ids of shared
/// subscriptions.
pub struct Numbered<T> {
    numbers: HashMap<T, u32, KeyedHash>,
    /// Each with how many use it.
    values: Arena<(T, u32)>,
}

impl<T: Clone + Default + Eq + Hash> Numbered<T> {
    /// Nothing. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        Self { numbers: HashMap::with_hasher(KeyedHash::new(seed)), values: Arena::default() }
    }

    /// The number of what somebody uses; `None`: nobody does.
    pub fn number<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        self.numbers.get(value).copied()
    }

    /// The number of what has one user more now.
    pub fn acquire(&mut self, value: T) -> u32 {
        if let Some(number) = self.number(&value) {
            self.values[number].1 += 1;
            return number;
        }
        let number = self.values.insert((value.clone(), 1));
        self.numbers.insert(value, number);
        number
    }

    /// A user less.
    pub fn release(&mut self, number: u32) {
        self.values[number].1 -= 1;
        if self.values[number].1 == 0 {
            let (value, _) = self.values.take(number);
            self.numbers.remove(&value);
        }
    }

    /// What somebody uses.
    pub fn value(&self, number: u32) -> &T {
        &self.values[number].0
    }

    /// How many are used.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
}

#[cfg(test)]
mod tests;
