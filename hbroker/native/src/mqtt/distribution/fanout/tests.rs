//! Who gets a message, how, and when nobody owes an answer for it any more.

use bytes::Bytes;

use crate::engine::subscriber::batch::ReceivedBatch;
use crate::mqtt::distribution::ack_guard::Ticket;
use crate::mqtt::distribution::fanout::*;
use crate::wire::PublishView;

const NOW: Micros = 1_000;

fn message(qos: u8, retain: bool) -> Message {
    let mut publish = PublishView::default();
    (publish.topic, publish.publisher, publish.sequence) = ("a/b", 7, 1);
    (publish.qos, publish.retain) = (qos, retain);
    Message::from_network(&publish, publish.topic.into(), Bytes::from_static(b"x"))
}

fn connection(worker: u8, slot: u64) -> ConnectionId {
    ConnectionId(u64::from(worker) << 56 | slot)
}

fn options(qos: u8) -> Options {
    Options { qos, ..Options::default() }
}

fn new_session() -> Box<Session> {
    Box::new(Session::new(crate::mqtt::settings::SessionSettings::default()))
}

struct Bench {
    fanout: Fanout,
    releases: Arc<Releases>,
    batches: Batches,
    /// Through which messages come.
    pool_client: u64,
}

impl Bench {
    /// Sessions 1, 2, … are with connections of workers 0 and 1 in turn; those with odd numbers get copies.
    fn new(sessions: u64) -> Self {
        let releases = Arc::new(Releases::default());
        let mut fanout = Fanout::new(Arc::clone(&releases));
        for session in 1..=sessions {
            fanout.park(NOW, session, new_session());
            assert!(
                fanout
                    .record(session, connection((session % 2) as u8, session), session, session % 2 == 1)
                    .is_some()
            );
        }
        Self { fanout, releases, batches: vec![Vec::new(), Vec::new()], pool_client: 0 }
    }

    fn attach(&mut self, listener: u64, session: u64, options: Options) {
        self.fanout.attach(listener, session, options, None);
    }

    fn route(&mut self, message: Message, retained: bool, origin: u64, listeners: &[u64]) {
        let ticket = Some(Ticket { pool_client: self.pool_client, message: message.id });
        self.fanout.route(NOW, Incoming { ticket, message, retained, origin, listeners }, &mut self.batches);
    }

    /// What was posted: (session, terms), in the order of sessions.
    fn posted(&mut self) -> Vec<(u64, DeliveryOptions)> {
        let items = self.take();
        let mut posted: Vec<_> =
            items.into_iter().map(|(session, delivery)| (session, delivery.delivery_options)).collect();
        posted.sort_by_key(|(session, _)| *session);
        posted
    }

    fn take(&mut self) -> Vec<(u64, Delivery)> {
        let deliveries = |SessionItem { connection, content }: SessionItem| {
            let deliveries = match content {
                ItemContent::Message(delivery) => vec![delivery],
                ItemContent::MessageBatch(batch, delivery_options) => {
                    let one = |message| Delivery {
                        message,
                        delivery_options: delivery_options.clone(),
                        ack_guard: None,
                    };
                    batch.messages().map(one).collect()
                }
                ItemContent::Answer(..) => panic!("nobody published"),
            };
            deliveries.into_iter().map(move |delivery| (connection.0 & 0xFFFF_FFFF, delivery))
        };
        self.batches.iter_mut().flat_map(std::mem::take).flat_map(deliveries).collect()
    }

    /// Routes messages together, or one by one; what was posted: (session, payload, terms).
    fn route_all(
        &mut self,
        together: bool,
        origin: u64,
        listeners: &[u64],
    ) -> Vec<(u64, Bytes, DeliveryOptions)> {
        let payloads: [&[u8]; 3] = [b"one", b"", b"three"];
        if together {
            let batch =
                MessageBatch::new("a/b".into(), ReceivedBatch::plain("a/b", &payloads), std::iter::empty());
            self.fanout.route_batch(NOW, batch, origin, listeners, &mut self.batches);
        } else {
            for payload in payloads {
                let message = Message::bare("a/b".into(), Bytes::from_static(payload));
                self.route(message, false, origin, listeners);
            }
        }
        let mut posted: Vec<_> = self
            .take()
            .into_iter()
            .map(|(session, it)| (session, it.message.payload.clone(), it.delivery_options))
            .collect();
        // Between sessions there is no order.
        posted.sort_by_key(|(session, ..)| *session);
        posted
    }
}

