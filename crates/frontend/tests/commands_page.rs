//! `docs/commands.md` is generated from the table of commands. `WRITE_PAGE=1 cargo test -p paritas-frontend --test
//! commands_page` writes it.

use paritas_wire::command::{CommandSpec, flag, public};
use std::path::Path;

const HEAD: &str = "# Commands

Made from the table in `crates/wire/src/command/table.rs` by `crates/frontend/tests/commands_page.rs`. Semantics
and error texts are those of Redis 7; `docs/formats/resp.md` has limits and our own errors. Arity counts the name;
a minus means at least that many.

## How commands behave on a cluster

- On `port`, any node takes any key and forwards the command to the owner.
- On `port`, MGET, MSET, MSETEX without NX and XX, DEL, UNLINK, EXISTS and TOUCH over several nodes are split into one
  or more parts for each stream. The parts are not atomic together. If a part of MSET, MSETEX, DEL or UNLINK was sent
  and is not answered, the reply is `-UNCERTAIN`; a part of the others that is not answered makes the reply
  `-TRYAGAIN`. If a part is refused before any change, the reply is that error.
- On `port`, KEYS, SCAN, RANDOMKEY, DBSIZE, FLUSHDB and FLUSHALL speak for the whole cluster. FLUSHALL is
  atomic for each stream, and answered when all owners have it acknowledged.
