//! What processes and the machine cost, from /proc (proc(5)): CPU time with the kernel's part, and memory.

use std::fs;

use crate::Result;

/// utime + stime of all threads of these processes, in seconds.
///
/// # Errors
/// One has ended.
pub fn cpu_seconds(pids: &[u32]) -> Result<f64> {
    pids.iter().map(|pid| Ok(fields_of(*pid)?[11..13].iter().sum::<f64>() / ticks())).sum()
}

/// Memory that they have in RAM.
///
/// # Errors
/// One has ended.
pub fn resident_bytes(pids: &[u32]) -> Result<u64> {
    let page = rustix::param::page_size() as f64;
    pids.iter().map(|pid| Ok((fields_of(*pid)?[21] * page) as u64)).sum()
}

/// CPU time that all CPUs together spent on processes, or that the hypervisor took from them, in seconds.
///
/// # Errors
/// The system does not tell.
pub fn machine_busy_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticked: Vec<f64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // All but idle, iowait and what interrupts took.
    [0, 1, 2, 7]
        .iter()
        .map(|&index| ticked.get(index).copied().ok_or_else(|| line.into()))
        .sum::<Result<f64>>()
        .map(|sum| sum / ticks())
}

/// The fields of `stat` behind the process's name; those that are no numbers are 0.
fn fields_of(pid: u32) -> Result<Vec<f64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')').ok_or("no process has such a stat")?;
    let fields: Vec<f64> = rest.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
    if fields.len() < 22 { Err("a stat is too short".into()) } else { Ok(fields) }
}

fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}
