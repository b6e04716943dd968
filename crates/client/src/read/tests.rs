//! Walks: parts are late, gone, flipped, or replaced by a liar. What is put together is the value, or nothing.

use super::*;
use paritas_base::Prng;
use paritas_large::{Class, GroupId, Layout, Placement, Record, Writer};
use paritas_wire::resp::Reply;

const UNIT_BYTES: u32 = 512;
const POSITIONS: u8 = 7;

/// A value with all its parts, as holders keep them: sums and units.
struct Kept {
    value: Vec<u8>,
    located: Located,
    parts: Vec<Vec<(u32, Vec<u8>)>>,
}

fn keep(random: &mut Prng, class: Class, value_bytes: usize) -> Kept {
    let value: Vec<u8> = (0..value_bytes).map(|_| random.next_u64() as u8).collect();
    let (layout, tail) = Layout::of_value(value_bytes as u64, class.data(), UNIT_BYTES).expect("it has a body");
    let placement = Placement::new(class, 2, POSITIONS, 0).expect("the parts fit the positions");
    let (body, tail) = value.split_at(value_bytes - tail as usize);
    let mut writer = Writer::new(layout, placement);
    let mut parts = vec![Vec::new(); placement.parts().count()];
    let mut from = 0;
    while !writer.is_sent() {
        from += writer.push(&body[from..], |part, unit, bytes| {
            assert_eq!(parts[part].len(), unit as usize);
            let sum = sum::of_extent(UNIT_BYTES as usize, 0, bytes);
            parts[part].push((sum, bytes.to_vec()));
        });
        (0..parts.len()).for_each(|part| writer.on_taken(part, parts[part].len() as u32));
    }
    let has_other = !matches!(class, Class::Rep { .. });
    let record = Record {
        class,
        first: placement.first(),
        logged: 0,
        body_bytes: body.len() as u64,
        data_group: GroupId::new(3, 8).expect("an id"),
        other_group: GroupId::new(3, 9).filter(|_| has_other),
        checks: writer.checks().to_vec(),
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let holders: Vec<String> = (0..POSITIONS).map(|at| format!("h{at}:1")).collect();
    let holders = holders.iter().map(|holder| Reply::Bulk(holder.as_bytes()));
    let capabilities = [7; 16];
    let items = [
        Reply::Integer(1),
        Reply::Integer(0),
        Reply::Integer(2),
        Reply::Bulk(&bytes),
        Reply::Bulk(tail),
        Reply::Integer(POSITIONS.into()),
        Reply::Integer(UNIT_BYTES.into()),
        Reply::Array(holders.collect()),
        Reply::Bulk(&capabilities[..if has_other { 16 } else { 8 }]),
    ];
    let located = Located::of_reply(&items, 1 << 30).expect("a reply of a node");
    Kept { value, located, parts }
}

/// What a holder answers.
fn answer(kept: &Kept, ask: &Ask) -> Vec<u8> {
    let at = kept.located.place.placement.parts().position(|part| part == ask.part);
    let units = &kept.parts[at.expect("a part of the value")][ask.first as usize..][..ask.count as usize];
    assert_eq!(units.iter().map(|(_, unit)| unit.len() as u64).sum::<u64>(), ask.bytes);
    let sums = units.iter().flat_map(|(sum, _)| sum.to_le_bytes());
    sums.chain(units.iter().flat_map(|(_, unit)| unit.iter().copied()))
        .collect()
}

fn class_of(random: &mut Prng) -> Class {
    let classes = ["rep:1", "rep:3", "ec:1,2", "ec:4,2", "ec:5,2", "eor:2,3", "eor:3,4"];
    random.pick(&classes).parse().expect("a class")
}

/// One walk. Returns the value, if any was put together, and whether the sound parts would have given it.
fn walk(seed: u64) -> (bool, bool) {
    let random = &mut Prng::new(seed);
    let class = class_of(random);
    let bytes = random.between(u64::from(class.data()) * 600 + 1, 400_000) as usize;
    let kept = keep(random, class, bytes);
    let parts: Vec<Part> = kept.located.place.placement.parts().collect();
    let gone: Vec<bool> = parts.iter().map(|_| random.chance(150_000)).collect();
    let slow: Vec<bool> = parts.iter().map(|_| random.chance(150_000)).collect();
    let flips = random.chance(200_000);
    let mut flipped = vec![false; parts.len()];
    let at = |part: &Part| parts.iter().position(|it| it == part).expect("a part");
    let mut read = Read::new(Arc::new(kept.located.clone()));
    let mut asked: Vec<Ask> = Vec::new();
    let mut all: Vec<(Part, u32)> = Vec::new();
    let failed = loop {
        if read.is_done() {
            break false;
        }
        match read.next_ask(|part| Some(u32::from(slow[at(part)]))) {
            Ok(Some(ask)) => {
                assert!(
                    !all.contains(&(ask.part, ask.first)),
                    "seed {seed}: asked twice for {ask:?}"
                );
                all.push((ask.part, ask.first));
                asked.push(ask);
                continue;
            }
            Ok(None) => {}
            Err(ReadFailed) => break true,
        }
        assert!(!asked.is_empty(), "seed {seed}: it waits for nothing");
        let nth = random.below(asked.len() as u64) as usize;
        if random.chance(100_000) {
            read.on_late(asked[nth].id);
            continue;
        }
        let ask = asked.swap_remove(nth);
        if gone[at(&ask.part)] {
            read.on_units(ask.id, None);
            continue;
        }
        let mut answer = answer(&kept, &ask);
        let is_flipped = flips && random.chance(100_000);
        if is_flipped {
            let place = random.below(answer.len() as u64) as usize;
            answer[place] ^= 1 << random.below(8);
        }
        let got = read.on_units(ask.id, Some(&answer));
        flipped[at(&ask.part)] |= is_flipped;
        assert!(
            !is_flipped || got != Answer::Sound,
            "seed {seed}: a flipped bit was not seen"
        );
    };
    let value = if failed { None } else { read.finish().ok() };
    if let Some(value) = &value {
        assert!(
            *value == kept.value,
            "seed {seed}: another value was put together, {class:?}"
        );
    }
    let placement = kept.located.place.placement;
    let is_readable = placement.is_readable(|part| !gone[at(part)] && !flipped[at(part)]);
    (value.is_some(), is_readable)
}

#[test]
fn what_is_put_together_is_the_value_or_nothing() {
    let (mut read, mut failed) = (0, 0);
    for seed in 0..1_500 {
        let (is_read, is_readable) = walk(seed);
        assert!(is_read || !is_readable, "seed {seed}: enough parts were there");
        if is_read {
            read += 1;
        } else {
            failed += 1;
        }
    }
    assert!(read > 500 && failed > 100, "{read} read, {failed} not");
}

#[test]
fn a_holder_that_changes_units_and_sums_is_found_by_the_check_of_the_record() {
    let random = &mut Prng::new(1);
    for class in ["rep:2", "ec:4,2", "eor:2,3"] {
        let mut kept = keep(random, class.parse().expect("a class"), 30_000);
        let (sum, unit) = &mut kept.parts[0][1];
        unit[5] ^= 1;
        *sum = sum::of_extent(UNIT_BYTES as usize, 0, unit);
        let mut read = Read::new(Arc::new(kept.located.clone()));
        while let Ok(Some(ask)) = read.next_ask(|_| Some(0)) {
            assert_eq!(read.on_units(ask.id, Some(&answer(&kept, &ask))), Answer::Sound);
        }
        assert!(read.is_done());
        assert_eq!(read.finish(), Err(ReadFailed), "{class}");
    }
}

#[test]
fn a_late_unit_is_replaced_by_another_part_and_may_still_come() {
    let random = &mut Prng::new(2);
    let kept = keep(random, "ec:4,2".parse().expect("a class"), 30_000);
    let mut read = Read::new(Arc::new(kept.located.clone()));
    let mut asks = Vec::new();
    while let Ok(Some(ask)) = read.next_ask(|_| Some(0)) {
        asks.push(ask);
    }
    assert_eq!(asks.len(), 4, "k parts are enough");
    let late = asks.remove(1);
    for ask in &asks {
        read.on_units(ask.id, Some(&answer(&kept, ask)));
    }
    assert!(!read.is_done());
    read.on_late(late.id);
    let other = read
        .next_ask(|_| Some(0))
        .expect("a parity is there")
        .expect("it is asked");
    assert_eq!(other.part.content, Content::Parity(0));
    read.on_units(late.id, Some(&answer(&kept, &late)));
    assert!(read.is_done(), "the late one came first");
    assert_eq!(read.on_units(other.id, Some(&answer(&kept, &other))), Answer::Late);
    assert_eq!(read.finish().expect("the value"), kept.value);
}
