//! Numbers of databases. The hash slot of a key does not depend on its database.

/// Number of databases that clients choose from.
pub const DATABASES: u8 = 16;

/// The database of what the cluster keeps for itself, such as libraries of functions. No client can choose it.
pub const HIDDEN_DATABASE: u8 = DATABASES;

/// Number of databases with the hidden one.
pub const ALL_DATABASES: u8 = DATABASES + 1;

/// The byte of a string of the hidden database, whose number has no room there: a type of its own.
const HIDDEN_BYTE: u8 = 15;

/// The byte of an object of a database above 0: its type, which is that of a string, and the database
/// (docs/formats/object.md).
#[inline]
pub const fn to_byte(database: u8) -> u8 {
    match database {
        HIDDEN_DATABASE => HIDDEN_BYTE,
        database => database << 4,
    }
}

/// The database in such a byte. `None`: only strings are known, and database 0 has no such byte.
#[inline]
pub const fn of_byte(byte: u8) -> Option<u8> {
    match byte {
        HIDDEN_BYTE => Some(HIDDEN_DATABASE),
        byte if byte & 0xf == 0 && byte > 0 => Some(byte >> 4),
        _ => None,
    }
}
