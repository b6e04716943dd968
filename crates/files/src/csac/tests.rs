use super::*;
use paritas_base::Prng;
use std::collections::BTreeMap;

const NODES: [Node; 2] = [1, 2];

/// Reads a file of one block, and returns the decision and what was evicted.
fn read(csac: &mut Csac, file: File, nodes: &[Node]) -> (Decision, Vec<File>) {
    let decision = csac.query(file, nodes);
    match csac.update(file, nodes, 1, decision) {
        Update::Cached { evicted } => (decision, evicted),
        Update::Recorded => (decision, Vec::new()),
        Update::Declined(why) => panic!("{why:?}"),
    }
}

fn filled(eviction: Eviction, files: &[File]) -> Csac {
    let mut csac = Csac::new(CsacSettings::new(3, eviction));
    for file in files {
        read(&mut csac, *file, &NODES);
    }
    csac
}

#[test]
fn without_stragglers_what_is_read_is_cached() {
    let mut csac = filled(Eviction::Lru, &[]);
    assert_eq!(read(&mut csac, 1, &NODES).0, Decision::ShouldCache);
    assert_eq!(read(&mut csac, 1, &NODES).0, Decision::Cached);
    assert_eq!(csac.used_blocks(), 1);
}

#[test]
fn with_stragglers_only_affected_files_are_cached() {
    let mut csac = filled(Eviction::Lru, &[1]);
    assert!(csac.set_stragglers([9]));
    assert!(!csac.set_stragglers([9]), "it is not new");
    assert_eq!(csac.query(2, &[1, 2, 3]), Decision::ShouldNotCache);
    assert_eq!(csac.query(2, &[1, 9, 3]), Decision::ShouldCache);
    assert_eq!(csac.query(1, &NODES), Decision::Cached, "what is cached stays");
    assert!(csac.set_stragglers([9, 4]));
    assert!(!csac.set_stragglers([4]));
    assert_eq!(csac.query(2, &[1, 9, 3]), Decision::ShouldNotCache);
}

#[test]
fn the_admission_says_what_is_cached_while_no_node_is_slow() {
    for (admission, first, second) in [
        (Admission::OnAccess, Decision::ShouldCache, Decision::Cached),
        (Admission::SecondAccess, Decision::ShouldNotCache, Decision::ShouldCache),
        (
            Admission::Stragglers,
            Decision::ShouldNotCache,
            Decision::ShouldNotCache,
        ),
    ] {
        let mut csac = Csac::new(CsacSettings {
            admission,
            ..CsacSettings::new(3, Eviction::Lru)
        });
        assert_eq!(read(&mut csac, 1, &NODES).0, first, "{admission}");
        assert_eq!(read(&mut csac, 1, &NODES).0, second, "{admission}");
        // A file on a straggler is cached at once, other files are not.
        csac.set_stragglers([9]);
        assert_eq!(read(&mut csac, 2, &[9]).0, Decision::ShouldCache, "{admission}");
        assert_eq!(read(&mut csac, 3, &NODES).0, Decision::ShouldNotCache, "{admission}");
    }
}

#[test]
fn lru_evicts_what_was_not_used_for_longest() {
    let mut csac = filled(Eviction::Lru, &[1, 2, 3, 1, 1]);
    assert_eq!(read(&mut csac, 4, &NODES).1, [2]);
    assert_eq!(read(&mut csac, 5, &NODES).1, [3]);
}

#[test]
fn lfu_evicts_what_is_used_least_and_remembers_accesses_before_the_caching() {
    let mut csac = filled(Eviction::Lfu, &[1, 1, 2, 2, 3]);
    assert_eq!(read(&mut csac, 4, &NODES).1, [3], "one access");
    // 4 has one access, 3 comes back with two.
    assert_eq!(read(&mut csac, 3, &NODES).1, [4]);
    assert_eq!(read(&mut csac, 3, &NODES).0, Decision::Cached);
    assert_eq!(
        read(&mut csac, 4, &NODES).1,
        [1],
        "1 and 2 have two accesses, 3 has three; 1 is the older one"
    );
}

