//! LogECMem Fig 13 with Paritas: wide stripes on as many processes as they have positions, and the cost of an update in
//! all of them together.

use super::update_latency::VALUE_BYTES;
use super::wide::CODES;
use crate::baselines::paritas::{Paritas, Setup};
use crate::baselines::run::value;
use crate::processes::Sent;
use crate::report::figure;
use crate::stage::Stage;
use crate::workload::Workload;
use crate::{Check, Experiment, Report};
use std::io;
use std::time::{Duration, Instant};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paritas-wide",
    figure: "LogECMem Fig 13, Paritas",
    claim: "(ours) 16+4 to 128+4 run on as many processes, and an update costs no more with k",
    exact: false,
    run,
};

/// Length of a lease. Nodes that renewed leases with nearly all others four times a second would leave little time on
/// two cores for requests.
const LEASE: Duration = Duration::from_secs(600);
/// Time during which the background work of the nodes is measured.
const IDLE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Default)]
struct Taken {
    cpu: Duration,
    sent: Sent,
    time: Duration,
}

fn taken(system: &mut Paritas, mut what: impl FnMut(&mut Paritas) -> io::Result<()>) -> io::Result<Taken> {
    let (cpu, sent, began) = (system.cpu()?, system.sent()?, Instant::now());
    what(system)?;
    Ok(Taken {
        time: began.elapsed(),
        cpu: system.cpu()?.saturating_sub(cpu),
        sent: system.sent()? - sent,
    })
}

#[derive(Clone, Copy)]
struct Found {
    cpu_us: f64,
    messages: f64,
    kibibytes: f64,
    idle_share: f64,
}

/// The updates of a round, without the background work of the nodes.
fn round(system: &mut Paritas, workload: &mut Workload, count: u32, seed: u32) -> io::Result<Found> {
    let busy = taken(system, |system| {
        (1..=count).try_for_each(|n| system.set(workload.next_object(), &value(n, seed, VALUE_BYTES)))
    })?;
    let idle = taken(system, |_| {
        std::thread::sleep(busy.time.max(IDLE));
        Ok(())
    })?;
    let part = busy.time.as_secs_f64() / idle.time.as_secs_f64();
    let each = |busy: f64, idle: f64| (busy - idle * part) / f64::from(count);
    Ok(Found {
        cpu_us: each(busy.cpu.as_secs_f64(), idle.cpu.as_secs_f64()) * 1e6,
        messages: each(busy.sent.messages as f64, idle.sent.messages as f64),
        kibibytes: each(busy.sent.bytes as f64, idle.sent.bytes as f64) / 1024.0,
        idle_share: idle.cpu.as_secs_f64() / idle.time.as_secs_f64(),
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn measure(scheme: (u8, u8), objects: u32, count: u32, rounds: u32) -> io::Result<(Found, f64)> {
    let binary = std::env::current_exe()?;
    let name = format!("{}+{}", scheme.0, scheme.1);
    let nodes = u16::from(scheme.0) + u16::from(scheme.1);
    let began = Instant::now();
    let mut system = Paritas::start(Setup {
        lease: LEASE,
        ..Setup::new(&binary, &name, nodes)
    })?;
    for object in 0..objects {
        system.set_in_time(object, &value(object, 0, VALUE_BYTES))?;
    }
    let ready = began.elapsed().as_secs_f64();
    let mut workload = Workload::new(30, objects, 100);
    let found: Vec<Found> = (1..=rounds)
        .map(|n| round(&mut system, &mut workload, count, n))
        .collect::<io::Result<_>>()?;
    let of = |field: fn(&Found) -> f64| median(found.iter().map(field));
    let found = Found {
        cpu_us: of(|f| f.cpu_us),
        messages: of(|f| f.messages),
        kibibytes: of(|f| f.kibibytes),
        idle_share: of(|f| f.idle_share),
    };
    Ok((found, ready))
}

fn run(stage: &Stage) -> io::Result<Report> {
    let (objects, updates, rounds) = (stage.count(600, 60), stage.count(2000, 50), stage.count(5, 1));
    let codes = if stage.is_full() { &CODES[..] } else { &CODES[..1] };
    let columns = ["k", "CPU us", "messages", "KiB", "idle: CPU share"];
    let mut report = Report {
        columns: columns.map(str::to_owned).to_vec(),
        logarithmic: (true, true),
        ..Report::default()
    };
    let mut all = Vec::new();
    for code in codes {
        (stage.say)(&format!("updates, Paritas {}+{}", code.0, code.1));
        let (found, ready) = measure(*code, objects, updates, rounds)?;
        let cells = [found.cpu_us, found.messages, found.kibibytes, found.idle_share].map(figure);
        report.rows.push([vec![code.0.to_string()], cells.to_vec()].concat());
        report.remarks.push(format!(
            "{}+{}: {} processes and {objects} objects were there after {} s.",
            code.0,
            code.1,
            u16::from(code.0) + u16::from(code.1) + 1,
            figure(ready)
        ));
        let parities = f64::from(code.1);
        let text = format!(
            "{}+{}: 2 messages of an update for each parity, and at most 1 more ({})",
            code.0,
            code.1,
            figure(found.messages)
        );
        let few = (1.95 * parities..3.1 * parities).contains(&found.messages);
        report.checks.push(Check::claim(text, few).own());
        all.push(found);
    }
    let first = all[0];
    for (code, found) in codes.iter().zip(&all).skip(1) {
        let name = format!("{}+{}, an update over 16+4's", code.0, code.1);
        for (what, ratio, off) in [
            ("messages", found.messages / first.messages, 0.15),
            ("bytes", found.kibibytes / first.kibibytes, 0.05),
        ] {
            report
                .checks
                .push(Check::near(format!("{name}: {what}"), 1.0, ratio, off).own());
        }
        let check = Check::near(format!("{name}: CPU time"), 1.0, found.cpu_us / first.cpu_us, 0.25);
        report.checks.push(check.own());
    }
    report.remarks.push(format!(
        "An update of 4 KiB, one at a time, {rounds} rounds of {updates} over {objects} objects, median: CPU time \
         of all processes, and messages and bytes between nodes, without the client's two messages; what the nodes \
         do without requests is measured beside it and taken off. The third message of a parity tells it, 10 ms \
         later, what is stable. Leases last {} s here: nodes ask nearly every other one for theirs, sixteen times \
         while one lasts, so that this grows with the square of the nodes.",
        LEASE.as_secs()
    ));
    Ok(report)
}
