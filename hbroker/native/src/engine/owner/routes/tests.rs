//! The cache must never be noticed: a route found is what the tables alone say.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::engine::owner::routes::{LONGEST_TOPIC, MOST_HEAP_BYTES, MOST_SLOTS, MOST_SUBSCRIBERS, SLOTS, *};
use crate::tables::jurisdiction::Grant;

const GRANT: Grant =
    Grant { epoch: 1, serving: true, reserved: false, recovering: false, until: Micros::MAX };

fn subscriber(session: u64) -> Subscriber {
    Subscriber::new(SessionKey(session), 1)
}

/// Whether a topic is reserved, and recovering, its sessions in order, and its groups with their members, in order.
type Found = (bool, bool, Vec<u64>, Vec<(String, Vec<u64>)>);

/// What the tables say, without the cache.
fn searched(routes: &Routes, now: Micros, topic: &str) -> Option<Found> {
    let Decision::Own(grant) = routes.jurisdiction.decide(topic, now) else {
        return None;
    };
    let mut matches = MatchSet::default();
    routes.subscriptions.collect_matches(topic, &mut matches);
    Some((grant.reserved, grant.recovering, sessions(matches.subscribers()), groups(matches.groups())))
}

fn sessions(subscribers: &[Subscriber]) -> Vec<u64> {
    let mut sessions: Vec<u64> = subscribers.iter().map(|subscriber| subscriber.session.0).collect();
    sessions.sort_unstable();
    sessions
}

fn groups(list: &GroupList) -> Vec<(String, Vec<u64>)> {
    let mut groups: Vec<_> =
        list.iter().map(|group| (group.name.to_string(), sessions(group.members))).collect();
    groups.sort();
    groups
}

fn found(routes: &mut Routes, now: Micros, topic: &str) -> Option<Found> {
    let route = routes.find(now, topic).ok()?;
    Some((route.reserved, route.recovering, sessions(route.subscribers), groups(route.groups)))
}

#[test]
fn finds_what_the_tables_say_whatever_was_changed_since() {
    const LEVELS: [&str; 4] = ["a", "b", "", "$SYS"];
    const SUBTREES: [&str; 5] = ["", "a", "a/b", "$SYS", "b"];
    const FILTERS: [&str; 6] = ["a/+", "#", "a/b", "+/b/#", "$SYS/#", "b"];
    let mut random = SmallRng::seed_from_u64(1);
    let mut routes = Routes::new(1);
    let (mut hits, mut refusals) = (0, 0);
    for now in 0..50_000 {
        let subtree = SUBTREES[random.random_range(0..SUBTREES.len())];
        let (filter, session) = (FILTERS[random.random_range(0..FILTERS.len())], random.random_range(0..5));
        let group = ["", "", "g", "h"][random.random_range(0..4)];
        match random.random_range(0..60) {
            0 => _ = routes.subscribe(filter, group, subscriber(session)),
            1 => _ = routes.unsubscribe(filter, group, SessionKey(session)),
            2 => routes.forget_session(SessionKey(session)),
            3 => _ = routes.jurisdiction_mut().revoke(subtree),
            4 => _ = routes.matching("a/b"),
            5..8 => {
                let until = now + random.random_range(0..500);
                let serving = random.random_bool(0.8);
                let (reserved, recovering) = (random.random(), random.random());
                let grant = Grant { serving, reserved, recovering, until, ..GRANT };
                routes.jurisdiction_mut().grant(subtree, grant);
            }
            _ => {}
        }
        let depth = random.random_range(1..4);
        let levels: Vec<&str> = (0..depth).map(|_| LEVELS[random.random_range(0..LEVELS.len())]).collect();
        let topic = levels.join("/");
        let is_remembered = routes.cache.has(&topic, routes.version, now);
        let expected = if topic.is_empty() { None } else { searched(&routes, now, &topic) };
        assert_eq!(found(&mut routes, now, &topic), expected, "at {now}: {topic:?}");
        hits += usize::from(is_remembered);
        refusals += usize::from(expected.is_none());
    }
    assert!(hits > 4_000 && refusals > 5_000, "{hits} remembered, {refusals} refused");
}

