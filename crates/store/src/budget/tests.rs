use super::*;
use proptest::prelude::*;

const PURPOSES: [Purpose; 4] = [Purpose::Write, Purpose::StandIn, Purpose::Rebuild, Purpose::Demand];

fn available(budget: &Budget) -> [u32; 4] {
    PURPOSES.map(|purpose| budget.available(purpose))
}

/// Sets a headroom of 32 chunks, uses 20, reserves 30, and sets a backlog of 40.
fn spent(mut budget: Budget) -> Budget {
    budget.set_headroom(32);
    assert!(budget.reserve(30, 0));
    assert!((0..20).all(|_| budget.take(Part::Free)));
    budget.set_backlog(40);
    budget
}

#[test]
fn each_purpose_has_its_own_limit_in_memory() {
    let mut budget = spent(Budget::of_memory(1000));
    budget.set_limit(900);
    assert_eq!(
        available(&budget),
        [900 - 20 - 30 - 40, 900 - 20 - 30, 1000 - 32 - 20 - 30, 1000 - 20 - 30]
    );
    budget.set_limit(45);
    assert_eq!(available(&budget), [0, 0, 918, 950], "no row falls below 0");
    assert!(budget.is_over());
    assert_eq!(budget.limit_max(), 968);
}

#[test]
fn each_purpose_has_its_own_limit_on_a_disk() {
    let budget = spent(Budget::of_disk(1000));
    assert_eq!(budget.limit(), 875);
    assert_eq!(available(&budget), [785, 785, u32::MAX, 980]);
}

#[test]
fn headroom_is_at_most_a_quarter() {
    let mut budget = Budget::of_memory(100);
    budget.set_headroom(32);
    assert_eq!(budget.headroom(), 25);
    budget.set_headroom(7);
    assert_eq!(budget.headroom(), 7);
}

#[test]
fn what_is_reserved_of_the_backlog_leaves_it() {
    let mut budget = Budget::of_memory(100);
    budget.set_backlog(95);
    assert!(!budget.reserve(6, 0), "writers may have 5 chunks");
    assert!(budget.reserve(5, 0));
    assert!(budget.reserve(60, 60), "these were to be rebuilt anyway");
    assert_eq!((budget.reserved(), budget.backlog()), (65, 35));
    budget.set_backlog(100);
    assert!(!budget.reserve(36, 36), "there are only 35 chunks more");
    assert!(budget.reserve(35, 35));
}

#[test]
fn a_disk_promises_its_backlog_even_if_it_is_full() {
    let mut budget = Budget::of_disk(80);
    assert!((0..80).all(|_| budget.take(Part::Free)) && !budget.take(Part::Free));
    budget.set_backlog(5);
    assert!(budget.reserve(5, 9), "at most what the backlog is counts");
    assert!(!budget.reserve(1, 1));
    assert!(budget.take(Part::Reserved), "what was promised is not refused");
    assert_eq!((budget.used(), budget.reserved()), (81, 4));
}

#[test]
fn a_chunk_goes_between_used_and_reserved_and_back() {
    let mut budget = Budget::of_memory(4);
    assert!(!budget.take(Part::Reserved), "nothing is reserved");
    assert!(budget.reserve(4, 0) && !budget.take(Part::Free));
    assert!(budget.take(Part::Reserved));
    budget.give(1, Part::Reserved);
    assert_eq!((budget.used(), budget.reserved()), (0, 4));
    assert!(budget.take(Part::Reserved));
    budget.give(1, Part::Free);
    assert_eq!((budget.used(), budget.reserved()), (0, 3));
    assert!(budget.take(Part::Free));
}

#[test]
#[should_panic(expected = "overcommitted")]
fn a_memory_that_is_overcommitted_is_a_bug() {
    let mut budget = Budget {
        used: 3,
        reserved: 2,
        ..Budget::of_memory(4)
    };
    budget.give(1, Part::Reserved);
}

#[test]
#[should_panic(expected = "unreserved of")]
fn what_was_not_reserved_cannot_be_unreserved() {
    Budget::of_memory(4).unreserve(1);
}

#[test]
#[should_panic(expected = "given back of")]
fn what_was_not_taken_cannot_be_given_back() {
    Budget::of_disk(4).give(1, Part::Free);
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u32, u32),
    Unreserve(u32),
    Take(Part),
    Give(u32, Part),
    Limit(u32),
    Headroom(u32),
    Backlog(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let part = || prop_oneof![Just(Part::Free), Just(Part::Reserved)];
    let step = prop_oneof![
        3 => (0u32..40, 0u32..40).prop_map(|(count, of_backlog)| Step::Reserve(count, of_backlog)),
        1 => (0u32..40).prop_map(Step::Unreserve),
        6 => part().prop_map(Step::Take),
        2 => (0u32..10, part()).prop_map(|(count, to)| Step::Give(count, to)),
        1 => (0u32..200).prop_map(Step::Limit),
        1 => (0u32..200).prop_map(Step::Headroom),
        1 => (0u32..200).prop_map(Step::Backlog),
    ];
    proptest::collection::vec(step, 1..300)
}

proptest! {
    #[test]
    fn no_sequence_of_changes_breaks_the_bound(on_disk: bool, capacity in 1u32..100, steps in steps()) {
        let mut budget = if on_disk { Budget::of_disk(capacity) } else { Budget::of_memory(capacity) };
        for step in steps {
            let before = budget.clone();
            let spent = |budget: &Budget| budget.used() + budget.reserved();
            match step {
                Step::Reserve(count, of_backlog) => {
                    if budget.reserve(count, of_backlog) {
                        prop_assert_eq!(budget.reserved(), before.reserved() + count);
                        let beside = count - (before.backlog() - budget.backlog());
                        prop_assert!(beside <= before.available(Purpose::Write));
                        prop_assert!(before.backlog() - budget.backlog() <= of_backlog);
                    } else {
                        prop_assert_eq!(available(&budget), available(&before));
                    }
                }
                Step::Unreserve(count) => budget.unreserve(count.min(before.reserved())),
                Step::Take(Part::Free) => {
                    let took = budget.take(Part::Free);
                    prop_assert_eq!(took, before.available(Purpose::Demand) > 0);
                    prop_assert_eq!(spent(&budget), spent(&before) + u32::from(took));
                    prop_assert!(!took || budget.used() <= capacity);
                }
                Step::Take(Part::Reserved) => {
                    prop_assert_eq!(budget.take(Part::Reserved), before.reserved() > 0);
                    prop_assert_eq!(spent(&budget), spent(&before));
                }
                Step::Give(count, to) => {
                    let count = count.min(before.used());
                    budget.give(count, to);
                    prop_assert_eq!(budget.used(), before.used() - count);
                }
                Step::Limit(chunks) => budget.set_limit(chunks),
                Step::Headroom(chunks) => budget.set_headroom(chunks),
                Step::Backlog(chunks) => budget.set_backlog(chunks),
            }
            prop_assert!(on_disk || spent(&budget) <= capacity);
            prop_assert!(budget.available(Purpose::Write) <= budget.available(Purpose::StandIn));
            prop_assert!(budget.available(Purpose::StandIn) <= budget.available(Purpose::Demand) || on_disk);
            prop_assert!(budget.available(Purpose::Rebuild) <= budget.available(Purpose::Demand) || on_disk);
        }
    }
}
