//! The disks of log nodes. Their bytes outlive a process. Requests are done late and in any order. A crash tears or
//! loses writes; a power failure also loses writes that were done (docs/reliability.md).

use crate::driver::Process;
use crate::events::SimEvent;
use crate::fleet::Fleet;
use crate::schedule::Schedule;
use crate::swarm::Swarm;
use paritas_base::{Incarnation, ListId, Position, Prng, Span, Stripe, Version};
use paritas_protocol::paritylog::{Io, Key, Layout, ParityLog, Recovery, Settings, Space, Work};
use paritas_protocol::{ParityMember, PartId, UnitRef};
use std::borrow::Cow;
use std::collections::VecDeque;

/// The contents of one node's disk.
#[derive(Clone, Default, Debug)]
pub(crate) struct Disk {
    slots: Vec<u8>,
    log: Vec<u8>,
    /// The bytes overwritten by the latest writes, which a power failure may bring back.
    before: VecDeque<(Space, u64, Vec<u8>)>,
}

/// The value of bytes that were never written.
const JUNK: u8 = 0xa5;
/// Number of the latest writes that a power failure may lose after they were done.
const CACHED_WRITES: usize = 64;

impl Disk {
    fn space(&self, space: Space) -> &Vec<u8> {
        match space {
            Space::Slots => &self.slots,
            Space::Log => &self.log,
        }
    }

    pub(crate) fn read(&self, space: Space, at: u64, length: usize) -> Vec<u8> {
        let bytes = self.space(space);
        let from = (at as usize).min(bytes.len());
        let mut read = bytes[from..bytes.len().min(from + length)].to_vec();
        read.resize(length, JUNK);
        read
    }

    fn write(&mut self, space: Space, at: u64, bytes: &[u8]) {
        let before = self.read(space, at, bytes.len());
        self.before.push_back((space, at, before));
        if self.before.len() > CACHED_WRITES {
            self.before.pop_front();
        }
        self.put(space, at, bytes);
    }

    fn put(&mut self, space: Space, at: u64, bytes: &[u8]) {
        let all = match space {
            Space::Slots => &mut self.slots,
            Space::Log => &mut self.log,
        };
        let (from, end) = (at as usize, at as usize + bytes.len());
        all.resize(all.len().max(end), JUNK);
        all[from..end].copy_from_slice(bytes);
    }

    /// A power failure: some of the latest writes are lost or half lost. A log does not wait for the disk's own cache
    /// (P11.4).
    fn lose_writes(&mut self, random: &mut Prng) {
        while let Some((space, at, bytes)) = self.before.pop_back() {
            let cut = random.below(bytes.len() as u64 + 1) as usize;
            match random.below(6) {
                0..=1 => self.put(space, at, &bytes),
                2 => self.put(space, at, &bytes[..cut]),
                3 => self.put(space, at + cut as u64, &bytes[cut..]),
                _ => {}
            }
        }
    }

    /// Flips one bit of written data. Returns false if the address was never written.
    fn flip(&mut self, space: Space, at: u64, bit: usize) -> bool {
        let all = match space {
            Space::Slots => &mut self.slots,
            Space::Log => &mut self.log,
        };
        let byte = all.get_mut(at as usize + bit / 8);
        byte.map(|byte| *byte ^= 1 << (bit % 8)).is_some()
    }

    /// The log as a new process finds it.
    pub(crate) fn open(&self, settings: Settings, incarnation: Incarnation) -> ParityLog {
        let mut recovery = Recovery::new(settings, 1);
        for (slot, bytes) in self.slots.chunks(settings.slot_bytes()).enumerate() {
            recovery.slot(slot as u32, bytes);
        }
        recovery.log(0, &self.log);
        recovery.resume(incarnation.0 as u16)
    }
}

/// Draws a log of few small chunks, so that rare situations occur.
pub(crate) fn draw_settings(random: &mut Prng, chunk_bytes: u32, data: u8) -> Settings {
    let chunk_bytes = chunk_bytes as usize;
    let chunk = chunk_bytes as u64;
    Settings {
        layout: *random.pick(&[Layout::Pl, Layout::Plr, Layout::PlrM, Layout::Plm]),
        chunk_bytes,
        data_max: usize::from(data),
        block_bytes: *random.pick(&[1, 64]),
        reserve_bytes: random.between(chunk / 2, 4 * chunk) as usize,
        slots_max: random.between(200, 2_000) as u32,
        log_bytes: chunk * 64 * random.between(10, 60),
        flush_bytes: random.between(64, 8 * chunk) as usize,
        buffer_max_bytes: random.between(4 * chunk, 40 * chunk) as usize,
    }
}

