//! A client's transaction: the commands that it has sent between `MULTI` and `EXEC`, and the keys that it watches.

use core::ops::Range;
use paritas_wire::command::{Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, encode};

/// The most commands of a transaction, and their bytes.
const COMMANDS_MAX: usize = 65_535;
const BYTES_MAX: usize = 64 << 20;
/// The most memory of a queue that is kept for the next transaction: bytes, and commands.
const SPARE_BYTES_MAX: usize = 16 << 10;
const SPARE_COMMANDS_MAX: usize = 256;
/// The most keys that a client watches.
const WATCHED_MAX: usize = 1024;

/// What a client has of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// The commands since `MULTI`.
    queue: Option<Queue>,
    /// The keys that it watches.
    watched: Vec<Watched>,
    watched_bytes: usize,
    /// The hash slot of the watched keys.
    watched_slot: Option<u16>,
    /// Unanswered WATCH commands.
    pub(crate) unanswered_watches: usize,
}

/// A watched key, with the version that it had.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) database: u8,
    pub(crate) key: Vec<u8>,
    pub(crate) version: Vec<u8>,
}

/// The commands of a transaction before its `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// All of them, each as an array of strings.
    pub(crate) bytes: Vec<u8>,
    pub(crate) commands: Vec<Queued>,
    /// A command was refused: so will be `EXEC`.
    is_broken: bool,
    /// The database of the next command, and whether `SELECT` is among the commands.
    pub(crate) database: u8,
    pub(crate) selects: bool,
    /// Some of the commands are function calls.
    calls_functions: bool,
    /// The only hash slot of keys so far, and whether there are others.
    slot: Option<u16>,
    has_other_slots: bool,
}

/// A command of a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) spec: &'static CommandSpec,
    /// Its bytes among those of the queue.
    pub(crate) range: Range<usize>,
    pub(crate) place: Place,
    /// The database that it is about.
    pub(crate) database: u8,
}

/// Where a command of a transaction runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// At the client's node.
    Here,
    /// At the owner of this slot.
    Slot(u16),
    /// At the owners of several slots.
    Slots,
    /// Nowhere: its bytes are the reply.
    Known,
}

/// Whether a command calls a function.
pub(crate) const fn is_function_call(id: Command) -> bool {
    matches!(id, Command::Fcall | Command::FcallRo)
}

impl Transaction {
    /// Whether `MULTI` was given.
    pub(crate) const fn is_open(&self) -> bool {
        self.queue.is_some()
    }

    /// `MULTI` of a client with this database. `spare`: a queue of an earlier transaction, for its memory.
    pub(crate) fn begin(&mut self, database: u8, spare: Queue) {
        self.queue = Some(Queue { database, ..spare });
    }

    /// `SELECT` among the commands.
    pub(crate) fn select(&mut self, database: u8) {
        if let Some(queue) = &mut self.queue {
            (queue.database, queue.selects) = (database, true);
        }
    }

