//! When a publisher may send. Times count from the beginning of the load.

use super::Nanos;

/// In a closed loop a publisher waits until it may send this many messages, or a quarter of its window, so
/// that they leave together.
const FLOCK: u64 = 128;

/// Publishers with the same pace, which are counted together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub publishers: usize,
    /// How many messages each publisher may have in flight; `None`: open loop.
    pub window: Option<u64>,
    /// Messages a second of all publishers together; `None`: as fast as they may.
    pub rate: Option<f64>,
}

/// The pace of one publisher.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many messages may be in flight; `None`: no limit.
    window: Option<u64>,
    schedule: Option<Schedule>,
}

/// Messages are due at equal distances, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    first: f64,
    distance: f64,
}

impl Pace {
    /// The pace of the publisher at this position of its group. Its messages are due in rotation with the
    /// others'.
    pub fn of(group: &Group, position: usize) -> Self {
        let schedule = |rate| Schedule {
            first: position as f64 * 1e9 / rate,
            distance: group.publishers as f64 * 1e9 / rate,
        };
        Self { window: group.window, schedule: group.rate.map(schedule) }
    }

    /// How many messages it may send now, if it has sent `sent` and has `under_way` in flight.
    pub fn allows(&self, now: Nanos, sent: u64, under_way: u64) -> u64 {
        let room = self.room(under_way);
        match self.schedule {
            Some(schedule) => room.min(schedule.due_until(now).saturating_sub(sent)),
            None if room >= self.flock() => room,
            None => 0,
        }
    }

    /// Whether its messages are due at certain times.
    pub fn is_paced(&self) -> bool {
        self.schedule.is_some()
    }

    /// When this message is due; `None`: as soon as the window allows.
    pub fn due(&self, number: u64) -> Option<Nanos> {
        self.schedule.map(|schedule| (schedule.first + number as f64 * schedule.distance) as Nanos)
    }

    /// Whether it must wait for messages in flight.
    pub fn is_full(&self, under_way: u64) -> bool {
        self.window.is_some() && self.room(under_way) < self.flock()
    }

    /// How many more messages may be in flight.
    pub fn room(&self, under_way: u64) -> u64 {
        self.window.map_or(u64::MAX, |window| window.saturating_sub(under_way))
    }

    fn flock(&self) -> u64 {
        self.window.map_or(1, |window| (window / 4).clamp(1, FLOCK))
    }
}

impl Schedule {
    fn due_until(&self, now: Nanos) -> u64 {
        let passed = now as f64 - self.first;
        if passed < 0.0 { 0 } else { (passed / self.distance) as u64 + 1 }
    }
}