- Keys of a database, or with a prefix, can be made to lie in one hash slot:
  [transactions.md](transactions.md#keys-that-lie-in-one-hash-slot).
- On `cluster_port`, as in Redis Cluster: MOVED for another node's key, CROSSSLOT for keys in several hash slots, and
  commands without a key speak for this node's hash slots only.
- A command that changes several keys of one hash slot is one delta: all of it happens, or nothing. Its keys and values
  are at most 128 KiB (64 KiB with `make run`, whose nodes have little memory for their number of streams), and with 64
  bytes more for each key at most 256 KiB. A value above 64 KiB counts for 255 bytes here. With such a value, all keys
  and values of one hash slot have at most 16 MiB + 128 KiB. Over several hash slots, MSET, MSETEX, DEL and UNLINK are
  split into parts within these limits, and have at most 32 MiB together, as sent.
- An MGET whose reply would be longer than 32 MiB is read value by value. Its values may then be of different times. The
  MGET is refused if a write that the client sent after it has begun. If a value cannot be read, the connection is
  closed.
- A value above 64 KiB lies in parts at all positions of its list. It costs a round trip more to write, and one to read,
  than a small value. If one of these nodes has no memory for its part, the owner evicts keys of the same stream, if
  the policy evicts, but not more bytes than the value has. If that does not help, the write is refused with `-OOM`.
- With `noeviction` and full memory, a write right after DEL or UNLINK may still be refused with `-OOM`: chunks of
  deleted values, and their parity at other nodes, are free a moment later. Repeat it.
- A command of 128 KiB or more for another node is sent while less than 1 MiB waits for the link to that node. Until
  then it waits at its client's node, and short commands go first.
- Commands from other nodes that wait at their owner, for a takeover or while a large value is written, have at most an
  eighth of its memory, or 32 MiB if that is more. Beyond it, writes get `-CLUSTERDOWN` and reads `-TRYAGAIN`.
- A large value in a command or a reply counts for `maxmemory-clients` with twice its length, at times more. The client
  that holds most may hold 48 MiB beside that limit, so one client can always write or read one argument of up to 16
  MiB. Where that limit is less, a second client that does so at the same time may be closed.
- MSETNX and MSETEX with NX or XX need their keys in one hash slot, on both ports.
- RENAME, RENAMENX, COPY and MOVE of keys in one hash slot are one delta. On `port` the keys may be in two hash slots,
  but not in a transaction or a script, and the value is shorter than 1 MiB. Then it goes by steps, of which each is
  acknowledged before the next: the new key is written, with expiry and flags, and then the old one is removed if
  nothing has changed it. So it is not atomic: others may see both keys, or the new one before the old one has gone. If
  the old key has been written, it is copied again, up to four times in all; a write of another key near it may look
  like one. A failure never leaves none of the keys. After `-UNCERTAIN` the new key may be written and the old one be
  gone, but then the new one is there. After a `-TRYAGAIN` or `-ERR no such key` that says so the copy is there; after
  other errors nothing has changed. Of two RENAMEs of one key at the same time only one is answered `OK`, but the other
  may leave its copy. RENAMENX that must begin again takes its copy back for a moment.
- A write is answered when every parity member of its list has it, or as many as `ack_quorum` says. So WAIT has
  nothing to wait for: it answers the fewest live parity members of any list.
- If the owner of a key is lost, an unanswered read is sent again to its successor, and an unanswered write is
  answered `-UNCERTAIN`. A read gets `-TRYAGAIN` instead if a command that the client sent behind it may have run
  already: commands of one connection happen in their order.
- During a takeover, commands wait at most twice the longer of `lease_ms` and `suspicion_ms`: 4 s by default. After
  that, reads get `-TRYAGAIN`, and writes that have not begun get `-CLUSTERDOWN`.
- With fewer live parity nodes than `min_redundancy` (default 1), writes get `-NOREPLICAS`; a read of an expired key
  gets it too.

## Where we differ from Redis

| command | here |
|---|---|
| values, keys | at most 512 MiB and 8 KiB; an error names the limit |
| values from 1 MiB on | go to their nodes as they come. \
A SET or APPEND that sends less than 640 KiB in 10 s is refused; `-TRYAGAIN … was not stored` \
if their nodes change meanwhile. A client whose reply cannot be completed is disconnected |
| pipelines | a client may send 64 MiB (`client-query-buffer-limit`) before it reads the first reply, or less if \
all clients together hold much memory (`maxmemory-clients`). One that takes no byte of its replies for 60 s is \
disconnected |
| APPEND, SETRANGE | while an argument of 1 MiB or more is added, the old value, the argument and the new value \
are all in memory; `-TRYAGAIN` if other commands change the key more than 16 times meanwhile |
| MSETEX | as in Redis 8.4. Over several hash slots of a transaction it is refused |
| MSET, MSETNX, MSETEX | values of at most 16 MiB, and 16 MiB + 128 KiB together for one hash slot; an error names the \
limit. Over several hash slots, other keys may be set by then |
| EXPIRE and its kin, SET EX … | times after the year 10889 are invalid (48 bits of milliseconds) |
| INCRBYFLOAT | exact to 17 places below 1.7e21, not in the platform's `long double`; no hexadecimal numbers |
| OBJECT ENCODING | by the value alone: `int`, `embstr` (to 44 bytes) or `raw` |
| OBJECT IDLETIME | 0: the time of the last use is not stored |
| OBJECT FREQ | counts begin at 0 at a new owner: usage marks are not kept over a takeover |
| MEMORY USAGE | bytes on all nodes: key, value, header, index entry, and their part of the parity. \
A large value counts with its class: 10 MiB of class `rep:3` take 30 MiB |
| KEYS, SCAN | expired keys that they meet are deleted, at most 256 in one step; further ones are shown until then |
| KEYS, CLUSTER COUNTKEYSINSLOT, CLUSTER GETKEYSINSLOT | go through all keys in steps, and other clients are served \
meanwhile. They are no picture of one moment, but a key that exists all the time is met once |
| CLIENT PAUSE | holds commands of the clients of the node asked, memcached's too, but not its version, stats and \
mn; for the whole cluster ask every node. What has begun goes on, and so do replies, all work between nodes, and \
commands that other nodes send here for their clients. AUTH, HELLO, QUIT, RESET, CLIENT PAUSE, CLIENT UNPAUSE and \
the PARITAS commands that have no key are never held. Keys expire all the same. A second pause makes the first \
neither shorter nor weaker |
| CLIENT REPLY | refused between MULTI and EXEC, where Redis sends half an array. A long value that its client does \
not want is not read |
| CLIENT KILL | has the filter MAXAGE of Redis 7.4 |
| CLIENT TRACKING, CACHING, TRACKINGINFO | tracking is always off, and ON is refused ([clients.md](clients.md)) |
| CLIENT NO-TOUCH | shown in CLIENT LIST; keys are marked as used all the same |
| MGET, MSET, DEL … over hash slots, KEYS, FLUSHALL, CLUSTER COUNTKEYSINSLOT, CLUSTER GETKEYSINSLOT | \
`-TRYAGAIN` if one of their hash slots is being moved |
| KEYS, SCAN, RANDOMKEY | wait for hash slots that are being moved; KEYS longer than `reply_max` is refused |
| PARITAS.DUTY, PARITAS.SLOTS | `PARITAS.DUTY NODE` and `drain`, `shun` or `serve`; \
`PARITAS.SLOTS FIRST LAST` and a node or `LIST/POSITION`, or `PARITAS.SLOTS stop`: what `paritas drain`, `shun` and \
`move-slots` send |
| PARITAS.LOCATE, PARITAS.UNITS | for client libraries that read the parts of a large value from their holders \
([formats/large.md](formats/large.md)); refused with `client_coding = \"off\"` |
| PARITAS.STAGE, PARITAS.PUT, PARITAS.COMMIT, PARITAS.UNSTAGE | for client libraries that write the parts of a large \
value to their holders \
([formats/large.md](formats/large.md)); refused without `client_coding = \"on\"` |
| PARITAS.SET | `PARITAS.SET CLASS KEY VALUE` and the options of SET: with a value above 64 KiB it says which \
redundancy this one has ([redundancy.md](redundancy.md)) |
| PARITAS.REDUNDANCY | `PARITAS.REDUNDANCY KEY` tells the class of a value, and with a class changes it \
([redundancy.md](redundancy.md)) |
| SCAN | while hash slots move, their keys may be missed; afterwards none is. Without moves no key comes twice |
| KEYS, SCAN, CONFIG GET, COMMAND LIST | a pattern has at most 64 KiB; in CONFIG GET all patterns \
together, each counted with 16 bytes more |
| COMMAND INFO, COMMAND DOCS | at most 1,024 names |
| EXISTS, TOUCH, MGET, DEL, UNLINK | at most 65,535 keys of one hash slot |
| EXISTS, TOUCH, MGET, MSET, MSETEX, DEL, UNLINK | at most 262,143 keys and values, and \
32 MiB of them, if they are of several hash slots |
| BITCOUNT, BITPOS, BITOP, BITFIELD, BITFIELD_RO | read at most 4 MiB of values; BITFIELD has at most 4,096 operations |
| GETBIT, SETBIT | work on values of any length; each change of a value above 64 KiB writes it anew |
| BITOP, LCS | need their keys in one hash slot |
| LCS | values of at most 1 MiB, and the product of their lengths at most 64 Mi, the second rounded up to 64: two \
values of 8 KiB |
| SET … IFEQ, DELIFEQ | as in Valkey 8.1 and 9.0. The value that is compared has at most 4 MiB |
| SCAN | `SLOT n` returns only the keys of a hash slot |
| SCAN | the cursor is below 2^53, as clients in JavaScript need it: the stream, then its own. \
A step stays in one stream, so steps may be empty. A cursor survives a takeover |
| CLIENT LIST, CLIENT INFO | `fd` is -1; of the buffers, only replies not yet given to the socket are shown |
| INFO | figures are those of the node, but on the any-key port `keyspace` has the keys of the cluster. \
Other nodes have 0.2 s to tell theirs. A stream whose owner has not by then counts as it did last, \
and `silent_streams` counts such streams |
| INFO memory | `used_memory` is what the node counts, with parity and parts of large values; \
`used_memory_rss` is VmRSS of its process, `used_memory_rss_peak` the most that this was |
| INFO stats | commands and connections are counted at the node that the client is connected to; \
hits, misses, expired and evicted keys, and `refused_writes` (`-OOM`) at the owner of the key |
| INFO commandstats | counts only; `usec` is 0. A command is counted at the node that its client is connected to |
| CONFIG SET | of the node asked. It changes `maxmemory` (up to its value at the start, \
and where keys are evicted not below one and a half times the memory of parity), \
`maxmemory-policy`, `maxmemory-clients`, `maxclients`, `client-query-buffer-limit`, `reply-max`, \
`client-coding`, `large-from`, `log-assist`, `redundancy-hotness`, `redundancy-rules`, \
`rebuild-rate` (0: limited only by clients) and `scrub-rate` (0: off). \
A value that is set already is OK |
| maxmemory-clients | an eighth of the memory by default. Beyond it, the clients that use most are closed, \
except one that uses at most 48 MiB; 0 for no limit |
| CONFIG REWRITE | writes what CONFIG SET has changed to the file given with `--config`, in place; comments stay |
| AUTH | there is one user, `default`. Its password is the line of the node's `password_file` \
([by-hand.md](by-hand.md#a-password)); without one everybody is served. Until a client has given it, every command \
but AUTH, HELLO, QUIT and RESET gets `-NOAUTH`, an argument has at most 16 KiB, and a command 10 arguments |
| MULTI, EXEC, WATCH | the commands of each hash slot are one transaction; some commands cannot be in one; \
WATCH may stop a transaction that Redis would not stop: [transactions.md](transactions.md) |
| EVAL, EVALSHA, SCRIPT | keys of one hash slot, declared or not; limits of work and memory; SCRIPT LOAD and FLUSH \
reach all nodes, but on the cluster port that node alone: [scripts.md](scripts.md) |
| DUMP, RESTORE | values of at most 4 MiB, exchanged with a Redis in both directions; payloads of other types are \
refused by name. IDLETIME and FREQ are checked and change nothing |
| FCALL, FUNCTION | libraries are those of the cluster, on both ports; a library runs anew in each call: \
[scripts.md](scripts.md#functions) |
| SELECT, MOVE, COPY DB | databases 0 to 15, on `cluster_port` too. \
The hash slot of a key is the same in all of them, but for rules of `one_slot` |
| FLUSHALL | deletes all keys of a stream at once, and spares libraries of functions |
| FLUSHDB | deletes all keys of a stream at once if it has none of other databases, else one after the other: \
keys that other clients write meanwhile may stay, and `-TRYAGAIN` means that a part may be deleted |
| DBSIZE, INFO keyspace | after a takeover they wait, or leave a stream out, until all its chunks are here again: only \
then the keys of each database are counted |
| SWAPDB | refused: the keys of a database are on many nodes, which cannot exchange them at one moment |
| READONLY, READWRITE, ASKING | OK on either port, and change nothing |
";

fn page() -> String {
    let mut text = HEAD.to_owned();
    let mut groups: Vec<&str> = Vec::new();
    for spec in public() {
        if !groups.contains(&spec.group) {
            groups.push(spec.group);
        }
    }
    for group in groups {
        text += &format!("\n## Group `{group}`\n\n");
        text += "| command | arity | keys | what | what it does | since |\n|---|---|---|---|---|---|\n";
        for spec in public() {
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
        (at, _, step) if spec.is(flag::KEY_COUNT) => format!("{}, every {step}, as many as {at} says", at + 1),
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