    /// The queue, emptied, if it is worth keeping for another transaction.
    pub(crate) fn take_spare(&mut self) -> Option<Queue> {
        let Queue {
            mut bytes,
            mut commands,
            ..
        } = self.queue.take()?;
        if bytes.capacity() > SPARE_BYTES_MAX || commands.capacity() > SPARE_COMMANDS_MAX {
            return None;
        }
        bytes.clear();
        commands.clear();
        Some(Queue {
            bytes,
            commands,
            ..Queue::default()
        })
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

    /// Whether its commands may run: none was refused.
    pub(crate) fn may_run(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| !queue.is_broken)
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

    /// The transaction ends. Only what is still asked for a WATCH stays.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            unanswered_watches: self.unanswered_watches,
            ..Self::default()
        };
    }

    /// Keeps a command. False: the transaction is too long now.
    pub(crate) fn push(&mut self, spec: &'static CommandSpec, place: Place, args: ArgList<'_>) -> bool {
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
        queue.calls_functions |= is_function_call(spec.id);
        queue.commands.push(Queued {
            spec,
            range,
            place,
            database: queue.database,
        });
        true
    }

    /// Whether some of its commands are function calls.
    pub(crate) fn calls_functions(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.calls_functions)
    }

    /// Puts other commands in the place of its function calls. `resolve` appends a command and gives its row, or it
    /// appends a reply that is known already. False: the transaction is too long now.
    pub(crate) fn resolve_calls(
        &mut self,
        mut resolve: impl FnMut(&CommandSpec, &[u8], &mut Vec<u8>) -> Option<&'static CommandSpec>,
    ) -> bool {
        let Some(queue) = self.queue.as_mut() else { return true };
        let mut bytes = Vec::with_capacity(queue.bytes.len());
        for queued in &mut queue.commands {
            let (start, old) = (bytes.len(), queue.bytes.get(queued.range.clone()).unwrap_or_default());
            match is_function_call(queued.spec.id) {
                false => bytes.extend_from_slice(old),
                true => match resolve(queued.spec, old, &mut bytes) {
                    Some(spec) => queued.spec = spec,
                    None => queued.place = Place::Known,
                },
            }
            queued.range = start..bytes.len();
            if bytes.len() > BYTES_MAX {
                return false;
            }
        }
        (queue.bytes, queue.calls_functions) = (bytes, false);
        true
    }

    /// The database of the next command. `chosen`: that of the client.
    pub(crate) fn database(&self, chosen: u8) -> u8 {
        self.queue.as_ref().map_or(chosen, |queue| queue.database)
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

    /// Whether this number of further keys may be watched.
    pub(crate) const fn may_watch(&self, count: usize) -> bool {
        self.watched.len() + count <= WATCHED_MAX
    }

    /// Whether a key is watched already.
    pub(crate) fn watches(&self, database: u8, key: &[u8]) -> bool {
        let mut watched = self.watched.iter();
        watched.any(|watched| watched.database == database && watched.key == key)
    }

    /// A WATCH of keys in this slot was sent to their owner.
    pub(crate) fn begin_watch(&mut self, slot: u16) {
        self.watched_slot = Some(slot);
        self.unanswered_watches += 1;
    }

    /// A WATCH is answered; with no versions if it was refused.
    pub(crate) fn end_watch(&mut self, versions: Vec<Watched>) {
        self.unanswered_watches = self.unanswered_watches.saturating_sub(1);
        let bytes = |watched: &Watched| watched.key.len() + watched.version.len() + size_of::<Watched>();
        self.watched_bytes += versions.iter().map(bytes).sum::<usize>();
        self.watched.extend(versions);
        if self.watched.is_empty() && self.unanswered_watches == 0 {
            self.watched_slot = None;
        }
    }

    /// The watched keys as an array: of each the database, the key and the version.
    pub(crate) fn append_watched(&self, out: &mut Vec<u8>) {
        encode::array_header(out, 3 * self.watched.len());
        for Watched { database, key, version } in &self.watched {
            encode::bulk_integer(out, i64::from(*database));
            encode::bulk(out, key);
            encode::bulk(out, version);
        }
    }

    /// The first watched key, with its database.
    pub(crate) fn watched_key(&self) -> Option<(u8, &[u8])> {
        let watched = self.watched.first()?;
        Some((watched.database, &watched.key))
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let queue = self.queue.as_ref().map_or(0, |queue| {
            queue.bytes.capacity() + queue.commands.capacity() * size_of::<Queued>()
        });
        size_of::<Self>() + queue + self.watched_bytes
    }
}

impl Queue {
    /// Whether a command writes.
    pub(crate) fn writes(&self) -> bool {
        self.commands.iter().any(|queued| queued.spec.is(flag::WRITE))
    }

    /// The hash slot of all commands, if it is one and all have keys.
    pub(crate) fn only_slot(&self) -> Option<u16> {
        let slot = self.slot.filter(|_| !self.has_other_slots)?;
        let is_there = |queued: &Queued| queued.place == Place::Slot(slot);
        self.commands.iter().all(is_there).then_some(slot)
    }

    /// The bytes of a command.
    pub(crate) fn bytes_of(&self, queued: &Queued) -> &[u8] {
        self.bytes.get(queued.range.clone()).unwrap_or_default()
    }
}
