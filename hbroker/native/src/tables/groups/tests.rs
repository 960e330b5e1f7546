//! Who of a group gets a message: always the same, each as many, and nobody who is less fit than another.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::link_id::SessionKey;

fn members(count: u64) -> Vec<Subscriber> {
    (0..count).map(|session| Subscriber::new(SessionKey(session), 1)).collect()
}

/// The chosen one's key. `standing`: by key; the session ids are random, as clients choose them.
fn choose(
    members: &[Subscriber],
    message: (u64, u64),
    standing: impl Fn(u64) -> Option<Fitness>,
) -> Option<u64> {
    let name = "g".into();
    let group = Group { name: &name, id: 1, members };
    let session_id = |key: u64| SmallRng::seed_from_u64(key).random::<u64>();
    let chosen = group.choose(message, |member| {
        let key = member.session.0;
        Some((session_id(key), standing(key)?))
    });
    chosen.map(|member| member.session.0)
}

#[test]
fn each_member_gets_its_share_whatever_the_numbers() {
    let members = members(7);
    for stride in [1, 2, 64, 1 << 32] {
        let mut shares = BTreeMap::<u64, u32>::new();
        for sequence in 0..7_000 {
            let message = (0x1234_5678_9abc_def0, 1 + sequence * stride);
            *shares
                .entry(choose(&members, message, |_| Some(Fitness::Ready)).expect("seven"))
                .or_default() += 1;
        }
        assert!(shares.len() == 7 && shares.values().all(|share| (850..1_150).contains(share)), "{shares:?}");
    }
}

#[test]
fn the_choice_follows_from_message_and_members_and_moves_no_more_than_it_must() {
    let mut random = SmallRng::seed_from_u64(1);
    let all = members(5);
    for _ in 0..2_000 {
        let message = (random.random(), random.random());
        let chosen = choose(&all, message, |_| Some(Fitness::Connected)).expect("five");
        let reversed: Vec<_> = all.iter().rev().copied().collect();
        assert_eq!(choose(&reversed, message, |_| Some(Fitness::Connected)), Some(chosen));
        let gone = random.random_range(0..5);
        let left = choose(&all, message, |key| (key != gone).then_some(Fitness::Connected));
        assert!(left.is_some_and(|left| left != gone && (chosen == gone || left == chosen)));
    }
}

#[test]
fn the_fittest_are_chosen_among() {
    let mut random = SmallRng::seed_from_u64(2);
    let all = members(6);
    let classes = [None, Some(Fitness::Offline), Some(Fitness::Connected), Some(Fitness::Ready)];
    for _ in 0..2_000 {
        let fitness: Vec<_> = all.iter().map(|_| classes[random.random_range(0..4)]).collect();
        let chosen = choose(&all, (random.random(), 1), |key| fitness[key as usize]);
        let best = fitness.iter().flatten().max();
        assert_eq!(chosen.and_then(|key| fitness[key as usize]).as_ref(), best);
    }
}
