use super::*;

use crate::fingerprint::FINGERPRINT_BYTES;
use crate::{Class, Ledger, PartName};
use paritas_code::{Code, Scheme};

const CLASS: Class = Class::Ec { data: 2, parity: 1 };
const CHECKS: [u32; 3] = [11, 12, 13];

/// The holders of the four positions, of tenure 100 + position.
fn all() -> Vec<Option<Holder>> {
    let holder = |tenure| Holder { tenure, is_live: true };
    (100..104).map(|tenure| Some(holder(tenure))).collect()
}

fn staged(class: Class, first: u8) -> Arc<Record> {
    let mut ledger = Ledger::new(1, true);
    ledger.stage(class, first, 0, 100_000).expect("ids are left")
}

fn begin(class: Class) -> Acceptance {
    Acceptance::of_client(staged(class, 0), 4, 1024).expect("it fits")
}

/// What it tells now: part, position and number of the question.
fn told(acceptance: &mut Acceptance, holders: &[Option<Holder>], again: bool) -> Vec<(PartName, u8, u32)> {
    let mut told = Vec::new();
    acceptance.tell(holders, again, |what| match what {
        Tell::Open(name, position, question) => told.push((name, position, question)),
        Tell::Make(..) => panic!("no part of a client is made"),
    });
    told
}

/// Fingerprints that belong together, one for each part.
fn prints(class: Class) -> Vec<Fingerprint> {
    let print = |seed: u8| Fingerprint(core::array::from_fn(|at| (at as u8).wrapping_mul(7) ^ seed));
    match class {
        Class::Rep { copies } => vec![print(1); usize::from(copies)],
        Class::Ec { data, parity } => {
            let blocks: Vec<Fingerprint> = (0..data).map(print).collect();
            let sources: Vec<&[u8]> = blocks.iter().map(|print| &print.0[..]).collect();
            let mut made = vec![[0; FINGERPRINT_BYTES]; usize::from(parity)];
            let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|bytes| &mut bytes[..]).collect();
            Code::new(Scheme::new(data, parity).expect("a scheme")).encode(&sources, &mut targets);
            blocks.into_iter().chain(made.into_iter().map(Fingerprint)).collect()
        }
        Class::Eor { .. } => panic!("clients do not write it"),
    }
}

/// All parts, by name and tenure of their holders.
fn parts(acceptance: &Acceptance) -> Vec<(u64, PartName)> {
    let of = |target: &Target| {
        (
            100 + u64::from(target.part.position),
            acceptance.record.name_of(&target.part),
        )
    };
    acceptance.targets.iter().map(of).collect()
}

/// With all parts open.
fn opened(class: Class) -> Acceptance {
    let mut acceptance = begin(class);
    for (name, position, question) in told(&mut acceptance, &all(), false) {
        assert!(!acceptance.is_open());
        let tenure = 100 + u64::from(position);
        assert_eq!(
            acceptance.on_answer(tenure, name, question, PartState::Open(0), None),
            Ok(())
        );
    }
    assert!(acceptance.is_open());
    acceptance
}

/// The holder of part `at` says that it keeps it.
fn keep(acceptance: &mut Acceptance, at: usize, check: u32, print: &Fingerprint) -> Result<(), UploadFailed> {
    let (tenure, name) = parts(acceptance)[at];
    acceptance.on_answer(tenure, name, 0, PartState::Kept(check), Some(print))
}

#[test]
fn it_is_ready_when_every_holder_has_said_what_the_client_has_said() {
    for class in [CLASS, Class::Ec { data: 2, parity: 2 }, Class::Rep { copies: 3 }] {
        let checks = match class {
            Class::Rep { .. } => vec![7],
            _ => (11..).take(prints(class).len()).collect(),
        };
        for commits_at in 0..=prints(class).len() {
            let mut acceptance = opened(class);
            for (at, print) in prints(class).iter().enumerate() {
                if at == commits_at {
                    assert_eq!(acceptance.on_commit(&checks), Ok(()));
                }
                assert_eq!(acceptance.is_ready(&all(), 1, true), Ok(false), "{class} {at}");
                let check = checks[at.min(checks.len() - 1)];
                assert_eq!(keep(&mut acceptance, at, check, print), Ok(()));
            }
            assert_eq!(
                acceptance.is_ready(&all(), 1, true),
                Ok(commits_at < prints(class).len())
            );
            assert_eq!(acceptance.on_commit(&checks), Ok(()));
            assert_eq!(acceptance.is_ready(&all(), 1, true), Ok(true), "{class} {commits_at}");
            assert_eq!(acceptance.record().checks, checks);
            assert_eq!(
                acceptance.is_ready(&all(), 1, false),
                Err(UploadFailed::Lost),
                "not staged"
            );
        }
    }
}

