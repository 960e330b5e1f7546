//! Shared groups (§6.5): the names in use, the groups that a match finds, and which member of a group
//! receives a message.
//!
//! A filter of a shared subscription is matched as any other, but a message goes to one member of the group.
//! Only the message and the members determine which (rendezvous hashing; Thaler and Ravishankar, 1998). So
//! each worker and each owner makes the same choice, all fragments of a message go to one member, and a
//! retransmitted message goes to the same member as before. If a member joins or leaves, only that member's
//! share moves.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashMap;
use rustc_hash::FxHasher;
use siphasher::sip::SipHasher24;

use crate::keyed_hash::KeyedHash;
use crate::link_id::SessionKey;
use crate::tables::arena::Arena;
use crate::tables::subscriber::Subscriber;

/// How many choices for fragmented messages are remembered, one for each group. More at once are rare; then
/// the fragments of a message may go to several members.
pub const MOST_CHOICES: usize = 4_096;

/// In place of the number of a group or a shared subscription: the subscription is the session's own.
pub const OWN: u32 = u32::MAX;

/// How well a member can take a message now. The choice is among the fittest members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// Its session has no link.
    Offline,
    /// It has a link.
    Connected,
    /// It has a link, is not stalled, and has credit (§7.7).
    Ready,
}

/// The members of one group that subscribed to one filter.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The group's name.
    pub name: &'a Arc<str>,
    /// The id of its shared subscription.
    pub id: u64,
    /// At least one member.
    pub members: &'a [Subscriber],
}

/// The id of a shared subscription (§6.5). Group and filter determine it, so an owner and a member compute
/// the same id, in every run and at every gateway. It has 64 bits, so that nobody can find a group name with
/// the id of another group. Never 0.
pub fn shared_id(group: &str, filter: &str) -> u64 {
    let mut hasher = SipHasher24::new();
    for part in [group, "/", filter] {
        hasher.write(part.as_bytes());
    }
    hasher.finish().max(1)
}

impl Group<'_> {
    /// The member that receives a message with the id (publisher, sequence number of its first fragment).
    /// `fitness_of`: the session id of a member and its fitness; `None` if the member is gone. Returns `None` if
    /// there is no member.
    pub fn choose(
        &self,
        message: (u64, u64),
        fitness_of: impl Fn(&Subscriber) -> Option<(u64, Fitness)>,
    ) -> Option<Subscriber> {
        let rated = self.members.iter().filter_map(|member| {
            let (session, fitness) = fitness_of(member)?;
            Some(((fitness, weight(message, session), session), *member))
        });
        rated.max_by_key(|(rating, _)| *rating).map(|(_, member)| member)
    }
}

/// The weight of a message for a member: evenly distributed over the members, and different for each message.
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

/// The groups that match a topic, with their members. It is a buffer, to be used again.
#[derive(Clone, Debug, Default)]
pub struct GroupList {
    members: Vec<Subscriber>,
    /// (name, id of the shared subscription, end of its members), in the order of `members`.
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

    /// The group with this name whose shared subscription has this id.
    pub fn find(&self, name: &str, id: u64) -> Option<Group<'_>> {
        self.iter().find(|group| group.id == id && **group.name == *name)
    }

    /// Whether a session is a member of this group.
    pub fn has_member(&self, name: &str, id: u64, session: SessionKey) -> bool {
        self.find(name, id).is_some_and(|group| group.members.iter().any(|member| member.session == session))
    }

    /// The members of the shared subscription with this id.
    pub fn members_of(&self, id: u64) -> impl Iterator<Item = &Subscriber> {
        self.iter().filter(move |group| group.id == id).flat_map(|group| group.members)
    }

    /// The number of members of all groups.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    pub fn clear(&mut self) {
        self.members.clear();
        self.groups.clear();
    }

    /// Adds the next member of a group. `begins`: it is the group's first.
    pub(super) fn push(&mut self, begins: bool, name: &Arc<str>, id: u64, member: Subscriber) {
        self.members.push(member);
        match self.groups.last_mut() {
            Some((.., end)) if !begins => *end += 1,
            _ => self.groups.push((Arc::clone(name), id, self.members.len())),
        }
    }

    /// The memory of its lists, in bytes.
    pub fn bytes(&self) -> usize {
        self.members.capacity() * size_of::<Subscriber>()
            + self.groups.capacity() * size_of::<(Arc<str>, u64, usize)>()
    }
}

/// Values that subscriptions share, each stored once under a number: the names of groups with members, or the
/// ids of shared subscriptions.
pub struct Numbered<T> {
    numbers: HashMap<T, u32, KeyedHash>,
    /// Each value with the number of its users.
    values: Arena<(T, u32)>,
}

impl<T: Clone + Default + Eq + Hash> Numbered<T> {
    /// An empty table. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        Self { numbers: HashMap::with_hasher(KeyedHash::new(seed)), values: Arena::default() }
    }

    /// The number of a value; `None` if it has no user.
    pub fn number<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        self.numbers.get(value).copied()
    }

    /// Adds a user to a value. Returns its number.
    pub fn acquire(&mut self, value: T) -> u32 {
        if let Some(number) = self.number(&value) {
            self.values[number].1 += 1;
            return number;
        }
        let number = self.values.insert((value.clone(), 1));
        self.numbers.insert(value, number);
        number
    }

    /// Removes a user of a value.
    pub fn release(&mut self, number: u32) {
        self.values[number].1 -= 1;
        if self.values[number].1 == 0 {
            let (value, _) = self.values.take(number);
            self.numbers.remove(&value);
        }
    }

    /// The value with this number.
    pub fn value(&self, number: u32) -> &T {
        &self.values[number].0
    }

    /// How many values have users.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
}

#[cfg(test)]
mod tests;
