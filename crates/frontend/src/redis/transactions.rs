//! A client's transaction: the commands that it has sent between `MULTI` and `EXEC`, and the keys that it watches.

use core::ops::Range;
use paritas_wire::command::{CommandSpec, flag};
use paritas_wire::resp::{ArgList, encode};

/// The most commands of a transaction, and their bytes.
const COMMANDS_MAX: usize = 65_535;
const BYTES_MAX: usize = 64 << 20;

/// What a client has of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// The commands since `MULTI`.
    queue: Option<Queue>,
    /// Watched keys, with the versions that they had.
    watched: Vec<(Vec<u8>, Vec<u8>)>,
    /// The hash slot of the watched keys.
    watched_slot: Option<u16>,
    /// Unanswered WATCH commands.
    pub(crate) unanswered_watches: usize,
}

/// The commands of a transaction before its `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// All of them, each as an array of strings.
    bytes: Vec<u8>,
    commands: Vec<Queued>,
    /// A command was refused: so will be `EXEC`.
    is_broken: bool,
    /// The only hash slot of keys so far, and whether there are others.
    slot: Option<u16>,
    has_other_slots: bool,
}

/// A command of a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) spec: &'static CommandSpec,
    range: Range<usize>,
}

impl Transaction {
    /// Whether `MULTI` was given.
    pub(crate) const fn is_open(&self) -> bool {
        self.queue.is_some()
    }

    /// `MULTI`.
    pub(crate) fn begin(&mut self) {
        self.queue = Some(Queue::default());
    }

    /// The number of commands since `MULTI`.
    pub(crate) fn queued_count(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.commands.len())
    }

    /// Whether there is nothing to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_none() && self.watched.is_empty() && self.unanswered_watches == 0
    }

    pub(crate) const fn queue(&self) -> Option<&Queue> {
        self.queue.as_ref()
    }

    /// A command was refused: nothing of the transaction will be done.
    pub(crate) fn break_up(&mut self) {
        if let Some(queue) = &mut self.queue {
            // What it holds will not be needed.
            *queue = Queue {
                is_broken: true,
                ..Queue::default()
            };
        }
    }

    /// Keeps a command. False: the transaction is too long now.
    pub(crate) fn push(&mut self, spec: &'static CommandSpec, args: ArgList<'_>) -> bool {
        let Some(queue) = self.queue.as_mut() else {
            return false;
        };
        if queue.is_broken {
            return true;
        }
        let start = queue.bytes.len();
        if queue.commands.len() == COMMANDS_MAX || start + args.span_bytes() > BYTES_MAX {
            return false;
        }
        encode::array_header(&mut queue.bytes, args.len());
        args.iter().for_each(|arg| encode::bulk(&mut queue.bytes, arg));
        let range = start..queue.bytes.len();
        queue.commands.push(Queued { spec, range });
        true
    }

    /// Keys of a queued command are in this slot. False if others are in another.
    pub(crate) fn note_slot(&mut self, slot: u16) -> bool {
        let Some(queue) = self.queue.as_mut() else { return true };
        queue.has_other_slots |= queue.slot.is_some_and(|of| of != slot);
        queue.slot.get_or_insert(slot);
        !queue.has_other_slots
    }

    /// The slot of the watched keys, in which all commands must then be.
    pub(crate) const fn watched_slot(&self) -> Option<u16> {
        self.watched_slot
    }

    /// A WATCH of keys in this slot was sent to their owner.
    pub(crate) fn begin_watch(&mut self, slot: u16) {
        self.watched_slot = Some(slot);
        self.unanswered_watches += 1;
    }

    /// A WATCH is answered; with no versions if it was refused.
    pub(crate) fn end_watch(&mut self, versions: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) {
        self.unanswered_watches = self.unanswered_watches.saturating_sub(1);
        self.watched.extend(versions);
        if self.watched.is_empty() && self.unanswered_watches == 0 {
            self.watched_slot = None;
        }
    }

    /// `UNWATCH`.
    pub(crate) fn unwatch(&mut self) {
        self.watched.clear();
        self.watched_slot = None;
    }

    /// The watched keys with their versions, as an array.
    pub(crate) fn append_watched(&self, out: &mut Vec<u8>) {
        encode::array_header(out, 2 * self.watched.len());
        for (key, version) in &self.watched {
            encode::bulk(out, key);
            encode::bulk(out, version);
        }
    }

    /// The first watched key.
    pub(crate) fn watched_key(&self) -> Option<&[u8]> {
        self.watched.first().map(|(key, _)| key.as_slice())
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let queue = self.queue.as_ref().map_or(0, |queue| {
            queue.bytes.capacity() + queue.commands.capacity() * size_of::<Queued>()
        });
        let watched = self.watched.iter();
        let watched = watched.map(|(key, version)| key.capacity() + version.capacity() + 2 * size_of::<Vec<u8>>());
        size_of::<Self>() + queue + watched.sum::<usize>()
    }
}

impl Queue {
    pub(crate) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The commands, each with its bytes.
    pub(crate) fn commands(&self) -> impl ExactSizeIterator<Item = (&'static CommandSpec, &[u8])> {
        let bytes = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        self.commands
            .iter()
            .map(move |queued| (queued.spec, bytes(&queued.range)))
    }

    /// Whether a command writes.
    pub(crate) fn writes(&self) -> bool {
        self.commands.iter().any(|queued| queued.spec.is(flag::WRITE))
    }
}
