//! LogECMem Fig 11 with Paritas for comparison (§6.3, Experiment 2): the cost of an update as seen by the client.

use super::update_latency::{VALUE_BYTES, timed};
use crate::baselines::network::{Way, without_stalls};
use crate::baselines::paritas::{Paritas, Setup};
use crate::baselines::run::{Kind, value};
use crate::report::figure;
use crate::stage::{HOP, Stage};
use crate::workload::Workload;
use crate::{Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "paritas-updates",
    figure: "LogECMem Fig 11, Paritas",
    claim: "(ours) an update takes Paritas less time and fewer messages than LogECMem",
    exact: false,
    run,
};

/// The schemes of Paritas, and the codes of the compared systems.
const SCHEMES: [(&str, (u8, u8)); 3] = [("6+3", (6, 3)), ("6+3/2", (6, 3)), ("10+4", (10, 4))];

struct Found {
    us: f64,
    messages: f64,
    kibibytes: f64,
}

fn updates(system: &mut Paritas, objects: u32, count: u32) -> io::Result<()> {
    for object in 0..objects {
        system.set(object, &value(object, 0, VALUE_BYTES))?;
    }
    system.mark();
    let mut workload = Workload::new(30, objects, 30);
    for round in 1..=count {
        let object = workload.next_object();
        system.set(object, &value(object, round, VALUE_BYTES))?;
    }
    Ok(())
}

fn paritas(scheme: &str, nodes: u16, objects: u32, count: u32) -> io::Result<Found> {
    let binary = std::env::current_exe()?;
    let logged = scheme.split_once('/').and_then(|(_, logged)| logged.parse().ok());
    let log_nodes: u16 = logged.unwrap_or(0);
    let nodes = nodes - log_nodes;
    let setup = Setup {
        hop: HOP,
        log_nodes,
        ..Setup::new(&binary, scheme, nodes)
    };
    let mut counted = Paritas::start(Setup {
        count_from: Some(VALUE_BYTES),
        ..setup
    })?;
    updates(&mut counted, objects, count)?;
    let (bytes, large) = counted.traffic();
    drop(counted);
    let mut timed = Paritas::start(setup)?;
    updates(&mut timed, objects, count)?;
    let count = f64::from(count);
    Ok(Found {
        us: without_stalls(timed.take_waits()).as_secs_f64() * 1e6 / count,
        messages: 1.0 + large as f64 / count,
        kibibytes: (bytes as f64 / count + VALUE_BYTES as f64) / 1024.0,
    })
}

fn run(stage: &Stage) -> io::Result<Report> {
    let (objects, updates) = (stage.count(600, 50), stage.count(300, 20));
    let schemes = if stage.is_full() { &SCHEMES[..] } else { &SCHEMES[..1] };
    let columns = [
        "Paritas'",
        "Paritas",
        "LogECMem at once",
        "IPMem at once",
        "FSMem 50:50 at once",
        "LogECMem",
        "IPMem",
        "FSMem 50:50",
    ];
    let mut report = Report {
        columns: columns.map(str::to_owned).to_vec(),
        ..Report::default()
    };
    let client = 2.0 * HOP.as_secs_f64() * 1e6;
    for (scheme, code) in schemes {
        (stage.say)(&format!("updates, Paritas {scheme}"));
        let ours = paritas(scheme, u16::from(code.0 + code.1), objects, updates)?;
        let mut cells = vec![(*scheme).to_owned(), figure(ours.us)];
        let mut theirs = Vec::new();
        for way in [Way::AtOnce, Way::OneByOne] {
            // FSMem in its best case (§7).
            for (kind, percent) in [(Kind::LogEcMem, 30), (Kind::IpMem, 30), (Kind::FsMem, 50)] {
                let found = timed(kind, *code, objects, percent, way)?;
                let us = found.mean_us() + client;
                cells.push(figure(us));
                theirs.push((us, 1.0 + found.mean(found.cost.messages)));
            }
        }
        report.rows.push(cells);
        let text = format!("{scheme}: messages of an update, LogECMem's over Paritas'");
        report
            .checks
            .push(Check::at_least(text, 1.0, theirs[0].1 / ours.messages).own());
        if stage.is_full() {
            let text = format!("{scheme}: time of an update, LogECMem's at once over Paritas'");
            report
                .checks
                .push(Check::at_least(text, 1.0, theirs[0].0 / ours.us).own());
            let text = format!("{scheme}: time of an update, LogECMem's one by one over Paritas'");
            report
                .checks
                .push(Check::at_least(text, 1.0, theirs[3].0 / ours.us).own());
            let text = format!("{scheme}: time of an update, FSMem's at 50:50 at once over Paritas'");
            report
                .checks
                .push(Check::at_least(text, 1.0, theirs[2].0 / ours.us).own());
        }
        report.remarks.push(format!(
            "{scheme}: {} messages with a value and {} KiB an update of Paritas', {} messages of LogECMem's.",
            figure(ours.messages),
            figure(ours.kibibytes),
            figure(theirs[0].1)
        ));
    }
    report.remarks.push(format!(
        "us of an update of 4 KiB, {updates} of them over {objects} objects, from a client a hop of {} us away: from \
         the proxy, or, with Paritas, from the object's owner. Messages and bytes between its nodes are \
         counted by relays in another run.",
        HOP.as_micros()
    ));
    Ok(report)
}
