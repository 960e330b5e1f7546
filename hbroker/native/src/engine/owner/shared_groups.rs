//! Which member of a shared group gets a message (§6.5). All fragments of a message go to the same member.
//!
//! The fitness of members changes from fragment to fragment, all the more because the fragments of a large
//! message use up a member's credit. So the choice for the first fragment holds for all of them, as long as
//! that member is there. It moves with the subtree (§5.4).
//!
//! A worker knows its own sessions. It reports the fitness of those that are members of groups to the other workers
//! (`member_fitness`), whenever it changes. So a look-up there costs only messages for groups with members on other
//! workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::engine::sessions::target::Target;
use crate::engine::transport::outbound::Outbound;
use crate::keyed_hash::KeyedHash;
use crate::tables::groups::{Group, MOST_CHOICES};
use crate::tables::subscriber::Subscriber;
use crate::wire::{ChoiceRecord, PublishView};

/// The message's id (publisher, sequence number of its first fragment), and the id of the group's shared
/// subscription.
type ChoiceKey = ((u64, u64), u64);

/// The choices that one worker remembers.
pub struct SharedGroups {
    choices: HashMap<ChoiceKey, Choice, KeyedHash>,
    /// The remembered choices in the order in which they were made.
    order: BTreeMap<u64, ChoiceKey>,
    made: u64,
}

/// The member that gets the fragments of a message.
struct Choice {
    /// The id of its session.
    session: u64,
    /// Its number in `order`.
    number: u64,
}

impl SharedGroups {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { choices: HashMap::with_hasher(hasher), order: BTreeMap::new(), made: 0 }
    }

    /// Chooses the member that gets a message or a fragment; `None` if there is no member.
    pub fn choose(&mut self, group: &Group<'_>, publish: &PublishView<'_>, out: &Outbound) -> Option<Target> {
        let member = self.look_up(group, publish, out)?;
        if let Some(fragment) = publish.fragment
            && let Some((session, _)) = out.fitness_of(member.session)
        {
            let is_last = fragment.index.checked_add(1) == Some(fragment.count);
            self.remember(choice_key(group, publish), session, is_last);
        }
        Some(Target { shared: group.id, group: Some(Arc::clone(group.name)), ..Target::from(&member) })
    }

    /// The member that would be chosen now.
    pub fn look_up(
        &self,
        group: &Group<'_>,
        publish: &PublishView<'_>,
        out: &Outbound,
    ) -> Option<Subscriber> {
        let key = choice_key(group, publish);
        let chosen = publish.fragment.and_then(|_| self.choices.get(&key)).map(|choice| choice.session);
        let is_of =
            |member: &Subscriber, chosen| out.fitness_of(member.session).is_some_and(|(id, _)| id == chosen);
        let chosen = chosen.and_then(|chosen| group.members.iter().find(|member| is_of(member, chosen)));
        chosen.copied().or_else(|| group.choose(key.0, |member| out.fitness_of(member.session)))
    }

    /// The choices that are remembered.
    pub fn choices(&self) -> impl Iterator<Item = ChoiceRecord> + '_ {
        self.choices.iter().map(|(&((publisher, sequence), shared_for), choice)| ChoiceRecord {
            publisher,
            sequence,
            shared_for,
            session: choice.session,
        })
    }

    /// Adds the choice of another owner. One that was made here stays.
    pub fn import(&mut self, choice: &ChoiceRecord) {
        let key = ((choice.publisher, choice.sequence), choice.shared_for);
        if !self.choices.contains_key(&key) {
            self.remember(key, choice.session, false);
        }
    }

    fn remember(&mut self, key: ChoiceKey, session: u64, is_last: bool) {
        if is_last {
            if let Some(ended) = self.choices.remove(&key) {
                self.order.remove(&ended.number);
            }
        } else if let Some(choice) = self.choices.get_mut(&key) {
            choice.session = session;
        } else {
            self.made += 1;
            self.choices.insert(key, Choice { session, number: self.made });
            self.order.insert(self.made, key);
            if self.order.len() > MOST_CHOICES
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.choices.remove(&oldest);
            }
        }
    }
}

/// The key of a choice: the id of the message, or of its first fragment, with the group.
fn choice_key(group: &Group<'_>, publish: &PublishView<'_>) -> ChoiceKey {
    let index = publish.fragment.map_or(0, |fragment| fragment.index);
    ((publish.publisher, publish.sequence.wrapping_sub(index.into())), group.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: u64 = 1;

    fn shared_groups() -> SharedGroups {
        SharedGroups::new(KeyedHash::new(1))
    }

    fn choice_key(sequence: u64) -> ChoiceKey {
        ((7, sequence), 1)
    }

    #[test]
    fn what_ended_takes_the_place_of_nothing_that_goes_on() {
        let mut shared_groups = shared_groups();
        shared_groups.remember(choice_key(0), MEMBER, false);
        for sequence in 1..=2 * MOST_CHOICES as u64 {
            shared_groups.remember(choice_key(sequence), MEMBER, false);
            shared_groups.remember(choice_key(sequence), MEMBER, true);
        }
        assert!(shared_groups.choices.contains_key(&choice_key(0)));
        assert_eq!((shared_groups.choices.len(), shared_groups.order.len()), (1, 1));
        // A message whose fragments are received again after its last one begins anew, and ends again.
        shared_groups.remember(choice_key(1), MEMBER, false);
        shared_groups.remember(choice_key(1), MEMBER, true);
        shared_groups.remember(choice_key(0), MEMBER, true);
        assert_eq!((shared_groups.choices.len(), shared_groups.order.len()), (0, 0));
    }

    #[test]
    fn those_that_began_first_are_forgotten_first() {
        let mut shared_groups = shared_groups();
        for sequence in 0..=MOST_CHOICES as u64 {
            shared_groups.remember(choice_key(sequence), MEMBER, false);
            shared_groups.remember(choice_key(sequence), 2, false);
        }
        assert_eq!((shared_groups.choices.len(), shared_groups.order.len()), (MOST_CHOICES, MOST_CHOICES));
        assert!(!shared_groups.choices.contains_key(&choice_key(0)));
        assert_eq!(shared_groups.choices[&choice_key(1)].session, 2, "another one gets the rest");
    }
}
