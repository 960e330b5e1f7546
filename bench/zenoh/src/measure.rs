//! The measurement, as in `hbroker bench`, with the same names in the JSON: a warm-up, a mark at the start
//! and one at the end, then a wait for the rest. What has not arrived by then is lost.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::Result;
use crate::bench::load::{Counts, Group, Plan, Times};
use crate::clients::{Clients, Shape};
use crate::cost::{cpu_seconds, machine_busy_seconds, resident_bytes};
use crate::flags::Flags;
use crate::settings::Settings;
use crate::shared::Shared;

/// If nothing arrives for so long, the rest is lost.
const QUIET: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Measures a running router with one load. Returns the result as JSON.
///
/// # Errors
/// The flags are wrong, Zenoh cannot make the load (QoS 1 or 2), or the router has ended.
pub fn measure(flags: &Flags, layout: &str) -> Result<Value> {
    let shape = Shape::of(layout, flags.need("clients")?)?;
    let plan = plan(flags, &shape)?;
    if plan.qos > 0 {
        return Err("Zenoh has no acknowledgement".into());
    }
    let is_paced = plan.groups.iter().any(|group| group.rate.is_some());
    let shared = Arc::new(Shared::new(plan));
    let clients = Clients::connect(&Settings::of(flags)?, &shape, is_paced, &shared)?;
    let for_publishing = shared.clone();
    let publishing = thread::spawn(move || clients.publish(&for_publishing).map(|()| clients));
    let marks = run(flags, &shared);
    shared.stop();
    let clients = publishing.join().map_err(|_| "the publisher's thread has ended")??;
    let reported = reported(marks?, settled(&shared));
    std::mem::forget(clients); // a thousand sessions take seconds to close
    Ok(reported)
}

fn plan(flags: &Flags, shape: &Shape) -> Result<Plan> {
    if flags.get("topics")?.unwrap_or(1) != 1 {
        return Err("a publisher has one topic".into());
    }
    let publishers = shape.publishers.len();
    let window: u64 = flags.need("window")?;
    let window = Some((window / publishers.max(1) as u64).max(1));
    Ok(Plan {
        groups: vec![Group { publishers, window, rate: flags.get("rate")? }],
        subscribers: shape.subscribers.iter().map(|(_, heard)| heard.clone()).collect(),
        topics: 1,
        payload: flags.need("payload")?,
        qos: flags.need("qos")?,
        polls: false,
    })
}

struct Mark {
    at: Instant,
    delivered: u64,
    broker: f64,
    generator: f64,
    machine: f64,
}

struct Marks {
    first: Mark,
    last: Mark,
    latency_us: Value,
    lateness_us: Value,
    broker_rss_bytes: u64,
}

fn run(flags: &Flags, shared: &Shared) -> Result<Marks> {
    let broker = flags.numbers("broker-pid")?.into_iter().map(|pid| pid as u32).collect::<Vec<_>>();
    shared.start();
    thread::sleep(Duration::from_secs_f64(flags.need("warm-up")?));
    shared.forget_times();
    let first = mark(shared, &broker)?;
    thread::sleep(Duration::from_secs_f64(flags.need("duration")?));
    let last = mark(shared, &broker)?;
    let Times { latency, lateness } = shared.times();
    let broker_rss_bytes = resident_bytes(&broker)?;
    let (latency_us, lateness_us) = (percentiles(&latency), percentiles(&lateness));
    Ok(Marks { first, last, latency_us, lateness_us, broker_rss_bytes })
}

fn mark(shared: &Shared, broker: &[u32]) -> Result<Mark> {
    Ok(Mark {
        at: Instant::now(),
        delivered: shared.counts().delivered,
        broker: cpu_seconds(broker)?,
        generator: cpu_seconds(&[std::process::id()])?,
        machine: machine_busy_seconds()?,
    })
}

/// The counts after the rest has arrived, or after nothing has arrived for `QUIET`.
fn settled(shared: &Shared) -> Counts {
    let (mut found, mut changed_at) = (shared.counts(), Instant::now());
    while found.lost > 0 && changed_at.elapsed() < QUIET {
        thread::sleep(PAUSE);
        let now = shared.counts();
        if now.delivered != found.delivered {
            changed_at = Instant::now();
        }
        found = now;
    }
    found
}

fn reported(marks: Marks, total: Counts) -> Value {
    let Marks { first, last, .. } = marks;
    let seconds = (last.at - first.at).as_secs_f64();
    let delivered = (last.delivered - first.delivered) as f64;
    let (broker, generator) = (last.broker - first.broker, last.generator - first.generator);
    let others = (last.machine - first.machine - broker - generator).max(0.0);
    json!({
        "seconds": seconds,
        "delivered_per_s": delivered / seconds,
        "delivered_per_cpu_s": if broker > 0.0 { delivered / broker } else { 0.0 },
        "sent": total.sent,
        "delivered": total.delivered,
        "acknowledged": total.acknowledged,
        "refused": total.refused,
        "lost": total.lost,
        "duplicated": total.duplicated,
        "disordered": total.disordered,
        "damaged": total.damaged,
        "stalls": total.stalls,
        "latency_us": marks.latency_us,
        "lateness_us": marks.lateness_us,
        "broker_cpu": broker / seconds,
        "broker_cpu_s": broker,
        "broker_rss_bytes": marks.broker_rss_bytes,
        "generator_cpu": generator / seconds,
        "others_cpu": others / seconds,
    })
}

fn percentiles(times: &Histogram<u64>) -> Value {
    if times.is_empty() {
        return Value::Null;
    }
    let [p50, p90, p99, p999] = QUANTILES.map(|quantile| times.value_at_quantile(quantile) as f64 / 1e3);
    json!({ "p50": p50, "p90": p90, "p99": p99, "p999": p999 })
}
