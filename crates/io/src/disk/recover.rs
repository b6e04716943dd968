//! Reads what an earlier process left: all written parts of both spaces, in large reads.

use super::directory::LogDirectory;
use super::segments::{Scratch, Segments, Trouble};
use paritas_paritylog::{Record, Recovery, Settings, Space};

/// Bytes of one read. Small in tests, so that reads also end within records there.
const READ_BYTES: usize = if cfg!(test) { 8 << 10 } else { 4 << 20 };

/// Gives everything that was ever written to `recovery`.
pub(super) fn read(
    directory: &LogDirectory,
    settings: &Settings,
    recovery: &mut Recovery,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), Trouble> {
    let (slots, area) = (directory.space(Space::Slots), directory.space(Space::Log));
    let slot_bytes = settings.slot_bytes();
    let of_slots = slots.written(slot_bytes as u64, 0)?;
    // A record may extend over a hole, if a tool copied the files and made holes of their zeros.
    let of_area = area.written(settings.block_bytes as u64, settings.chunk_record_bytes() as u64)?;
    let total = of_slots.iter().chain(&of_area).map(|(from, to)| to - from).sum();
    let mut done = 0;
    let mut step = |bytes: usize| {
        done += bytes as u64;
        progress(done, total);
    };
    let mut scratch = Scratch::default();
    for (from, to) in of_slots {
        let mut at = from;
        let most = (READ_BYTES / slot_bytes).max(1) * slot_bytes;
        while at < to {
            let mut bytes = vec![0; ((to - at) as usize).min(most)];
            slots.read(at, &mut bytes, &mut scratch)?;
            for (n, slot) in bytes.chunks(slot_bytes).enumerate() {
                // The number of a slot fits in a u32.
                recovery.slot((at / slot_bytes as u64) as u32 + n as u32, slot);
            }
            at += bytes.len() as u64;
            step(bytes.len());
        }
    }
    for range in of_area {
        walk(
            area,
            range,
            settings,
            directory.log_number(),
            recovery,
            &mut scratch,
            &mut step,
        )?;
    }
    Ok(())
}

/// Finds the records in a range of the log area and passes them on one by one. The records of one write follow each
/// other without a gap, and may extend over the end of a read.
fn walk(
    area: &Segments,
    (from, to): (u64, u64),
    settings: &Settings,
    log: u32,
    recovery: &mut Recovery,
    scratch: &mut Scratch,
    step: &mut impl FnMut(usize),
) -> Result<(), Trouble> {
    let record_max = settings.chunk_record_bytes();
    let window = READ_BYTES + record_max;
    // Address of the first byte that is held in memory, and the bytes held.
    let (mut first, mut held) = (from, Vec::<u8>::new());
    let mut at = from;
    while at < to {
        let behind = first + held.len() as u64;
        if behind < to && at + record_max as u64 > behind {
            held.drain(..((at - first) as usize).min(held.len()));
            first = at;
            let kept = held.len();
            held.resize(((to - first) as usize).min(window), 0);
            let new = &mut held[kept..];
            area.read(first + kept as u64, new, scratch)?;
            step((to.min(first + held.len() as u64) - behind) as usize);
        }
        // `at` is less than `to`, and all bytes up to `to`, or at least one whole record, are held.
        let rest = &held[(at - first) as usize..];
        let record = Record::parse(rest, settings.chunk_bytes).filter(|(record, _)| record.place.log == log);
        at = match record {
            Some((_, length)) => {
                recovery.log(at, &rest[..length]);
                at + length as u64
            }
            // After the last record of a write, or after a torn record, the next record may begin with any block.
            None => (at + 1).next_multiple_of(settings.block_bytes as u64),
        };
    }
    Ok(())
}
