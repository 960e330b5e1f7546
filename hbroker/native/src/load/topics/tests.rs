//! The table against a map, and its bounds against what strangers may do.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// What a table says, by name.
fn told(topics: &Topics) -> (BTreeMap<String, Traffic>, Traffic) {
    let Columns { names, offsets, numbers, rest } = topics.columns();
    let row = |index: usize| {
        let name = names[offsets[index] as usize..offsets[index + 1] as usize].to_owned();
        let [messages_in, bytes_in, messages_out, bytes_out, whole_in, whole_out] =
            numbers.each_ref().map(|column| column[index]);
        (name, Traffic { messages_in, bytes_in, messages_out, bytes_out, whole_in, whole_out })
    };
    ((0..offsets.len() - 1).map(row).collect(), rest)
}

#[test]
fn it_counts_as_a_map_would_over_many_intervals() {
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut topics = Topics::new();
        let mut topic_slots: BTreeMap<String, TopicSlot> = BTreeMap::new();
        for _ in 0..5 {
            let mut model: BTreeMap<String, Traffic> = BTreeMap::new();
            for _ in 0..random.random_range(0..300) {
                let topic = format!("home/{}", "x".repeat(random.random_range(0..40)));
                let bytes = random.random_range(0..1_000);
                // As callers do that count a topic again: the slot of an earlier interval is not valid.
                let kept =
                    topic_slots.get(&topic).copied().filter(|topic_slot| topics.is_current(*topic_slot));
                let topic_slot = kept.unwrap_or_else(|| topics.topic_slot(&topic));
                topic_slots.insert(topic.clone(), topic_slot);
                let expected = model.entry(topic).or_default();
                let is_later_fragment = random.random_bool(0.1);
                if random.random() {
                    topics.count_in(topic_slot, 1, bytes);
                    expected.messages_in += 1;
                    expected.bytes_in += bytes;
                    expected.whole_in += u64::from(!is_later_fragment);
                    is_later_fragment.then(|| topics.note_later_in(topic_slot));
                } else {
                    topics.count_out(topic_slot, 1, bytes);
                    expected.messages_out += 1;
                    expected.bytes_out += bytes;
                    expected.whole_out += u64::from(!is_later_fragment);
                    is_later_fragment.then(|| topics.note_later_out(topic_slot, 1));
                }
            }
            assert_eq!(told(&topics), (model, Traffic::default()), "seed {seed}");
            let mut next = Topics::new();
            next.succeed(&topics);
            topics = next;
        }
    }
}

#[test]
fn what_is_beyond_its_bounds_is_the_rest_and_the_sum_is_exact() {
    let mut topics = Topics::new();
    for round in 0..2 {
        for number in 0..MOST_TOPICS + 500 {
            let topic_slot = topics.topic_slot(&format!("t/{number}"));
            topics.count_in(topic_slot, 1, 3);
            if round == 0 && number % 2 == 0 {
                topics.count_out(topic_slot, 1, 1);
            }
        }
    }
    let (rows, rest) = told(&topics);
    assert_eq!((rows.len(), rest.messages_in, rest.bytes_in), (MOST_TOPICS, 1_000, 3_000), "none collided");
    assert_eq!(rows["t/7"], Traffic::of_small(2, 6, 0, 0));
    let messages = (MOST_TOPICS + 500) as u64;
    let expected = Traffic::of_small(2 * messages, 6 * messages, messages / 2, messages / 2);
    assert_eq!(topics.total(), expected);
}

#[test]
fn long_names_have_an_end_too() {
    let mut topics = Topics::new();
    for number in 0..100 {
        let topic_slot = topics.topic_slot(&format!("{number}{}", "x".repeat(60_000)));
        topics.count_in(topic_slot, 1, 0);
    }
    let (rows, rest) = told(&topics);
    assert!(topics.names.len() <= MOST_NAME_BYTES && rows.len() > 60, "{}", rows.len());
    assert_eq!(rows.len() as u64 + rest.messages_in, 100);
    let short = topics.topic_slot("short");
    topics.count_in(short, 1, 0);
    assert_eq!(told(&topics).0["short"].messages_in, 1, "it still fits");
}

#[test]
fn tables_are_added_by_name() {
    let (mut one, mut other) = (Topics::new(), Topics::new());
    for (topics, names) in [(&mut one, ["a", "b"]), (&mut other, ["b", "c"])] {
        for name in names {
            let topic_slot = topics.topic_slot(name);
            topics.count_in(topic_slot, 1, 10);
            topics.count_out(topic_slot, 3, 10);
        }
    }
    let (b, c) = (other.topic_slot("b"), other.topic_slot("c"));
    other.note_later_in(b);
    other.note_later_out(c, 2);
    one.absorb(&other);
    let (rows, rest) = told(&one);
    let whole: Vec<_> = rows.values().map(|traffic| (traffic.whole_in, traffic.whole_out)).collect();
    assert_eq!(whole, [(1, 3), (1, 6), (1, 1)]);
    let counts: Vec<_> = rows.iter().map(|(name, traffic)| (name.as_str(), traffic.bytes_in)).collect();
    assert_eq!((counts, rest), (vec![("a", 10), ("b", 20), ("c", 10)], Traffic::default()));
}

#[test]
fn topics_that_collide_are_the_rest_and_cost_no_more_than_others() {
    let mut topics = Topics::new();
    let bucket = |topic: &str| {
        let mut hasher = FxHasher::default();
        hasher.write(topic.as_bytes());
        hasher.finish() as usize % BUCKETS
    };
    let colliding = (0..).map(|number| format!("x/{number}")).filter(|topic| bucket(topic) == 77);
    for topic in colliding.take(MOST_STEPS + 5) {
        let topic_slot = topics.topic_slot(&topic);
        topics.count_in(topic_slot, 1, 1);
    }
    let (rows, rest) = told(&topics);
    assert_eq!((rows.len(), rest.messages_in), (MOST_STEPS, 5));
    let end = (0..).map(|number| format!("y/{number}")).find(|topic| bucket(topic) == BUCKETS - 1);
    for topic in [end.as_deref(), end.as_deref()].into_iter().flatten() {
        let topic_slot = topics.topic_slot(topic);
        topics.count_in(topic_slot, 1, 1);
    }
    assert_eq!(told(&topics).0.len(), MOST_STEPS + 1, "the last place, too");
}
