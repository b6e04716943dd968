//! Error texts. Clients compare exact prefixes, so each text is a contract. Where Redis 7 has the same error, its text
//! is used.
//!
//! Constants are the text after `-`, for [`encode::error`](super::encode::error). Functions append the whole reply.

use super::ArgList;
use super::encode::error;

/// Reply to `MULTI` within a transaction.
pub const MULTI_NESTED: &str = "ERR MULTI calls can not be nested";
/// Reply to `EXEC` without `MULTI`.
pub const EXEC_WITHOUT_MULTI: &str = "ERR EXEC without MULTI";
/// Reply to `DISCARD` without `MULTI`.
pub const DISCARD_WITHOUT_MULTI: &str = "ERR DISCARD without MULTI";
/// Reply to `WATCH` within a transaction.
pub const WATCH_INSIDE_MULTI: &str = "ERR WATCH inside MULTI is not allowed";
/// Reply to the `EXEC` of a transaction of which a command was refused when it came.
pub const EXECABORT: &str = "EXECABORT Transaction discarded because of previous errors.";
/// The keys of a command in a transaction, or those of WATCH and of what follows it, are in several hash slots. Clients
/// look for the first word. The rest is not that of Redis.
pub const TRANSACTION_CROSSSLOT: &str = "CROSSSLOT WATCH and the commands of its transaction, and the keys of each \
                                         command, must be in one hash slot: give the keys a common {tag}, or make the \
                                         cluster with one_slot";
/// A transaction is in several hash slots, and the setting says that it must not be. Not in Redis.
pub const TRANSACTION_STRICT: &str = "CROSSSLOT transactions = \"strict\": all keys of a transaction must be in one \
                                      hash slot: give the keys a common {tag}, or make the cluster with one_slot";
/// A transaction has more commands, or more bytes, than one may have. Not in Redis.
pub const TRANSACTION_TOO_LONG: &str = "ERR a transaction has at most 65535 commands of 64 MiB together";
/// WATCH of more keys than may be watched together. Not in Redis.
pub const TOO_MANY_WATCHED: &str = "ERR more than 1024 watched keys";
/// Replies that a transaction makes at the client's node are too long together. Not in Redis.
pub const TRANSACTION_REPLY_TOO_LONG: &str =
    "ERR the replies to PING, ECHO and CLIENT in this transaction are longer than 1048576 bytes. Nothing was done";
/// The commands of a transaction would take longer than a turn. Not in Redis.
pub const TRANSACTION_TOO_SLOW: &str =
    "ERR the commands of this transaction do more work than one turn may. Nothing was done: send fewer";
