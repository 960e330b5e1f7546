//! Packet ids for what goes to a client (MQTT 5 §2.2.1): never 0, never one that is in use.
//!
//! They are given out one after the other. How far it is to the next one in use is looked up once for each such stretch, so that
//! an id costs nothing however many are in use.

/// Gives out packet ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketIds {
    last: u16,
    /// How many that follow are known to be free.
    free: u16,
}

impl PacketIds {
    /// One that is not in use; None: all are.
    pub fn next(&mut self, used: impl Iterator<Item = u16>) -> Option<u16> {
        if self.free == 0 {
            let mut ahead: Vec<u16> = used.map(|id| distance(self.last, id)).collect();
            ahead.sort_unstable();
            ahead.dedup();
            let run = ahead
                .iter()
                .enumerate()
                .take_while(|(index, steps)| usize::from(**steps) == index + 1)
                .count();
            let to_next = ahead.get(run).map_or(usize::from(u16::MAX) + 1, |steps| usize::from(*steps));
            self.last = following(self.last, run);
            self.free = u16::try_from(to_next - run - 1).ok()?;
        }
        self.free = self.free.checked_sub(1)?;
        self.last = following(self.last, 1);
        Some(self.last)
    }
}

/// The id so many steps on; 65,535 is followed by 1.
fn following(id: u16, steps: usize) -> u16 {
    match usize::from(id) + steps {
        0 => 0,
        sum => ((sum - 1) % usize::from(u16::MAX) + 1) as u16,
    }
}

/// How many steps it is from one id to another, from 1 to 65,535.
fn distance(from: u16, to: u16) -> u16 {
    match to.checked_sub(from) {
        Some(0) => u16::MAX,
        Some(steps) => steps,
        None => u16::MAX - (from - to),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_id_in_use_is_never_given_out() {
        let mut ids = PacketIds::default();
        let mut used: BTreeSet<u16> = BTreeSet::new();
        let mut random = 1_u32;
        for _ in 0..200_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let id = ids.next(used.iter().copied()).expect("some are free");
            assert!(id > 0 && used.insert(id), "{id}");
            // Some stay for ever, most go soon.
            if used.len() > 40 || random >> 31 == 0 {
                let gone = *used.iter().nth((random >> 8) as usize % used.len()).expect("it is not empty");
                used.remove(&gone);
            }
        }
    }

    #[test]
    fn when_all_are_in_use_there_is_none() {
        let mut ids = PacketIds { last: 9, free: 0 };
        let all: Vec<u16> = (1..=u16::MAX).collect();
        assert_eq!(ids.next(all.iter().copied()), None);
        let but_one = all.iter().copied().filter(|id| *id != 5);
        assert_eq!(PacketIds { last: 4, free: 0 }.next(but_one), Some(5));
        assert_eq!(PacketIds { last: u16::MAX, free: 0 }.next([2].into_iter()), Some(1));
    }
}
