//! Packet ids for messages to a client (MQTT 5 §2.2.1): never 0, and never one that is in use.
//!
//! Ids are assigned in order. The distance to the next id in use is computed once for each free range, so an
//! id costs the same however many are in use.
//!
//! A session takes its ids from one *block*, an eighth of all ids. If a gateway has died, only the client
//! knows which messages were in flight: it remembers a packet id of `QoS` 2 until PUBREL, and would take
//! another message with that id for a retransmission. So the gateway that resumes such a session takes ids
//! from the next block. When all blocks have been used, ids of the next one are *doubtful*: the client may
//! remember some of them ([`DoubtfulIds`]).

use std::collections::BTreeSet;

/// How many blocks there are. A block from this number on is one that was used before, modulo the number.
pub const BLOCKS: u8 = 8;
/// Packet ids in each.
pub const IN_BLOCK: u16 = u16::MAX / BLOCKS as u16;

/// How many doubtful ids are released beside those in use.
const RELEASED_AHEAD: usize = 64;

/// Assigns the packet ids of one block.
#[derive(Clone, Copy, Debug)]
pub struct PacketIds {
    block: u8,
    /// The highest offset that may be assigned, counted from 1 in the block.
    limit: u16,
    /// The last assigned id, counted from 1 in the block; 0: none.
    last: u16,
    /// How many of the following ids are known to be free.
    free: u16,
}

impl Default for PacketIds {
    fn default() -> Self {
        Self { block: 0, limit: IN_BLOCK, last: 0, free: 0 }
    }
}

impl PacketIds {
    pub fn of(block: u8) -> Self {
        Self { block, ..Self::default() }
    }

    pub fn block(&self) -> u8 {
        self.block
    }

    /// From now on only the first ids of the block are assigned, so many.
    fn limit(&mut self, limit: u16) {
        if self.limit != limit {
            (self.limit, self.free) = (limit, 0);
            self.last = if self.last > limit { 0 } else { self.last };
        }
    }

    /// An id that is not in use; None: all are in use.
    pub fn next(&mut self, used: impl Iterator<Item = u16>) -> Option<u16> {
        if self.limit == 0 {
            return None;
        }
        if self.free == 0 {
            let here = used.filter_map(|id| self.offset_of(id));
            let mut ahead: Vec<u16> =
                here.map(|offset_of| distance(self.last, offset_of, self.limit)).collect();
            ahead.sort_unstable();
            ahead.dedup();
            let run = ahead
                .iter()
                .enumerate()
                .take_while(|(index, steps)| usize::from(**steps) == index + 1)
                .count();
            let to_next = ahead.get(run).map_or(usize::from(self.limit) + 1, |steps| usize::from(*steps));
            self.last = following(self.last, run, self.limit);
            self.free = u16::try_from(to_next - run - 1).ok()?;
        }
        self.free = self.free.checked_sub(1)?;
        self.last = following(self.last, 1, self.limit);
        Some(self.first() + self.last)
    }

    /// The offset of an id in its block, counted from 1; `None`: it is in another block.
    fn offset_of(&self, id: u16) -> Option<u16> {
        id.checked_sub(self.first()).filter(|offset_of| (1..=self.limit).contains(offset_of))
    }

    /// The id before the first of the block.
    fn first(&self) -> u16 {
        u16::from(self.block % BLOCKS) * IN_BLOCK
    }
}

/// The offset after `steps` more steps. The last offset, `limit`, is followed by 1.
fn following(offset_of: u16, steps: usize, limit: u16) -> u16 {
    match usize::from(offset_of) + steps {
        0 => 0,
        sum => ((sum - 1) % usize::from(limit) + 1) as u16,
    }
}

/// The number of steps from one offset to another, from 1 to `limit`.
fn distance(from: u16, to: u16, limit: u16) -> u16 {
    match to.checked_sub(from) {
        Some(0) => limit,
        Some(steps) => steps,
        None => limit - (from - to),
    }
}

/// Ids that the client may remember from a gateway that died long ago, in a block that is used again.
///
/// The client forgets an id with PUBREL, which it answers with PUBCOMP also if it does not know the id (MQTT 5
/// §4.3.3). So PUBREL is sent for the first ids of the block, and only ids whose PUBCOMP has come are assigned. It
/// begins with the first message of `QoS` 2: a client that gets none may not know these packets.
#[derive(Debug, Default)]
pub enum DoubtfulIds {
    /// No id is doubtful.
    #[default]
    None,
    /// All of the block are, and nothing was released.
    All,
    Released(Box<Released>),
}