/// A script has done more work than one may. Not in Redis.
pub const SCRIPT_TOO_SLOW: &str = "ERR the script does more work than one turn may, about 40 ms. Nothing was done";
/// A script needs more memory than one may have. Not in Redis.
pub const SCRIPT_TOO_LARGE: &str = "ERR the script needs more than 16 MiB of memory. Nothing was done";
/// A script's reply is too long. Not in Redis.
pub const SCRIPT_REPLY_TOO_LONG: &str = "ERR the reply of the script is longer than 32 MiB. Nothing was done";
/// EVALSHA of a script that this node does not know.
pub const NOSCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// The number of keys of a script.
pub const NEGATIVE_KEYS: &str = "ERR Number of keys can't be negative";
/// The number of keys of a script.
pub const TOO_MANY_SCRIPT_KEYS: &str = "ERR Number of keys can't be greater than number of args";
/// FCALL of a number of keys that is none.
pub const BAD_NUMBER_OF_KEYS: &str = "ERR Bad number of keys provided";
/// FCALL.
pub const NO_FUNCTION: &str = "ERR Function not found";
/// FCALL_RO of a function that may write.
pub const FUNCTION_MAY_WRITE: &str = "ERR Can not execute a script with write flag using *_ro command.";
/// FCALL on the cluster port.
pub const FUNCTION_NOT_ON_CLUSTER: &str = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
/// FUNCTION DELETE.
pub const NO_LIBRARY: &str = "ERR Library not found";
/// FUNCTION FLUSH of another word.
pub const FUNCTION_FLUSH_OPTIONS: &str = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option";
/// FUNCTION LIST.
pub const NO_LIBRARY_PATTERN: &str = "ERR library name argument was not given";
/// FUNCTION RESTORE.
pub const RESTORE_POLICY: &str = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
/// A payload of DUMP.
pub const BAD_PAYLOAD: &str = "ERR DUMP payload version or checksum are wrong";
/// RESTORE of a payload without a value.
pub const BAD_DATA_FORMAT: &str = "ERR Bad data format";
/// RESTORE of a key that exists.
pub const BUSY_KEY: &str = "BUSYKEY Target key name already exists.";
/// RESTORE of a negative time to live.
pub const INVALID_TTL: &str = "ERR Invalid TTL value, must be >= 0";
/// RESTORE.
pub const INVALID_IDLE_TIME: &str = "ERR Invalid IDLETIME value, must be >= 0";
/// RESTORE.
pub const INVALID_FREQ: &str = "ERR Invalid FREQ value, must be >= 0 and <= 255";
/// FUNCTION RESTORE of a payload with something else.
pub const NOT_A_FUNCTION: &str = "ERR given type is not a function";
/// FUNCTION RESTORE of a payload that is cut.
pub const BAD_LIBRARY_PAYLOAD: &str = "ERR Failed loading library payload";
/// A library has done too much work while it was loaded. Not in Redis.
pub const LIBRARY_TOO_SLOW: &str = "ERR Error registering functions: the library does more work while it is loaded \
                                    than one turn may, about 40 ms. Nothing was done";
/// A library needs too much memory while it is loaded. Not in Redis.
pub const LIBRARY_TOO_LARGE: &str = "ERR Error registering functions: the library needs more than 16 MiB of memory \
                                     while it is loaded. Nothing was done";
/// The libraries are in a form of a later version, or damaged.
pub const UNREADABLE_LIBRARIES: &str =
    "ERR the libraries of functions cannot be read by this version. FUNCTION FLUSH deletes them";
/// SCRIPT KILL.
pub const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";
/// SCRIPT FLUSH of another word.
pub const SCRIPT_FLUSH_OPTIONS: &str = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
/// PARITAS.LOCATE, PARITAS.UNITS. Not in Redis.
pub const CLIENT_CODING_OFF: &str = "ERR client_coding = \"off\": clients of this node read large values by GET alone";
/// Commands of clients that write parts of large values. Not in Redis.
pub const CLIENT_CODING_NOT_ON: &str =
    "ERR client_coding is not \"on\": clients of this node write large values by SET and other commands alone";
/// PARITAS.PUT. Clients look for the first word. Not in Redis.
pub const NOPART_TO_PUT: &str =
    "NOPART no such part is open for a client at this node, or these are not units of it: use SET";
/// PARITAS.UNITS. Clients look for the first word. Not in Redis.
pub const NOPART: &str = "NOPART this node does not keep these units in memory: locate the value again with \
                          PARITAS.LOCATE, or use GET";
/// PARITAS.UNITS, PARITAS.PUT. Not in Redis.
pub const WRONG_CAPABILITY: &str = "NOPERM the capability is not that of this group: take it from PARITAS.LOCATE or \
                                    PARITAS.STAGE. After three wrong ones the connection is closed";
/// A script in a transaction that names no key. Not in Redis.
pub const SCRIPT_WITHOUT_KEYS: &str =
    "ERR a script in a transaction must name a key, so that it is known where it runs: give one of its keys";
