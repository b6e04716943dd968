//! What the pairs of one MSET or MSETNX on a stream weigh: in the delta that stores them, and on their way.

use paritas_store::RECORD_BYTES_MAX;
use paritas_wire::command::KeyIndexes;
use paritas_wire::resp::ArgList;

/// The most bytes of keys and values of pairs on one stream of which a value is large. A value has at most 16 MiB
/// there, and all of them are held until the last has its parts.
pub(crate) const LARGE_PAIRS_BYTES_MAX: usize = (16 << 20) + (128 << 10);

/// What keys with their values weigh.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Load {
    /// Number of keys.
    pub(crate) count: usize,
    /// Bytes of keys and values.
    pub(crate) bytes: usize,
    /// Bytes of them in the delta: of a large value, those of its record.
    pub(crate) delta_bytes: usize,
    /// A value does not fit one object.
    pub(crate) has_large: bool,
}

impl Load {
    /// An upper bound of the load of `count` keys with their values, from the length of the whole command alone.
    pub(crate) fn at_most(args: ArgList<'_>, count: usize, small_max: usize) -> Self {
        let bytes = args.span_bytes();
        Self {
            count,
            bytes,
            delta_bytes: bytes,
            has_large: bytes > small_max,
        }
    }

    /// That of the pairs of a whole command. `small_max`: the longest value of one object, in bytes.
    pub(crate) fn of_pairs(args: ArgList<'_>, keys: KeyIndexes, small_max: usize) -> Self {
        let count = keys.len();
        if !Self::at_most(args, count, small_max).has_large {
            let bytes = args.iter().skip(1).map(<[u8]>::len).sum();
            return Self {
                count,
                bytes,
                delta_bytes: bytes,
                has_large: false,
            };
        }
        keys.fold(Self::default(), |load, at| load.and(args, at, 2, small_max))
    }

    /// This load and that of one more key, the one in argument `at`. `step`: number of arguments of a key and its
    /// value.
    pub(crate) fn and(self, args: ArgList<'_>, at: usize, step: usize, small_max: usize) -> Self {
        let value_bytes: usize = (at + 1..at + step).map(|at| args.arg(at).len()).sum();
        let (key_bytes, is_large) = (args.arg(at).len(), value_bytes > small_max);
        Self {
            count: self.count + 1,
            bytes: self.bytes + key_bytes + value_bytes,
            delta_bytes: self.delta_bytes + key_bytes + if is_large { RECORD_BYTES_MAX } else { value_bytes },
            has_large: self.has_large || is_large,
        }
    }
}
