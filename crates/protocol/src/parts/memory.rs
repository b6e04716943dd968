//! Where the units of parts are: in chunks of the node's memory, or on the disk of a log node.

use crate::context::{Context, Shared};
use crate::disk_log::DiskLog;
use crate::interface::Out;
use paritas_base::{ListId, Position};
use paritas_large::{Stored, Units};
use paritas_paritylog::Key;
use paritas_store::{Arena, ChunkRef, Part, Purpose};

/// One unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitRef {
    /// A chunk of the node's memory.
    Memory(ChunkRef),
    /// A record on the disk of the parity log, or on its way there.
    Disk(Key),
    /// The disk cannot read the unit. Its space stays reserved for its repair.
    Lost,
}

/// Where one position of a list stores its units. `purpose`: a client writes them, or a lost part is made again.
pub(super) enum PartMemory<'a> {
    Memory {
        arena: &'a mut Arena,
        purpose: Purpose,
    },
    Disk {
        disk: &'a mut DiskLog,
        unit_bytes: u32,
        at: (ListId, Position),
        purpose: Purpose,
    },
}

impl<'a> PartMemory<'a> {
    /// On a log node all units go to the disk, on any other node to the memory.
    fn new(shared: &'a mut Shared, at: (ListId, Position), purpose: Purpose) -> Self {
        let unit_bytes = shared.arena.chunk_bytes() as u32;
        match &mut shared.disk {
            Some(disk) => Self::Disk {
                disk,
                unit_bytes,
                at,
                purpose,
            },
            None => Self::Memory {
                arena: &mut shared.arena,
                purpose,
            },
        }
    }
}

/// For units of a writer.
pub(super) fn writing<'a, O: Out>(cx: &'a mut Context<'_, O>, at: (ListId, Position)) -> PartMemory<'a> {
    PartMemory::new(cx.shared, at, Purpose::Write)
}

/// For units that are made from others.
pub(super) fn making<'a, O: Out>(cx: &'a mut Context<'_, O>, at: (ListId, Position)) -> PartMemory<'a> {
    PartMemory::new(cx.shared, at, Purpose::Rebuild)
}

impl Units for PartMemory<'_> {
    type Unit = UnitRef;

    fn unit_bytes(&self) -> u32 {
        match self {
            Self::Memory { arena, .. } => arena.chunk_bytes() as u32,
            Self::Disk { unit_bytes, .. } => *unit_bytes,
        }
    }

    fn room(&self) -> u64 {
        u64::from(match self {
            Self::Memory { arena, purpose } => arena.available(*purpose),
            Self::Disk { disk, purpose, .. } => match purpose {
                Purpose::Rebuild => disk.room_for_making(),
                _ => disk.budget().available(*purpose),
            },
        })
    }

    fn store(&mut self, bytes: &[u8]) -> Option<UnitRef> {
        if self.room() == 0 {
            return None;
        }
        match self {
            Self::Memory { arena, .. } => arena.take_for(bytes, Part::Free).map(UnitRef::Memory),
            Self::Disk { disk, at, .. } => disk.store_unit(at.0, at.1, bytes).map(UnitRef::Disk),
        }
    }

    fn stored<'a>(&'a self, unit: &'a UnitRef, length: u32) -> Stored<'a> {
        match (self, *unit) {
            (Self::Memory { arena, .. }, UnitRef::Memory(unit)) => {
                let bytes = arena.bytes(unit);
                Stored::Here(bytes.get(..length as usize).unwrap_or(bytes))
            }
            (Self::Disk { .. }, UnitRef::Disk(_)) => Stored::OnDisk,
            _ => Stored::Lost,
        }
    }

    fn overwrite(&mut self, unit: &mut UnitRef, bytes: &[u8]) {
        match (self, *unit) {
            (Self::Memory { arena, .. }, UnitRef::Memory(unit)) => {
                if let Some(place) = arena.bytes_mut(unit).get_mut(..bytes.len()) {
                    place.copy_from_slice(bytes);
                }
            }
            (Self::Disk { disk, at, .. }, UnitRef::Lost) => *unit = UnitRef::Disk(disk.write_unit(at.0, at.1, bytes)),
            // A record is never changed.
            _ => {}
        }
    }

    fn free(&mut self, unit: UnitRef) {
        match (self, unit) {
            (Self::Memory { arena, .. }, UnitRef::Memory(unit)) => arena.give(unit, Part::Free),
            (Self::Disk { disk, .. }, UnitRef::Disk(key)) => disk.free_unit(Some(key)),
            (Self::Disk { disk, .. }, UnitRef::Lost) => disk.free_unit(None),
            _ => {}
        }
    }
}