/// A command that scripts cannot give.
pub const NOT_IN_SCRIPT: &str = "ERR This Redis command is not allowed from script";
/// A script has named a command that is not there.
pub const UNKNOWN_IN_SCRIPT: &str = "ERR Unknown Redis command called from script";
/// A script has given a command too few or too many words.
pub const WRONG_ARITY_IN_SCRIPT: &str = "ERR Wrong number of args calling Redis command from script";
/// A script that must change nothing has given a write.
pub const WRITE_IN_READ_SCRIPT: &str = "ERR Write commands are not allowed from read-only scripts.";
/// A script has used a key of another hash slot than that of its first key.
pub const OTHER_SLOT_IN_SCRIPT: &str = "ERR Script attempted to access keys that do not hash to the same slot";
/// Options contradict each other or are unknown.
pub const SYNTAX: &str = "ERR syntax error";
/// The value has another type than the command needs.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// An argument or a value is not a 64-bit integer.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// Of the number of a database.
pub const NOT_AN_INTEGER_OF_32_BITS: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";
/// An argument or a value is not a number.
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
/// The result of INCR, INCRBY, DECR or DECRBY does not fit in 64 bits.
pub const INCREMENT_OVERFLOW: &str = "ERR increment or decrement would overflow";
/// DECRBY of the smallest integer.
pub const DECREMENT_OVERFLOW: &str = "ERR decrement would overflow";
/// The result of INCRBYFLOAT is not finite.
pub const INCREMENT_NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";
/// The offset of SETRANGE is out of range.
pub const OFFSET_OUT_OF_RANGE: &str = "ERR offset is out of range";
/// A number is outside the range that the command accepts.
pub const OUT_OF_RANGE: &str = "ERR value is out of range";
/// A number must be positive.
pub const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
/// APPEND or SETRANGE would exceed the largest value.
pub const STRING_TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
/// The number of a bit is none, or too large.
pub const BIT_OFFSET: &str = "ERR bit offset is not an integer or out of range";
/// SETBIT with a value that is not 0 or 1.
pub const NOT_A_BIT: &str = "ERR bit is not an integer or out of range";
/// BITPOS of a value that is not 0 or 1.
pub const BIT_ARGUMENT: &str = "ERR The bit argument must be 1 or 0.";
/// BITOP NOT of several keys.
pub const BITOP_NOT: &str = "ERR BITOP NOT must be called with a single source key.";
/// BITFIELD names no type of integers.
pub const BITFIELD_TYPE: &str =
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
/// BITFIELD with another word behind OVERFLOW than WRAP, SAT, FAIL.
pub const BITFIELD_OVERFLOW: &str = "ERR Invalid OVERFLOW type specified";
/// BITFIELD_RO that would write.
pub const BITFIELD_RO: &str = "ERR BITFIELD_RO only supports the GET subcommand";
/// A BITFIELD has more operations than run in one turn. Not in Redis.
pub const TOO_MANY_FIELDS: &str = "ERR more than 4096 operations in one BITFIELD: send several";
/// A command on bits would read more bytes than it may. Not in Redis.
pub const TOO_MANY_BITS: &str =
    "ERR this command reads at most 4194304 bytes of values; GETBIT and SETBIT work on longer ones";
/// RENAME of a key that does not exist.
pub const NO_SUCH_KEY: &str = "ERR no such key";
/// COPY of a key to itself.
pub const SAME_OBJECT: &str = "ERR source and destination objects are the same";
/// The cursor of SCAN is not valid.
pub const INVALID_CURSOR: &str = "ERR invalid cursor";
/// A command names more keys of one slot than it may. Not in Redis.
pub const TOO_MANY_KEYS: &str = "ERR more than 65535 keys of one slot in one command";
/// A command has more keys and values than can be given to their owners in one turn. Not in Redis.
pub const TOO_MANY_ARGS: &str =
    "ERR more than 262143 keys and values, or 32 MiB, of several hash slots in one command: send several";