#[test]
fn another_check_or_another_fingerprint_ends_it() {
    for at in 0..3 {
        // The holder says so before the client, or behind it.
        let prints = prints(CLASS);
        let mut acceptance = opened(CLASS);
        assert_eq!(keep(&mut acceptance, at, 99, &prints[at]), Ok(()));
        assert_eq!(acceptance.on_commit(&CHECKS), Err(UploadFailed::NotAsNamed));
        let mut acceptance = opened(CLASS);
        assert_eq!(acceptance.on_commit(&CHECKS), Ok(()));
        assert_eq!(
            keep(&mut acceptance, at, 99, &prints[at]),
            Err(UploadFailed::NotAsNamed)
        );
        assert_eq!(acceptance.is_ready(&all(), 1, true), Err(UploadFailed::NotAsNamed));
        // One bit of one fingerprint.
        for trusts in [false, true] {
            let mut wrong = prints.clone();
            wrong[at].0[200] ^= 1;
            let mut acceptance = opened(CLASS);
            if trusts {
                acceptance.compare_no_fingerprints();
            }
            acceptance.on_commit(&CHECKS).expect("nothing is known");
            for (at, print) in wrong.iter().enumerate() {
                keep(&mut acceptance, at, CHECKS[at], print).expect("checks are right");
            }
            let expected = if trusts { Ok(true) } else { Err(UploadFailed::Forged) };
            assert_eq!(acceptance.is_ready(&all(), 1, true), expected);
        }
    }
    let mut acceptance = opened(CLASS);
    assert_eq!(acceptance.on_commit(&CHECKS[..2]), Err(UploadFailed::NotAsNamed));
}

#[test]
fn what_a_node_would_have_made_ends_it() {
    let states = [
        (PartState::Declined, UploadFailed::Lost),
        (PartState::Making, UploadFailed::Lost),
        (PartState::Broken, UploadFailed::NotAsNamed),
        (PartState::NoRoom, UploadFailed::NoRoom),
        (PartState::Unknown, UploadFailed::Refused),
    ];
    for (state, failed) in states {
        for is_open in [false, true] {
            let mut acceptance = begin(CLASS);
            if is_open {
                acceptance = opened(CLASS);
            } else {
                told(&mut acceptance, &all(), false);
            }
            let (tenure, name) = parts(&acceptance)[1];
            // Another holder, or another tenure, does not count.
            assert_eq!(acceptance.on_answer(tenure + 1, name, 0, state, None), Ok(()));
            assert_eq!(acceptance.on_answer(tenure, name, 0, state, None), Err(failed));
            assert_eq!(acceptance.failed(), Some(failed));
            assert_eq!(acceptance.is_ready(&all(), 1, true), Err(failed));
            // It stays so.
            assert_eq!(acceptance.on_commit(&CHECKS), Err(failed));
        }
    }
}

#[test]
fn a_vacant_position_and_a_new_holder_end_it() {
    let mut vacant = all();
    vacant[1] = None;
    let mut acceptance = begin(CLASS);
    told(&mut acceptance, &vacant, false);
    assert_eq!(acceptance.failed(), Some(UploadFailed::Lost));
    assert!(!acceptance.is_open());
    let mut other = all();
    other[1] = Some(Holder {
        tenure: 200,
        is_live: true,
    });
    for changed in [&vacant, &other] {
        let mut acceptance = opened(CLASS);
        // Also before it is told of the change, and if all was kept.
        acceptance.on_commit(&CHECKS).expect("nothing is known");
        for (at, print) in prints(CLASS).iter().enumerate() {
            keep(&mut acceptance, at, CHECKS[at], print).expect("all is right");
        }
        assert_eq!(acceptance.is_ready(changed, 1, true), Err(UploadFailed::Lost));
        assert_eq!(acceptance.is_ready(&all(), 1, true), Ok(true));
        assert_eq!(told(&mut acceptance, changed, true), []);
        assert_eq!(acceptance.failed(), Some(UploadFailed::Lost));
        // The former holder is back under the same tenure? Its units may have gone.
        assert_eq!(acceptance.is_ready(&all(), 1, true), Err(UploadFailed::Lost));
    }
    // Position 3 has no part.
    let mut vacant = all();
    vacant[3] = None;
    let mut acceptance = begin(CLASS);
    assert_eq!(told(&mut acceptance, &vacant, false).len(), 3);
    assert_eq!(acceptance.failed(), None);
}