#[test]
fn a_copy_for_each_subscription_and_the_highest_qos_first_or_one_for_all() {
    let mut bench = Bench::new(3);
    bench.attach(10, 1, Options { identifier: 5, ..options(1) });
    bench.attach(11, 1, Options { identifier: 6, ..options(2) });
    bench.attach(12, 2, options(0));
    bench.attach(14, 2, Options { identifier: 7, ..options(1) });
    bench.attach(13, 3, Options { retain_as_published: true, ..options(2) });
    bench.route(message(2, true), false, 0, &[10, 11, 12, 13, 14, 99]);
    let delivery_options =
        |qos, retain, ids: &[u32]| DeliveryOptions { qos, retain, identifiers: ids.into() };
    assert_eq!(
        bench.posted(),
        [
            (1, delivery_options(2, false, &[6])),
            (1, delivery_options(1, false, &[5])),
            (2, delivery_options(1, false, &[7])),
            (3, delivery_options(2, true, &[]))
        ]
    );
    bench.route(message(1, false), true, 0, &[11]);
    assert_eq!(bench.posted(), [(1, delivery_options(1, true, &[6]))], "kept messages say so");
}

#[test]
fn a_message_is_answered_when_the_last_has_done_with_it() {
    let mut bench = Bench::new(3);
    (1..=3).for_each(|session| bench.attach(session, session, options((session % 3) as u8)));
    bench.route(message(1, false), false, 0, &[1, 2, 3]);
    let mut deliveries = bench.take();
    assert_eq!(deliveries.len(), 3);
    deliveries.retain(|(session, delivery)| {
        assert_eq!(delivery.ack_guard.is_some(), *session != 3, "who gets it at QoS 0 answers nothing");
        *session != 3
    });
    deliveries.pop();
    assert!(bench.releases.is_empty());
    deliveries.pop();
    assert_eq!(bench.releases.take(), [Ticket { pool_client: 0, message: (7, 1) }]);
}

#[test]
fn messages_that_came_together_go_as_they_would_one_by_one() {
    let outcomes = [true, false].map(|together| {
        let mut bench = Bench::new(5);
        bench.attach(1, 1, Options { identifier: 5, ..options(1) });
        bench.attach(2, 2, Options { retain_as_published: true, ..options(0) });
        bench.attach(3, 3, Options { no_local: true, ..options(0) });
        let mut posted = vec![bench.route_all(together, 3, &[1, 2, 3, 99])];
        // Session 2 gets one copy of what two of its subscriptions match, session 1 two of each message, behind one another.
        bench.attach(4, 2, Options { identifier: 9, ..options(0) });
        posted.push(bench.route_all(together, 0, &[2, 4]));
        bench.attach(5, 1, options(0));
        posted.push(bench.route_all(together, 0, &[1, 2, 5]));
        // On hold, and then not.
        bench.fanout.attach(6, 4, options(0), Some(9));
        posted.push(bench.route_all(together, 0, &[6, 2]));
        bench.fanout.release(NOW, 4, 9, &mut bench.batches);
        posted.push(bench.route_all(together, 0, &[6, 2]));
        // On its way, and offline.
        bench.attach(7, 5, options(1));
        bench.fanout.end_connection(5, connection(1, 5));
        posted.push(bench.route_all(together, 0, &[7]));
        bench.fanout.park(NOW, 5, new_session());
        posted.push(bench.route_all(together, 0, &[7]));
        (posted, bench.fanout.counters().drops, bench.fanout.routing_totals().0)
    });
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[0].0.iter().map(Vec::len).collect::<Vec<_>>(), [6, 3, 9, 3, 9, 0, 0]);
    assert_eq!(outcomes[0].1.iter().sum::<u64>(), 6);
}

#[test]
fn what_nobody_gets_is_answered_at_once() {
    let mut bench = Bench::new(1);
    bench.route(message(1, false), false, 0, &[5]);
    assert_eq!(bench.releases.take().len(), 1);
    bench.route(message(0, false), false, 0, &[5]);
    assert!(bench.releases.is_empty());
}

#[test]
fn nobody_gets_an_own_message_that_does_not_want_it() {
    let mut bench = Bench::new(2);
    bench.attach(1, 1, Options { no_local: true, ..options(1) });
    bench.attach(2, 2, Options { no_local: true, ..options(1) });
    bench.attach(3, 1, options(0));
    bench.route(message(1, false), false, 1, &[1, 2, 3]);
    let posted = bench.posted();
    assert_eq!(
        posted.iter().map(|(session, delivery_options)| (*session, delivery_options.qos)).collect::<Vec<_>>(),
        [(1, 0), (2, 1)]
    );
    bench.route(message(1, false), false, 0, &[1]);
    assert_eq!(bench.posted().len(), 1, "unmarked messages are nobody's own");
}