/// COMMAND INFO or DOCS asks for more commands than there are. Not in Redis.
pub const TOO_MANY_NAMES: &str = "ERR more than 1024 names";
/// A pattern, or all that a command has besides, is longer than [`PATTERN_BYTES_MAX`]. Not in Redis.
///
/// [`PATTERN_BYTES_MAX`]: crate::command::glob::PATTERN_BYTES_MAX
pub const PATTERN_TOO_LONG: &str = "ERR the pattern is longer than 65536 bytes: no key needs so long a one";
/// Patterns of names are longer than [`NAME_PATTERNS_BYTES_MAX`] together.
///
/// [`NAME_PATTERNS_BYTES_MAX`]: crate::command::glob::NAME_PATTERNS_BYTES_MAX
pub const NAME_PATTERNS_TOO_LONG: &str =
    "ERR the patterns are longer than 1024 bytes together: ask in several commands";
/// SWAPDB.
pub const SWAPDB: &str = "ERR SWAPDB is not supported: the keys of a database are on many nodes, which cannot exchange \
                          them at one moment. Write to another database and SELECT that one";
/// The number of a database is not one of 0 to 15.
pub const DB_OUT_OF_RANGE: &str = "ERR DB index is out of range";
/// The timeout of WAIT is not an integer.
pub const TIMEOUT_NOT_AN_INTEGER: &str = "ERR timeout is not an integer or out of range";
/// The timeout of WAIT is negative.
pub const TIMEOUT_NEGATIVE: &str = "ERR timeout is negative";
/// EXPIRE with NX together with XX, GT or LT.
pub const EXPIRE_NX_AND_OTHERS: &str = "ERR NX and XX, GT or LT options at the same time are not compatible";
/// EXPIRE with GT together with LT.
pub const EXPIRE_GT_AND_LT: &str = "ERR GT and LT options at the same time are not compatible";
/// RENAME over hash slots, of a key that other commands change.
pub const RENAME_OVERTAKEN: &str = "TRYAGAIN the key, or others near it, changed again and again while it was copied: \
                                    the copy is there, and the old key may be too";
/// RENAME over hash slots, when the old key has gone before it was removed.
pub const RENAME_TAKEN: &str = "ERR no such key: it was removed, or its time was over, after it was copied";
/// RENAME over hash slots, when a step behind the first copy has failed.
pub const RENAME_HALF_DONE: &str = "TRYAGAIN the key was copied, but the old one was not removed: both may exist";
/// A number of keys that is none.
pub const KEY_COUNT: &str = "ERR invalid numkeys value";
/// Fewer keys and values than their number says.
pub const PAIR_COUNT: &str = "ERR wrong number of key-value pairs";
/// LCS of another type.
pub const LCS_TYPE: &str = "ERR The specified keys must contain string values";
/// LCS with LEN and IDX.
pub const LCS_BOTH: &str = "ERR If you want both the length and indexes, please just use IDX.";
/// LCS of strings that are too much work.
pub const LCS_TOO_LONG: &str = "ERR the strings are too long for LCS here: each may have 1048576 bytes, and the \
                                product of their lengths may be 67108864, the second rounded up to 64";
/// CLIENT TRACKING ON.
pub const NO_TRACKING: &str = "ERR CLIENT TRACKING ON is not supported: this server does not tell clients which keys \
                               change. Turn off the cache of the client library";
/// CLIENT CACHING, of a client without tracking.
pub const NOT_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
                                or OPTOUT mode enabled";
/// OBJECT FREQ under a policy that is not LFU.
pub const NO_LFU: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
    when switching between policies at runtime LRU and LFU data will take some time to adjust.";
/// OBJECT IDLETIME under an LFU policy.
pub const NO_IDLE_TIME: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
    when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// HELLO with a number other than 2 or 3.
pub const NOPROTO: &str = "NOPROTO unsupported protocol version";
/// HELLO with an argument that is not a number.
pub const PROTOCOL_VERSION: &str = "ERR Protocol version is not an integer or out of range";
/// A command before AUTH.
pub const NOAUTH: &str = "NOAUTH Authentication required.";
/// HELLO before AUTH.
pub const NOAUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
    HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
    version at the same time";
/// AUTH with a wrong user or password.
pub const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
/// AUTH where no password is set.
pub const AUTH_WITHOUT_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default \
    user. Are you sure your configuration is correct?";
