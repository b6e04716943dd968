//! Limits on what a client can make the server hold before its command is known.

/// Limits of the request decoder, all inclusive. Exceeding one is a protocol error, and the connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most bytes of one argument; in Redis `proto-max-bulk-len`.
    pub bulk_bytes_max: usize,
    /// Most bytes of an argument that is decoded with its command. Of a longer one the reader takes the bytes as they
    /// come ([`Decoded::Long`](super::Decoded::Long)).
    pub whole_bytes_max: usize,
    /// Most arguments of one command.
    pub args_max: usize,
    /// Most bytes of an inline command, and of a count or length line.
    pub inline_bytes_max: usize,
    /// Most bytes of one command as sent. At most 4 GiB − 1 takes effect, because positions have 32 bits.
    pub request_bytes_max: usize,
    /// Whether the client is authenticated. If not, a refused length is reported in Redis's text for that case.
    pub authenticated: bool,
}

impl Limits {
    /// Limits for clients that may run commands.
    pub const DEFAULT: Self = Self {
        bulk_bytes_max: 512 << 20,
        whole_bytes_max: 16 << 20,
        args_max: 1 << 20,
        inline_bytes_max: 64 << 10,
        request_bytes_max: 64 << 20,
        authenticated: true,
    };

    /// Limits for clients that must first send AUTH or HELLO; the values are those of Redis.
    pub const UNAUTHENTICATED: Self = Self {
        bulk_bytes_max: 16_384,
        whole_bytes_max: 16_384,
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
const _: () = assert!(Limits::DEFAULT.whole_bytes_max < Limits::DEFAULT.request_bytes_max);
const _: () = assert!(Limits::DEFAULT.inline_bytes_max < Limits::DEFAULT.request_bytes_max);