#[test]
fn what_a_listener_on_hold_gets_waits_in_order() {
    let mut bench = Bench::new(1);
    bench.fanout.attach(1, 1, options(1), Some(9));
    bench.attach(2, 1, options(0));
    for qos in [1, 0, 1] {
        bench.route(message(qos, false), true, 0, &[1]);
    }
    bench.route(message(1, false), false, 0, &[1, 2]);
    assert_eq!(bench.posted().len(), 1, "another listener of the session gives it at once, and once");
    let (fanout, batches) = (&mut bench.fanout, &mut bench.batches);
    fanout.release(NOW, 1, 8, batches);
    assert!(batches.iter().all(Vec::is_empty), "another SUBACK");
    fanout.release(NOW, 1, 9, batches);
    let held = bench.take();
    assert_eq!(held.iter().map(|(_, delivery)| delivery.delivery_options.qos).collect::<Vec<_>>(), [1, 0, 1]);
    bench.route(message(1, false), false, 0, &[1]);
    assert_eq!(bench.posted().len(), 1);
}

#[test]
fn what_waits_for_a_listener_that_goes_is_answered_and_bounded() {
    let mut bench = Bench::new(1);
    bench.fanout.attach(1, 1, options(1), Some(9));
    bench.route(message(1, false), true, 0, &[1]);
    (0..2 * MOST_HELD).for_each(|_| bench.route(message(0, false), true, 0, &[1]));
    assert!(bench.releases.is_empty());
    bench.fanout.detach(1);
    assert_eq!(bench.releases.take().len(), 1);
    let dropped: u64 = bench.fanout.counters().drops.iter().sum();
    assert_eq!(dropped as usize, MOST_HELD + 1);
}

#[test]
fn a_session_gets_everything_wherever_it_is() {
    let mut bench = Bench::new(1);
    bench.attach(1, 1, options(1));
    bench.fanout.end_connection(1, connection(1, 99));
    bench.route(message(1, false), false, 0, &[1]);
    assert_eq!(bench.posted().len(), 1, "another connection's end does not concern it");

    bench.fanout.end_connection(1, connection(1, 1));
    bench.route(message(1, false), false, 0, &[1]);
    assert!(bench.posted().is_empty());
    assert!(bench.fanout.remove(1, false).is_none(), "it is on its way");
    bench.fanout.park(NOW, 1, new_session());
    bench.route(message(1, false), false, 0, &[1]);
    assert_eq!(bench.fanout.parked(1).unwrap().load().queued, 2);
    assert!(bench.fanout.take_changed() && !bench.fanout.take_changed());

    let ResumedSession { session, has_no_local } = bench.fanout.record(1, connection(0, 8), 1, true).unwrap();
    assert!(!has_no_local);
    assert_eq!(session.load().queued, 2);
    bench.route(message(1, false), false, 0, &[1]);
    assert_eq!(bench.batches[0].len(), 1);
    bench.fanout.end_connection(1, connection(0, 8));
    bench.fanout.park(NOW, 1, session);
    let session = bench.fanout.remove(1, false).unwrap();
    bench.batches.iter_mut().for_each(Vec::clear);
    session.end(bench.fanout.counters());
    assert_eq!(bench.releases.take().len(), 4);
    bench.route(message(0, false), false, 0, &[1]);
    assert_eq!(bench.fanout.sizes(), (0, 0, 0));
}

#[test]
fn a_session_that_is_resumed_says_whether_it_wants_its_own_messages() {
    let mut bench = Bench::new(0);
    for (session, no_local) in [(1, false), (2, true)] {
        bench.fanout.park(NOW, session, new_session());
        bench.attach(10 * session, session, options(1));
        bench.attach(10 * session + 1, session, Options { no_local, ..options(0) });
        assert_eq!(
            bench.fanout.record(session, connection(0, session), session, true).unwrap().has_no_local,
            no_local
        );
    }
}

#[test]
fn what_came_through_a_pool_client_of_its_own_stays_unanswered_when_a_session_leaves() {
    let mut bench = Bench::new(1);
    bench.attach(1, 1, options(1));
    bench.fanout.attach(2, 1, options(1), Some(4));
    bench.fanout.end_connection(1, connection(1, 1));
    bench.fanout.park(NOW, 1, new_session());
    for pool_client in [0, 5] {
        bench.pool_client = pool_client;
        bench.route(message(1, false), false, 0, &[1]);
        bench.route(message(2, false), false, 0, &[2]);
    }
    let session = bench.fanout.remove(1, false).unwrap();
    session.end(bench.fanout.counters());
    let answered: Vec<u64> = bench.releases.take().into_iter().map(|ticket| ticket.pool_client).collect();
    assert_eq!(answered, [0, 0]);
    assert!(bench.fanout.listeners.is_empty() && bench.fanout.connections.is_empty());
    // Nor is what comes later, while its owners do not know yet.
    assert!(bench.fanout.was_removed(&[9, 2]) && !bench.fanout.was_removed(&[3]));
    bench.attach(3, 2, options(1));
    bench.fanout.detach(3);
    assert!(!bench.fanout.was_removed(&[3]), "unsubscribed: nobody wants it any more");
}
