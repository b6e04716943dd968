//! Where the arguments of one command lie in the input: ranges, so that nothing is copied and the buffer that holds
//! them serves any connection.

/// Buffers above this many arguments are given back before the next command.
const KEPT_ARGS: usize = 16_384;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Range {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The arguments of one command, filled by [`decode`](super::decode). Reuse it: in steady state nothing is allocated.
#[derive(Clone, Debug, Default)]
pub struct Args {
    pub(super) ranges: Vec<Range>,
    /// Inline commands, unescaped; `ranges` are then places in here.
    pub(super) scratch: Vec<u8>,
    pub(super) is_inline: bool,
    /// Where [`decode_more`](super::decode_more) goes on.
    pub(super) resume: Resume,
}

/// What is known of a command that has not arrived whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resume {
    /// Everything before this is parsed.
    pub(super) position: usize,
    /// Arguments still to come; 0 before the count is known.
    pub(super) remaining: usize,
    /// No line end lies before this.
    pub(super) scanned: usize,
}

impl Args {
    /// No arguments yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many arguments, the command's name included. 0 for an empty line or `*0`: nothing to execute or answer.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True for an empty line or `*0`.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Memory that it holds.
    pub fn held_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>() + self.scratch.capacity()
    }

    /// The arguments themselves. `input` is what `decode` was given.
    #[inline]
    pub fn list<'a>(&'a self, input: &'a [u8]) -> ArgList<'a> {
        ArgList {
            bytes: if self.is_inline { &self.scratch } else { input },
            ranges: &self.ranges,
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
    /// How many, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True for an empty line or `*0`.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// One argument.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let range = self.ranges.get(index)?;
        self.bytes.get(range.start as usize..range.end as usize)
    }

    /// One argument that the command's arity promises; empty past the end, so that a wrong promise can't panic.
    #[inline]
    pub fn arg(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// All arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let (bytes, ranges) = (self.bytes, self.ranges);
        ranges
            .iter()
            .map(move |r| bytes.get(r.start as usize..r.end as usize).unwrap_or_default())
    }

    /// The same without the first `count` arguments: what COMMAND GETKEYS looks at.
    pub fn skip(&self, count: usize) -> Self {
        Self {
            bytes: self.bytes,
            ranges: self.ranges.get(count..).unwrap_or_default(),
        }
    }
}
