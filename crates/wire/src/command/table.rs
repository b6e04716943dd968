//! The rows of the table. Arity, flags, keys and categories are those of Redis 7, so that clients treat Paritas alike;
//! the summaries are Paritas's own.

use super::CommandSpec;
use super::flag::*;

/// A row without its optional parts. The macro adds id and summary.
const fn row(name: &'static str, arity: i16, flags: u32, group: &'static str, since: &'static str) -> CommandSpec {
    CommandSpec {
        id: Command::Get,
        name,
        arity,
        flags,
        first_key: 0,
        last_key: 0,
        step: 0,
        value_at: 0,
        access: &[],
        categories: "",
        tips: "",
        since,
        group,
        summary: "",
        subcommands: &[],
    }
}

impl CommandSpec {
    const fn keys(self, first: i8, last: i8, step: i8, access: &'static [&'static str]) -> Self {
        Self {
            first_key: first,
            last_key: last,
            step,
            access,
            ..self
        }
    }

    const fn value(self, value_at: u8) -> Self {
        Self { value_at, ..self }
    }

    const fn categories(self, categories: &'static str) -> Self {
        Self { categories, ..self }
    }

    const fn tips(self, tips: &'static str) -> Self {
        Self { tips, ..self }
    }

    const fn subcommands(self, subcommands: &'static [Self]) -> Self {
        Self { subcommands, ..self }
    }
}

/// Declares ids and rows from one list: first the commands, then the subcommands of each container.
macro_rules! commands {
    ($($vis:vis const $table:ident { $($id:ident = $row:expr, $summary:literal;)* })*) => {
        /// Ids of all commands, then of all subcommands.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Command { $($( #[doc = $summary] $id, )*)* }

        impl Command {
            /// All ids in order: `ALL[id as usize] == id`.
            pub const ALL: &'static [Self] = &[$($( Self::$id, )*)*];
        }

        $(
            /// Rows of the table. A container's row includes those of its subcommands.
            $vis const $table: &[CommandSpec] =
                &[$( CommandSpec { id: Command::$id, summary: $summary, ..$row }, )*];
        )*
    };
}

// A long value goes to the owner of the only key, which comes before it.
const _: () = {
    let mut rows = COMMANDS;
    while let [row, rest @ ..] = rows {
        let has_one_key = row.first_key > 0 && row.last_key == row.first_key;
        let is_behind_key = has_one_key && row.value_at as i8 > row.first_key;
        assert!(row.value_at == 0 || is_behind_key && (row.value_at as u16) < row.arity.unsigned_abs());
        rows = rest;
    }
};