/// Too many connections are open.
pub const MAX_CLIENTS: &str = "ERR max number of clients reached";
/// CLIENT SETNAME with a name that is not allowed.
pub const CLIENT_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
/// CLIENT KILL of a client that does not exist.
pub const NO_SUCH_CLIENT: &str = "ERR No such client";
/// CLIENT KILL ID with a number that is not positive.
pub const CLIENT_ID: &str = "ERR client-id should be greater than 0";
/// A CLUSTER command with a hash slot that is not valid.
pub const INVALID_SLOT: &str = "ERR Invalid or out of range slot";
/// CLUSTER GETKEYSINSLOT with a number of keys that is not valid.
pub const INVALID_KEY_COUNT: &str = "ERR Invalid number of keys";

/// The keys of one command are in different hash slots, on the cluster port.
pub const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
/// The owner of this hash slot cannot be reached now.
pub const CLUSTERDOWN: &str = "CLUSTERDOWN The cluster is down";
/// The hash slot has no owner.
pub const CLUSTERDOWN_SLOT: &str = "CLUSTERDOWN Hash slot not served";
/// A takeover delays this read. Nothing has been done; the client may try again.
pub const TRYAGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
/// A takeover delays this read of one key. Not in Redis.
pub const TRYAGAIN_TAKEOVER: &str = "TRYAGAIN The owner of this key is being replaced";
/// There are fewer Live parity members than `min_redundancy`. Nothing has been written.
pub const NOREPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
/// The write may or may not have been done. Not in Redis.
pub const UNCERTAIN: &str =
    "UNCERTAIN The write may or may not have happened: its owner was lost before it was acknowledged";
/// No node has answered a request that this node sent for the command. Not in Redis.
pub const NO_ANSWER: &str = "ERR no answer for 10 s: whether it was done is not known. Look at PARITAS.STATUS, and ask \
                             again";
/// No memory is left.
pub const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// The node is not ready for clients yet.
pub const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// COMMAND GETKEYS of an unknown command.
pub const INVALID_COMMAND: &str = "ERR Invalid command specified";
/// COMMAND GETKEYS of a command without keys.
pub const NO_KEY_ARGUMENTS: &str = "ERR The command has no key arguments";
/// COMMAND GETKEYS of too few arguments.
pub const INVALID_ARGUMENT_COUNT: &str = "ERR Invalid number of arguments specified for command";

/// Most bytes of a client's words that an error repeats, as in Redis.
const QUOTED_BYTES_MAX: usize = 128;

/// The command asks several nodes, or waits: it has no place in a transaction. Not in Redis.
pub fn not_in_transaction(out: &mut Vec<u8>, name: &str) {
    error(
        out,
        &format!("ERR '{name}' cannot be in a transaction here: send it before MULTI or after EXEC"),
    );
}

/// `name` is the name in the table: `get`, `config|get`.
pub fn wrong_arity(out: &mut Vec<u8>, name: &str) {
    error(out, &format!("ERR wrong number of arguments for '{name}' command"));
}

/// EXEC with arguments: its transaction is thrown away.
pub fn exec_arity(out: &mut Vec<u8>) {
    let what = "Transaction discarded because of: wrong number of arguments for 'exec' command";
    error(out, &format!("EXECABORT {what}"));
}

/// The command is not in the table.
pub fn unknown_command(out: &mut Vec<u8>, args: ArgList<'_>) {
    let mut shown = String::new();
    for arg in args.iter().skip(1) {
        if shown.len() >= QUOTED_BYTES_MAX {
            break;
        }
        let arg = quoted(arg, QUOTED_BYTES_MAX - shown.len());
        shown.push_str(&format!("'{arg}' "));
    }
    let name = quoted(args.arg(0), QUOTED_BYTES_MAX);
    let text = format!("ERR unknown command '{name}', with args beginning with: {shown}");
    error(out, &text);
}

/// The subcommand is not in the table.
pub fn unknown_subcommand(out: &mut Vec<u8>, command: &str, subcommand: &[u8]) {
    let subcommand = quoted(subcommand, QUOTED_BYTES_MAX);
    let command = command.to_ascii_uppercase();
    error(
        out,
        &format!("ERR unknown subcommand '{subcommand}'. Try {command} HELP."),
    );
}

