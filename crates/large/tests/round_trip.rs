//! A value through [`Writer`] and [`Reader`], with holders that are slow, lost, or have wrong bytes.

use paritas_code::{crc32c_append, sum};
use paritas_large::{Class, Content, Layout, Part, Placement, Reader, Request, UNTAKEN_MAX, Writer};
use proptest::prelude::*;

const UNIT: u32 = 256;

/// A holder of one part.
#[derive(Default, Clone)]
struct Holder {
    units: Vec<Vec<u8>>,
    is_lost: bool,
}

fn value(bytes: usize) -> Vec<u8> {
    let mut state = 7u64;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .collect()
}

/// The check of a part, from its holder's units.
fn check_of(units: &[Vec<u8>]) -> u32 {
    units.iter().fold(0, |check, unit| {
        crc32c_append(check, &sum::of_extent(UNIT as usize, 0, unit).to_le_bytes())
    })
}

/// Writes a body in pieces, through windows that open one unit at a time. Holders at the `lost` positions are lost
/// after their third unit. Returns the holders and how much the writer held at most.
fn write(placement: Placement, layout: Layout, body: &[u8], piece: usize, lost: u32) -> (Vec<Holder>, usize) {
    let parts: Vec<Part> = placement.parts().collect();
    let mut holders = vec![Holder::default(); parts.len()];
    let mut writer = Writer::new(layout, placement);
    let (mut at, mut held_max) = (0, 0);
    while !writer.is_sent() {
        let end = body.len().min(at + piece);
        assert_eq!(writer.missing_bytes(), (body.len() - at) as u64);
        at += writer.push(&body[at..end], |part, unit, bytes| {
            assert_eq!(unit as usize, holders[part].units.len(), "units come in order");
            assert_eq!(bytes.len() as u32, parts[part].content.unit_bytes(&layout, unit));
            holders[part].units.push(bytes.to_vec());
        });
        held_max = held_max.max(writer.held_bytes());
        for (part, holder) in holders.iter_mut().enumerate() {
            if lost >> parts[part].position & 1 > 0 && holder.units.len() > 3 {
                holder.is_lost = true;
                writer.on_broken(part);
            }
            writer.on_taken(part, holder.units.len() as u32);
        }
    }
    assert_eq!(writer.is_done(), Ok(false), "nothing is kept yet");
    for (part, holder) in holders.iter().enumerate() {
        if holder.is_lost {
            continue;
        }
        assert_eq!(holder.units.len() as u32, parts[part].content.units(&layout));
        writer.on_kept(part, check_of(&holder.units));
    }
    assert_eq!(writer.is_done(), Ok(true));
    let broken: Vec<Part> = writer.broken().collect();
    let lost: Vec<Part> = parts
        .iter()
        .zip(&holders)
        .filter(|(_, h)| h.is_lost)
        .map(|(p, _)| *p)
        .collect();
    assert_eq!(broken, lost, "every part that is not lost is kept with its check");
    (holders, held_max)
}

/// Answers all requests of a reader. `wrong` says whose units are not to be had. Returns the bytes and how many units
/// were sent.
fn read(
    reader: &mut Reader,
    placement: Placement,
    holders: &[Holder],
    mut wrong: impl FnMut(&Request) -> bool,
) -> Option<(Vec<u8>, usize)> {
    let parts: Vec<Part> = placement.parts().collect();
    let (mut bytes, mut sent, mut done) = (Vec::new(), 0, 0);
    while !reader.is_done() {
        let mut asked = Vec::new();
        while let Some(request) = reader.next_request().ok()? {
            asked.push(request);
        }
        for request in asked.iter().rev() {
            let holder = &holders[parts.iter().position(|part| *part == request.part)?];
            let unit = holder
                .units
                .get(request.unit as usize)
                .filter(|_| !holder.is_lost && !wrong(request));
            sent += usize::from(unit.is_some());
            bytes.resize(done + reader.begun_bytes(), 0);
            reader.on_unit(request, unit.map(Vec::as_slice), &mut bytes[done..]);
        }
        let mut took = false;
        while let Some(taken) = reader.take(&mut bytes[done..]) {
            done += taken;
            took = true;
        }
        assert!(took || !asked.is_empty(), "the reader waits for nothing");
    }
    Some((bytes, sent))
}

fn class_of(kind: u8, data: u8, extra: u8) -> Class {
    match kind {
        0 => Class::Rep { copies: extra + 1 },
        1 => Class::Ec { data, parity: extra },
        _ => Class::Eor {
            copies: extra.min(data) + 1,
            data,
        },
    }
}

