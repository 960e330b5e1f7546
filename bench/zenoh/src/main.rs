//! Measures Zenoh: a router, and Zenoh clients with the load of `hbroker bench`.
//!
//! ```text
//! zenoh-bench router --transport tcp --to 127.0.0.1:7447 [--config JSON]
//! zenoh-bench load pairs --clients 8 --transport tcp --to 127.0.0.1:7447 --broker-pid PID --cpus 1 --qos 0
//!     --payload 64 --window 4096 --warm-up 1 --duration 5 [--rate 2000] [--config JSON]
//! ```
//!
//! The router is the same as `zenohd` without plugins: a session in mode `router`. `load` takes the flags of
//! `hbroker bench`, and prints the JSON that `hbroker bench --json` prints.

mod bench;
mod clients;
mod cost;
mod flags;
mod measure;
mod settings;
mod shared;

use std::env;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use zenoh::Wait;

use flags::Flags;
use settings::Settings;

type Result<T> = zenoh::Result<T>;

fn main() -> ExitCode {
    match Flags::parse(env::args().skip(1)).and_then(|flags| run(&flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<()> {
    match flags.words().collect::<Vec<_>>()[..] {
        ["router"] => serve(flags),
        ["load", layout] => {
            prepare(flags)?;
            println!("{}", measure::measure(flags, layout)?);
            Ok(())
        }
        _ => Err("either `router` or `load LAYOUT`".into()),
    }
}

fn serve(flags: &Flags) -> Result<()> {
    let _session = zenoh::open(Settings::of(flags)?.router()?).wait()?;
    println!("ready");
    loop {
        thread::park();
    }
}

/// Sets the CPU affinity, and a timer slack of 1 ns, of this thread and of the threads that it starts later.
fn prepare(flags: &Flags) -> Result<()> {
    let wanted = flags.numbers("cpus")?;
    if !wanted.is_empty() {
        let mut cpus = CpuSet::new();
        wanted.into_iter().for_each(|cpu| cpus.set(cpu));
        sched_setaffinity(None, &cpus)?;
    }
    set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}
