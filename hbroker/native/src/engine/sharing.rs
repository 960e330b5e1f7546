//! Who of each shared group gets a message (§6.5), and who has the parts of one that is not whole yet.
//!
//! How fit members are changes from part to part, all the more where the parts of one large message use up a member's credit. So the
//! first choice holds for all of them, as long as that member is there.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::engine::outlet::{Outlet, Target};
use crate::keyed::Keyed;
use crate::link_id::SessionKey;
use crate::tables::groups::Group;
use crate::tables::match_set::Subscriber;
use crate::wire::PublishView;

/// Messages in parts that are remembered, for each group. More at once are rare; their parts may go to several members.
const MOST_BEGUN: usize = 4_096;

/// A message's id, (publisher, sequence number of its first part), and that of the group's shared subscription.
type Begun = ((u64, u64), u32);

/// The choices of one worker that hold.
pub struct Sharing {
    holders: HashMap<Begun, SessionKey, Keyed>,
    /// The oldest first; some may have ended.
    order: VecDeque<Begun>,
}

impl Sharing {
    pub fn new(hasher: Keyed) -> Self {
        Self { holders: HashMap::with_hasher(hasher), order: VecDeque::new() }
    }

    /// The member that gets a message, or a part of one; `None`: there is none.
    pub fn choose(&mut self, group: &Group<'_>, publish: &PublishView<'_>, out: &Outlet) -> Option<Target> {
        let standing = |member: &Subscriber| out.standing(member.session);
        let member = match publish.fragment {
            None => group.choose((publish.publisher, publish.sequence), standing)?,
            Some(part) => {
                let first = publish.sequence.wrapping_sub(u64::from(part.index));
                let begun = ((publish.publisher, first), group.id());
                let holder = self.holders.get(&begun).filter(|holder| out.standing(**holder).is_some());
                let holder =
                    holder.and_then(|holder| group.members.iter().find(|member| member.session == *holder));
                let member = holder.copied().or_else(|| group.choose(begun.0, standing))?;
                self.hold(begun, member.session, part.index.checked_add(1) == Some(part.count));
                member
            }
        };
        Some(Target { shared: group.id(), group: Some(Arc::clone(group.name)), ..Target::from(&member) })
    }

    fn hold(&mut self, begun: Begun, holder: SessionKey, is_last: bool) {
        if is_last {
            self.holders.remove(&begun);
        } else if self.holders.insert(begun, holder).is_none() {
            self.order.push_back(begun);
            while self.order.len() > MOST_BEGUN
                && let Some(oldest) = self.order.pop_front()
            {
                self.holders.remove(&oldest);
            }
        }
    }
}