/// The ids for which PUBREL was sent.
#[derive(Debug)]
pub struct Released {
    /// The next to release, counted from 1 in the block.
    next: u16,
    /// Those whose PUBCOMP has not come.
    awaited: BTreeSet<u16>,
}

impl DoubtfulIds {
    pub fn of(block: u8) -> Self {
        if block < BLOCKS { Self::None } else { Self::All }
    }

    /// Whether ids must be released before a message of `QoS` 2 is sent.
    pub fn are_unreleased(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Begins to release ids.
    pub fn begin(&mut self, ids: &mut PacketIds) {
        *self = Self::Released(Box::new(Released { next: 1, awaited: BTreeSet::new() }));
        ids.limit(0);
    }

    /// Whether an id can be assigned while so many are in use.
    pub fn leave_room(&self, in_use: usize, ids: &PacketIds) -> bool {
        !matches!(self, Self::Released(_)) || in_use < usize::from(ids.limit)
    }

    /// The ids to release now. `in_use`: how many are in use; `used`: these ids, which are not doubtful.
    pub fn release<I: Iterator<Item = u16>>(
        &mut self,
        ids: &mut PacketIds,
        in_use: usize,
        used: impl Fn() -> I,
    ) -> Vec<u16> {
        let Self::Released(released) = self else {
            return Vec::new();
        };
        let most = (in_use + RELEASED_AHEAD).min(usize::from(IN_BLOCK)) as u16;
        if released.next > most {
            return Vec::new();
        }
        let used: BTreeSet<u16> = used().collect();
        let offsets = released.next..=most;
        let fresh = offsets.map(|offset_of| ids.first() + offset_of).filter(|id| !used.contains(id));
        let fresh: Vec<u16> = fresh.collect();
        released.awaited.extend(&fresh);
        released.next = most + 1;
        ids.limit(released.clean(ids));
        fresh
    }

    /// The ids whose PUBCOMP has not come.
    pub fn awaited(&self) -> impl Iterator<Item = u16> {
        let released = if let Self::Released(released) = self { Some(released) } else { None };
        released.into_iter().flat_map(|released| released.awaited.iter().copied())
    }

    /// PUBCOMP has come for an id. True: it was awaited here.
    pub fn complete(&mut self, ids: &mut PacketIds, id: u16) -> bool {
        let Self::Released(released) = self else {
            return false;
        };
        let was_awaited = released.awaited.remove(&id);
        if was_awaited {
            ids.limit(released.clean(ids));
        }
        was_awaited
    }
}

impl Released {
    /// How many ids, from the first of the block on, the client does not remember.
    fn clean(&self, ids: &PacketIds) -> u16 {
        self.awaited.first().map_or(self.next, |id| id - ids.first()) - 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_id_in_use_is_never_given_out() {
        for block in 0..BLOCKS {
            let mut ids = PacketIds::of(block);
            // Ids of other blocks are in nobody's way.
            let mut used: BTreeSet<u16> = [u16::from(block) * IN_BLOCK, u16::MAX].into();
            let first = u16::from(block) * IN_BLOCK + 1;
            let mut random = 1_u32;
            for _ in 0..50_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let id = ids.next(used.iter().copied()).expect("some are free");
                assert!((first..first + IN_BLOCK).contains(&id) && used.insert(id), "{id}");
                // Some stay for ever, most go soon.
                if used.len() > 40 || random >> 31 == 0 {
                    let gone =
                        *used.iter().nth((random >> 8) as usize % used.len()).expect("it is not empty");
                    used.remove(&gone);
                }
            }
        }
    }

    #[test]
    fn when_all_are_in_use_there_is_none() {
        let mut ids = PacketIds { last: 9, ..PacketIds::default() };
        let all: Vec<u16> = (1..=IN_BLOCK).collect();
        assert_eq!(ids.next(all.iter().copied()), None);
        let but_one = all.iter().copied().filter(|id| *id != 5);
        assert_eq!(PacketIds { last: 4, ..PacketIds::default() }.next(but_one), Some(5));
        assert_eq!(PacketIds { last: IN_BLOCK, ..PacketIds::default() }.next([2].into_iter()), Some(1));
    }
}
