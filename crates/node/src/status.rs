//! The status of a cluster. A node is asked on its client port, and asks the coordinator (docs/operate.md).

use crate::connection::{Connection, Login};
use crate::{ByteCount, Failure};
use paritas_base::configuration::Duty;
use paritas_control::status::{
    FillStatus, LogStatus, NodeCondition, NodeStatus, POSITION_BYTES_MAX, PositionCondition, PositionStatus,
    RebuildStatus, RoleStatus, Status,
};
use paritas_wire::resp::Value;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// A status as text for operators.
pub(crate) struct Shown<'a>(pub(crate) &'a Status);

/// Whether every position of every list has a holder and is Live.
pub(crate) fn is_whole(status: &Status) -> bool {
    !status.lists.is_empty() && positions_in(status, PositionCondition::Live) == positions(status).count()
}

fn positions(status: &Status) -> impl Iterator<Item = &PositionStatus> {
    status.lists.iter().flat_map(|list| &list.positions)
}

fn positions_in(status: &Status, state: PositionCondition) -> usize {
    positions(status).filter(|position| position.state == state).count()
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        writeln!(
            f,
            "{:<5} {:<8} {:<17} {:<7} {:<5} {:<6} {:<8} {:>9} {:>9} {:>5}",
            "node", "pid", "address", "cluster", "peers", "role", "state", "memory", "limit", "full"
        )?;
        for node in &status.nodes {
            let state = match node.state {
                NodeCondition::Live => "live",
                NodeCondition::Filling => "filling",
                NodeCondition::Down => "down",
                NodeCondition::Spare => "spare",
            };
            let role = match node.role {
                RoleStatus::Member => "member",
                RoleStatus::Spare => "spare",
                RoleStatus::Log => "log",
            };
            writeln!(
                f,
                "{:<5} {:<8} {:<17} {:<7} {:<5} {:<6} {:<8} {:>9} {:>9} {:>5}",
                node.id.to_string(),
                node.pid,
                node.address,
                port_of(&node.cluster_address),
                port_of(&node.peer_address),
                role,
                state,
                ByteCount(node.memory_bytes).to_string(),
                ByteCount(node.fill.limit_bytes).to_string(),
                format!("{} %", node.fill.percent())
            )?;
        }
        if !status.coordinator_address.is_empty() {
            writeln!(f, "coordinator at {}", status.coordinator_address)?;
        }
        let count = |state| positions_in(status, state);
        write!(
            f,
            "\n{} lists, {} positions: {} live, {} filling, {} down, {} vacant",
            status.lists.len(),
            positions(status).count(),
            count(PositionCondition::Live),
            count(PositionCondition::Filling),
            count(PositionCondition::Down),
            count(PositionCondition::Vacant),
        )?;
        match count(PositionCondition::StandIn) {
            0 => writeln!(f)?,
            stood_in => writeln!(f, ", {stood_in} with stand-ins")?,
        }
        for list in status.lists.iter().filter(|list| !list.reason.is_empty()) {
            writeln!(f, "list {}: {}", list.id.0, list.reason)?;
        }
        for sentence in &status.coordinator {
            writeln!(f, "coordinator: {sentence}")?;
        }
        let resets = status.lists.iter().filter(|list| list.reset).count();
        if resets > 0 {
            writeln!(
                f,
                "{resets} lists lost more than the scheme covers, and have begun again empty"
            )?;
        }
        for node in status.nodes.iter().filter(|node| node.flapping) {
            writeln!(
                f,
                "node {} fails repeatedly: it gets positions only where no other node is free",
                node.id
            )?;
        }
        for node in &status.nodes {
            write_fill(f, node)?;
        }
        for node in &status.nodes {
            let (id, held) = (node.id, node.positions);
            match node.duty {
                Duty::Full => continue,
                Duty::Returning => write!(f, "{id} gets its planned positions back: it holds {held} positions")?,
                Duty::Draining => write!(f, "{id} is drained: it holds {held} positions")?,
                Duty::Shunned => write!(f, "{id} is shunned: it holds {held} positions")?,
                Duty::Slow => write!(f, "{id} is slow and left out for a while: it holds {held} positions")?,
            }
            match node.waits_for.as_str() {
                "" => writeln!(f)?,
                why => writeln!(f, "; it waits: {why}")?,
            }
        }
        for node in &status.nodes {
            for role in &node.halted {
                let (list, position) = (role.list.0, role.position.0);
                writeln!(
                    f,
                    "HALTED: position {position} of list {list} on node {}, which stays out of that list until it is \
                     started again: {}",
                    node.id, role.reason
                )?;
            }
        }
        if count(PositionCondition::Filling) > 0 && status.rebuild.done_bytes >= status.rebuild.total_bytes {
            writeln!(f, "rebuild: begun, the amount is not known yet")?;
        } else {
            writeln!(f, "rebuild: {}", Progress(&status.rebuild))?;
        }
        if let Some(slots) = &status.slots {
            writeln!(f, "{}", crate::move_slots::Shown(slots))?;
        }
        let scrub = &status.scrub;
        writeln!(
            f,
            "scrub: {} chunks checked, {} wrong, {} of them repaired",
            scrub.checked_chunks, scrub.bad_chunks, scrub.repaired_chunks
        )?;
        write!(
            f,
            "memory: {} objects, {} of keys and values",
            status.memory.objects,
            ByteCount(status.memory.user_bytes)
        )?;
        // A few kinds to a line, because the live view does not wrap lines.
        let kinds: Vec<String> = status
            .memory
            .by_kind
            .iter()
            .map(|(kind, bytes)| format!("{kind} {}", ByteCount(*bytes)))
            .collect();
        kinds
            .chunks(4)
            .try_for_each(|some| write!(f, "\n        {}", some.join(", ")))?;
        let full = |log: LogStatus| 100 * u64::from(log.chunks) / u64::from(log.chunks_max.max(1));
        let logs: Vec<String> = status
            .nodes
            .iter()
            .filter_map(|node| Some((node.id, node.log?)))
            .map(|(id, log)| format!("{id} {} of {} chunks ({} %)", log.chunks, log.chunks_max, full(log)))
            .collect();
        logs.chunks(3).enumerate().try_for_each(|(n, some)| {
            write!(
                f,
                "\n{} {}",
                if n == 0 { "disks: " } else { "       " },
                some.join(", ")
            )
        })
    }
}