#[test]
fn a_lease_ends_for_a_route_that_is_remembered() {
    let mut routes = Routes::new(1);
    routes.jurisdiction_mut().grant("a", Grant { until: 10, ..GRANT });
    assert!(routes.find(8, "a/b").is_ok() && routes.find(9, "a/b").is_ok());
    assert!(matches!(routes.find(10, "a/b"), Err(Refusal::NotResponsible(None))));
}

#[test]
fn a_filter_without_wildcards_costs_other_topics_nothing() {
    let mut routes = Routes::new(1);
    routes.jurisdiction_mut().grant("", GRANT);
    assert!(routes.find(0, "a").is_ok() && routes.find(0, "b").is_ok());
    let is_cached = |routes: &Routes, topic: &str| routes.cache.has(topic, routes.version, 0);
    routes.subscribe("a", "", subscriber(1));
    assert!(!is_cached(&routes, "a") && is_cached(&routes, "b"));
    routes.subscribe("+", "", subscriber(1));
    assert!(!is_cached(&routes, "b"));
}

#[test]
fn keeps_no_route_that_is_large_and_no_more_than_it_has_slots() {
    let mut routes = Routes::new(1);
    routes.jurisdiction_mut().grant("", GRANT);
    let long = "l".repeat(LONGEST_TOPIC + 1);
    for session in 0..=MOST_SUBSCRIBERS as u64 {
        routes.subscribe("crowd", ["", "g"][session as usize % 2], subscriber(session));
    }
    for topic in ["crowd", &long] {
        assert!(routes.find(0, topic).is_ok());
        assert!(!routes.cache.has(topic, routes.version, 0), "{topic}");
    }
    let route = routes.find(0, "crowd").expect("it is ours");
    assert_eq!(route.subscribers.len() + route.groups.members(), MOST_SUBSCRIBERS + 1);
    assert_eq!(routes.cache.slots(), SLOTS, "nothing gave way to what is not kept");
    for number in 0..10 * MOST_SLOTS {
        assert!(routes.find(0, &format!("t/{number}")).is_ok());
    }
    assert_eq!(routes.cache.slots(), MOST_SLOTS);
    assert_eq!(routes.cache.heap_bytes(), (0, 0), "short topics and lists are in their slots");
}

#[test]
fn the_bytes_outside_of_the_slots_are_counted_and_bounded() {
    let mut routes = Routes::new(1);
    routes.jurisdiction_mut().grant("", GRANT);
    (0..MOST_SUBSCRIBERS as u64).for_each(|session| _ = routes.subscribe("#", "", subscriber(session)));
    let end = "/t".repeat(100);
    for round in 0..2 {
        for number in 0..200_000 {
            assert!(routes.find(0, &format!("{number}{end}")).is_ok());
        }
        let (counted, there) = routes.cache.heap_bytes();
        assert_eq!(counted, there);
        assert!(counted <= MOST_HEAP_BYTES && (round == 0 || counted > MOST_HEAP_BYTES / 2), "{counted}");
    }
}

#[test]
fn of_topics_that_come_in_turn_some_are_remembered_however_many_there_are() {
    let mut routes = Routes::new(1);
    routes.jurisdiction_mut().grant("", GRANT);
    let topics: Vec<String> =
        (0..2 * MOST_SLOTS).map(|number| format!("home/{number}/temperature")).collect();
    let mut remembered = 0;
    for round in 0..10 {
        for topic in &topics {
            remembered += usize::from(round == 9 && routes.cache.has(topic, routes.version, 0));
            assert!(routes.find(0, topic).is_ok());
        }
    }
    assert_eq!(routes.cache.slots(), MOST_SLOTS);
    assert!(remembered > MOST_SLOTS / 2, "{remembered}");
}

#[test]
fn topics_that_are_in_use_come_to_be_remembered() {
    let mut routes = Routes::new(1);
    routes.jurisdiction_mut().grant("", GRANT);
    let topics: Vec<String> = (0..3_000).map(|number| format!("home/{number}/temperature")).collect();
    for _ in 0..40 {
        topics.iter().for_each(|topic| assert!(routes.find(0, topic).is_ok()));
    }
    let is_cached = |topic: &&String| routes.cache.has(topic, routes.version, 0);
    let remembered = topics.iter().filter(is_cached).count();
    assert!(remembered > 2_000 && routes.cache.slots() < MOST_SLOTS, "{remembered}");
}
