use super::*;
use crate::{Layout, Placement, Writer};
use paritas_base::{ListId, Position, Prng};
use proptest::prelude::*;

fn key(seed: u64) -> FingerprintKey {
    let stream = StreamId {
        list: ListId(3),
        x: Position(2),
    };
    let group = GroupId::from_bits(0x7000_0000_0009 + seed).expect("an id");
    FingerprintKey::new([1, 2], stream, group)
}

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut prng = Prng::new(seed);
    (0..count).map(|_| prng.next_u64() as u8).collect()
}

/// The units of each part of a value, in the order of the placement.
fn parts(class: Class, body: &[u8], unit_bytes: u32) -> Vec<Vec<Vec<u8>>> {
    let layout = Layout::of_body(body.len() as u64, class.data(), unit_bytes).expect("a body");
    let placement = Placement::new(class, 0, 12, 0).expect("it fits");
    let mut parts = vec![Vec::new(); placement.parts().count()];
    let mut writer = Writer::new(layout, placement);
    let mut at = 0;
    while !writer.is_sent() {
        at += writer.push(&body[at..], |part, _, unit| parts[part].push(unit.to_vec()));
        (0..parts.len()).for_each(|part| writer.on_taken(part, u32::MAX));
    }
    parts
}

fn print(key: FingerprintKey, units: &[Vec<u8>]) -> Fingerprint {
    let mut folding = Folding::new(key);
    units.iter().for_each(|unit| folding.push(unit));
    folding.fingerprint()
}

fn prints(key: FingerprintKey, parts: &[Vec<Vec<u8>>]) -> Vec<Fingerprint> {
    parts.iter().map(|units| print(key, units)).collect()
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        (1u8..5).prop_map(|copies| Class::Rep { copies }),
        (1u8..7, 1u8..5).prop_map(|(data, parity)| Class::Ec { data, parity }),
    ]
}

fn unit_bytes() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![64, 512, 1024, 4 << 10, 16 << 10, 64 << 10])
}

proptest! {
    #[test]
    fn fingerprints_of_one_value_belong_together(
        class in class(), unit_bytes in unit_bytes(), count in 1usize..400_000, seed in any::<u64>(),
    ) {
        let body = bytes(count.min(40 * unit_bytes as usize), seed);
        let parts = parts(class, &body, unit_bytes);
        prop_assert!(belong_together(class, &prints(key(seed & 0xff), &parts)));
    }

    #[test]
    fn one_wrong_byte_anywhere_is_seen(
        data in 1u8..5, parity in 1u8..4, is_copy in any::<bool>(), unit_bytes in unit_bytes(),
        count in 1usize..200_000, seed in any::<u64>(), at in any::<prop::sample::Index>(), flip in 1u8..=255,
    ) {
        let class = match is_copy {
            true => Class::Rep { copies: parity + 1 },
            false => Class::Ec { data, parity },
        };
        let body = bytes(count.min(40 * unit_bytes as usize), seed);
        let mut parts = parts(class, &body, unit_bytes);
        let all: usize = parts.iter().flatten().map(Vec::len).sum();
        let at = at.index(all);
        *parts.iter_mut().flatten().flatten().nth(at).expect("a byte") ^= flip;
        // No coefficient is 0: this does not depend on luck.
        prop_assert!(!belong_together(class, &prints(key(seed & 0xff), &parts)));
    }

    #[test]
    fn units_and_parts_that_changed_places_are_seen(
        data in 2u8..5, parity in 1u8..4, rows in 2usize..6, seed in any::<u64>(), pick in any::<u64>(),
    ) {
        let (class, unit_bytes) = (Class::Ec { data, parity }, 1024);
        let body = bytes(rows * usize::from(data) * unit_bytes as usize, seed);
        let right = parts(class, &body, unit_bytes);
        let mut prng = Prng::new(pick);
        let part = prng.below(right.len() as u64) as usize;
        let (one, other) = (prng.below(rows as u64) as usize, prng.below(rows as u64) as usize);
        let mut units = right.clone();
        units[part].swap(one, other);
        prop_assert_eq!(belong_together(class, &prints(key(1), &units)), one == other);
        let other = prng.below(right.len() as u64) as usize;
        let mut swapped = right.clone();
        swapped.swap(part, other);
        // The first parity is the XOR of the blocks, so it can change places with one of them if there is no other.
        let in_rows = (0..rows).flat_map(|row| swapped[..usize::from(data)].iter().map(move |units| &units[row]));
        let of_swapped: Vec<u8> = in_rows.flatten().copied().collect();
        let is_value = parts(class, &of_swapped, unit_bytes) == swapped;
        prop_assert_eq!(belong_together(class, &prints(key(1), &swapped)), is_value);
    }
}

