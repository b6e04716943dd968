//! The output of `dev`: the nodes, a line that begins with `ready`, and on a terminal the current status.

use super::{Plan, Ports};
use crate::settings::DEFAULT_PORT;
use crate::status::Shown;
use paritas_control::status::Status;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// The output on the terminal. Its errors are ignored, because the cluster must go on.
#[derive(Debug)]
pub(crate) struct View {
    live: bool,
    /// Number of lines of the status that are on the screen. The next status is drawn over them.
    drawn: usize,
}

impl View {
    pub(crate) fn new() -> Self {
        Self {
            live: io::stdout().is_terminal(),
            drawn: 0,
        }
    }

    /// Prints the plan, before any process runs.
    pub(crate) fn plan(&mut self, plan: &Plan, dir: &Path) {
        let log_nodes = match plan.log_nodes {
            0 => String::new(),
            1 => ", 1 log node".to_owned(),
            count => format!(", {count} log nodes"),
        };
        let spares = match plan.spares {
            0 => String::new(),
            1 => " and 1 spare".to_owned(),
            spares => format!(" and {spares} spares"),
        };
        self.line(&format!(
            "paritas dev: {} nodes{log_nodes}{spares}, scheme {}, {} each; data lives in memory only",
            plan.members, plan.scheme, plan.memory
        ));
        if let Some(warning) = plan.warning() {
            self.line(&warning);
        }
        self.line(&format!("logs in {}", dir.display()));
    }

    pub(crate) fn nodes(&mut self, plan: &Plan, ports: &Ports, pids: &[u32], coordinator: u32) {
        self.line(&format!(
            "{:<12} {:<8} {:<18} {:<18} {:<18} {:<18}",
            "node", "pid", "any key", "cluster clients", "memcached", "other nodes"
        ));
        for node in 0..plan.count() {
            self.line(&format!(
                "{:<12} {:<8} {:<18} {:<18} {:<18} {:<18}",
                format!("n{node}"),
                pids.get(usize::from(node)).copied().unwrap_or_default(),
                plan.any_address(node).to_string(),
                plan.cluster_address(node).to_string(),
                plan.memcached_address(node).to_string(),
                ports.peer(node).to_string()
            ));
        }
        self.line(&format!(
            "{:<12} {:<8} {:<18}",
            "coordinator",
            coordinator,
            ports.coordinator().to_string()
        ));
        let flags: Vec<String> = [
            (plan.port != DEFAULT_PORT).then(|| format!("--port {}", plan.port)),
            plan.password_file.as_ref().map(|_| "--password-file".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect();
        self.line(&match flags.as_slice() {
            [] => "`paritas status`, `paritas drain` and other commands find this cluster without flags".to_owned(),
            flags => format!(
                "`paritas status`, `paritas drain` and other commands find this cluster with {}",
                flags.join(" and ")
            ),
        });
    }

    pub(crate) fn ready(&mut self, plan: &Plan, pids: &[u32], took: Duration) {
        self.line(&format!(
            "ready in {:.1} s; Ctrl-C ends the cluster. Commands to try:",
            took.as_secs_f64()
        ));
        let port = plan.port;
        if let Some(file) = &plan.password_file {
            self.line(&format!("  export REDISCLI_AUTH=\"$(cat '{}')\"", file.display()));
        }
        self.line(&format!("  redis-cli -p {port} set greeting hello"));
        let victims = plan.scheme.parity().min(2);
        if victims > 0 && plan.members > 1 {
            let last: Vec<String> = pids
                .iter()
                .take(usize::from(plan.members))
                .rev()
                .take(usize::from(victims))
                .map(u32::to_string)
                .collect();
            self.line(&format!(
                "  kill -9 {}; redis-cli -p {port} get greeting",
                last.join(" ")
            ));
        } else {
            let password = plan.password_file.as_ref().map_or("", |_| " -a \"$REDISCLI_AUTH\"");
            self.line(&format!("  redis-benchmark -p {port}{password} -t set,get -P 16 -q"));
        }
        // The program as it was called here, because it may not be in the PATH.
        let program = std::env::args().next().unwrap_or_else(|| "paritas".to_owned());
        let password = match &plan.password_file {
            Some(file) => format!(" --password-file '{}'", file.display()),
            None => String::new(),
        };
        self.line(&match port {
            DEFAULT_PORT => format!("  {program} status{password}"),
            port => format!("  {program} status --port {port}{password}"),
        });
    }

    /// Prints a line that stays on the screen.
    pub(crate) fn line(&mut self, text: &str) {
        self.clear();
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{text}");
        let _ = out.flush();
    }

    /// Draws the newest status over the last one.
    pub(crate) fn status(&mut self, status: &Status) {
        if !self.live {
            return;
        }
        let text = format!("\n{}", Shown(status));
        self.clear();
        let mut out = io::stdout().lock();
        // Line wrapping is off, because a line that the terminal breaks in two would be counted as one.
        let _ = writeln!(out, "\x1b[?7l{text}\x1b[?7h");
        let _ = out.flush();
        self.drawn = text.lines().count();
    }

    fn clear(&mut self) {
        if self.drawn > 0 {
            // Moves up by the number of drawn lines, then erases to the end of the screen.
            let _ = write!(io::stdout(), "\x1b[{}F\x1b[J", self.drawn);
            self.drawn = 0;
        }
    }
}
