//! Values of many classes and lengths are cut and encoded, and answers come in any order.

use super::*;
use crate::fake::{encoded, words_of};
use paritas_base::Prng;
use paritas_large::{Class, GroupId, Layout, Placement, Record};
use paritas_wire::resp::Reply;

const UNIT_BYTES: u32 = 512;
const POSITIONS: u8 = 7;

/// The reply to `PARITAS.STAGE` for a value, before it is changed, and what becomes of it.
fn staged(class: Class, value_bytes: u64, change: impl FnOnce(&mut Record, &mut Vec<Reply<'_>>)) -> Option<Staged> {
    let (layout, _) = Layout::of_value(value_bytes, class.data(), UNIT_BYTES).expect("it has a body");
    let placement = Placement::new(class, 2, POSITIONS, 0).expect("the parts fit the positions");
    let mut record = Record {
        class,
        first: placement.first(),
        logged: 0,
        body_bytes: layout.body_bytes(),
        data_group: GroupId::new(3, 8).expect("an id"),
        other_group: GroupId::new(3, 9).filter(|_| !matches!(class, Class::Rep { .. })),
        checks: vec![0; Record::checks_of(class)],
    };
    let holders: Vec<String> = (0..POSITIONS).map(|at| format!("h{at}:1")).collect();
    let mut holders: Vec<Reply<'_>> = holders.iter().map(|it| Reply::Bulk(it.as_bytes())).collect();
    change(&mut record, &mut holders);
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let capabilities = [*b"of data ", *b"of other"].concat();
    let items = [
        Reply::Integer(1),
        Reply::Integer(77),
        Reply::Integer(5),
        Reply::Integer(2),
        Reply::Bulk(&bytes),
        Reply::Integer(POSITIONS.into()),
        Reply::Integer(UNIT_BYTES.into()),
        Reply::Array(holders),
        Reply::Bulk(&capabilities[..8 * record.groups().count()]),
    ];
    Staged::of_reply(&items, value_bytes)
}

fn walk(seed: u64) -> u32 {
    let random = &mut Prng::new(seed);
    let classes = ["rep:1", "rep:3", "ec:1,2", "ec:4,2", "ec:5,2", "ec:3,4"];
    let class: Class = random.pick(&classes).parse().expect("a class");
    let long = u64::from(class.data()) * if random.chance(100_000) { 800_000 } else { 9_000 };
    let value_bytes = random.between(u64::from(class.data()) * 600 + 1, long);
    let value: Vec<u8> = (0..value_bytes).map(|_| random.next_u64() as u8).collect();
    let staged = staged(class, value_bytes, |_, _| {}).expect("a reply of a node");
    let place = staged.place.clone();
    let mut write = Write::new(staged);
    let count = place.placement.parts().count();
    let mut parts = vec![Vec::new(); count];
    let mut under_way: Vec<Vec<Put>> = (0..count).map(|_| Vec::new()).collect();
    let mut steps = 0;
    while !write.is_done() {
        if write.may_step() {
            steps += 1;
            let puts = write.step(&value);
            assert_eq!(puts.len(), count, "seed {seed}: each part gets its units of these rows");
            puts.into_iter().for_each(|put| under_way[put.part].push(put));
            let most = under_way.iter().map(Vec::len).max().unwrap_or_default();
            assert!(most <= STEPS_MAX as usize, "seed {seed}: {most} commands are under way");
            continue;
        }
        let busy: Vec<usize> = (0..count).filter(|part| !under_way[*part].is_empty()).collect();
        assert!(!busy.is_empty(), "seed {seed}: it waits for nothing");
        let part = *random.pick(&busy);
        let put = under_way[part].remove(0);
        let words = words_of(&put.bytes).expect("a whole command").0;
        let of = place.placement.parts().nth(part).expect("a part");
        let capability = if place.record.group_of(&of) == place.record.data_group {
            "of data "
        } else {
            "of other"
        };
        let wanted = [
            "PARITAS.PUT".to_owned(),
            "5".to_owned(),
            "2".to_owned(),
            place.record.group_of(&of).bits().to_string(),
            of.number.to_string(),
        ];
        assert_eq!(words[..5], wanted.map(String::into_bytes));
        assert_eq!(
            words[5],
            (parts[part].len() as u64 / u64::from(UNIT_BYTES))
                .to_string()
                .as_bytes()
        );
        assert_eq!((words[6].as_slice(), words.len()), (capability.as_bytes(), 8));
        assert!(words[7].len() <= 512 << 10, "seed {seed}: a holder takes no more");
        parts[part].extend_from_slice(&words[7]);
        assert!(write.on_taken(part, i64::from(put.end), put.end));
    }
    let body = &value[..place.record.body_bytes as usize];
    let (wanted, checks) = encoded(place.layout, place.placement, body);
    assert!(
        parts == wanted,
        "seed {seed}: parts of {class} with {value_bytes} bytes differ"
    );
    assert_eq!(write.checks(), checks, "seed {seed}");
    steps
}

#[test]
fn every_part_has_its_units_and_its_check() {
    let steps: Vec<u32> = (0..300).map(walk).collect();
    assert!(steps.iter().any(|steps| *steps > STEPS_MAX) && steps.contains(&1));
}

#[test]
fn fewer_units_than_were_sent_are_a_failure() {
    let class = "ec:4,2".parse().expect("a class");
    let mut write = Write::new(staged(class, 70_000, |_, _| {}).expect("a reply of a node"));
    let puts = write.step(&vec![7; 70_000]);
    let last = puts.last().expect("parts");
    assert!(!write.on_taken(last.part, i64::from(last.end) - 1, last.end));
    assert!(!write.on_taken(last.part, -1, last.end));
    assert!(!write.on_taken(99, i64::from(last.end), last.end));
    for put in &puts {
        assert!(!write.is_done());
        assert!(write.on_taken(put.part, i64::MAX, put.end), "more is as good");
    }
    assert!(write.is_done() && !write.may_step());
}

#[test]
fn values_are_not_written_where_this_client_cannot_or_should_not() {
    let class: Class = "ec:4,2".parse().expect("a class");
    assert!(staged(class, 70_000, |_, _| {}).is_some());
    let without = staged(class, 70_000, |_, holders| holders[3] = Reply::Null);
    assert_eq!(without, None, "a position without a holder");
    let logged = staged(class, 70_000, |record, _| record.logged = 1);
    assert_eq!(logged, None, "parts on log nodes");
    let longer = staged(class, 70_000, |record, _| record.body_bytes = 70_001);
    assert_eq!(longer, None, "a body that is longer than the value");
    let shorter = staged(class, 170_000, |record, _| record.body_bytes = 10_000);
    assert_eq!(shorter, None, "a tail that is too long");
    assert_eq!(
        staged("eor:2,3".parse().expect("a class"), 70_000, |_, _| {}),
        None,
        "eor"
    );
}