#[test]
fn a_parity_of_other_data_is_seen_under_every_key() {
    let class = Class::Ec { data: 2, parity: 1 };
    let (mut right, wrong) = (
        parts(class, &bytes(70_000, 1), 4096),
        parts(class, &bytes(70_000, 2), 4096),
    );
    right[2].clone_from(&wrong[2]);
    for seed in 0..200 {
        assert!(!belong_together(class, &prints(key(seed), &right)), "{seed}");
    }
}

#[test]
fn another_number_of_fingerprints_or_another_class_does_not_belong_together() {
    let class = Class::Ec { data: 2, parity: 1 };
    let right = prints(key(1), &parts(class, &bytes(70_000, 1), 4096));
    assert!(belong_together(class, &right));
    assert!(!belong_together(class, &right[..2]) && !belong_together(class, &[]));
    assert!(!belong_together(Class::Eor { copies: 2, data: 2 }, &right));
    assert!(!belong_together(Class::Rep { copies: 2 }, &[right[0]; 3]));
    assert!(belong_together(Class::Rep { copies: 3 }, &[right[0]; 3]));
}

#[test]
fn each_value_of_each_stream_of_each_cluster_has_another() {
    let unit = [vec![1; 64]];
    let of = |hash_key, list, x, group| {
        let stream = StreamId {
            list: ListId(list),
            x: Position(x),
        };
        let group = GroupId::from_bits(group).expect("an id");
        print(FingerprintKey::new(hash_key, stream, group), &unit)
    };
    let all = [
        of([1, 2], 0, 0, 7),
        of([2, 1], 0, 0, 7),
        of([1, 2], 1, 0, 7),
        of([1, 2], 0, 1, 7),
        of([1, 2], 0, 0, 8),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(all.iter().skip(at + 1).all(|other| other != one), "{at}");
    }
    assert_eq!(format!("{:?}", key(1)), "FingerprintKey", "it stands in no log");
}

/// The fingerprint as `docs/formats/large.md` says it, byte by byte.
fn by_definition(key: FingerprintKey, units: &[Vec<u8>]) -> Fingerprint {
    let mut print = [0; FINGERPRINT_BYTES];
    for (row, unit) in (0..).zip(units) {
        for (offset, byte) in unit.iter().enumerate() {
            let number = |of, number: usize| key.coefficients(of, number as u32);
            let of_row = key.coefficients(ROW, row);
            let (of_slice, of_eighth) = (number(SLICE, offset / 512), number(EIGHTH, offset % 512 / 64));
            for sum in 0..SUMS {
                let mut product = [*byte];
                for coefficient in [of_row[sum], of_slice[sum], of_eighth[sum]] {
                    let factor = product;
                    product = [0];
                    mul_add(coefficient, &factor, &mut product);
                }
                print[64 * sum + offset % 64] ^= product[0];
            }
        }
    }
    Fingerprint(print)
}

#[test]
fn it_is_the_sum_of_all_bytes_each_times_three_coefficients() {
    for unit_bytes in [64, 576, 16 << 10, 40_000] {
        let units = [bytes(unit_bytes, 1), bytes(unit_bytes, 2), bytes(128, 3)];
        assert_eq!(print(key(0), &units), by_definition(key(0), &units), "{unit_bytes}");
    }
}

#[test]
fn the_example_of_the_page_is_right() {
    let page = include_str!("../../../../docs/formats/large.md");
    let (_, example) = page
        .split_once("## Example of a fingerprint")
        .expect("the page has an example");
    let (_, hex) = example.split_once("```text\n").expect("the example has bytes");
    let (hex, _) = hex.split_once("```").expect("the example ends");
    let golden: Vec<u8> = hex
        .split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
        .collect();
    // Two units: the bytes 0, 1, … modulo 251, 16,384 and 640 of them.
    let unit = |count: usize| (0..count).map(|at| (at % 251) as u8).collect();
    let print = print(key(0), &[unit(16 << 10), unit(640)]);
    let shown: Vec<String> = print.0.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(print.0.to_vec(), golden, "{}", shown.join(" "));
}