/// The value is too long to be copied to another hash slot.
pub fn copy_too_large(out: &mut Vec<u8>, bytes: usize, bytes_max: usize) {
    let text = format!(
        "ERR value of {bytes} bytes is over the limit of {bytes_max} bytes for RENAME and COPY to another hash slot: \
         give both keys one hash tag"
    );
    error(out, &text);
}

/// A subcommand whose number of arguments only the command itself can judge.
pub fn unknown_or_wrong(subcommand: &str, command: &str) -> String {
    format!("ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {command} HELP.")
}

/// A client's words as an error may repeat them: cut to a limit and, as in Redis, at the first NUL, and made valid
/// UTF-8.
pub fn echoed(words: &[u8]) -> std::borrow::Cow<'_, str> {
    quoted(words, QUOTED_BYTES_MAX)
}

fn quoted(words: &[u8], bytes_max: usize) -> std::borrow::Cow<'_, str> {
    let words = words.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(words.get(..bytes_max).unwrap_or(words))
}

/// RESTORE of a payload of another type. Not in Redis.
pub fn not_a_string(out: &mut Vec<u8>, name: &str) {
    error(
        out,
        &format!("ERR the payload is {name}; only strings are supported here"),
    );
}

/// DUMP or RESTORE of a value that is too long. Not in Redis.
pub fn too_long_to_dump(out: &mut Vec<u8>, bytes: usize, bytes_max: usize) {
    let text = format!("ERR a value of {bytes} bytes cannot be dumped or restored, at most {bytes_max} are allowed");
    error(out, &text);
}

/// The expiry is 0 or less, or too large. `name` is the name in the table.
pub fn invalid_expire_time(out: &mut Vec<u8>, name: &str) {
    error(out, &format!("ERR invalid expire time in '{name}' command"));
}

/// The hash slot belongs to another node, on the cluster port. `address` is the `host:port` of that node's cluster
/// port.
pub fn moved(out: &mut Vec<u8>, slot: u16, address: &str) {
    error(out, &format!("MOVED {slot} {address}"));
}

/// The hash slot is being handed off to another node.
pub fn ask(out: &mut Vec<u8>, slot: u16, address: &str) {
    error(out, &format!("ASK {slot} {address}"));
}

/// The key is longer than the store accepts. Not in Redis.
pub fn key_too_long(out: &mut Vec<u8>, bytes: usize, bytes_max: usize) {
    error(
        out,
        &format!("ERR key of {bytes} bytes is over the limit of {bytes_max} bytes"),
    );
}

/// The value is longer than the store accepts. Not in Redis.
pub fn value_too_long(out: &mut Vec<u8>, bytes: usize, bytes_max: usize) {
    error(
        out,
        &format!("ERR value of {bytes} bytes is over the limit of {bytes_max} bytes"),
    );
}

/// The keys and values of a command for one hash slot do not fit in the window (docs/commands.md). Not in Redis.
pub fn command_too_large(out: &mut Vec<u8>, bytes_max: usize) {
    error(out, &format!("ERR command larger than {bytes_max} bytes for one slot"));
}

/// The reply would exceed the limit. Not in Redis.
pub fn reply_too_large(out: &mut Vec<u8>, bytes_max: usize) {
    error(
        out,
        &format!("{REPLY_TOO_LARGE} {bytes_max} bytes: ask for fewer keys, or send no write before it is answered"),
    );
}

/// How [`reply_too_large`] begins.
pub const REPLY_TOO_LARGE: &str = "ERR the reply is larger than";

/// CONFIG SET of a parameter that cannot be set.
pub fn unknown_option(out: &mut Vec<u8>, option: &[u8]) {
    let option = quoted(option, QUOTED_BYTES_MAX);
    error(
        out,
        &format!("ERR Unknown option or number of arguments for CONFIG SET - '{option}'"),
    );
}
