//! INFO, and the counters that it shows.

use super::connection::{REDIS_VERSION, is_word};
use crate::router::Dispatcher;
use crate::router::client::Client;
use crate::router::counts;
use paritas_base::{ConnId, NodeId, Time};
use paritas_protocol::{Context, Lists, Out, Port, Role};
use paritas_wire::command::{Command, Refusal};
use paritas_wire::resp::{ArgList, encode};
use std::collections::VecDeque;
use std::fmt::{self, Write};

/// Counters of the commands of a node's own clients.
#[derive(Debug)]
pub(crate) struct Counters {
    started_at: Option<Time>,
    pub(crate) connections: u64,
    commands: u64,
    errors: u64,
    /// AUTH and HELLO with a wrong user or password.
    pub(crate) wrong_passwords: u64,
    /// PARITAS.UNITS with a wrong capability.
    pub(crate) wrong_capabilities: u64,
    by_command: Vec<ByCommand>,
    /// When the latest samples were taken, and how many commands had run by then.
    samples: VecDeque<(Time, u64)>,
}

/// Samples over which the rate of commands is measured: about two seconds.
const SAMPLES_MAX: usize = 8;

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
            wrong_capabilities: 0,
            by_command: vec![ByCommand::default(); Command::COUNT],
            samples: VecDeque::with_capacity(SAMPLES_MAX),
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

    /// CONFIG RESETSTAT.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            started_at: self.started_at,
            ..Self::default()
        };
    }

    /// Takes a sample for the rate of commands.
    pub(crate) fn sample(&mut self, now: Time) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, self.commands));
    }

    /// Commands a second, as sampled.
    fn commands_per_second(&self) -> u64 {
        let Some(((from, before), (to, after))) = self.samples.front().zip(self.samples.back()) else {
            return 0;
        };
        (after - before) * 1_000_000_000 / (*to - *from).0.max(1)
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

const SECTIONS_COUNT: usize = 13;
/// Which of the sections are shown.
pub(crate) type Sections = [bool; SECTIONS_COUNT];

/// The sections in order. `true`: INFO without an argument shows the section.
const SECTIONS: [(&str, bool); SECTIONS_COUNT] = [
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
    /// INFO [section …]. True if it waits for the answers of other nodes; otherwise it is answered.
    pub(crate) fn info<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        client: &Client,
        conn: ConnId,
        out: &mut Vec<u8>,
        args: ArgList<'_>,
    ) -> bool {
        let asked = |word: &str| (1..args.len()).any(|at| is_word(args, at, word));
        let all = asked("all") || asked("everything");
        let default = args.len() == 1 || asked("default");
        let is_shown = |(name, usual): (&str, bool)| all || (default && usual) || asked(&name.to_ascii_lowercase());
        let sections = SECTIONS.map(is_shown);
        let shows_keys = SECTIONS
            .iter()
            .zip(sections)
            .any(|((name, _), shown)| shown && *name == "Keyspace");
        // As with DBSIZE, keys on the any-key port are those of the cluster.
        let waits =
            shows_keys && client.port == Port::Any && self.ask_counts(cx, lists, (conn, client.next_n), sections);
        if !waits {
            self.append_info(cx, lists, client, sections, &[], out);
        }
        waits
    }

    /// Appends the reply of INFO. `silent`: nodes that have not told how many keys they have.
    pub(crate) fn append_info<O: Out>(
        &self,
        cx: &Context<'_, O>,
        lists: &Lists,
        client: &Client,
        sections: Sections,
        silent: &[NodeId],
        out: &mut Vec<u8>,
    ) {
        let mut text = String::new();
        for ((section, _), _) in SECTIONS.iter().zip(sections).filter(|(_, shown)| *shown) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {section}\r\n"));
            self.section(cx, lists, client, section, silent, &mut text);
        }
        encode::verbatim(out, client.dialect.proto(), b"txt", text.as_bytes());
    }

    fn section<O: Out>(
        &self,
        cx: &Context<'_, O>,
        lists: &Lists,
        client: &Client,
        section: &str,
        silent: &[NodeId],
        text: &mut String,
    ) {
        let mut line = |name: &str, value: &dyn fmt::Display| {
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
                line("maxclients", &cx.shared.parameters.client_limits.clients_max);
                line("blocked_clients", &self.stalled_count());
                line("waiting_for_replies", &self.held.len());
            }
            "Memory" => {
                let sums = sums(lists);
                let arena = &cx.shared.arena;
                let chunk = arena.chunk_bytes() as u64;
                let beside = sums.table_bytes + sums.bodies_bytes + sums.ring_bytes + cx.shared.buffers_bytes;
                let used = u64::from(arena.used()) * chunk + beside;
                // No system measures the process of a simulation.
                let resident = match cx.shared.process.resident_bytes {
                    0 => arena.resident_bytes() + beside,
                    measured => measured,
                };
                let amounts = [
                    ("used_memory", used),
                    ("used_memory_rss", resident),
                    ("used_memory_rss_peak", cx.shared.resident_peak_bytes.max(resident)),
                    ("used_memory_peak", cx.shared.memory_peak_bytes.max(used)),
                    ("maxmemory", cx.shared.maxmemory_bytes),
                ];
                for (name, bytes) in amounts {
                    line(name, &bytes);
                    line(&format!("{name}_human"), &Human(bytes));
                }
                line("used_memory_dataset", &sums.user_bytes);
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
                line("instantaneous_ops_per_sec", &self.counters.commands_per_second());
                line("rejected_connections", &cx.shared.process.refused_clients);
                line("total_error_replies", &self.counters.errors);
                line("acl_access_denied_auth", &self.counters.wrong_passwords);
                line("expired_keys", &cx.shared.expired_keys);
                line("evicted_keys", &cx.shared.evicted_keys);
                line("refused_writes", &cx.shared.refused_writes);
                line("keyspace_hits", &cx.shared.keyspace_hits);
                line("keyspace_misses", &cx.shared.keyspace_misses);
                line("pubsub_channels", &0);
            }
            "Replication" => {
                line("role", &"master");
                line("connected_slaves", &0);
                line("master_repl_offset", &0);
            }
            "CPU" => {
                let process = &cx.shared.process;
                for (name, us) in [("sys", process.system_cpu_us), ("user", process.user_cpu_us)] {
                    let seconds = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
                    line(&format!("used_cpu_{name}"), &seconds);
                }
            }
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
                let count = match client.port {
                    Port::Any | Port::Memcached => self.count_all(cx, lists, silent),
                    Port::Cluster => counts::count_own(lists),
                };
                for (number, keys) in count.keys.iter().enumerate().filter(|(_, keys)| keys.count > 0) {
                    let value = format!("keys={},expires={},avg_ttl=0", keys.count, keys.expiring);
                    line(&format!("db{number}"), &value);
                }
                if count.silent_streams > 0 {
                    line("silent_streams", &count.silent_streams);
                }
            }
            "Paritas" => {
                let sums = sums(lists);
                let cluster = &cx.shared.cluster;
                line("scheme", &cx.shared.code.scheme());
                line("ack_quorum", &cluster.ack_quorum);
                line("chunk_bytes", &cluster.chunk_bytes);
                line("large_from", &cx.shared.small_bytes_max());
                line("streams_owned", &sums.owned);
                line("parity_positions", &sums.parities);
                line("absent_chunks", &sums.absent);
                line("waiting_bytes", &self.parked_bytes);
                line("takeovers", &cx.shared.takeovers().count);
                line("takeover_recent_us", cx.shared.takeovers());
                line("lost_values", &cx.shared.lost_values);
                line("to_hot_values", &cx.shared.to_hot_values);
                line("to_cold_values", &cx.shared.to_cold_values);
                line("wrong_capabilities", &self.counters.wrong_capabilities);
                line("forged_values", &cx.shared.forged_values);
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

/// A number of bytes as Redis writes it for people.
struct Human(u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ ..1024 => write!(f, "{bytes}B"),
            bytes => {
                let power = (bytes.ilog2() / 10).min(5);
                let unit = ["B", "K", "M", "G", "T", "P"][power as usize];
                write!(f, "{:.2}{unit}", bytes as f64 / (1_u64 << (10 * power)) as f64)
            }
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
                sums.keys += owner.key_count().unwrap_or(0);
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
