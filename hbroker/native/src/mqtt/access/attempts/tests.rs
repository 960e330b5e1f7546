//! Who is refused before anybody has looked at the password.

use crate::mqtt::access::attempts::*;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const SECOND: Micros = 1_000_000;
const BOUNDS: Bounds = Bounds {
    pair: Bucket { burst: 2, interval: 10 * SECOND },
    address: Bucket { burst: 4, interval: 2 * SECOND },
    name: Bucket { burst: 8, interval: 2 * SECOND },
    asked: Bucket { burst: 4, interval: SECOND },
    entries: 64,
    known: 64,
};

fn made() -> Attempts {
    Attempts::new(1, BOUNDS, ["pair", "address", "name", "busy"].map(Into::into))
}

fn other(last: u8) -> IpAddr {
    [198, 51, 100, last].into()
}

/// An attempt that came to Python, and was wrong.
fn wrong(attempts: &Attempts, host: IpAddr, name: &str) {
    assert_eq!(attempts.take(0, &attempts.source(host, Some(name))), None);
}

#[test]
fn whatever_python_would_refuse_is_refused_before_and_costs_nothing_but_having_asked() {
    let attempts = made();
    let refuse = |now, host, name| attempts.refuse(now, host, name, b"guess");
    for _ in 0..2 {
        assert_eq!(refuse(0, HERE, "ann"), None);
        wrong(&attempts, HERE, "ann");
    }
    assert_eq!((0..100).filter_map(|_| refuse(0, HERE, "ann")).collect::<Vec<_>>(), [Refused::Pair; 100]);
    (0..2).for_each(|n| wrong(&attempts, HERE, &format!("n{n}")));
    assert_eq!(
        [refuse(0, HERE, "bob"), refuse(0, HERE, "ann")],
        [Some(Refused::Address), Some(Refused::Pair)]
    );
    assert_eq!(refuse(0, other(1), "bob"), None);
    (1..9).for_each(|n| wrong(&attempts, other(n), "bob"));
    assert_eq!(refuse(0, other(9), "bob"), Some(Refused::Name));
    assert_eq!(refuse(20 * SECOND, HERE, "ann"), None, "tokens come again");
    assert_eq!(attempts.refused(), [101, 1, 1, 0]);
    assert_eq!(attempts.asked(0, &attempts.source(HERE, None)), 4, "as much as is counted");
}

#[test]
fn a_password_that_was_right_is_never_refused_before() {
    let attempts = made();
    attempts.remember("ann", b"right");
    (0..2).for_each(|_| wrong(&attempts, HERE, "ann"));
    let refuse = |name, password: &[u8]| attempts.refuse(0, HERE, name, password);
    assert_eq!(refuse("ann", b"right"), None);
    assert_eq!([refuse("ann", b"wrong"), refuse("ann", b"")], [Some(Refused::Pair); 2]);
    attempts.remember("ann", b"newer");
    assert_eq!([refuse("ann", b"newer"), refuse("ann", b"right")], [None, Some(Refused::Pair)]);
    attempts.remember("an", b"nright");
    assert_eq!(refuse("ann", b"right"), Some(Refused::Pair), "where a name ends is told");
}

#[test]
fn a_trusted_address_is_asked_by_its_own_bound_alone() {
    let attempts = made();
    let home = attempts.source(HERE, Some("ann"));
    assert_eq!(attempts.take(0, &home), None);
    attempts.succeeded(0, &home);
    (1..9).for_each(|n| wrong(&attempts, other(n), "ann"));
    assert_eq!(attempts.refuse(0, other(9), "ann", b"guess"), Some(Refused::Name));
    assert_eq!(attempts.refuse(0, HERE, "ann", b"guess"), None);
}

#[test]
fn while_many_wait_those_who_asked_a_lot_are_refused() {
    let attempts = made();
    for n in 0..3 {
        wrong(&attempts, HERE, &format!("n{n}"));
        attempts.give_back(0, &attempts.source(HERE, Some(&format!("n{n}"))));
    }
    let refuse = |now, host| attempts.refuse(now, host, "new", b"guess");
    attempts.set_full(true);
    assert_eq!(refuse(0, HERE), None);
    attempts.take(0, &attempts.source(HERE, None));
    assert_eq!((0..10).filter_map(|_| refuse(0, HERE)).collect::<Vec<_>>(), [Refused::Busy; 10]);
    assert_eq!([refuse(0, other(1)), refuse(SECOND, HERE)], [None; 2]);
    attempts.set_full(false);
    assert_eq!(refuse(0, HERE), None);
    assert_eq!(attempts.refused(), [0, 0, 0, 10]);
}

#[test]
fn an_attempt_without_a_name_counts_for_its_address_alone() {
    let attempts = made();
    let nameless = attempts.source(HERE, None);
    let told: Vec<_> = (0..5).map(|_| attempts.take(0, &nameless)).collect();
    assert_eq!(told, [None, None, None, None, Some(Refused::Address)]);
    (1..20).for_each(|n| assert_eq!(attempts.take(0, &attempts.source(other(n), None)), None));
    attempts.succeeded(0, &nameless);
    assert_eq!(attempts.take(0, &nameless), None);
    assert_eq!(attempts.take(0, &nameless), Some(Refused::Address), "nobody is trusted without a name");
}

#[test]
fn the_last_entries_are_there_and_twice_as_many_at_most() {
    let mut table = Recent::new(8);
    for key in 0..100 {
        table.put(key, key);
        assert!((key.saturating_sub(7)..=key).all(|last| table.get(last) == Some(&last)));
        assert!(table.len() <= 16);
    }
    (0..50).for_each(|key| [99, 100 + key].into_iter().for_each(|key| table.put(key, 0)));
    assert_eq!([table.remove(99), table.remove(99)], [Some(0), None], "what is written again stays");
}
