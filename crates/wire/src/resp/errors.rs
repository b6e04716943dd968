//! Error texts. Clients fall back on exact prefixes, so each is a contract: Redis 7's words where Redis has them.
//!
//! Constants are the text after `-`, for [`encode::error`](super::encode::error). Functions append the whole reply.

use super::ArgList;
use super::encode::error;

/// To `MULTI`. Clients look at the first three words only.
pub const MULTI_UNSUPPORTED: &str = "ERR unknown command 'MULTI': transactions are not supported. Nothing is executed \
                                     until EXEC or DISCARD";
/// To a `MULTI` within another.
pub const MULTI_NESTED: &str = "ERR MULTI calls can not be nested";
/// To an `EXEC` on its own.
pub const EXEC_WITHOUT_MULTI: &str = "ERR EXEC without MULTI";
/// To a `DISCARD` on its own.
pub const DISCARD_WITHOUT_MULTI: &str = "ERR DISCARD without MULTI";
/// To the `EXEC` of a transaction that was refused.
pub const EXECABORT: &str = "EXECABORT Transaction discarded because of previous errors.";
/// Options that contradict each other or are unknown.
pub const SYNTAX: &str = "ERR syntax error";
/// The value is of another kind.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// An argument or a value is no integer of 64 bits.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// An argument or a value is no number.
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
/// INCR and its kin.
pub const INCREMENT_OVERFLOW: &str = "ERR increment or decrement would overflow";
/// DECRBY of the least integer.
pub const DECREMENT_OVERFLOW: &str = "ERR decrement would overflow";
/// INCRBYFLOAT.
pub const INCREMENT_NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";
/// SETRANGE.
pub const OFFSET_OUT_OF_RANGE: &str = "ERR offset is out of range";
/// A number is outside what the command takes.
pub const OUT_OF_RANGE: &str = "ERR value is out of range";
/// A number that must be positive.
pub const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
/// APPEND and SETRANGE past the largest value.
pub const STRING_TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
/// RENAME of nothing.
pub const NO_SUCH_KEY: &str = "ERR no such key";
/// COPY onto itself.
pub const SAME_OBJECT: &str = "ERR source and destination objects are the same";
/// SCAN.
pub const INVALID_CURSOR: &str = "ERR invalid cursor";
/// SELECT, COPY DB.
pub const DB_OUT_OF_RANGE: &str = "ERR DB index is out of range";
/// WAIT.
pub const TIMEOUT_NOT_AN_INTEGER: &str = "ERR timeout is not an integer or out of range";
/// WAIT.
pub const TIMEOUT_NEGATIVE: &str = "ERR timeout is negative";
/// EXPIRE NX with XX, GT or LT.
pub const EXPIRE_NX_AND_OTHERS: &str = "ERR NX and XX, GT or LT options at the same time are not compatible";
/// EXPIRE GT with LT.
pub const EXPIRE_GT_AND_LT: &str = "ERR GT and LT options at the same time are not compatible";
/// OBJECT FREQ under another policy.
pub const NO_LFU: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
    when switching between policies at runtime LRU and LFU data will take some time to adjust.";
/// OBJECT IDLETIME under LFU.
pub const NO_IDLE_TIME: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
    when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// HELLO with another number than 2 or 3.
pub const NOPROTO: &str = "NOPROTO unsupported protocol version";
/// HELLO with no number.
pub const PROTOCOL_VERSION: &str = "ERR Protocol version is not an integer or out of range";
/// A command before AUTH.
pub const NOAUTH: &str = "NOAUTH Authentication required.";
/// HELLO before AUTH.
pub const NOAUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
    HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
    version at the same time";
/// AUTH with the wrong words.
pub const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
/// AUTH where no password is set.
pub const AUTH_WITHOUT_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default \
    user. Are you sure your configuration is correct?";
/// Too many connections.
pub const MAX_CLIENTS: &str = "ERR max number of clients reached";
/// CLIENT SETNAME.
pub const CLIENT_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
/// CLIENT KILL of nobody.
pub const NO_SUCH_CLIENT: &str = "ERR No such client";
/// CLIENT KILL ID.
pub const CLIENT_ID: &str = "ERR client-id should be greater than 0";
/// CLUSTER commands.
pub const INVALID_SLOT: &str = "ERR Invalid or out of range slot";
/// CLUSTER GETKEYSINSLOT.
pub const INVALID_KEY_COUNT: &str = "ERR Invalid number of keys";

