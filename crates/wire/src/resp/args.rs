//! The arguments of one command as ranges of the input. Nothing is copied, and one buffer of ranges serves all
//! connections.

/// A buffer for more arguments than this is freed before the next command.
const KEPT_ARGS: usize = 16_384;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Range {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The arguments of one command, filled in by [`decode`](super::decode). Reuse the value, so that nothing is allocated
/// in steady state.
#[derive(Clone, Debug, Default)]
pub struct Args {
    pub(super) ranges: Vec<Range>,
    /// The unescaped arguments of an inline command; `ranges` then refer to these bytes.
    pub(super) scratch: Vec<u8>,
    pub(super) is_inline: bool,
    /// Where [`decode_more`](super::decode_more) continues.
    pub(super) resume: Resume,
}

/// The state of decoding a command that is not yet complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resume {
    /// All bytes before this offset are parsed.
    pub(super) position: usize,
    /// Number of arguments still to come; 0 before the count is known.
    pub(super) remaining: usize,
    /// There is no line end before this offset.
    pub(super) scanned: usize,
}

impl Args {
    /// No arguments yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of arguments, including the command's name. 0 for an empty line or `*0`: nothing to execute or answer.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is nothing to execute: an empty line or `*0`.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes of memory allocated.
    pub fn held_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>() + self.scratch.capacity()
    }

    /// The arguments. `input` must be the bytes that were given to `decode`.
    #[inline]
    pub fn list<'a>(&'a self, input: &'a [u8]) -> ArgList<'a> {
        ArgList {
            bytes: if self.is_inline { &self.scratch } else { input },
            ranges: &self.ranges,
        }
    }

    /// Makes these ranges of the input the arguments, for another protocol than that of Redis.
    #[inline]
    pub fn set(&mut self, ranges: &[core::ops::Range<usize>]) {
        self.restart();
        let range = |range: &core::ops::Range<usize>| Range {
            start: range.start as u32,
            end: range.end as u32,
        };
        self.ranges.extend(ranges.iter().map(range));
    }

    /// Makes these words the arguments, which are kept here and do not come from the input.
    pub fn keep(&mut self, words: &[&[u8]]) {
        self.restart();
        self.scratch.clear();
        self.is_inline = true;
        for word in words {
            let start = self.scratch.len();
            self.scratch.extend_from_slice(word);
            self.ranges.push(Range {
                start: start as u32,
                end: self.scratch.len() as u32,
            });
        }
    }

    #[inline]
    pub(super) fn restart(&mut self) {
        if self.ranges.capacity() > KEPT_ARGS {
            self.ranges = Vec::new();
        }
        self.ranges.clear();
        self.is_inline = false;
        self.resume = Resume::default();
    }
}

/// A command's arguments, borrowed from the input. Argument 0 is the command's name.
#[derive(Clone, Copy, Debug)]
pub struct ArgList<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range],
}

impl<'a> ArgList<'a> {
    /// Number of arguments, including the command's name.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is nothing to execute: an empty line or `*0`.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The argument at an index; `None` past the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let range = self.ranges.get(index)?;
        self.bytes.get(range.start as usize..range.end as usize)
    }

    /// An argument that exists by the command's arity. It is empty past the end, so that a wrong arity cannot cause a
    /// panic.
    #[inline]
    pub fn arg(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// At least as many bytes as all arguments together have: those from the first to the last, with what is between.
    #[inline]
    pub fn span_bytes(&self) -> usize {
        match (self.ranges.first(), self.ranges.last()) {
            (Some(first), Some(last)) => (last.end - first.start) as usize,
            _ => 0,
        }
    }

    /// All arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let (bytes, ranges) = (self.bytes, self.ranges);
        ranges
            .iter()
            .map(move |r| bytes.get(r.start as usize..r.end as usize).unwrap_or_default())
    }

    /// The list without the first `count` arguments, as COMMAND GETKEYS needs it.
    pub fn skip(&self, count: usize) -> Self {
        Self {
            bytes: self.bytes,
            ranges: self.ranges.get(count..).unwrap_or_default(),
        }
    }
}