/// What a node could not store, and what it never can.
fn write_fill(f: &mut fmt::Formatter<'_>, node: &NodeStatus) -> fmt::Result {
    let (id, fill) = (node.id, &node.fill);
    if fill.refused_writes > 0 {
        writeln!(
            f,
            "{id} has refused {} with -OOM: its memory, or that of nodes with parity of its lists, is full. Delete \
             keys, raise `memory` of the nodes, or set `maxmemory_policy`",
            counted(fill.refused_writes, "write")
        )?;
    }
    if fill.evicted_keys > 0 {
        writeln!(f, "{id} has evicted {}", counted(fill.evicted_keys, "key"))?;
    }
    match fill.unreachable_above(node.positions) {
        Some(most) if node.role != RoleStatus::Log => writeln!(f, "{id}: {}", TooMuch(fill, node.positions, most)),
        _ => Ok(()),
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// That a node has more memory than its positions take: the memory, the positions, and the bytes that they take.
pub(crate) struct TooMuch<'a>(pub(crate) &'a FillStatus, pub(crate) usize, pub(crate) u64);

impl fmt::Display for TooMuch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(fill, positions, most) = self;
        let each = ByteCount(POSITION_BYTES_MAX);
        write!(
            f,
            "memory = {} is more than it can fill with values up to 64 KiB. It holds {}, and each takes at most {each} \
             of them: {} together, then writes get -OOM. Their number is fixed by the coordinator's `memory` when the \
             cluster is made",
            ByteCount(fill.limit_bytes),
            counted(*positions as u64, "position"),
            ByteCount(*most)
        )
    }
}

/// The port in `host:port`. A node has one host for all its ports.
fn port_of(address: &str) -> &str {
    address.rsplit_once(':').map_or("", |(_, port)| port)
}