#[test]
fn before_the_commit_only_what_has_not_answered_is_asked_again() {
    let mut acceptance = begin(CLASS);
    let first = told(&mut acceptance, &all(), false);
    assert_eq!(
        first.iter().map(|(_, _, question)| *question).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(told(&mut acceptance, &all(), false), []);
    let (name, position, question) = first[0];
    let tenure = 100 + u64::from(position);
    assert_eq!(
        acceptance.on_answer(tenure, name, question, PartState::Open(0), None),
        Ok(())
    );
    let again = told(&mut acceptance, &all(), true);
    assert_eq!(
        again.iter().map(|(_, position, _)| *position).collect::<Vec<_>>(),
        [1, 2]
    );
    for (name, position, question) in again {
        let tenure = 100 + u64::from(position);
        assert_eq!(
            acceptance.on_answer(tenure, name, question, PartState::Open(0), None),
            Ok(())
        );
    }
    assert!(acceptance.is_open());
    assert_eq!(
        told(&mut acceptance, &all(), true),
        [],
        "the client sends, and the holders say so"
    );
}

#[test]
fn an_open_part_ends_it_only_if_it_was_asked_for_after_the_commit() {
    let mut acceptance = opened(CLASS);
    let prints = prints(CLASS);
    keep(&mut acceptance, 0, CHECKS[0], &prints[0]).expect("all is right");
    let (tenure, name) = parts(&acceptance)[1];
    assert_eq!(acceptance.on_commit(&CHECKS), Ok(()));
    let asked = told(&mut acceptance, &all(), false);
    assert_eq!(
        asked.iter().map(|(_, position, _)| *position).collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(told(&mut acceptance, &all(), false), [], "they have just been asked");
    // Older answers: unasked, and to the question that opened the part.
    for question in [0, 3] {
        assert_eq!(
            acceptance.on_answer(tenure, name, question, PartState::Open(1), None),
            Ok(())
        );
    }
    // The owner's COMMIT is run again while it waits: that moves nothing.
    assert_eq!(acceptance.on_commit(&CHECKS), Ok(()));
    // The answers come: one holder keeps its part.
    let (name, _, question) = asked[1];
    let kept = PartState::Kept(CHECKS[2]);
    assert_eq!(
        acceptance.on_answer(102, name, question, kept, Some(&prints[2])),
        Ok(())
    );
    assert_eq!(acceptance.is_ready(&all(), 1, true), Ok(false));
    let (name, _, question) = asked[0];
    let open = PartState::Open(5);
    assert_eq!(
        acceptance.on_answer(101, name, question, open, None),
        Err(UploadFailed::NotAsNamed)
    );
}

#[test]
fn a_part_that_no_client_has_sent_ends_it() {
    let mut acceptance = opened(CLASS);
    let (tenure, name) = parts(&acceptance)[1];
    let kept = PartState::Kept(CHECKS[1]);
    let without_fingerprint = acceptance.on_answer(tenure, name, 0, kept, None);
    assert_eq!(without_fingerprint, Err(UploadFailed::NotAsNamed));
}

#[test]
fn clients_write_neither_eor_nor_parts_on_log_nodes() {
    let eor = staged(Class::Eor { copies: 2, data: 2 }, 0);
    assert!(Acceptance::of_client(eor, 4, 1024).is_err());
    let mut ledger = Ledger::new(1, true);
    let logged = ledger
        .stage(Class::Ec { data: 2, parity: 2 }, 0, 1, 100_000)
        .expect("ids are left");
    assert!(Acceptance::of_client(logged, 4, 1024).is_err());
    assert!(
        Acceptance::of_client(staged(Class::Ec { data: 4, parity: 1 }, 0), 4, 1024).is_err(),
        "too few positions"
    );
    // A value of a node knows no COMMIT.
    let mut node = Acceptance::new(staged(CLASS, 0), 4, 1024, false).expect("it fits");
    assert_eq!((node.on_commit(&CHECKS), node.is_sent()), (Ok(()), false));
}