#[test]
fn files_that_nobody_reads_any_more_make_room_when_counts_age() {
    for ages in [false, true] {
        let mut csac = Csac::new(CsacSettings::new(10, Eviction::Lfu));
        for file in 1..=9 {
            for _ in 0..100 {
                read(&mut csac, file, &NODES);
            }
        }
        for round in 0..40 {
            for file in 11..=15 {
                read(&mut csac, file, &NODES);
            }
            if ages && round % 10 == 9 {
                csac.age();
            }
        }
        assert_eq!((11..=15).all(|file| csac.contains(file)), ages, "ages: {ages}");
    }
}

#[test]
fn sac_is_csac_with_lru() {
    let (mut sac, mut csac) = (
        Csac::new(CsacSettings::sac(5)),
        Csac::new(CsacSettings::new(5, Eviction::Lru)),
    );
    let mut random = Prng::new(7);
    for step in 0..2000 {
        if step % 100 == 0 {
            let slow = random.below(4) as Node;
            sac.set_stragglers([slow]);
            csac.set_stragglers([slow]);
        }
        let (file, nodes) = (random.below(20), [random.below(4) as Node]);
        assert_eq!(read(&mut sac, file, &nodes), read(&mut csac, file, &nodes));
    }
}

#[test]
fn arc_resists_a_scan_that_empties_lru() {
    for (eviction, survives) in [(Eviction::Arc, true), (Eviction::Lru, false)] {
        let mut csac = filled(eviction, &[1, 1, 2, 2]);
        for file in 100..120 {
            read(&mut csac, file, &NODES);
        }
        assert_eq!(csac.contains(1) && csac.contains(2), survives, "{eviction}");
    }
}

#[test]
fn arc_gives_recency_more_room_after_hits_of_its_ghosts() {
    let mut csac = filled(Eviction::Arc, &[1, 1, 2, 3]);
    assert_eq!(read(&mut csac, 4, &NODES).1, [2], "T1 gives first: its target is 0");
    // 2 is a ghost of T1: the target grows to 1, and 2 comes back as a frequent file.
    assert_eq!(read(&mut csac, 2, &NODES).1, [3]);
    // T1 has 4 alone, which is its target: T2 gives, least recently used first.
    assert_eq!(read(&mut csac, 5, &NODES).1, [1]);
}

#[test]
fn a_file_larger_than_the_cache_is_declined_and_evicts_nothing() {
    for eviction in Eviction::ALL.iter().copied() {
        let mut csac = filled(eviction, &[1, 2, 3]);
        assert_eq!(
            csac.update(4, &NODES, 4, Decision::ShouldCache),
            Update::Declined(Decline::TooLarge)
        );
        assert_eq!(csac.used_blocks(), 3);
        csac.hold(1, true);
        assert_eq!(
            csac.update(5, &NODES, 3, Decision::ShouldCache),
            Update::Declined(Decline::NothingEvictable)
        );
        assert!([1, 2, 3].iter().all(|file| csac.contains(*file)));
        csac.hold(1, false);
        let update = csac.update(5, &NODES, 3, Decision::ShouldCache);
        assert!(matches!(update, Update::Cached { evicted } if evicted.len() == 3));
    }
}

#[test]
fn an_empty_cache_declines() {
    let mut csac = Csac::new(CsacSettings::new(0, Eviction::Lru));
    let decision = csac.query(1, &NODES);
    assert_eq!(csac.update(1, &NODES, 1, decision), Update::Declined(Decline::TooLarge));
}

#[test]
fn the_write_path_evicts_nothing() {
    let mut csac = filled(Eviction::Lru, &[1, 2]);
    assert!(!csac.reserve(8, 2));
    assert!(csac.reserve(8, 1));
    assert!(!csac.reserve(8, 0), "it is cached");
    assert_eq!(csac.used_blocks(), 3);
}

#[test]
fn what_was_reserved_for_nothing_is_given_back() {
    for eviction in Eviction::ALL.iter().copied() {
        let mut csac = filled(eviction, &[]);
        assert!(csac.reserve(8, 3));
        csac.shrink(8, 1);
        assert_eq!(csac.used_blocks(), 1);
        csac.shrink(8, 2);
        assert_eq!(csac.used_blocks(), 1, "it does not grow");
        assert!(csac.reserve(9, 2));
        let update = csac.update(10, &NODES, 3, Decision::ShouldCache);
        assert!(matches!(update, Update::Cached { evicted } if evicted.len() == 2));
    }
}