proptest! {
    /// Whatever the class, any losses that it covers, while it is written or later, leave every byte of every range.
    #[test]
    fn what_was_written_is_read_in_spite_of_losses(
        kind in 0u8..3, data in 1u8..6, extra in 1u8..4, length in 1usize..9_000, piece in 1usize..1_500,
        early in any::<u32>(), late in any::<u32>(), from in 0usize..9_000, count in 0usize..9_000,
    ) {
        let class = class_of(kind, data, extra);
        let positions = 9;
        let placement = Placement::new(class, 3, positions, 0).expect("it fits");
        let Some((layout, tail)) = Layout::of_value(length as u64, class.data(), UNIT) else {
            return Ok(());
        };
        let value = value(length);
        let body = &value[..length - tail as usize];
        // Of all positions, as many are lost as the class covers: some while it is written, some afterwards.
        let mut order: Vec<u8> = (0..positions).collect();
        order.sort_by_key(|p| late.rotate_left(u32::from(*p) * 3) ^ early);
        let lost = order[..usize::from(class.tolerance())].iter().fold(0u32, |set, p| set | 1 << p);
        let (mut holders, _) = write(placement, layout, body, piece, lost & early);
        for (part, holder) in placement.parts().zip(&mut holders) {
            holder.is_lost |= lost >> part.position & 1 > 0;
        }
        let range = from.min(body.len()) as u64..(from + count).min(body.len()) as u64;
        let rank = |part: &Part| Some(u32::from(part.position) % 2);
        let mut reader = Reader::new(layout, placement, range.clone(), rank).with_rows(piece % 7);
        let found = read(&mut reader, placement, &holders, |_| false);
        prop_assert_eq!(found.map(|(bytes, _)| bytes), Some(body[range.start as usize..range.end as usize].to_vec()));
    }

    /// One loss more than that of a position with a part is noticed: an error, and no wrong byte.
    #[test]
    fn fewer_parts_than_needed_are_an_error(data in 1u8..6, parity in 1u8..4, shift in 0u8..9) {
        let class = Class::Ec { data, parity };
        let placement = Placement::new(class, 1, 9, 0).expect("it fits");
        let (layout, _) = Layout::of_value(8_192, data, UNIT).expect("a body");
        let body = value(layout.body_bytes() as usize);
        let (mut holders, _) = write(placement, layout, &body, 700, 0);
        let parts = holders.len();
        for n in 0..=usize::from(parity) {
            holders[(usize::from(shift) + n) % parts].is_lost = true;
        }
        let mut reader = Reader::new(layout, placement, 0..layout.body_bytes(), |_| Some(0));
        let lost_data = (0..=usize::from(parity)).any(|n| (usize::from(shift) + n) % parts < usize::from(data));
        prop_assert!(lost_data);
        prop_assert_eq!(read(&mut reader, placement, &holders, |_| false), None);
    }

    /// Nobody needs more than the value's own bytes to read it: k units a row, whatever is lost.
    #[test]
    fn a_degraded_read_moves_no_more_bytes_than_a_whole_one(data in 1u8..6, lost in 0u8..8) {
        let class = Class::Ec { data, parity: 2 };
        let placement = Placement::new(class, 0, 9, 0).expect("it fits");
        let (layout, _) = Layout::of_value(16_000, data, UNIT).expect("a body");
        let body = value(layout.body_bytes() as usize);
        let (mut holders, _) = write(placement, layout, &body, 4_000, 0);
        let parts = holders.len();
        holders[usize::from(lost) % parts].is_lost = true;
        let is_there = |part: &Part| {
            let at = placement.parts().position(|p| p == *part);
            at.is_some_and(|at| !holders[at].is_lost).then_some(0)
        };
        let mut reader = Reader::new(layout, placement, 0..layout.body_bytes(), is_there);
        let (bytes, sent) = read(&mut reader, placement, &holders, |_| false).expect("it can be read");
        prop_assert_eq!(bytes, body);
        prop_assert_eq!(sent as u32, layout.units());
    }
}

#[test]
fn a_writer_holds_one_unit_and_the_parities_however_long_the_value_is() {
    let class = Class::Ec { data: 4, parity: 2 };
    let placement = Placement::new(class, 0, 6, 0).expect("it fits");
    let held = |bytes: u64| {
        let (layout, tail) = Layout::of_value(bytes, 4, UNIT).expect("a body");
        let body = value((bytes - tail) as usize);
        write(placement, layout, &body, 1_000, 0).1
    };
    assert!(held(10_000) <= 4 * UNIT as usize);
    assert_eq!(held(10_000), held(1_000_000));
}

