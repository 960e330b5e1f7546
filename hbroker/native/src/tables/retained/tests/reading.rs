//! Who reads a part at a time gets what was there all the while, whatever happens between.

use std::collections::BTreeSet;

use super::*;

/// A message, as its topic and its field say: which of all it is.
type Message = (String, u64);

/// All that the store should have, in a simple form.
#[derive(Default)]
struct Model {
    kept: BTreeMap<String, (u64, Micros)>,
    now: Micros,
}

impl Model {
    fn there(&self, filter: &str) -> BTreeSet<Message> {
        let alive = self.kept.iter().filter(|(_, (_, expires))| *expires > self.now);
        let matching = alive.filter(|(topic, _)| topic::matches(filter, topic));
        matching.map(|(topic, &(number, _))| (topic.clone(), number)).collect()
    }
}

/// Somebody who reads.
struct Reader {
    filter: &'static str,
    newest: u64,
    next: Option<Cursor>,
    /// What was there when it began, and all the while since.
    lasting: BTreeSet<Message>,
    began_with: BTreeSet<Message>,
    got: Vec<(Message, u32)>,
}

const TOPICS: [&str; 12] =
    ["a", "a/b", "a/b/c", "a!", "a0", "a/", "/", "b/x/c", "b/y/c", "b/y", "c/x/c", "$s/a"];
const FILTERS: [&str; 8] = ["#", "a/#", "+/+/c", "b/+/#", "a/b", "+/y", "+", "$s/#"];

#[test]
fn a_reader_gets_what_lasts_once_and_nothing_that_was_gone() {
    let mut random = SmallRng::seed_from_u64(3);
    let (mut finished, mut sent) = (0, 0);
    for seed in 0..60 {
        let mut store = RetainedStore::new(10_000_000, seed);
        let mut model = Model::default();
        let mut readers: Vec<Reader> = Vec::new();
        for number in 1..600_u64 {
            change(&mut random, &mut store, &mut model, number);
            for reader in &mut readers {
                let there = model.there(reader.filter);
                reader.lasting.retain(|message| there.contains(message));
                if random.random_range(0..4) == 0 {
                    step(reader, &mut store, &model);
                }
            }
            for reader in readers.extract_if(.., |reader| reader.next.is_none()) {
                finished += 1;
                sent += check(&reader);
            }
            if random.random_range(0..10) == 0 {
                let filter = FILTERS[random.random_range(0..FILTERS.len())];
                let there = model.there(filter);
                let (lasting, began_with, next) =
                    (there.clone(), there, Some(Wanted::Filter(filter).first()));
                let newest = store.newest();
                readers.push(Reader { filter, newest, next, lasting, began_with, got: Vec::new() });
            }
        }
        tidy(&mut store);
        assert_eq!(store.bytes(), real_cost(&store));
    }
    assert!(finished > 2_000 && sent > 5_000, "{finished} {sent}");
}

/// Keeps, clears, drops, or lets time pass.
fn change(random: &mut SmallRng, store: &mut RetainedStore, model: &mut Model, number: u64) {
    let topic = TOPICS[random.random_range(0..TOPICS.len())];
    match random.random_range(0..30) {
        0 => {
            store.offer(whole(topic, b"", number << 16));
            model.kept.remove(topic);
        }
        1 => {
            let excluded = if random.random() { vec!["a/b".to_owned()] } else { Vec::new() };
            let region = Region { subtree: ["a", "b", ""][random.random_range(0..3)], excluded: &excluded };
            drop_within(store, region);
            model.kept.retain(|topic, _| !region.holds(topic));
        }
        2 => {
            model.now += 5;
            store.set_time(model.now);
        }
        3 => _ = store.tidy(),
        kind => {
            let expires = if random.random() { model.now + random.random_range(1..30) } else { Micros::MAX };
            // Every part says which message it is of. A large one does not fit what is read at once.
            let field = number.to_be_bytes().repeat(if kind == 4 { 1_500 } else { 1 });
            let count = if kind == 4 { 12 } else { 1 };
            let mut offer = Offer::Ignored;
            for index in 0..count {
                let one = if count > 1 {
                    fragment(topic, &field, number << 16, index, count)
                } else {
                    whole(topic, &field, number << 16)
                };
                offer = store.offer(RetainedFragment { expires, ..one });
            }
            assert_eq!(offer, Offer::Kept);
            model.kept.insert(topic.to_owned(), (number, expires));
        }
    }
}

fn step(reader: &mut Reader, store: &mut RetainedStore, model: &Model) {
    let place = reader.next.take().expect("it is not done");
    let mut batch = store.read(Wanted::Filter(reader.filter), reader.newest, &place);
    let there = model.there(reader.filter);
    // As where there is no room for all of it: what is left is read again.
    let most = if reader.got.len().is_multiple_of(3) { 2 } else { usize::MAX };
    if batch.pieces.len() > most {
        let first = &batch.pieces[most];
        let topic = store.kept.walk("").find(|(_, kept)| kept.serial == first.serial).expect("it is there").0;
        batch.rest = Some(Cursor { topic: topic.into(), serial: first.serial, fragments: first.index });
        batch.pieces.truncate(most);
    }
    for piece in batch.pieces {
        let number = u64::from_be_bytes(*piece.field.first_chunk().expect("a number"));
        let message = there.iter().find(|(_, known)| *known == number).expect("it is there, and alive");
        reader.got.push((message.clone(), piece.index));
    }
    reader.next = batch.rest;
}

/// How many messages it got.
fn check(reader: &Reader) -> usize {
    let unique: BTreeSet<_> = reader.got.iter().collect();
    assert_eq!(unique.len(), reader.got.len(), "nothing comes twice");
    let got: BTreeSet<&Message> = reader.got.iter().map(|(message, _)| message).collect();
    assert!(reader.lasting.iter().all(|message| got.contains(message)), "what lasted comes");
    assert!(got.iter().all(|message| reader.began_with.contains(message)), "nothing newer, nothing gone");
    let fragments = |message| reader.got.iter().filter(|(known, _)| known == message).count();
    assert!(reader.lasting.iter().all(|message| [1, 12].contains(&fragments(message))), "with all its parts");
    got.len()
}
