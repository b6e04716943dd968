//! How much a client may ask a server to hold before a command is even known.

/// Limits of the request decoder, all inclusive. Crossing one is a protocol error: the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// One argument. Redis: `proto-max-bulk-len`, 512 MiB; ours is lower, since no value is that large here.
    pub bulk_bytes_max: usize,
    /// Arguments of one command.
    pub args_max: usize,
    /// One inline command, and one count line.
    pub inline_bytes_max: usize,
    /// One whole command, as sent. Never above 4 GiB − 1, whatever it says: positions are 32 bits.
    pub request_bytes_max: usize,
    /// Whether the client has shown who it is. If not, Redis' own texts say so when a length is refused.
    pub authenticated: bool,
}

impl Limits {
    /// For clients that may run commands.
    pub const DEFAULT: Self = Self {
        bulk_bytes_max: 1 << 20,
        args_max: 1 << 20,
        inline_bytes_max: 64 << 10,
        request_bytes_max: 64 << 20,
        authenticated: true,
    };

    /// For clients that must send AUTH or HELLO first; Redis' figures.
    pub const UNAUTHENTICATED: Self = Self {
        bulk_bytes_max: 16_384,
        args_max: 10,
        inline_bytes_max: 64 << 10,
        request_bytes_max: 256 << 10,
        authenticated: false,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

const _: () = assert!(Limits::DEFAULT.request_bytes_max <= u32::MAX as usize);
const _: () = assert!(Limits::UNAUTHENTICATED.request_bytes_max <= u32::MAX as usize);
const _: () = assert!(Limits::DEFAULT.bulk_bytes_max < Limits::DEFAULT.request_bytes_max);
const _: () = assert!(Limits::DEFAULT.inline_bytes_max < Limits::DEFAULT.request_bytes_max);