#[test]
fn a_holder_that_is_behind_stops_the_writer_and_a_lost_one_does_not() {
    let class = Class::Ec { data: 2, parity: 1 };
    let placement = Placement::new(class, 0, 3, 0).expect("it fits");
    let (layout, _) = Layout::of_value(64 * u64::from(UNIT), 2, UNIT).expect("a body");
    let body = value(layout.body_bytes() as usize);
    let mut writer = Writer::new(layout, placement);
    let mut sent = [0u32; 3];
    let mut at = writer.push(&body, |part, _, _| sent[part] += 1);
    assert_eq!(sent, [UNTAKEN_MAX; 3]);
    assert_eq!(writer.push(&body[at..], |_, _, _| panic!("the windows are full")), 0);
    // Two holders go on; the third is lost.
    writer.on_taken(0, UNTAKEN_MAX);
    writer.on_taken(1, UNTAKEN_MAX);
    assert!(
        writer.push(&body[at..], |_, _, _| ()) <= 2 * UNIT as usize,
        "the parity is behind"
    );
    writer.on_broken(2);
    at = (layout.body_bytes() - writer.missing_bytes()) as usize;
    let mut more = [0u32; 3];
    writer.push(&body[at..], |part, _, _| more[part] += 1);
    assert!(more[0] > 0 && more[2] == 0, "{more:?}");
    assert_eq!(writer.is_done(), Ok(false));
    writer.on_broken(1);
    assert!(writer.is_done().is_err(), "two of three are lost");
}

#[test]
fn a_part_whose_check_differs_is_broken() {
    let class = Class::Ec { data: 2, parity: 1 };
    let placement = Placement::new(class, 0, 3, 0).expect("it fits");
    let (layout, _) = Layout::of_value(4 * u64::from(UNIT), 2, UNIT).expect("a body");
    let body = value(layout.body_bytes() as usize);
    let mut units: [Vec<Vec<u8>>; 3] = Default::default();
    let mut writer = Writer::new(layout, placement);
    assert_eq!(
        writer.push(&body, |part, _, unit| units[part].push(unit.to_vec())),
        body.len()
    );
    units[1][0][9] ^= 1;
    for (part, units) in units.iter().enumerate() {
        writer.on_kept(part, check_of(units));
    }
    let broken: Vec<Content> = writer.broken().map(|part| part.content).collect();
    assert_eq!(broken, [Content::Block(1)]);
    assert_eq!(writer.is_done(), Ok(true));
}

#[test]
fn a_short_range_reads_only_its_own_units() {
    let class = Class::Ec { data: 4, parity: 2 };
    let placement = Placement::new(class, 0, 6, 0).expect("it fits");
    let (layout, _) = Layout::of_value(64 * u64::from(UNIT), 4, UNIT).expect("a body");
    let body = value(layout.body_bytes() as usize);
    let (holders, _) = write(placement, layout, &body, 5_000, 0);
    let range = 5 * u64::from(UNIT) + 10..6 * u64::from(UNIT) + 10;
    let mut reader = Reader::new(layout, placement, range, |_| Some(0));
    let (bytes, sent) = read(&mut reader, placement, &holders, |_| false).expect("it can be read");
    assert_eq!((bytes.len(), sent), (UNIT as usize, 2));
    // The holder of one of the two has wrong bytes: the row is decoded from any four others.
    let mut reader = Reader::new(layout, placement, 0..u64::from(UNIT), |_| Some(0));
    let is_wrong = |request: &Request| request.part.content == Content::Block(0);
    let (bytes, sent) = read(&mut reader, placement, &holders, is_wrong).expect("it can be read");
    assert_eq!((bytes, sent), (body[..UNIT as usize].to_vec(), 4));
}

#[test]
fn eor_is_read_from_its_whole_copy_and_without_it_from_any_replica() {
    let class = Class::Eor { copies: 3, data: 3 };
    let placement = Placement::new(class, 0, 4, 0).expect("it fits");
    let (layout, _) = Layout::of_value(30 * u64::from(UNIT), 3, UNIT).expect("a body");
    let body = value(layout.body_bytes() as usize);
    let (mut holders, _) = write(placement, layout, &body, 5_000, 0);
    let mut from = Vec::new();
    let mut reader = Reader::new(layout, placement, 0..layout.body_bytes(), |_| Some(0));
    let is_seen = |request: &Request| {
        from.push(request.part.content);
        false
    };
    read(&mut reader, placement, &holders, is_seen).expect("it can be read");
    assert!(from.iter().all(|content| *content == Content::Whole));
    for (part, holder) in placement.parts().zip(&mut holders) {
        holder.is_lost = part.position == 0 || part.position == 1;
    }
    let mut reader = Reader::new(layout, placement, 0..layout.body_bytes(), |_| Some(0));
    let (bytes, _) = read(&mut reader, placement, &holders, |_| false).expect("it can be read");
    assert_eq!(bytes, body);
}