#[test]
fn prefetch_takes_affected_files_by_recency_up_to_its_part_of_the_cache() {
    let mut csac = Csac::new(CsacSettings::new(10, Eviction::Lfu));
    csac.set_stragglers([50]);
    for (file, blocks, node) in [(1, 1, 9), (2, 1, 8), (3, 3, 9), (4, 4, 9), (5, 1, 9), (6, 1, 9)] {
        let decision = csac.query(file, &[node]);
        assert_eq!(decision, Decision::ShouldNotCache);
        csac.update(file, &[node], blocks, decision);
    }
    assert!(csac.prefetch(40).is_empty(), "no file is affected");
    csac.set_stragglers([9]);
    assert!(csac.reserve(6, 1), "6 is cached");
    // 5 takes one block; 4 needs four, which do not fit; 3 takes three. 2 is not affected; for 1 nothing is left.
    assert_eq!(csac.prefetch(40), [5, 3]);
    assert_eq!(csac.prefetch(100), [5, 4, 3, 1]);
    assert!(csac.prefetch(0).is_empty());
}

#[test]
fn prefetch_by_frequency_takes_what_was_read_most_often() {
    for (prediction, expected) in [(Prediction::Recency, [3, 2, 1]), (Prediction::Frequency, [1, 3, 2])] {
        let mut csac = Csac::new(CsacSettings {
            prediction,
            ..CsacSettings::new(10, Eviction::Lfu)
        });
        csac.set_stragglers([50]);
        for file in [1, 1, 1, 2, 3, 2, 3] {
            let decision = csac.query(file, &[9]);
            csac.update(file, &[9], 1, decision);
        }
        csac.set_stragglers([9]);
        assert_eq!(csac.prefetch(100), expected, "{prediction}");
        assert_eq!(csac.prefetch(20), expected[..2], "{prediction}");
    }
}

/// Any sequence of calls, beside the plainest bookkeeping.
#[test]
fn the_blocks_add_up_whatever_is_called() {
    for seed in 0..300 {
        let mut random = Prng::new(seed);
        let eviction = *random.pick(Eviction::ALL);
        let total = random.between(0, 40);
        let mut csac = Csac::new(CsacSettings {
            history_files_max: 20,
            admission: *random.pick(Admission::ALL),
            prediction: *random.pick(Prediction::ALL),
            ..CsacSettings::new(total, eviction)
        });
        let mut model: BTreeMap<File, (u64, bool)> = BTreeMap::new();
        for _ in 0..500 {
            let file = random.below(30);
            let nodes = [random.below(5) as Node, random.below(5) as Node];
            let blocks = random.between(1, 9);
            match random.below(12) {
                0 => {
                    csac.set_stragglers((0..5).filter(|_| random.chance(200_000)));
                }
                1 => {
                    let free = total - model.values().map(|entry| entry.0).sum::<u64>();
                    let fits = blocks <= free && !model.contains_key(&file);
                    assert_eq!(csac.reserve(file, blocks), fits, "seed {seed}");
                    if fits {
                        model.insert(file, (blocks, false));
                    }
                }
                2 => assert_eq!(csac.remove(file), model.remove(&file).is_some(), "seed {seed}"),
                3 => {
                    let held = random.chance(500_000);
                    csac.hold(file, held);
                    if let Some(entry) = model.get_mut(&file) {
                        entry.1 = held;
                    }
                }
                4 => {
                    csac.shrink(file, blocks);
                    if let Some(entry) = model.get_mut(&file) {
                        entry.0 = entry.0.min(blocks);
                    }
                }
                5 => {
                    csac.forget(file);
                    model.remove(&file);
                }
                _ => {
                    let decision = csac.query(file, &nodes);
                    assert_eq!(decision == Decision::Cached, model.contains_key(&file), "seed {seed}");
                    if let Update::Cached { evicted } = csac.update(file, &nodes, blocks, decision) {
                        for victim in evicted {
                            let gone = model.remove(&victim);
                            assert!(
                                gone.is_some_and(|entry| !entry.1),
                                "seed {seed}: {victim} was held or absent"
                            );
                        }
                        model.insert(file, (blocks, false));
                    }
                }
            }
            let used: u64 = model.values().map(|entry| entry.0).sum();
            assert_eq!(csac.used_blocks(), used, "seed {seed}");
            assert!(used <= total, "seed {seed}");
            assert!(model.keys().all(|file| csac.contains(*file)), "seed {seed}");
        }
    }
}
