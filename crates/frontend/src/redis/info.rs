//! INFO, and the counters that it shows.

use super::connection::{REDIS_VERSION, is_word};
use crate::router::Dispatcher;
use crate::router::client::Client;
use paritas_base::Time;
use paritas_protocol::{Context, Lists, Out, Port, Role};
use paritas_wire::command::{Command, Refusal};
use paritas_wire::resp::{ArgList, encode};
use std::fmt::Write;

/// Counters of the commands of a node's own clients.
#[derive(Debug)]
pub(crate) struct Counters {
    started_at: Option<Time>,
    pub(crate) connections: u64,
    commands: u64,
    errors: u64,
    /// AUTH and HELLO with a wrong user or password.
    pub(crate) wrong_passwords: u64,
    by_command: Vec<ByCommand>,
}

#[derive(Clone, Copy, Default, Debug)]
struct ByCommand {
    calls: u64,
    rejected: u64,
    failed: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            started_at: None,
            connections: 0,
            commands: 0,
            errors: 0,
            wrong_passwords: 0,
            by_command: vec![ByCommand::default(); Command::COUNT],
        }
    }
}

impl Counters {
    pub(crate) fn start(&mut self, now: Time) {
        self.started_at.get_or_insert(now);
    }

    #[inline]
    pub(crate) fn count(&mut self, id: Command, failed: bool) {
        self.commands += 1;
        if let Some(counts) = self.by_command.get_mut(id as usize) {
            counts.calls += 1;
            counts.failed += u64::from(failed);
        }
        self.errors += u64::from(failed);
    }

    /// Counts the reply to a command that is not in the table, or that did not run.
    pub(crate) fn count_error(&mut self, is_error: bool) {
        self.errors += u64::from(is_error);
    }

    pub(crate) fn reject(&mut self, refusal: &Refusal) {
        self.errors += 1;
        if let Refusal::WrongArity(spec) = refusal
            && let Some(counts) = self.by_command.get_mut(spec.id as usize)
        {
            counts.rejected += 1;
        }
    }
}

/// The sections in order. `true`: INFO without an argument shows the section.
const SECTIONS: [(&str, bool); 13] = [
    ("Server", true),
    ("Clients", true),
    ("Memory", true),
    ("Persistence", true),
    ("Stats", true),
    ("Replication", true),
    ("CPU", true),
    ("Modules", true),
    ("Commandstats", false),
    ("Errorstats", true),
    ("Cluster", true),
    ("Keyspace", true),
    ("Paritas", true),
];

/// Sums over the streams and lists of this node.
#[derive(Default)]
struct Sums {
    keys: u64,
    expiring: u64,
    user_bytes: u64,
    live_bytes: u64,
    dead_bytes: u64,
    table_bytes: u64,
    bodies_bytes: u64,
    ring_bytes: u64,
    owned: u64,
    parities: u64,
    absent: u64,
}

impl Dispatcher {
    /// INFO [section …].
    pub(crate) fn info<O: Out>(
        &self,
        cx: &Context<'_, O>,
        lists: &Lists,
        client: &Client,
        out: &mut Vec<u8>,
        args: ArgList<'_>,
    ) {
        let asked = |word: &str| (1..args.len()).any(|at| is_word(args, at, word));
        let all = asked("all") || asked("everything");
        let default = args.len() == 1 || asked("default");
        let mut text = String::new();
        for (section, usual) in SECTIONS {
            if all || (default && usual) || asked(&section.to_ascii_lowercase()) {
                if !text.is_empty() {
                    text.push_str("\r\n");
                }
                text.push_str(&format!("# {section}\r\n"));
                self.section(cx, lists, client, section, &mut text);
            }
        }
        encode::verbatim(out, client.dialect.proto(), b"txt", text.as_bytes());
    }