struct Progress<'a>(&'a RebuildStatus);

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RebuildStatus {
            done_bytes,
            total_bytes,
            bytes_per_second,
            eta_seconds,
        } = self.0;
        if done_bytes >= total_bytes {
            return f.write_str("nothing to do");
        }
        let percent = *done_bytes as f64 * 100.0 / *total_bytes as f64;
        write!(
            f,
            "{} of {} ({percent:.0} %), {}/s",
            ByteCount(*done_bytes),
            ByteCount(*total_bytes),
            ByteCount(*bytes_per_second)
        )?;
        match eta_seconds {
            Some(eta) => write!(f, ", {eta} s to go"),
            None => Ok(()),
        }
    }
}

/// Asks a node for the cluster's status, as JSON.
pub fn ask_json(node: &Login, timeout: Duration) -> Result<String, Failure> {
    let reply = command(node, &["PARITAS.STATUS"], timeout)?;
    String::from_utf8(reply).map_err(|_| Failure(format!("{node} sent an answer that is not text")))
}

/// Asks a node for the cluster's status.
pub fn ask(node: &Login, timeout: Duration) -> Result<Status, Failure> {
    let json = ask_json(node, timeout)?;
    serde_json::from_str(&json)
        .map_err(|error| Failure(format!("{node} sent a status that this version cannot read: {error}")))
}

/// Interval at which a watched status is asked for.
const WATCH_EVERY: Duration = Duration::from_millis(200);

/// Prints the line that `progress` makes of the status whenever it changes, until `progress` says that the work has
/// ended.
pub(crate) fn watch(
    whom: &Login,
    timeout: Duration,
    progress: impl Fn(&Status) -> Result<(String, Option<Result<(), Failure>>), Failure>,
) -> Result<(), Failure> {
    let mut shown = String::new();
    let mut answered = Instant::now();
    loop {
        match ask(whom, timeout) {
            Ok(status) => {
                answered = Instant::now();
                let (line, end) = progress(&status)?;
                if line != shown {
                    crate::print(&line)?;
                    shown = line;
                }
                if let Some(end) = end {
                    return end;
                }
            }
            // The coordinator may be restarting.
            Err(failure) if answered.elapsed() > 4 * timeout => return Err(failure),
            Err(_) => {}
        }
        thread::sleep(WATCH_EVERY);
    }
}

/// A status as text for operators.
pub fn describe(status: &Status) -> String {
    Shown(status).to_string()
}

