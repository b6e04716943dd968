//! `Settings`: what a user of the engine may choose.

use paritas_base::Span;

/// Who decodes large values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decode {
    /// A node: every read is a GET.
    Server,
    /// The client.
    Client,
    /// Whoever has been faster for values of that size.
    Auto,
}

/// Who encodes large values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encode {
    /// A node: a value goes with its command.
    Server,
    /// The client.
    Client,
    /// Whoever has been faster for values of that size.
    Auto,
}

/// What a user of the engine may choose.
#[derive(Clone, Debug)]
pub struct Settings {
    /// User and password for AUTH. Without a user, the default user.
    pub password: Option<(Option<String>, String)>,
    /// Who decodes large values.
    pub decode: Decode,
    /// Who encodes large values.
    pub encode: Encode,
    /// Values of fewer bytes go with their commands. Nodes keep them in objects, without parts.
    pub encode_bytes_min: u64,
    /// The most operations under way; more are refused as busy.
    pub ops_max: usize,
    /// The most bytes of values under way. An operation that is longer runs alone.
    pub bytes_max: u64,
    /// The longest value that is read from its parts, in bytes. Longer ones are read by GET.
    pub value_bytes_max: u64,
    /// The longest reply, in bytes.
    pub reply_bytes_max: u64,
    /// The time without progress after which an operation is given up. Bytes of its node are progress.
    pub deadline: Span,
    /// The time without a byte of a node after which another one is asked instead, if the command only reads,
    /// and after which a node encodes a value in place of the client.
    pub retry: Span,
    /// Units count as late after this time, and after four times the median.
    pub late_min: Span,
    /// Bytes that may be asked for twice, per 1,000 bytes that were read.
    pub hedge_per_mille: u64,
    /// Chooses the node that is asked first, and the trials of `Auto`. 0: the driver draws one.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            password: None,
            decode: Decode::Auto,
            encode: Encode::Auto,
            encode_bytes_min: (64 << 10) + 1,
            ops_max: 64,
            bytes_max: 8 << 20,
            value_bytes_max: 512 << 20,
            reply_bytes_max: 1 << 30,
            deadline: Span::from_ms(10_000),
            retry: Span::from_ms(1_000),
            late_min: Span::from_ms(5),
            hedge_per_mille: 100,
            seed: 0,
        }
    }
}