impl Process {
    /// A parity chunk, in memory or on disk. `None` if it is not valid or the disk has lost it.
    #[allow(clippy::type_complexity)]
    pub(crate) fn parity<'a>(
        &'a self,
        member: &'a ParityMember,
        stripe: Stripe,
    ) -> Option<(Vec<Version>, Option<Cow<'a, [u8]>>)> {
        let (versions, bytes) = member.chunk(self.node.replica().arena(), stripe)?;
        let Some(key) = member.disk_key(stripe) else {
            return Some((versions, bytes.map(Cow::Borrowed)));
        };
        Some((versions, Some(Cow::Owned(self.chunk_on_disk(key)?))))
    }

    /// The key of a unit of a large value that is kept here on disk.
    pub(crate) fn unit_on_disk(&self, list: ListId, position: Position, part: &PartId, unit: u32) -> Option<Key> {
        let replica = self.node.replica();
        let mut parts = replica.list(list)?.parts.iter();
        let parts = parts.find(|parts| parts.position() == position)?;
        let (stored, ..) = parts
            .keeper()
            .stored(replica.arena().chunk_bytes() as u32, part, unit)?;
        match *stored {
            UnitRef::Disk(key) => Some(key),
            UnitRef::Memory(_) | UnitRef::Lost => None,
        }
    }

    /// A chunk of the log, if it can be read.
    pub(crate) fn chunk_on_disk(&self, key: Key) -> Option<Vec<u8>> {
        let disk = self.disk.as_ref()?;
        let read = |space, at, length| disk.read(space, at, length);
        let (_, bytes) = self.node.replica().parity_log()?.chunk_now(key, read)?;
        Some(bytes)
    }

    /// Flips one bit of a chunk's bytes on disk. Returns false and does nothing if no reader would notice.
    pub(crate) fn flip_on_disk(&mut self, list: ListId, stripe: Stripe, which: u64) -> bool {
        let member = |process: &Self| {
            let member = process.node.replica().list(list)?.member()?;
            Some((member.disk_key(stripe)?, process.parity(member, stripe).is_some()))
        };
        let Some((key, true)) = member(self) else {
            return false;
        };
        self.flip_record(key, which)
    }

    /// As [`Self::flip_on_disk`], for the record of a chunk or a unit.
    pub(crate) fn flip_record(&mut self, key: Key, which: u64) -> bool {
        if self.chunk_on_disk(key).is_none() {
            return false;
        }
        let places = self
            .node
            .replica()
            .parity_log()
            .map_or(Vec::new(), |log| log.places(key));
        let Some((space, at, length)) = places.get(which as usize % places.len().max(1)).copied() else {
            return false;
        };
        let bit = (which >> 16) as usize % (8 * length.max(1));
        let flipped = self.disk.as_mut().is_some_and(|disk| disk.flip(space, at, bit));
        if flipped && self.chunk_on_disk(key).is_some() {
            self.disk.as_mut().map(|disk| disk.flip(space, at, bit));
            return false;
        }
        flipped
    }
}

impl Fleet {
    /// Starts the reads and writes that a process has requested. Each is done some time later.
    pub(crate) fn begin_disk_work(&mut self, schedule: &mut Schedule, swarm: &Swarm, at: usize) {
        let Some(process) = self.processes[at].as_mut() else {
            return;
        };
        let incarnation = process.incarnation;
        for io in core::mem::take(&mut process.out.ios) {
            let most = swarm.disk_delay_max.0.max(1);
            let slow = if schedule.random.chance(20_000) { 20 } else { 1 };
            let delay = Span(schedule.random.below(most) * slow);
            let io = Box::new(io);
            schedule.push(delay, SimEvent::Disk { at, incarnation, io });
        }
    }

    /// Does a read or a write. Returns the bytes read; `None` if the process has ended.
    pub(crate) fn do_disk_work(&mut self, at: usize, incarnation: Incarnation, io: &Io) -> Option<Vec<u8>> {
        let disk = self.alive(at, incarnation)?.disk.as_mut()?;
        Some(match &io.work {
            Work::Read(length) => disk.read(io.space, io.at, *length),
            Work::Write(bytes) => {
                disk.write(io.space, io.at, bytes);
                Vec::new()
            }
        })
    }

    /// Keeps the disk of a process that has ended. Writes that were under way are done, torn or lost.
    pub(crate) fn keep_disk(
        &mut self,
        schedule: &mut Schedule,
        at: usize,
        incarnation: Incarnation,
        disk: Option<Disk>,
    ) {
        let Some(mut disk) = disk else { return };
        let mut writes = Vec::new();
        for queued in schedule.pending() {
            if let SimEvent::Disk {
                at: a,
                incarnation: i,
                io,
            } = queued.what
                && (*a, *i) == (at, incarnation)
                && let Work::Write(bytes) = &io.work
            {
                writes.push((io.space, io.at, bytes.clone()));
            }
        }
        for (space, from, bytes) in writes {
            let end = match schedule.random.below(3) {
                0 => 0,
                1 => bytes.len(),
                _ => schedule.random.below(bytes.len() as u64 + 1) as usize,
            };
            disk.write(space, from, &bytes[..end]);
        }
        if schedule.random.chance(300_000) {
            disk.lose_writes(&mut schedule.random);
        }
        disk.before.clear();
        self.disks[at] = Some(disk);
    }
}
