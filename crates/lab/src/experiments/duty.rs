//! Nodes that are taken out of service and back.

use crate::servers::{Servers, ask};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

const MOVE_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// A field of a node in the status: a word or a number.
fn field<'a>(status: &'a str, node: u16, name: &str) -> Option<&'a str> {
    let (_, entry) = status.split_once(&format!("{{\"id\":{node},\"pid\""))?;
    let (_, rest) = entry.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()
}

fn is_whole(status: &str) -> bool {
    ["filling", "down", "vacant"]
        .iter()
        .all(|state| !status.contains(&format!(",\"state\":\"{state}\"}}")))
}

/// Number of takeovers that a node has made, and the durations of the latest ones in ms.
fn takeovers(port: u16) -> io::Result<(usize, Vec<f64>)> {
    let info = ask(port, "*1\r\n$4\r\nINFO\r\n")?;
    let line = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    let recent = line("takeover_recent_us:").split(',');
    Ok((
        line("takeovers:").parse().unwrap_or(0),
        recent
            .filter_map(|us| us.parse::<f64>().ok())
            .map(|us| us / 1000.0)
            .collect(),
    ))
}

/// A cluster whose nodes are ordered to give up their positions, and to take them back (`paritas shun`).
pub(crate) struct Cluster {
    pub(crate) servers: Servers,
    pub(crate) ports: Vec<u16>,
}

impl Cluster {
    fn takeovers(&self) -> io::Result<Vec<(usize, Vec<f64>)>> {
        self.ports.iter().map(|port| takeovers(*port)).collect()
    }

    /// Gives an order about these nodes.
    pub(crate) fn tell(&self, nodes: &[u16], word: &str) -> io::Result<()> {
        for node in nodes {
            let node = node.to_string();
            let (a, b) = (node.len(), word.len());
            let said = ask(
                self.ports[0],
                &format!("*3\r\n$12\r\nPARITAS.DUTY\r\n${a}\r\n{node}\r\n${b}\r\n{word}\r\n"),
            )?;
            if said != "+OK" {
                return Err(io::Error::other(format!("PARITAS.DUTY: {said}")));
            }
        }
        Ok(())
    }

    /// Waits until the order is done.
    pub(crate) fn until_done(&self, nodes: &[u16], word: &str) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let status = self.servers.status()?;
            let is_done = |node: &u16| match word {
                "shun" => field(&status, *node, "positions") == Some("0"),
                _ => field(&status, *node, "duty") == Some("\"full\""),
            };
            if nodes.iter().all(is_done) && is_whole(&status) {
                return Ok(());
            }
            if began.elapsed() > MOVE_TIME_MAX {
                return Err(io::Error::other(format!(
                    "{word} of {nodes:?} takes too long: {status}"
                )));
            }
            thread::sleep(POLL);
        }
    }

    /// Gives the order and waits. Returns the duration of the slowest takeover and of the whole, in ms.
    pub(crate) fn order(&self, nodes: &[u16], word: &str) -> io::Result<(f64, f64)> {
        let before = self.takeovers()?;
        let began = Instant::now();
        self.tell(nodes, word)?;
        self.until_done(nodes, word)?;
        let all = began.elapsed().as_secs_f64() * 1000.0;
        let slowest = self
            .takeovers()?
            .into_iter()
            .zip(before)
            .flat_map(|((now, recent), (before, _))| {
                // A node that has restarted counts from zero.
                recent.into_iter().take(now.saturating_sub(before))
            });
        Ok((slowest.fold(0.0, f64::max), all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_of_nodes() {
        let status = r#"{"nodes":[{"id":0,"pid":1,"duty":"full","positions":10},
            {"id":1,"pid":2,"duty":"shunned","positions":0}],
            "lists":[{"id":0,"epoch":1,"positions":[{"node":0,"state":"live"}]}]}"#;
        assert_eq!(field(status, 1, "positions"), Some("0"));
        assert_eq!(field(status, 0, "duty"), Some("\"full\""));
        assert!(is_whole(status));
        assert!(!is_whole(
            &status
                .replace(r#""state":"live"}"#, r#""state":"filling"}"#)
                .replace("{\"node\":0", "{\"node\":0,\"x\":1")
        ));
    }
}
