//! Commands of clients: any commands with any arguments, through both ports, into machines.

use crate::script::{Script, random};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command::COMMANDS;
use paritas_wire::resp::ReplyDecoder;

/// Memory of each node in bytes: little, so that it becomes full.
pub(crate) const NODE_BYTES: u64 = 2 << 20;
const STEPS_MAX: usize = 48;

const WORDS: &[&str] = &[
    "a",
    "b",
    "{t}1",
    "{t}2",
    "key:1",
    "0",
    "1",
    "-1",
    "10",
    "9223372036854775807",
    "-9223372036854775808",
    "1e3",
    "",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "NX",
    "XX",
    "GET",
    "GT",
    "LT",
    "PERSIST",
    "MATCH",
    "COUNT",
    "TYPE",
    "*",
    "[a-",
    "\\",
    "string",
    "ID",
    "ADDR",
    "LADDR",
    "SKIPME",
    "yes",
    "no",
    "USER",
    "default",
    "ASYNC",
    "SYNC",
    "AUTH",
    "SETNAME",
    "2",
    "3",
    "LIST",
    "maxmemory",
    "all",
    "16383",
    "16384",
    "1700000000000",
    "127.0.0.1:50001",
    "REPLACE",
    "maxmemory-policy",
    "allkeys-lru",
    "allkeys-random",
    "volatile-ttl",
    "volatile-lfu",
    "noeviction",
    "FREQ",
    "IDLETIME",
];

pub(crate) fn commands(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut cluster = match script.below(3) {
        0 => Cluster::with(1, NODE_BYTES, Parameters::default()),
        1 => Cluster::with(3, NODE_BYTES, Parameters::default()),
        _ => Cluster::coded_in(NODE_BYTES, 1, 1, 2, 1, Parameters::default()),
    };
    let nodes = cluster.processes.len();
    let mut clients: Vec<(Client, ReplyDecoder, Vec<u8>)> = Vec::new();
    for _ in 0..STEPS_MAX {
        if script.is_over() {
            break;
        }
        match script.below(16) {
            0 => cluster.advance(1 + script.below(4) as u64 * 50),
            1 if clients.len() < 6 => {
                let port = if script.flag() { Port::Any } else { Port::Cluster };
                clients.push((
                    cluster.connect(script.below(nodes), port),
                    ReplyDecoder::new(),
                    Vec::new(),
                ));
            }
            2 if !clients.is_empty() => {
                let raw = script.bytes(64);
                let at = script.below(clients.len());
                cluster.feed(clients[at].0, raw);
            }
            _ => {
                if clients.is_empty() {
                    let port = if script.flag() { Port::Any } else { Port::Cluster };
                    clients.push((
                        cluster.connect(script.below(nodes), port),
                        ReplyDecoder::new(),
                        Vec::new(),
                    ));
                }
                let at = script.below(clients.len());
                let command = command(&mut script);
                cluster.feed(clients[at].0, &command);
                // Some commands are pipelined.
                if script.below(4) == 0 {
                    continue;
                }
            }
        }
        cluster.pump();
        read_all(&mut cluster, &mut clients);
    }
    cluster.pump();
    cluster.advance(100);
    read_all(&mut cluster, &mut clients);
}

/// Checks that everything received is replies, and that the last one is complete.
fn read_all(cluster: &mut Cluster, clients: &mut [(Client, ReplyDecoder, Vec<u8>)]) {
    for (client, decoder, unread) in clients {
        unread.extend(cluster.take(*client));
        loop {
            match decoder.decode(unread) {
                Ok(Some((_, consumed))) => drop(unread.drain(..consumed)),
                Ok(None) => break,
                Err(error) => panic!("{error}: {}", unread.escape_ascii()),
            }
        }
        assert!(unread.is_empty(), "an incomplete reply: {}", unread.escape_ascii());
    }
}

fn command(script: &mut Script<'_>) -> Vec<u8> {
    let spec = &COMMANDS[script.below(COMMANDS.len())];
    let mut args: Vec<Vec<u8>> = vec![spec.name.as_bytes().to_vec()];
    if !spec.subcommands.is_empty() {
        let sub = &spec.subcommands[script.below(spec.subcommands.len())];
        args.push(sub.last_name().as_bytes().to_vec());
    }
    // The largest number of arguments, or one near it.
    let arity = usize::from(spec.arity.unsigned_abs());
    let count = match script.below(4) {
        0 => script.below(8),
        1 => arity + script.below(6),
        _ => arity,
    };
    while args.len() < count {
        let arg = match script.below(8) {
            0 => script.bytes(40).to_vec(),
            1 => vec![script.byte(); 1 << script.below(18)],
            2 => script.number(1).to_string().into_bytes(),
            _ => script.pick(WORDS).as_bytes().to_vec(),
        };
        args.push(arg);
    }
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in &args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    random(60, 400)
}