/// Sends one command to a node. Returns the bytes of a simple, integer or bulk reply; empty for nil.
pub(crate) fn command(node: &Login, words: &[&str], timeout: Duration) -> Result<Vec<u8>, Failure> {
    let mut connection = Connection::open(node, timeout)?;
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    connection.send(&words);
    match connection.reply()? {
        Value::Simple(text) => Ok(text.into_bytes()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Bulk(bytes) => Ok(bytes),
        Value::Null => Ok(Vec::new()),
        Value::Error(error) => Err(connection
            .explain(&error)
            .unwrap_or_else(|| Failure(format!("{node}: {error}")))),
        other => Err(Failure(format!(
            "{node} answered `{other:?}`: is it a node of Paritas?"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::{ListId, NodeId};
    use paritas_control::status::ListStatus;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn answer(reply: &'static [u8]) -> Result<Vec<u8>, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut request = [0; 22];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(&request, b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n");
            stream.write_all(reply).unwrap();
        });
        let reply = command(&address.into(), &["ECHO", "hi"], Duration::from_secs(10));
        server.join().unwrap();
        reply
    }

    #[test]
    fn replies_are_understood_and_errors_passed_on() {
        assert_eq!(answer(b"$2\r\nhi\r\n").unwrap(), b"hi");
        assert_eq!(answer(b"+OK\r\n").unwrap(), b"OK");
        assert_eq!(answer(b":42\r\n").unwrap(), b"42");
        assert_eq!(answer(b"$-1\r\n").unwrap(), b"");
        assert!(answer(b"-ERR no\r\n").unwrap_err().0.ends_with(": ERR no"));
        for broken in [
            &b""[..],
            b"$99\r\nhi\r\n",
            b"$-2\r\n",
            b"HTTP/1.1 400\r\n",
            b"$999999999999\r\n",
        ] {
            assert!(answer(broken).is_err());
        }
    }

    #[test]
    fn a_cluster_is_whole_when_every_position_is_live() {
        let position = |state| PositionStatus {
            node: Some(NodeId(1)),
            state,
        };
        let mut status = Status::default();
        assert!(!is_whole(&status), "a cluster without lists serves nothing");
        status.lists = vec![ListStatus {
            id: ListId(0),
            epoch: 1,
            positions: vec![position(PositionCondition::Live), position(PositionCondition::Live)],
            lost: false,
            reset: false,
            reason: String::new(),
        }];
        assert!(is_whole(&status));
        status.lists[0].positions[1] = position(PositionCondition::Filling);
        status.lists[0].reason = "position 1 is being rebuilt".into();
        assert!(!is_whole(&status));
        let text = Shown(&status).to_string();
        assert!(
            text.contains("1 live, 1 filling") && text.contains("list 0: position 1"),
            "{text}"
        );
    }

    #[test]
    fn the_json_has_the_names_that_scripts_read() {
        let json = "{\"nodes\":[{\"id\":0,\"pid\":7,\"address\":\"a:1\",\"cluster_address\":\"a:2\",\
            \"peer_address\":\"[::1]:3\",\"role\":\"member\",\"state\":\"live\",\"memory_bytes\":5,\
            \"fill\":{\"limit_bytes\":8589934592,\"used_bytes\":30,\"writable_bytes\":40,\"refused_writes\":1,\
            \"evicted_keys\":2},\
            \"log\":{\"chunks\":3,\"chunks_max\":9},\"flapping\":false,\"halted\":[],\
            \"duty\":\"full\",\"positions\":1,\"waits_for\":\"\"}],\
            \"lists\":[{\"id\":0,\"epoch\":1,\"positions\":[{\"node\":0,\"state\":\"live\"}],\
            \"lost\":false,\"reset\":false,\"reason\":\"\"}],\
            \"slots\":{\"first\":0,\"last\":9,\"list\":3,\"position\":1,\"moved_slots\":4,\"total_slots\":10,\
            \"state\":\"given-up\",\"reason\":\"r\"},\
            \"rebuild\":{\"done_bytes\":0,\"total_bytes\":0,\"bytes_per_second\":0,\"eta_seconds\":0},\
            \"scrub\":{\"checked_chunks\":9,\"bad_chunks\":2,\"repaired_chunks\":1},\
            \"memory\":{\"objects\":1,\"user_bytes\":2,\"by_kind\":{\"chunks\":3}},\
            \"coordinator_address\":\"c:4\",\"coordinator\":[],\
            \"trouble\":{\"behind\":null,\"witnesses_missing\":[],\"doubts\":[],\"withheld\":0,\"unlinked\":[2],\
            \"grace_ms\":null,\"silent_domains\":null,\
            \"silent\":[{\"node\":4,\"verdict\":\"isolated\",\"heard_by\":[1],\"unheard_by\":[2],\"unsure\":[]}],\
            \"next_incarnations\":[],\"awaited\":[],\"lost\":[]}}";
        let status: Status = serde_json::from_str(json).unwrap();
        assert!(is_whole(&status));
        assert_eq!(serde_json::to_string(&status).unwrap(), json);
        let text = Shown(&status).to_string();
        assert!(text.contains(" a:1               2       3     member "), "{text}");
        assert!(text.contains("\ncoordinator at c:4\n"), "{text}");
        assert!(text.contains("       5 B   8.00 GB  75 %\n"), "{text}");
        assert!(
            text.contains("\nn0 has refused 1 write with -OOM: its memory"),
            "{text}"
        );
        assert!(text.contains("\nn0 has evicted 2 keys\n"), "{text}");
        assert!(
            text.contains("\nn0: memory = 8.00 GB is more than it can fill"),
            "{text}"
        );
        assert!(
            text.contains("holds 1 position, and each takes at most 4.00 GB of them: 4.00 GB together"),
            "{text}"
        );
        assert!(text.ends_with("\ndisks:  n0 3 of 9 chunks (33 %)"), "{text}");
    }
}
