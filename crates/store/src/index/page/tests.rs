//! Lines and entries of one page.

use super::*;
use paritas_base::Prng;

/// The examples of docs/formats/index.md.
#[test]
fn golden_bytes() {
    let shape = Shape::new(16384);
    let mut bytes = vec![0u8; 16384];
    let mut page = &mut bytes[..];
    let place = shape.place(0x0123_4567_89ab_cdef, 1);
    assert_eq!((place.page, place.line, place.tag), (0, 1, 0x91a3));
    let far = shape.place(0xfedc_ba98_7654_3210, 1000);
    assert_eq!((far.page, far.line, far.tag), (511, 4, 0xba99));
    for slot in 0..=SLOTS {
        let room = room(page, shape, 1, place.tag).unwrap();
        assert_eq!(room.place(), if slot < SLOTS { (1, slot) } else { (37, 0) });
        insert(&mut page, shape, &room, 1, place.tag, 0x1122_3344);
    }
    let home = line(page, 1);
    assert_eq!(home[..6], [0xa3, 0x91, 0x44, 0x33, 0x22, 0x11]);
    // No entry is a guest here, one key is away; bits 7-10 of its tag are 3.
    assert_eq!(home[60..], [0x00, 0x04, 0x08, 0x00]);
    assert_eq!(line(page, 37)[60..], [0x01, 0x00, 0x00, 0x00]);
}

#[test]
fn the_vector_compare_is_the_plain_one() {
    let seed = 11;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for _ in 0..20_000 {
        let mut bytes: Line = [0; LINE_BYTES];
        let full = (prng.next_u64() as u16) | 1;
        for slot in 0..SLOTS {
            let spent = prng.below(7) as u32;
            let near = if prng.chance(500_000) {
                full ^ prng.below(32) as u16
            } else {
                prng.next_u64() as u16
            };
            let tag = if prng.chance(200_000) {
                0
            } else {
                (near >> spent | 1) << spent
            };
            set_u16(&mut bytes, slot * ENTRY_BYTES, tag);
        }
        bytes[60..].copy_from_slice(&(prng.next_u64() as u32).to_le_bytes());
        assert_eq!(match_mask(&bytes, full), match_mask_portable(&bytes, full));
    }
}

#[test]
fn entries_move_and_are_found_until_a_page_is_nearly_full() {
    let shape = Shape::new(16384);
    for seed in 0..5 {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut bytes = vec![0u8; 16384];
        let mut page = &mut bytes[..];
        let mut hashes = Vec::new();
        loop {
            let hash = prng.next_u64();
            let place = shape.place(hash, 1);
            let Some(room) = room(page, shape, place.line, place.tag) else {
                break;
            };
            let locator = hashes.len() as u32;
            insert(&mut page, shape, &room, place.line, place.tag, locator);
            hashes.push(hash);
        }
        assert!(hashes.len() > 2560 * 95 / 100, "only {}", hashes.len());
        for round in 0..2 {
            for (locator, hash) in hashes.iter().enumerate() {
                let place = shape.place(*hash, 1);
                let found = find(page, shape, place.line, place.tag, locator as u32);
                if round == 1 && locator % 2 == 0 {
                    assert_eq!(found, None);
                    continue;
                }
                let (line, slot) = found.expect("an entry inserted");
                if locator % 2 == 0 {
                    remove(&mut page, line, slot, place.line);
                }
            }
        }
        let guests: u32 = (0..256)
            .map(|l| (u16_at(line(page, l), GUESTS_AT) & 1023).count_ones())
            .sum();
        let away_total: u32 = (0..256).map(|l| u32::from(away(line(page, l)))).sum();
        assert_eq!(guests, away_total);
    }
}

/// A line gets more keys than it can count. Its count saturates, and no key is lost.
#[test]
fn a_line_loses_count_of_its_keys_but_not_the_keys() {
    let shape = Shape::new(16384);
    let mut bytes = vec![0u8; 16384];
    let mut page = &mut bytes[..];
    let hashes: Vec<u64> = (0..250u64)
        .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 10)
        .collect();
    let places: Vec<_> = hashes.iter().map(|hash| shape.place(*hash, 1)).collect();
    assert!(places.iter().all(|place| place.line == 0));
    for (locator, place) in places.iter().enumerate() {
        let room = room(page, shape, 0, place.tag).expect("the other lines are empty");
        insert(&mut page, shape, &room, 0, place.tag, locator as u32);
    }
    assert_eq!(away(line(page, 0)), AWAY_MAX);
    for (locator, place) in places.iter().enumerate() {
        assert!(find(page, shape, 0, place.tag, locator as u32).is_some());
        if locator % 2 == 0 {
            let (at, slot) = find(page, shape, 0, place.tag, locator as u32).unwrap();
            remove(&mut page, at, slot, 0);
        }
    }
    for (locator, place) in places.iter().enumerate() {
        let found = find(page, shape, 0, place.tag, locator as u32).is_some();
        assert_eq!(found, locator % 2 == 1);
    }
}

fn find(page: &[u8], shape: Shape, home: u32, tag: u16, wanted: u32) -> Option<(u32, usize)> {
    let alternate = shape.alternate(home, tag);
    let here = |number: u32, guests: bool| {
        let line = line(page, number);
        matches(line, tag, guests)
            .find(|slot| locator(line, *slot) == wanted)
            .map(|slot| (number, slot))
    };
    here(home, false).or_else(|| {
        may_be_away(line(page, home), tag)
            .then(|| here(alternate, true))
            .flatten()
    })
}
