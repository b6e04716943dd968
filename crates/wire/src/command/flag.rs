//! Flags of a command, with the names that Redis prints.

/// Changes data.
pub const WRITE: u32 = 1;
/// Reads data.
pub const READONLY: u32 = 1 << 1;
/// Refused when memory is full.
pub const DENYOOM: u32 = 1 << 2;
/// For administrators.
pub const ADMIN: u32 = 1 << 3;
/// Not in scripts.
pub const NOSCRIPT: u32 = 1 << 4;
/// Allowed while the node is not ready for clients.
pub const LOADING: u32 = 1 << 5;
/// Allowed while the node is cut off from the cluster.
pub const STALE: u32 = 1 << 6;
/// Takes constant time.
pub const FAST: u32 = 1 << 7;
/// Allowed before AUTH.
pub const NO_AUTH: u32 = 1 << 8;
/// Allowed while a script is running.
pub const ALLOW_BUSY: u32 = 1 << 9;

/// Begins, ends or watches a transaction: it runs at the client's node.
pub const TRANSACTION: u32 = 1 << 10;
/// Runs a script: the client's node gives it to the owner of its keys, as a command between nodes.
pub const SCRIPT: u32 = 1 << 12;
/// The argument that the table names as the first key tells how many keys follow; other arguments may follow them.
pub const KEY_COUNT: u32 = 1 << 13;
/// About the libraries of functions: the client's node asks their owner.
pub const FUNCTION: u32 = 1 << 14;
/// Sent between nodes only: clients cannot give it, and COMMAND does not show it.
pub const INTERNAL: u32 = 1 << 11;

/// Each flag that Redis prints, and its name.
pub const NAMES: [(u32, &str); 12] = [
    (WRITE, "write"),
    (READONLY, "readonly"),
    (DENYOOM, "denyoom"),
    (ADMIN, "admin"),
    (NOSCRIPT, "noscript"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (ALLOW_BUSY, "allow_busy"),
    (KEY_COUNT, "movablekeys"),
    // Its keys are where an argument says: COMMAND GETKEYS tells them.
    (SCRIPT, "movablekeys"),
];