    fn section<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists, client: &Client, section: &str, text: &mut String) {
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a string never fails.
            let _ = write!(text, "{name}:{value}\r\n");
        };
        let cluster_port = client.port == Port::Cluster;
        match section {
            "Server" => {
                let up = self
                    .counters
                    .started_at
                    .map_or(0, |at| (cx.now.mono - at).0 / 1_000_000_000);
                let me = self.nodes.iter().find(|n| n.id == cx.shared.node);
                let address = me.map(|n| {
                    if cluster_port {
                        &n.cluster_address
                    } else {
                        &n.client_address
                    }
                });
                let port = address.and_then(|a| a.rsplit_once(':')).map_or("0", |(_, port)| port);
                line("redis_version", &REDIS_VERSION);
                line("paritas_version", &env!("CARGO_PKG_VERSION"));
                line("redis_mode", &if cluster_port { "cluster" } else { "standalone" });
                line("arch_bits", &usize::BITS);
                line("process_id", &me.map_or(0, |n| n.pid));
                line(
                    "run_id",
                    &format!("{:024x}{:016x}", cx.shared.node.0, cx.shared.incarnation.0),
                );
                line("tcp_port", &port);
                line("server_time_usec", &(cx.now.wall_ms * 1000));
                line("uptime_in_seconds", &up);
                line("uptime_in_days", &(up / 86_400));
                line("node", &cx.shared.node);
            }
            "Clients" => {
                line("connected_clients", &self.client_count);
                line("cluster_connections", &0);
                line("blocked_clients", &self.stalled.len());
                line("waiting_for_replies", &self.held.len());
            }
            "Memory" => {
                let sums = sums(lists);
                let arena = &cx.shared.arena;
                let chunk = arena.chunk_bytes() as u64;
                let beside = sums.table_bytes + sums.bodies_bytes + sums.ring_bytes + cx.shared.buffers_bytes;
                let resident = arena.resident_bytes() + beside;
                line("used_memory", &(u64::from(arena.used()) * chunk + beside));
                line("used_memory_rss", &resident);
                line("used_memory_peak", &cx.shared.memory_peak_bytes.max(resident));
                line("used_memory_dataset", &sums.user_bytes);
                line("maxmemory", &cx.shared.maxmemory_bytes);
                line("maxmemory_policy", &cx.shared.parameters.policy);
                line("live_bytes", &sums.live_bytes);
                line("dead_bytes", &sums.dead_bytes);
                line("table_bytes", &sums.table_bytes);
                line("bodies_bytes", &sums.bodies_bytes);
                line("ring_bytes", &sums.ring_bytes);
            }
            "Persistence" => {
                line("loading", &0);
                line("rdb_bgsave_in_progress", &0);
                line("rdb_last_bgsave_status", &"ok");
                line("aof_enabled", &0);
                line("aof_rewrite_in_progress", &0);
            }
            "Stats" => {
                line("total_connections_received", &self.counters.connections);
                line("total_commands_processed", &self.counters.commands);
                line("total_error_replies", &self.counters.errors);
                line("acl_access_denied_auth", &self.counters.wrong_passwords);
                line("evicted_keys", &cx.shared.evicted_keys);
                line("pubsub_channels", &0);
            }
            "Replication" => {
                line("role", &"master");
                line("connected_slaves", &0);
                line("master_repl_offset", &0);
            }
            "CPU" => {}
            "Commandstats" => {
                for id in Command::ALL {
                    let Some(counts) = self.counters.by_command.get(*id as usize) else {
                        continue;
                    };
                    if counts.calls + counts.rejected > 0 {
                        // This crate has no clock, so the times of commands are not measured.
                        let value = format!(
                            "calls={},usec=0,usec_per_call=0.00,rejected_calls={},failed_calls={}",
                            counts.calls, counts.rejected, counts.failed
                        );
                        line(&format!("cmdstat_{}", id.spec().name), &value);
                    }
                }
            }
            "Cluster" => line("cluster_enabled", &u8::from(cluster_port)),
            "Keyspace" => {
                let sums = sums(lists);
                if sums.keys > 0 {
                    line(
                        "db0",
                        &format!("keys={},expires={},avg_ttl=0", sums.keys, sums.expiring),
                    );
                }
            }
            "Paritas" => {
                let sums = sums(lists);
                let cluster = &cx.shared.cluster;
                line("scheme", &cx.shared.code.scheme());
                line("ack_quorum", &cluster.ack_quorum);
                line("chunk_bytes", &cluster.chunk_bytes);
                line("streams_owned", &sums.owned);
                line("parity_positions", &sums.parities);
                line("absent_chunks", &sums.absent);
                line("waiting_bytes", &self.parked_bytes);
                line("takeovers", &cx.shared.takeovers().count);
                line("takeover_recent_us", cx.shared.takeovers());
                line("lost_values", &cx.shared.lost_values);
                line("to_hot_values", &cx.shared.to_hot_values);
                line("to_cold_values", &cx.shared.to_cold_values);
                line("log_assisted_chunks", &cx.shared.assisted_chunks());
                line("refused_sums", &cx.shared.bad_sums());
                let scrub = cx.shared.scrub_counts();
                line("scrub_passes", &scrub.passes);
                line("scrub_checked_chunks", &scrub.checked);
                line("scrub_bad_chunks", &scrub.bad);
                line("scrub_repaired_chunks", &scrub.repaired);
                line("exchange_limit_turns", &self.limits.exchange_turns);
                line("release_limit_turns", &self.limits.release_turns);
            }
            _ => {}
        }
    }
}

fn sums(lists: &Lists) -> Sums {
    let mut sums = Sums::default();
    for role in lists.roles() {
        match role {
            Role::Halted(_) => {}
            Role::Owner(owner) => {
                let gauges = owner.store().gauges();
                sums.owned += 1;
                sums.keys += owner.store().count().unwrap_or(0);
                sums.expiring += gauges.expiring;
                sums.user_bytes += gauges.user_bytes;
                sums.live_bytes += gauges.live_bytes;
                sums.dead_bytes += gauges.dead_bytes;
                sums.table_bytes += owner.table_bytes();
                sums.bodies_bytes += owner.bodies_bytes();
                sums.ring_bytes += owner.ring_bytes();
                sums.absent += u64::from(gauges.absent_chunks);
            }
            Role::Member(member) => {
                sums.parities += 1;
                sums.table_bytes += member.table_bytes();
                sums.ring_bytes += member.ring_bytes();
            }
        }
    }
    sums
}
