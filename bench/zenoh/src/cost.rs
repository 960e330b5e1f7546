//! The CPU time (user and system) and the memory of processes and of the machine, from /proc (proc(5)).

use std::fs;

use crate::Result;

/// utime + stime of all threads of these processes, in seconds.
///
/// # Errors
/// One of the processes has ended.
pub fn cpu_seconds(pids: &[u32]) -> Result<f64> {
    pids.iter().map(|pid| Ok(fields_of(*pid)?[11..13].iter().sum::<f64>() / ticks())).sum()
}

/// The resident set size (rss) of these processes together, in bytes.
///
/// # Errors
/// One of the processes has ended.
pub fn resident_bytes(pids: &[u32]) -> Result<u64> {
    let page = rustix::param::page_size() as f64;
    pids.iter().map(|pid| Ok((fields_of(*pid)?[21] * page) as u64)).sum()
}

/// The CPU time of all CPUs together: user, nice, system and steal of /proc/stat, in seconds.
///
/// # Errors
/// /proc/stat cannot be read, or has too few fields.
pub fn machine_busy_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticked: Vec<f64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // Not idle, iowait, irq and softirq.
    [0, 1, 2, 7]
        .iter()
        .map(|&index| ticked.get(index).copied().ok_or_else(|| line.into()))
        .sum::<Result<f64>>()
        .map(|sum| sum / ticks())
}

/// The fields of /proc/PID/stat after the process's name. A field that is not a number is 0.
fn fields_of(pid: u32) -> Result<Vec<f64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')').ok_or("no process has such a stat")?;
    let fields: Vec<f64> = rest.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
    if fields.len() < 22 { Err("a stat is too short".into()) } else { Ok(fields) }
}

fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}