/// Keys of one command in different slots, on the strict port.
pub const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
/// No owner to be had for this slot now.
pub const CLUSTERDOWN: &str = "CLUSTERDOWN The cluster is down";
/// A slot that nobody owns.
pub const CLUSTERDOWN_SLOT: &str = "CLUSTERDOWN Hash slot not served";
/// A read that a takeover holds up; nothing has happened, ask again.
pub const TRYAGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
/// A read that a takeover holds up, one key; ours.
pub const TRYAGAIN_TAKEOVER: &str = "TRYAGAIN The owner of this key is being replaced";
/// Too few parity nodes for `min_redundancy`; nothing has been written.
pub const NOREPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
/// The write may or may not have happened; ours.
pub const UNCERTAIN: &str =
    "UNCERTAIN The write may or may not have happened: its owner was lost before it was acknowledged";
/// Nobody has answered what a node asks others for; ours.
pub const NO_ANSWER: &str = "ERR no answer for 10 s: whether it was done is not known. Look at PARITAS.STATUS, and ask \
                             again";
/// No memory left.
pub const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// Not ready for clients yet.
pub const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// COMMAND GETKEYS of an unknown command.
pub const INVALID_COMMAND: &str = "ERR Invalid command specified";
/// COMMAND GETKEYS of a command without keys.
pub const NO_KEY_ARGUMENTS: &str = "ERR The command has no key arguments";
/// COMMAND GETKEYS of too few arguments.
pub const INVALID_ARGUMENT_COUNT: &str = "ERR Invalid number of arguments specified for command";

/// What Redis cuts a client's words to.
const QUOTED_BYTES_MAX: usize = 128;

/// `name` as the table has it: `get`, `config|get`.
pub fn wrong_arity(out: &mut Vec<u8>, name: &str) {
    error(out, &format!("ERR wrong number of arguments for '{name}' command"));
}

/// A command that the table does not have.
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
    error(
        out,
        &format!("ERR unknown command '{name}', with args beginning with: {shown}"),
    );
}

/// A subcommand that the table does not have.
pub fn unknown_subcommand(out: &mut Vec<u8>, command: &str, subcommand: &[u8]) {
    let subcommand = quoted(subcommand, QUOTED_BYTES_MAX);
    let command = command.to_ascii_uppercase();
    error(
        out,
        &format!("ERR unknown subcommand '{subcommand}'. Try {command} HELP."),
    );
}

/// A client's own words as an error may repeat them: cut, up to a NUL as in Redis, and as valid UTF-8.
pub fn echoed(words: &[u8]) -> std::borrow::Cow<'_, str> {
    quoted(words, QUOTED_BYTES_MAX)
}

fn quoted(words: &[u8], bytes_max: usize) -> std::borrow::Cow<'_, str> {
    let words = words.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(words.get(..bytes_max).unwrap_or(words))
}

/// An expiry of 0 or less, or past the end of time. `name` as the table has it.
pub fn invalid_expire_time(out: &mut Vec<u8>, name: &str) {
    error(out, &format!("ERR invalid expire time in '{name}' command"));
}

/// Another node's slot, on the strict port. `address` is the `host:port` of that node's strict port.
pub fn moved(out: &mut Vec<u8>, slot: u16, address: &str) {
    error(out, &format!("MOVED {slot} {address}"));
}

/// A slot on its way to another node.
pub fn ask(out: &mut Vec<u8>, slot: u16, address: &str) {
    error(out, &format!("ASK {slot} {address}"));
}

/// A key longer than this store keeps; ours.
pub fn key_too_long(out: &mut Vec<u8>, bytes: usize, bytes_max: usize) {
    error(
        out,
        &format!("ERR key of {bytes} bytes is over the limit of {bytes_max} bytes"),
    );
}

/// A value longer than this store keeps; ours.
pub fn value_too_long(out: &mut Vec<u8>, bytes: usize, bytes_max: usize) {
    error(
        out,
        &format!("ERR value of {bytes} bytes is over the limit of {bytes_max} bytes"),
    );
}

/// The keys and values of a command for one slot do not fit the window (SEAMS §4); ours.
pub fn command_too_large(out: &mut Vec<u8>, bytes_max: usize) {
    error(out, &format!("ERR command larger than {bytes_max} bytes for one slot"));
}

/// A reply longer than any may be; ours.
pub fn reply_too_large(out: &mut Vec<u8>, bytes_max: usize) {
    error(
        out,
        &format!("ERR the reply is larger than {bytes_max} bytes: ask for fewer keys"),
    );
}

/// CONFIG SET of what is not to be set.
pub fn unknown_option(out: &mut Vec<u8>, option: &[u8]) {
    let option = quoted(option, QUOTED_BYTES_MAX);
    error(
        out,
        &format!("ERR Unknown option or number of arguments for CONFIG SET - '{option}'"),
    );
}