commands! {
  pub const COMMANDS {
    Hello = row("hello", -1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, "connection", "6.0.0")
        .categories("connection"),
        "Greets, chooses the protocol version, and may authenticate and name the connection";
    Auth = row("auth", -2, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, "connection", "1.0.0")
        .categories("connection"), "Authenticates the connection";
    Ping = row("ping", -1, FAST, "connection", "1.0.0")
        .categories("connection").tips("request_policy:all_shards response_policy:all_succeeded"),
        "Answers PONG, or what it was given";
    Echo = row("echo", 2, LOADING | STALE | FAST, "connection", "1.0.0").categories("connection"),
        "Answers what it was given";
    Quit = row("quit", -1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, "connection", "1.0.0")
        .categories("connection"), "Closes the connection";
    Reset = row("reset", 1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, "connection", "6.2.0")
        .categories("connection"), "Makes the connection as new";
    Select = row("select", 2, LOADING | STALE | FAST, "connection", "1.0.0").categories("connection"),
        "Chooses a database, 0 to 15";
    Multi = row("multi", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | TRANSACTION, "transactions", "1.2.0")
        .categories("transaction"), "Begins a transaction: commands are kept until EXEC";
    Exec = row("exec", 1, NOSCRIPT | LOADING | STALE | TRANSACTION, "transactions", "1.2.0")
        .categories("transaction"), "Runs the commands that were kept, those of a hash slot together";
    Discard = row("discard", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | TRANSACTION, "transactions", "2.0.0")
        .categories("transaction"), "Throws the commands that were kept away";
    Watch = row("watch", -2, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | TRANSACTION, "transactions", "2.2.0")
        .keys(1, -1, 1, &["RO"]).categories("transaction"),
        "Lets the next EXEC do nothing if one of the keys has changed by then";
    Unwatch = row("unwatch", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | TRANSACTION, "transactions", "2.2.0")
        .categories("transaction"), "Undoes WATCH";
    Eval = row("eval", -3, NOSCRIPT | STALE | SCRIPT, "scripting", "2.6.0")
        .categories("scripting"), "Runs a Lua script at the owner of its keys";
    EvalRo = row("eval_ro", -3, READONLY | NOSCRIPT | STALE | SCRIPT, "scripting", "7.0.0")
        .categories("scripting"), "Runs a Lua script that changes nothing";
    Evalsha = row("evalsha", -3, NOSCRIPT | STALE | SCRIPT, "scripting", "2.6.0")
        .categories("scripting"), "Runs a script that this node knows, by its SHA-1";
    EvalshaRo = row("evalsha_ro", -3, READONLY | NOSCRIPT | STALE | SCRIPT, "scripting", "7.0.0")
        .categories("scripting"), "Runs a script that this node knows and that changes nothing";
    Script = row("script", -2, 0, "scripting", "2.6.0").subcommands(SCRIPTS), "Commands about scripts";
    Fcall = row("fcall", -3, NOSCRIPT | STALE | SCRIPT, "scripting", "7.0.0")
        .categories("scripting"), "Calls a function at the owner of its keys";
    FcallRo = row("fcall_ro", -3, READONLY | NOSCRIPT | STALE | SCRIPT, "scripting", "7.0.0")
        .categories("scripting"), "Calls a function that changes nothing";
    Function = row("function", -2, 0, "scripting", "7.0.0").subcommands(FUNCTIONS), "Commands about functions";
    Client = row("client", -2, 0, "connection", "2.4.0").subcommands(CLIENT), "Commands about connections";
    Command = row("command", -1, LOADING | STALE, "server", "2.8.13")
        .categories("connection").tips("nondeterministic_output_order").subcommands(COMMAND),
        "Describes all commands";
    Info = row("info", -1, LOADING | STALE, "server", "1.0.0")
        .categories("dangerous")
        .tips("nondeterministic_output request_policy:all_shards response_policy:special"),
        "Tells about the server, by section";
    Config = row("config", -2, 0, "server", "2.0.0").subcommands(CONFIG), "Commands about settings";
    Role = row("role", 1, NOSCRIPT | LOADING | STALE | FAST, "server", "2.8.12")
        .categories("admin dangerous"), "Tells which part this server plays in replication";
    Time = row("time", 1, LOADING | STALE | FAST, "server", "2.6.0").tips("nondeterministic_output"),
        "Tells the time of the server";
    Module = row("module", -2, 0, "server", "4.0.0").subcommands(MODULE), "Commands about modules";
    Acl = row("acl", -2, 0, "server", "6.0.0").subcommands(ACL), "Commands about users";
    Readonly = row("readonly", 1, LOADING | STALE | FAST, "cluster", "3.0.0").categories("connection"),
        "Allows reads from replicas; changes nothing here";
    Readwrite = row("readwrite", 1, LOADING | STALE | FAST, "cluster", "3.0.0")
        .categories("connection"), "Undoes READONLY; changes nothing here";
    Asking = row("asking", 1, FAST, "cluster", "3.0.0").categories("connection"), "Follows an ASK redirection";
    Cluster = row("cluster", -2, 0, "cluster", "3.0.0").subcommands(CLUSTER), "Commands about the cluster";
    Sentinel = row("sentinel", -2, 0, "server", "2.8.4").subcommands(SENTINEL),
        "Commands for clients set up for Sentinel";
    Get = row("get", 2, READONLY | FAST, "string", "1.0.0")
        .keys(1, 1, 1, &["RO access"]).categories("string"), "Reads the value of a key";
    Set = row("set", -3, WRITE | DENYOOM, "string", "1.0.0")
        .keys(1, 1, 1, &["RW access update variable_flags"]).value(2).categories("string"),
        "Sets the value of a key, with an expiry or a condition";
    Setnx = row("setnx", 3, WRITE | DENYOOM | FAST, "string", "1.0.0")
        .keys(1, 1, 1, &["OW insert"]).value(2).categories("string"), "Sets the value of a key that does not exist";
    Setex = row("setex", 4, WRITE | DENYOOM, "string", "2.0.0")
        .keys(1, 1, 1, &["OW update"]).value(3).categories("string"), "Sets value and expiry in seconds";
    Psetex = row("psetex", 4, WRITE | DENYOOM, "string", "2.6.0")
        .keys(1, 1, 1, &["OW update"]).value(3).categories("string"), "Sets value and expiry in milliseconds";
    Getset = row("getset", 3, WRITE | DENYOOM | FAST, "string", "1.0.0")
        .keys(1, 1, 1, &["RW access update"]).value(2).categories("string"),
        "Sets the value of a key and answers the old one";
    Getdel = row("getdel", 2, WRITE | FAST, "string", "6.2.0")
        .keys(1, 1, 1, &["RW access delete"]).categories("string"), "Reads the value of a key and deletes it";
    Getex = row("getex", -2, WRITE | FAST, "string", "6.2.0")
        .keys(1, 1, 1, &["RW access update"]).categories("string"),
        "Reads the value of a key and sets its expiry";
    Mget = row("mget", -2, READONLY | FAST, "string", "1.0.0")
        .keys(1, -1, 1, &["RO access"]).categories("string").tips("request_policy:multi_shard"),
        "Reads the values of keys";
    Mset = row("mset", -3, WRITE | DENYOOM, "string", "1.0.1")
        .keys(1, -1, 2, &["OW update"]).categories("string")
        .tips("request_policy:multi_shard response_policy:all_succeeded"), "Sets the values of keys";
    Msetnx = row("msetnx", -3, WRITE | DENYOOM, "string", "1.0.1")
        .keys(1, -1, 2, &["OW insert"]).categories("string")
        .tips("request_policy:multi_shard response_policy:agg_min"),
        "Sets the values of keys if none of them exists";
    Msetex = row("msetex", -4, WRITE | DENYOOM | KEY_COUNT, "string", "8.4.0")
        .keys(1, -1, 2, &["OW update"]).categories("string"),
        "Sets the values of keys, with one expiry or a condition for all";
    Del = row("del", -2, WRITE, "generic", "1.0.0")
        .keys(1, -1, 1, &["RM delete"]).categories("keyspace")
        .tips("request_policy:multi_shard response_policy:agg_sum"), "Deletes keys";
    Unlink = row("unlink", -2, WRITE | FAST, "generic", "4.0.0")
        .keys(1, -1, 1, &["RM delete"]).categories("keyspace")
        .tips("request_policy:multi_shard response_policy:agg_sum"), "Deletes keys; the same as DEL here";
    Exists = row("exists", -2, READONLY | FAST, "generic", "1.0.0")
        .keys(1, -1, 1, &["RO"]).categories("keyspace")
        .tips("request_policy:multi_shard response_policy:agg_sum"), "Counts how many of the keys exist";
    Touch = row("touch", -2, READONLY | FAST, "generic", "3.2.1")
        .keys(1, -1, 1, &["RO"]).categories("keyspace")
        .tips("request_policy:multi_shard response_policy:agg_sum"),
        "Counts how many of the keys exist and marks them as used";
    Incr = row("incr", 2, WRITE | DENYOOM | FAST, "string", "1.0.0")
        .keys(1, 1, 1, &["RW access update"]).categories("string"), "Adds one to an integer";
    Decr = row("decr", 2, WRITE | DENYOOM | FAST, "string", "1.0.0")
        .keys(1, 1, 1, &["RW access update"]).categories("string"), "Takes one from an integer";
    Incrby = row("incrby", 3, WRITE | DENYOOM | FAST, "string", "1.0.0")
        .keys(1, 1, 1, &["RW access update"]).categories("string"), "Adds to an integer";
    Decrby = row("decrby", 3, WRITE | DENYOOM | FAST, "string", "1.0.0")
        .keys(1, 1, 1, &["RW access update"]).categories("string"), "Takes from an integer";
    Incrbyfloat = row("incrbyfloat", 3, WRITE | DENYOOM | FAST, "string", "2.6.0")
        .keys(1, 1, 1, &["RW access update"]).categories("string"), "Adds to a floating-point number";
    Append = row("append", 3, WRITE | DENYOOM | FAST, "string", "2.0.0")
        .keys(1, 1, 1, &["RW insert"]).value(2).categories("string"), "Appends to the value of a key";
    Strlen = row("strlen", 2, READONLY | FAST, "string", "2.2.0")
        .keys(1, 1, 1, &["RO"]).categories("string"), "Tells the length of a value";
    Getrange = row("getrange", 4, READONLY, "string", "2.4.0")
        .keys(1, 1, 1, &["RO access"]).categories("string"), "Reads a part of a value";
    Setrange = row("setrange", 4, WRITE | DENYOOM, "string", "2.2.0")
        .keys(1, 1, 1, &["RW update"]).value(3).categories("string"), "Overwrites a part of a value";
    Delifeq = row("delifeq", 3, WRITE | FAST, "string", "9.0.0")
        .keys(1, 1, 1, &["RM delete"]).categories("string"), "Deletes a key if it has this value";
    Substr = row("substr", 4, READONLY, "string", "1.0.0")
        .keys(1, 1, 1, &["RO access"]).categories("string"), "The same as GETRANGE";
    Lcs = row("lcs", -3, READONLY, "string", "7.0.0")
        .keys(1, 2, 1, &["RO access"]).categories("string"), "Finds the longest common subsequence of two values";
    Getbit = row("getbit", 3, READONLY | FAST, "bitmap", "2.2.0")
        .keys(1, 1, 1, &["RO access"]).categories("bitmap"), "Reads a bit of a value";
    Setbit = row("setbit", 4, WRITE | DENYOOM, "bitmap", "2.2.0")
        .keys(1, 1, 1, &["RW access update"]).categories("bitmap"), "Sets or clears a bit of a value";
    Bitcount = row("bitcount", -2, READONLY, "bitmap", "2.6.0")
        .keys(1, 1, 1, &["RO access"]).categories("bitmap"), "Counts the bits that are set";
    Bitpos = row("bitpos", -3, READONLY, "bitmap", "2.8.7")
        .keys(1, 1, 1, &["RO access"]).categories("bitmap"), "Finds the first bit that is set, or clear";
    Bitop = row("bitop", -4, WRITE | DENYOOM, "bitmap", "2.6.0")
        .keys(2, -1, 1, &["OW update", "RO access"]).categories("bitmap"),
        "Joins values bit by bit under another key";
    Bitfield = row("bitfield", -2, WRITE | DENYOOM, "bitmap", "3.2.0")
        .keys(1, 1, 1, &["RW access update variable_flags"]).categories("bitmap"),
        "Reads and changes integers within a value";
    BitfieldRo = row("bitfield_ro", -2, READONLY | FAST, "bitmap", "6.0.0")
        .keys(1, 1, 1, &["RO access"]).categories("bitmap"), "Reads integers within a value";
    Expire = row("expire", -3, WRITE | FAST, "generic", "1.0.0")
        .keys(1, 1, 1, &["RW update"]).categories("keyspace"), "Sets the time to live in seconds";
    Pexpire = row("pexpire", -3, WRITE | FAST, "generic", "2.6.0")
        .keys(1, 1, 1, &["RW update"]).categories("keyspace"), "Sets the time to live in milliseconds";
    Expireat = row("expireat", -3, WRITE | FAST, "generic", "1.2.0")
        .keys(1, 1, 1, &["RW update"]).categories("keyspace"), "Sets the expiry as Unix time in seconds";
    Pexpireat = row("pexpireat", -3, WRITE | FAST, "generic", "2.6.0")
        .keys(1, 1, 1, &["RW update"]).categories("keyspace"), "Sets the expiry as Unix time in milliseconds";
    Ttl = row("ttl", 2, READONLY | FAST, "generic", "1.0.0")
        .keys(1, 1, 1, &["RO access"]).categories("keyspace").tips("nondeterministic_output"),
        "Tells the time to live in seconds";
    Pttl = row("pttl", 2, READONLY | FAST, "generic", "2.6.0")
        .keys(1, 1, 1, &["RO access"]).categories("keyspace").tips("nondeterministic_output"),
        "Tells the time to live in milliseconds";
    Expiretime = row("expiretime", 2, READONLY | FAST, "generic", "7.0.0")
        .keys(1, 1, 1, &["RO access"]).categories("keyspace"), "Tells the expiry as Unix time in seconds";
    Pexpiretime = row("pexpiretime", 2, READONLY | FAST, "generic", "7.0.0")
        .keys(1, 1, 1, &["RO access"]).categories("keyspace"),
        "Tells the expiry as Unix time in milliseconds";
    Persist = row("persist", 2, WRITE | FAST, "generic", "2.2.0")
        .keys(1, 1, 1, &["RW update"]).categories("keyspace"), "Takes the expiry away";
    Type = row("type", 2, READONLY | FAST, "generic", "1.0.0")
        .keys(1, 1, 1, &["RO"]).categories("keyspace"), "Tells the kind of a value";
    Keys = row("keys", 2, READONLY, "generic", "1.0.0")
        .categories("dangerous keyspace").tips("nondeterministic_output_order request_policy:all_shards"),
        "Lists the keys that fit a pattern";
    Scan = row("scan", -2, READONLY, "generic", "2.8.0")
        .categories("keyspace").tips("nondeterministic_output request_policy:special"),
        "Lists keys step by step";
    Randomkey = row("randomkey", 1, READONLY, "generic", "1.0.0")
        .categories("keyspace").tips("nondeterministic_output request_policy:all_shards"), "Names any key";
    Dbsize = row("dbsize", 1, READONLY | FAST, "server", "1.0.0")
        .categories("keyspace").tips("request_policy:all_shards response_policy:agg_sum"), "Counts the keys";
    Flushall = row("flushall", -1, WRITE, "server", "1.0.0")
        .categories("dangerous keyspace").tips("request_policy:all_shards response_policy:all_succeeded"),
        "Deletes all keys of all databases";
    Flushdb = row("flushdb", -1, WRITE, "server", "1.0.0")
        .categories("dangerous keyspace").tips("request_policy:all_shards response_policy:all_succeeded"),
        "Deletes all keys of the database";
    FlushStep = row("paritas.flush", -2, WRITE | INTERNAL, "server", "0.1.0"),
        "Between nodes: deletes some keys of a database, or of all, from a cursor on";
    Swapdb = row("swapdb", 3, WRITE | FAST, "server", "4.0.0").categories("dangerous keyspace"),
        "Refused: the keys of a database are on many nodes";
    Move = row("move", 3, WRITE | FAST, "generic", "1.0.0")
        .keys(1, 1, 1, &["RW access delete"]).categories("keyspace"), "Moves a key to another database";
    Copy = row("copy", -3, WRITE | DENYOOM, "generic", "6.2.0")
        .keys(1, 2, 1, &["RO access", "OW update"]).categories("keyspace"),
        "Copies the value of a key to another";
    Rename = row("rename", 3, WRITE, "generic", "1.0.0")
        .keys(1, 2, 1, &["RW access delete", "OW update"]).categories("keyspace"),
        "Renames a key, over any other of the new name";
    Renamenx = row("renamenx", 3, WRITE | FAST, "generic", "1.0.0")
        .keys(1, 2, 1, &["RW access delete", "OW insert"]).categories("keyspace"),
        "Renames a key if none has the new name";
    Dump = row("dump", 2, READONLY, "generic", "2.6.0")
        .keys(1, 1, 1, &["RO access"]).categories("keyspace").tips("nondeterministic_output"),
        "Tells the value of a key in a form for RESTORE, here or in a Redis";
    Restore = row("restore", -4, WRITE | DENYOOM, "generic", "2.6.0")
        .keys(1, 1, 1, &["OW update"]).categories("dangerous keyspace"),
        "Sets a key to what DUMP has told, here or in a Redis";
    Object = row("object", -2, 0, "generic", "2.2.3").subcommands(OBJECT), "Commands about how a value is kept";
    Memory = row("memory", -2, 0, "server", "4.0.0").subcommands(MEMORY), "Commands about memory";
    Wait = row("wait", 3, NOSCRIPT, "generic", "3.0.0")
        .categories("connection").tips("request_policy:all_shards response_policy:agg_min"),
        "Tells how many replicas have the writes of this connection";
    ParitasRedundancy = row("paritas.redundancy", -2, WRITE | DENYOOM, "generic", "0.1.0")
        .keys(1, 1, 1, &["RW access update"]).categories("keyspace"),
        "Tells or changes the redundancy of a large value";
    ParitasSet = row("paritas.set", -4, WRITE | DENYOOM, "string", "0.1.0")
        .keys(2, 2, 1, &["RW access update variable_flags"]).value(3).categories("string"),
        "Sets the value of a key, and its redundancy if it is large";
    ParitasLocate = row("paritas.locate", 2, READONLY | FAST | NOSCRIPT, "generic", "0.1.0")
        .keys(1, 1, 1, &["RO access"]).categories("keyspace"),
        "Tells where the parts of a large value are; other values as GET";
    ParitasStage = row("paritas.stage", -3, WRITE | DENYOOM | NOSCRIPT, "generic", "0.1.0")
        .keys(1, 1, 1, &["OW insert"]).categories("keyspace"),
        "Opens the parts of a large value, for a client that sends their units itself";
    ParitasCommit = row("paritas.commit", -7, WRITE | DENYOOM | NOSCRIPT, "generic", "0.1.0")
        .keys(5, 5, 1, &["OW update"]).categories("keyspace"),
        "Runs a command whose value the client has sent to the holders of its parts";
    ReadItem = row("paritas.item", 3, READONLY | FAST | INTERNAL, "memcached", "0.1.0").keys(1, 1, 1, &["RO"]),
        "A line of memcached that reads an item";
    ChangeItem = row("paritas.change", 3, WRITE | FAST | INTERNAL, "memcached", "0.1.0").keys(1, 1, 1, &["RW"]),
        "A line of memcached that changes an item";
    StoreItem = row("paritas.store", 4, WRITE | DENYOOM | INTERNAL, "memcached", "0.1.0")
        .keys(1, 1, 1, &["RW"]).value(3), "A line of memcached that brings data, and the data";
    RunTransaction = row("paritas.exec", -5, WRITE | INTERNAL, "transactions", "0.1.0").keys(4, -1, 1, &["RW"]),
        "Between nodes: the commands of a transaction on hash slots of one stream";
    ReadTransaction = row("paritas.execro", -5, READONLY | INTERNAL, "transactions", "0.1.0").keys(4, -1, 1, &["RO"]),
        "Between nodes: the same, if none of the commands writes";
    RunScript = row("paritas.eval", -6, WRITE | INTERNAL, "scripting", "0.1.0").keys(5, -1, 1, &["RW"]),
        "Between nodes: a script with its source, on a hash slot";
    ReadScript = row("paritas.evalro", -6, READONLY | INTERNAL, "scripting", "0.1.0").keys(5, -1, 1, &["RO"]),
        "Between nodes: the same, if it changes nothing";
    ReadObject = row("paritas.read", 2, READONLY | INTERNAL, "generic", "0.1.0").keys(1, 1, 1, &["RO"]),
        "Between nodes: the version, expiry, flags and value of a key";
    WriteObject = row("paritas.write", 6, WRITE | DENYOOM | INTERNAL, "generic", "0.1.0").keys(1, 1, 1, &["RW"]),
        "Between nodes: writes a key with expiry, flags and value, and tells its version";
    RemoveObject = row("paritas.remove", 3, WRITE | INTERNAL, "generic", "0.1.0").keys(1, 1, 1, &["RW"]),
        "Between nodes: removes a key that has this version";
    ReadFunctions = row("paritas.functions", 3, READONLY | INTERNAL, "scripting", "0.1.0").keys(1, 1, 1, &["RO"]),
        "Between nodes: all libraries of functions, if they are not those of this version";
    ChangeFunctions = row("paritas.function", 5, WRITE | INTERNAL, "scripting", "0.1.0").keys(1, 1, 1, &["RW"]),
        "Between nodes: a change of the libraries of functions";
    KeyVersions = row("paritas.versions", -2, READONLY | INTERNAL, "transactions", "0.1.0").keys(1, -1, 1, &["RO"]),
        "Between nodes: versions of keys, for WATCH";
    ParitasUnits = row("paritas.units", -8, READONLY | NOSCRIPT, "generic", "0.1.0"),
        "Tells units of a part that this node keeps, with their sums";
    ParitasUnstage = row("paritas.unstage", 2, NOSCRIPT, "generic", "0.1.0"),
        "Gives up a value that was staged";
    ParitasPut = row("paritas.put", 8, NOSCRIPT, "generic", "0.1.0"),
        "Gives this node units of a part that is open here for a client";
    ParitasStatus = row("paritas.status", -1, LOADING | STALE, "server", "0.1.0")
        .tips("nondeterministic_output"), "Tells the state of the cluster: nodes, lists, repair";
    ParitasSlots = row("paritas.slots", -2, ADMIN | LOADING | STALE, "server", "0.1.0"),
        "Moves slots, and their keys, to another stream or node; or stops that";
    ParitasDuty = row("paritas.duty", 3, ADMIN | LOADING | STALE, "server", "0.1.0"),
        "Takes a node out of service, gently (drain) or at once (shun), or back into it (serve)";
  }
  const SCRIPTS {
    ScriptLoad = row("script|load", 3, NOSCRIPT | STALE, "scripting", "2.6.0")
        .categories("scripting"), "Keeps a script at all nodes, for EVALSHA";
    ScriptExists = row("script|exists", -3, NOSCRIPT, "scripting", "2.6.0")
        .categories("scripting"), "Tells which scripts this node knows";
    ScriptFlush = row("script|flush", -2, NOSCRIPT, "scripting", "2.6.0")
        .categories("scripting"), "Forgets all scripts, at all nodes";
    ScriptKill = row("script|kill", 2, NOSCRIPT | ALLOW_BUSY, "scripting", "2.6.0")
        .categories("scripting"), "Ends a script that runs; none runs as long as that here";
  }
  const FUNCTIONS {
    FunctionLoad = row("function|load", -3, WRITE | DENYOOM | NOSCRIPT | FUNCTION, "scripting", "7.0.0")
        .categories("scripting").tips("request_policy:all_shards response_policy:all_succeeded"),
        "Keeps a library of functions, for the whole cluster";
    FunctionDelete = row("function|delete", 3, WRITE | NOSCRIPT | FUNCTION, "scripting", "7.0.0")
        .categories("scripting").tips("request_policy:all_shards response_policy:all_succeeded"),
        "Deletes a library";
    FunctionList = row("function|list", -2, NOSCRIPT | FUNCTION, "scripting", "7.0.0")
        .categories("scripting").tips("nondeterministic_output_order"), "Lists libraries and their functions";
    FunctionDump = row("function|dump", 2, NOSCRIPT | FUNCTION, "scripting", "7.0.0")
        .categories("scripting"), "Tells all libraries in one value, for FUNCTION RESTORE";
    FunctionRestore = row("function|restore", -3, WRITE | DENYOOM | NOSCRIPT | FUNCTION, "scripting", "7.0.0")
        .categories("scripting").tips("request_policy:all_shards response_policy:all_succeeded"),
        "Keeps the libraries of FUNCTION DUMP, here or of a Redis";
    FunctionStats = row("function|stats", 2, NOSCRIPT | ALLOW_BUSY | FUNCTION, "scripting", "7.0.0")
        .categories("scripting")
        .tips("nondeterministic_output request_policy:all_shards response_policy:special"),
        "Counts libraries and functions";
    FunctionFlush = row("function|flush", -2, WRITE | NOSCRIPT | FUNCTION, "scripting", "7.0.0")
        .categories("scripting").tips("request_policy:all_shards response_policy:all_succeeded"),
        "Deletes all libraries";
    FunctionKill = row("function|kill", 2, NOSCRIPT | ALLOW_BUSY, "scripting", "7.0.0")
        .categories("scripting").tips("request_policy:all_shards response_policy:one_succeeded"),
        "Ends a function that runs; none runs as long as that here";
    FunctionHelp = row("function|help", 2, LOADING | STALE, "scripting", "7.0.0")
        .categories("scripting"), "Tells the subcommands of FUNCTION";
  }
  const CLIENT {
    ClientSetname = row("client|setname", 3, NOSCRIPT | LOADING | STALE, "connection", "2.6.9")
        .categories("connection"), "Names the connection";
    ClientGetname = row("client|getname", 2, NOSCRIPT | LOADING | STALE, "connection", "2.6.9")
        .categories("connection"), "Tells the name of the connection";
    ClientId = row("client|id", 2, NOSCRIPT | LOADING | STALE, "connection", "5.0.0")
        .categories("connection"), "Tells the number of the connection";
    ClientInfo = row("client|info", 2, NOSCRIPT | LOADING | STALE, "connection", "6.2.0")
        .categories("connection").tips("nondeterministic_output"), "Tells about this connection";
    ClientList = row("client|list", -2, ADMIN | NOSCRIPT | LOADING | STALE, "connection", "2.4.0")
        .categories("connection").tips("nondeterministic_output"), "Lists connections";
    ClientKill = row("client|kill", -3, ADMIN | NOSCRIPT | LOADING | STALE, "connection", "2.4.0")
        .categories("connection"), "Ends connections";
    ClientNoEvict = row("client|no-evict", 3, ADMIN | NOSCRIPT | LOADING | STALE, "connection", "7.0.0")
        .categories("connection"), "Spares the connection from client eviction";
    ClientSetinfo = row("client|setinfo", 4, NOSCRIPT | LOADING | STALE, "connection", "7.2.0")
        .categories("connection"), "Tells the server about the client library";
    ClientUnblock = row("client|unblock", -3, ADMIN | NOSCRIPT | LOADING | STALE, "connection", "5.0.0")
        .categories("connection"), "Wakes a connection that waits; none does here";
    ClientGetredir = row("client|getredir", 2, NOSCRIPT | LOADING | STALE, "connection", "6.0.0")
        .categories("connection"), "Tells where invalidations go; there are none here";
    ClientReply = row("client|reply", 3, NOSCRIPT | LOADING | STALE, "connection", "3.2.0")
        .categories("connection"), "Chooses which replies this connection gets: all, none, or all but the next one";
    ClientPause = row("client|pause", -3, ADMIN | NOSCRIPT | LOADING | STALE, "connection", "3.0.0")
        .categories("connection"), "Holds the commands of this node's clients, or only those that write, for a time";
    ClientUnpause = row("client|unpause", 2, ADMIN | NOSCRIPT | LOADING | STALE, "connection", "6.2.0")
        .categories("connection"), "Ends CLIENT PAUSE";
    ClientTracking = row("client|tracking", -3, NOSCRIPT | LOADING | STALE, "connection", "6.0.0")
        .categories("connection"), "OFF is OK, ON is refused: nothing tells clients what changes";
    ClientTrackinginfo = row("client|trackinginfo", 2, NOSCRIPT | LOADING | STALE, "connection", "6.2.0")
        .categories("connection"), "Tells that tracking is off";
    ClientCaching = row("client|caching", 3, NOSCRIPT | LOADING | STALE, "connection", "6.0.0")
        .categories("connection"), "Refused: tracking is off";
    ClientNoTouch = row("client|no-touch", 3, NOSCRIPT | LOADING | STALE, "connection", "7.2.0")
        .categories("connection"), "Reads without marking keys as used";
  }
  const COMMAND {
    CommandDocs = row("command|docs", -2, LOADING | STALE, "server", "7.0.0")
        .categories("connection").tips("nondeterministic_output_order"), "Tells what commands are for";
    CommandInfo = row("command|info", -2, LOADING | STALE, "server", "2.8.13")
        .categories("connection").tips("nondeterministic_output_order"),
        "Tells arity, flags and keys of commands";
    CommandCount = row("command|count", 2, LOADING | STALE, "server", "2.8.13")
        .categories("connection"), "Counts the commands";
    CommandGetkeys = row("command|getkeys", -4, LOADING | STALE, "server", "2.8.13")
        .categories("connection"), "Tells which arguments of a command are keys";
    CommandGetkeysandflags = row("command|getkeysandflags", -4, LOADING | STALE, "server", "7.0.0")
        .categories("connection"), "Tells which arguments of a command are keys, and what it does with them";
    CommandList = row("command|list", -2, LOADING | STALE, "server", "7.0.0")
        .categories("connection").tips("nondeterministic_output_order"), "Lists the names of commands";
  }
  const CONFIG {
    ConfigGet = row("config|get", -3, ADMIN | NOSCRIPT | LOADING | STALE, "server", "2.0.0"), "Tells settings";
    ConfigSet = row("config|set", -4, ADMIN | NOSCRIPT | LOADING | STALE, "server", "2.0.0")
        .tips("request_policy:all_nodes response_policy:all_succeeded"), "Changes settings";
    ConfigResetstat = row("config|resetstat", 2, ADMIN | NOSCRIPT | LOADING | STALE, "server", "2.0.0")
        .tips("request_policy:all_nodes response_policy:all_succeeded"), "Sets the counters of INFO to zero";
    ConfigRewrite = row("config|rewrite", 2, ADMIN | NOSCRIPT | LOADING | STALE, "server", "2.8.0")
        .tips("request_policy:all_nodes response_policy:all_succeeded"), "Writes changed settings to the node's file";
  }
  const MODULE {
    ModuleList = row("module|list", 2, ADMIN | NOSCRIPT, "server", "4.0.0")
        .tips("nondeterministic_output_order"), "Lists modules; there are none";
  }
  const ACL {
    AclWhoami = row("acl|whoami", 2, NOSCRIPT | LOADING | STALE, "server", "6.0.0"),
        "Tells which user the connection is";
  }
  const CLUSTER {
    ClusterSlots = row("cluster|slots", 2, STALE, "cluster", "3.0.0").tips("nondeterministic_output"),
        "Tells which node has which slots";
    ClusterShards = row("cluster|shards", 2, STALE, "cluster", "7.0.0").tips("nondeterministic_output"),
        "Tells which nodes have which slots, and how they are";
    ClusterNodes = row("cluster|nodes", 2, STALE, "cluster", "3.0.0").tips("nondeterministic_output"),
        "Tells the nodes and their slots as text";
    ClusterInfo = row("cluster|info", 2, STALE, "cluster", "3.0.0").tips("nondeterministic_output"),
        "Tells the state of the cluster";
    ClusterKeyslot = row("cluster|keyslot", 3, STALE, "cluster", "3.0.0"), "Tells the slot of a key";
    ClusterMyid = row("cluster|myid", 2, STALE, "cluster", "3.0.0"), "Tells the id of this node";
    ClusterMyshardid = row("cluster|myshardid", 2, STALE, "cluster", "7.2.0"),
        "Tells the id of this node's shard, which is the node";
    ClusterLinks = row("cluster|links", 2, STALE, "cluster", "7.0.0").tips("nondeterministic_output"),
        "Lists links of the cluster bus; there is none";
    ClusterReplicas = row("cluster|replicas", 3, ADMIN | STALE, "cluster", "5.0.0").tips("nondeterministic_output"),
        "Lists the replicas of a node; there are none";
    ClusterSlaves = row("cluster|slaves", 3, ADMIN | STALE, "cluster", "3.0.0").tips("nondeterministic_output"),
        "The same as CLUSTER REPLICAS";
    ClusterCountkeysinslot = row("cluster|countkeysinslot", 3, STALE, "cluster", "3.0.0"),
        "Counts the keys of a slot";
    ClusterGetkeysinslot = row("cluster|getkeysinslot", 4, STALE, "cluster", "3.0.0")
        .tips("nondeterministic_output"), "Lists keys of a slot";
  }
  const SENTINEL {
    SentinelGetMasterAddrByName =
        row("sentinel|get-master-addr-by-name", 3, NOSCRIPT | LOADING | STALE, "server", "2.8.4"),
        "Tells host and port of this node's port for any key, whatever the name";
    SentinelMasters = row("sentinel|masters", 2, NOSCRIPT | LOADING | STALE, "server", "2.8.4"),
        "Describes this node as the master `mymaster`";
    SentinelMaster = row("sentinel|master", 3, NOSCRIPT | LOADING | STALE, "server", "2.8.4"),
        "Describes this node as the master of this name";
    SentinelReplicas = row("sentinel|replicas", 3, NOSCRIPT | LOADING | STALE, "server", "5.0.0"),
        "Lists replicas; there are none";
    SentinelSlaves = row("sentinel|slaves", 3, NOSCRIPT | LOADING | STALE, "server", "2.8.0"),
        "The same as SENTINEL REPLICAS";
    SentinelSentinels = row("sentinel|sentinels", 3, NOSCRIPT | LOADING | STALE, "server", "2.8.4"),
        "Lists other sentinels; there are none";
  }
  const OBJECT {
    ObjectEncoding = row("object|encoding", 3, READONLY, "generic", "2.2.3")
        .keys(2, 2, 1, &["RO"]).categories("keyspace").tips("nondeterministic_output"),
        "Tells how a value is kept";
    ObjectFreq = row("object|freq", 3, READONLY, "generic", "4.0.0")
        .keys(2, 2, 1, &["RO"]).categories("keyspace").tips("nondeterministic_output"),
        "Tells how often a key was used (LFU)";
    ObjectRefcount = row("object|refcount", 3, READONLY, "generic", "2.2.3")
        .keys(2, 2, 1, &["RO"]).categories("keyspace").tips("nondeterministic_output"),
        "Tells how often a value is referred to, which is once";
    ObjectIdletime = row("object|idletime", 3, READONLY, "generic", "2.2.3")
        .keys(2, 2, 1, &["RO"]).categories("keyspace").tips("nondeterministic_output"),
        "Tells since when a key is unused";
  }
  const MEMORY {
    MemoryUsage = row("memory|usage", -3, READONLY, "server", "4.0.0").keys(2, 2, 1, &["RO"]),
        "Tells the bytes that a key takes";
  }
}
