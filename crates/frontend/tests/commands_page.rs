//! `docs/commands.md` is made from the table of commands. `WRITE_PAGE=1 cargo test -p paritas-protocol --test
//! commands_page` writes it.

use paritas_wire::command::{COMMANDS, CommandSpec, flag};
use std::path::Path;

const HEAD: &str = "# Commands

Made from the table in `crates/wire/src/command/table.rs` by `crates/frontend/tests/commands_page.rs`. Semantics
and error texts are those of Redis 7; `docs/formats/resp.md` has limits and our own errors. Arity counts the name;
a minus means at least so many.

## How commands behave on a cluster

- On `port`, any node takes any key. MGET, MSET, DEL, UNLINK, EXISTS and TOUCH over several nodes are split, one
  part a stream or more; the parts are not atomic together. KEYS, SCAN, RANDOMKEY, DBSIZE and FLUSHALL speak for
  the whole cluster.
- On `cluster_port`, as in Redis Cluster: MOVED for another node's key, CROSSSLOT for keys in several slots, and
  commands without a key speak for this node's slots only.
- A command that changes several keys of one slot is one delta: all of it or nothing, whatever dies. Its keys and
  values are at most 128 KiB (less where nodes have little memory for many streams: 64 KiB as `make run` starts
  them), and with 64 bytes more for each key at most 256 KiB. Over several slots, MSET, DEL and UNLINK may be
  larger: they are cut into such parts.
- An MGET whose reply would be longer than 32 MiB is refused.
- MSETNX, RENAME, RENAMENX and COPY want their keys in one slot on both ports.
- A write is answered when every parity member of its list has it, or as many as `ack_quorum` says: WAIT has
  nothing to wait for, and tells the fewest live parity members that any list has.

## Where we differ from Redis

| command | here |
|---|---|
| values, keys | at most 64 KiB and 8 KiB; an error names the limit |
| EXPIRE and its kin, SET EX … | times after the year 10889 are invalid (48 bits of milliseconds) |
| INCRBYFLOAT | exact to 17 places below 1.7e21, not in the platform's `long double`; no hexadecimal numbers |
| OBJECT ENCODING | by the value alone: `int`, `embstr` (to 44 bytes) or `raw` |
| OBJECT IDLETIME | 0: at what time a key was used is not noted |
| OBJECT FREQ | counts begin at 0 at a new owner: what policies go by is not kept over a takeover |
| MEMORY USAGE | key, value, header, index entry, and their part of the parity |
| KEYS, SCAN | met keys whose time is over are deleted; past 256 in one step they are shown until they are |
| KEYS, CLUSTER COUNTKEYSINSLOT, CLUSTER GETKEYSINSLOT | go through all keys in steps, and others are served \
meanwhile: not a picture of one moment, but each key is met once, and one that is there all the time is met |
| CLIENT NO-TOUCH | shown in CLIENT LIST; keys are marked as used all the same |
| MGET, MSET, DEL … over slots, KEYS, FLUSHALL, CLUSTER COUNTKEYSINSLOT, CLUSTER GETKEYSINSLOT | \
`-TRYAGAIN` if slots of theirs are moved just then |
| KEYS, SCAN, RANDOMKEY | wait for slots that are being moved at that moment; KEYS longer than `reply_max` is refused |
| PARITAS.DUTY, PARITAS.SLOTS | `PARITAS.DUTY NODE` and `drain`, `shun` or `serve`; \
`PARITAS.SLOTS FIRST LAST` and a node or `LIST/POSITION`, or `PARITAS.SLOTS stop`: what `paritas drain`, `shun` and \
`move-slots` send |
| SCAN | while slots move, keys of theirs may be missed; afterwards none is. No key comes twice, as long as none moves |
| SCAN | `SLOT n` keeps to the keys of a slot |
| SCAN | the cursor is 64 bits: the stream, then its own; a step stays in one stream, so that many may be empty |
| CLIENT LIST, CLIENT INFO | `fd` is -1; of buffers, only replies not offered to the socket are told |
| INFO commandstats | counts only; `usec` is 0. Commands are counted where their client is connected |
| CONFIG SET | of the node asked. It changes `maxmemory` (up to what the node started with, \
and where keys are evicted not below one and a half times what parity has), \
`maxmemory-policy`, `maxmemory-clients`, `maxclients`, `client-query-buffer-limit`, `reply-max`, \
`log-assist`, `rebuild-rate` (0: what clients leave room for) and `scrub-rate` (0: none); what is so already is OK |
| maxmemory-clients | an eighth of the memory, unless set: past it those clients are closed \
that hold most; 0 for no limit |
| CONFIG REWRITE | writes what CONFIG SET has changed to the file given with `--config`, in place, comments kept |
| AUTH | there is one user, `default`, without a password |
| MULTI, EXEC, DISCARD | transactions are not supported. `MULTI` is refused, every command after it on that \
connection is refused and not executed until `EXEC` or `DISCARD`, and `EXEC` answers `-EXECABORT` |
| SELECT, COPY DB | there is one database, 0 |
| READONLY, READWRITE, ASKING | OK on either port, and change nothing |
";

fn page() -> String {
    let mut text = HEAD.to_owned();
    let mut groups: Vec<&str> = Vec::new();
    for spec in COMMANDS {
        if !groups.contains(&spec.group) {
            groups.push(spec.group);
        }
    }
    for group in groups {
        text += &format!("\n## Group `{group}`\n\n");
        text += "| command | arity | keys | what | what it does | since |\n|---|---|---|---|---|---|\n";
        for spec in COMMANDS {
            if spec.group == group && spec.subcommands.is_empty() {
                text += &row(spec);
            }
            if spec.group == group && !spec.subcommands.is_empty() && spec.name == "command" {
                text += &row(spec);
            }
            spec.subcommands
                .iter()
                .filter(|_| spec.group == group)
                .for_each(|sub| text += &row(sub));
        }
    }
    text
}

fn row(spec: &CommandSpec) -> String {
    let keys = match (spec.first_key, spec.last_key, spec.step) {
        (0, ..) => String::new(),
        (first, last, _) if first == last => first.to_string(),
        (first, -1, 1) => format!("{first} …"),
        (first, -1, step) => format!("{first}, every {step}"),
        (first, last, _) => format!("{first} to {last}"),
    };
    let what = if spec.is(flag::WRITE) {
        "writes"
    } else if spec.is(flag::READONLY) {
        "reads"
    } else {
        ""
    };
    let name = spec.name.to_uppercase().replace('|', " ");
    format!(
        "| `{name}` | {} | {keys} | {what} | {} | {} |\n",
        spec.arity, spec.summary, spec.since
    )
}

#[test]
fn the_page_of_commands_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("WRITE_PAGE").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/commands.md is not what the table says: run this test with WRITE_PAGE=1"
    );
}
