//! Reading what an earlier life left: what was ever written of both spaces, in large reads.

use super::directory::LogDirectory;
use super::segments::{Scratch, Segments, Trouble};
use paritas_paritylog::{Record, Recovery, Settings, Space};

/// Read at once. In tests little, so that reads end amid records there too.
const READ_BYTES: usize = if cfg!(test) { 8 << 10 } else { 4 << 20 };

/// Gives all that was ever written to `recovery`.
pub(super) fn read(
    directory: &LogDirectory,
    settings: &Settings,
    recovery: &mut Recovery,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), Trouble> {
    let (slots, area) = (directory.space(Space::Slots), directory.space(Space::Log));
    let slot_bytes = settings.slot_bytes();
    let of_slots = slots.written(slot_bytes as u64, 0)?;
    // A record may go on over a hole that copying the files has made of its zeros.
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
                // There are no more slots than a u32 counts.
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

/// Finds the records of a range of the log area. A write's records follow one another without a gap, wherever a read
/// ends; so they are found here, and given on one by one.
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
    // Address of the first byte that is held, and those held.
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
        // `at` is less than `to`, and all up to there or a whole record more is held.
        let rest = &held[(at - first) as usize..];
        let record = Record::parse(rest, settings.chunk_bytes).filter(|(record, _)| record.place.log == log);
        at = match record {
            Some((_, length)) => {
                recovery.log(at, &rest[..length]);
                at + length as u64
            }
            // Behind a write's last record, or where one is torn: another may begin with any block.
            None => (at + 1).next_multiple_of(settings.block_bytes as u64),
        };
    }
    Ok(())
}
