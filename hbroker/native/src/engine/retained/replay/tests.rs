//! Which replays there are, and how many may be.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::engine::retained::replay::*;

fn replay(filter: &str, listener: u64, subtree: &str) -> Replay {
    let (name, wanted) = ((filter.into(), listener, subtree.into()), filter.into());
    Replay { name, wanted, qos: 1, newest: 0, cursor: Cursor::default() }
}

fn key(slot: usize) -> SessionKey {
    SessionKey::new(0, 1, slot)
}

/// What all of them cost, counted anew.
fn real_cost(replays: &Replays) -> usize {
    let of_one = |known: &SessionReplays| {
        let cost: usize = known.replays.values().map(Replay::cost).sum();
        assert_eq!((known.bytes, known.names.len()), (cost, known.replays.len()));
        assert!(!known.replays.is_empty());
        cost
    };
    replays.sessions.values().map(of_one).sum()
}

#[test]
fn what_is_counted_is_what_there_is() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut replays = Replays::default();
    let mut most = 0;
    for _ in 0..20_000 {
        let session = key(random.random_range(0..5));
        let filter = ["a", "a/#", "b/+", "#"][random.random_range(0..4)];
        let listener = random.random_range(0..4);
        match random.random_range(0..10) {
            0 => replays.forget_session(session),
            1 => replays.forget(session, filter, None),
            2 => replays.forget(session, filter, Some(listener)),
            3 => {
                if let Some(session) = replays.next()
                    && let Some(mut one) = replays.take_first(session)
                {
                    one.cursor.topic = "a".repeat(random.random_range(0..100)).into();
                    assert!(replays.put_back(session, one));
                }
            }
            4 => replays.resume(7, session),
            _ => {
                let subtree = ["", "a", "b"][random.random_range(0..3)];
                let one = replay(filter, listener, subtree);
                replays.forget_one(session, &one.name.clone());
                assert!(replays.add(session, one));
            }
        }
        assert_eq!(replays.bytes, real_cost(&replays));
        most = most.max(replays.len());
    }
    assert!(most > 40, "{most}");
    (0..5).for_each(|slot| replays.forget_session(key(slot)));
    assert_eq!((replays.bytes, replays.len()), (0, 0));
    while replays.next().is_some() {}
    assert_eq!(replays.due(), Micros::MAX);
}

#[test]
fn those_of_a_filter_are_forgotten_and_no_others() {
    let mut replays = Replays::default();
    for (filter, listener, subtree) in
        [("a", 1, ""), ("a", 1, "s"), ("a", 2, ""), ("a/b", 1, ""), ("a", u64::MAX, "s"), ("", 1, "")]
    {
        assert!(replays.add(key(1), replay(filter, listener, subtree)));
        assert!(replays.add(key(2), replay(filter, listener, subtree)));
    }
    replays.forget(key(1), "a", Some(1));
    assert_eq!(replays.len(), 10);
    replays.forget(key(1), "a", None);
    assert_eq!(replays.len(), 8);
}

#[test]
fn sessions_take_turns() {
    let mut replays = Replays::default();
    for slot in 0..3 {
        assert!(replays.add(key(slot), replay("a", 1, "")) && replays.add(key(slot), replay("b", 1, "")));
        replays.resume(5, key(slot));
        replays.resume(6, key(slot));
    }
    assert_eq!(replays.due(), 5);
    replays.forget_session(key(1));
    assert_eq!([replays.next(), replays.next(), replays.next()], [Some(key(0)), Some(key(2)), None]);
    assert_eq!(replays.due(), Micros::MAX, "both pause");
    for filter in ["a", "b", "a"] {
        let one = replays.take_first(key(0)).expect("there are two");
        assert_eq!(&*one.name.0, filter, "those of one session take turns, too");
        assert!(replays.put_back(key(0), one));
    }
}

#[test]
fn strangers_with_many_leave_room_for_others() {
    let mut replays = Replays::default();
    let filter = "a".repeat(200);
    let mut taken = Vec::new();
    for slot in 0..1_000 {
        let one = |number| replay(&format!("{filter}/{number}"), 1, "");
        taken.push((0..2_000).take_while(|&number| replays.add(key(slot), one(number))).count());
    }
    assert_eq!(replays.bytes, real_cost(&replays));
    assert!(taken[0] > 1_000, "one alone may have many: {}", taken[0]);
    assert!(replays.bytes <= MOST_OF_ALL + 1_000 * ALWAYS, "{}", replays.bytes);
    // The topics that they come to count, too.
    let mut one = replays.take_first(key(0)).expect("there is one");
    one.cursor.topic = "a".repeat(MOST_ON_THE_WAY).into();
    assert!(!replays.put_back(key(0), one));
    let mut one = replays.take_first(key(0)).expect("there is another");
    one.cursor.topic = "a".repeat(60_000).into();
    assert!(replays.put_back(key(0), one));
    assert_eq!(replays.bytes, real_cost(&replays));
    assert!(taken.iter().all(|&count| count > 0), "who comes last has one, too");
    // Who has ended gives its room back.
    (0..1_000).for_each(|slot| replays.forget_session(key(slot)));
    assert_eq!(replays.bytes, 0);
}
