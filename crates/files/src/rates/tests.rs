use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// `slow` nodes at a seventh of the rate of the others.
fn with_slow(nodes: usize, slow: usize) -> Vec<f64> {
    (0..nodes).map(|at| if at < slow { 25.0 / 7.0 } else { 25.0 }).collect()
}

#[test]
fn three_sigma_first_fires_at_eleven_nodes() {
    for nodes in 1..30 {
        let expected: &[usize] = if nodes >= NODES_MIN_THREE_SIGMA { &[0] } else { &[] };
        assert_eq!(
            stragglers(Estimator::ThreeSigma, &with_slow(nodes, 1)),
            expected,
            "{nodes}"
        );
    }
}

#[test]
fn two_equal_stragglers_hide_each_other_from_three_sigma_below_twenty_one_nodes() {
    for nodes in 11..30 {
        let found = stragglers(Estimator::ThreeSigma, &with_slow(nodes, 2));
        assert_eq!(found.len(), if nodes >= 21 { 2 } else { 0 }, "{nodes}");
    }
}

#[test]
fn the_other_rules_find_a_straggler_from_three_nodes() {
    for estimator in [Estimator::LeaveOneOut, Estimator::Mad] {
        for nodes in 1..12 {
            let expected: &[usize] = if nodes >= 3 { &[0] } else { &[] };
            assert_eq!(
                stragglers(estimator, &with_slow(nodes, 1)),
                expected,
                "{nodes} {estimator}"
            );
        }
        assert!(stragglers(estimator, &[]).is_empty());
        assert!(stragglers(estimator, &[10.0, 10.1, 9.9, 9.6, 10.2]).is_empty());
    }
    let two = with_slow(9, 2);
    assert_eq!(stragglers(Estimator::Mad, &two), [0, 1]);
    assert!(
        stragglers(Estimator::LeaveOneOut, &two).is_empty(),
        "each hides the other"
    );
}

proptest! {
    #[test]
    fn three_sigma_never_fires_below_eleven_nodes(rates in prop::collection::vec(0.0f64..1e9, 0..11)) {
        prop_assert!(stragglers(Estimator::ThreeSigma, &rates).is_empty());
    }

    #[test]
    fn leave_one_out_is_the_rule_for_the_other_nodes(rates in prop::collection::vec(1.0f64..1e9, 3..40)) {
        let slow = stragglers(Estimator::LeaveOneOut, &rates);
        for at in 0..rates.len() {
            let others: Vec<f64> = [&rates[..at], &rates[at + 1..]].concat();
            let (mean, deviation) = moments(&others);
            let limit = mean - 3.0 * deviation.max(mean * DEVIATION_MIN);
            // The sums are rounded in another way.
            if (rates[at] - limit).abs() > mean * ROUNDING {
                prop_assert_eq!(slow.contains(&at), rates[at] < limit);
            }
        }
    }

    #[test]
    fn mad_never_names_half_of_the_nodes(rates in prop::collection::vec(0.0f64..1e9, 0..40)) {
        let slow = stragglers(Estimator::Mad, &rates);
        prop_assert!(slow.len() * 2 <= rates.len());
        for at in slow {
            prop_assert!(rates[at] < median(rates.clone()) / 2.0);
        }
    }
}

fn sample(bytes: u64, ms: u64) -> Sample {
    Sample {
        bytes,
        time: Span::from_ms(ms),
        cancelled: false,
    }
}

#[test]
fn a_rate_needs_eight_samples_and_is_kept_for_a_minute_after_the_window() {
    let mut rates = Rates::new();
    let at = |seconds: u64| Time(seconds * SECOND);
    for n in 0..7 {
        assert!(rates.add(at(n), 3, sample(4 << 20, 100)));
        assert!(rates.known(at(n)).is_empty());
    }
    rates.add(at(7), 3, sample(4 << 20, 100));
    let expected = f64::from(40 << 20);
    let known = rates.known(at(7));
    assert_eq!(known.len(), 1);
    assert!((known[0].bytes_per_s - expected).abs() < 1.0, "{known:?}");
    assert_eq!(rates.known(at(50)).len(), 1);
    assert_eq!(rates.known(at(109)).len(), 1, "the old rate");
    assert!(rates.known(at(171)).is_empty());
}

#[test]
fn samples_that_say_nothing_are_refused() {
    let mut rates = Rates::new();
    let now = Time(SECOND);
    assert!(!rates.add(now, 1, sample(1000, 1)), "too small");
    assert!(!rates.add(now, 1, sample(1 << 20, 0)), "no time");
    assert!(!rates.add(now, 1, sample(u64::MAX, 5)), "too large");
    assert!(!rates.add(now, 1, sample(1 << 20, u64::MAX / 1_000_000)), "too long");
    let cancelled = Sample {
        cancelled: true,
        ..sample(0, 100)
    };
    assert!(rates.add(now, 1, cancelled), "cancelled, and nothing had come");
    let early = Sample {
        cancelled: true,
        ..sample(0, 1)
    };
    assert!(!rates.add(now, 1, early));
}

#[test]
fn a_cancelled_reader_sees_the_straggler_too() {
    let mut rates = Rates::new();
    let now = Time(SECOND);
    for _ in 0..8 {
        for node in 0..4 {
            rates.add(now, node, sample(4 << 20, 160));
        }
        let cut = Sample {
            cancelled: true,
            ..sample(600 << 10, 160)
        };
        rates.add(now, 4, cut);
    }
    assert_eq!(rates.stragglers(now, Estimator::Mad), [4]);
    assert_eq!(rates.stragglers(now, Estimator::LeaveOneOut), [4]);
    assert!(rates.stragglers(now, Estimator::ThreeSigma).is_empty());
}

const MIB: u64 = 1 << 20;

/// `requests` of `bytes` each, at `rate` MiB a second each.
fn counted(requests: u64, bytes: u64, rate: u64) -> Counters {
    Counters {
        requests,
        bytes: requests * bytes,
        time_ms: requests * bytes * 1000 / (rate * MIB),
        copies: 0,
    }
}

fn at(seconds: u64) -> Time {
    Time(1000 * SECOND + seconds * SECOND)
}

/// The only rate, in MiB a second, and where it comes from.
fn only(rates: &mut Rates, now: Time) -> Option<(u64, Source)> {
    let known = rates.known(now);
    assert!(known.len() < 2);
    known
        .first()
        .map(|rate| ((rate.bytes_per_s / MIB as f64).round() as u64, rate.source))
}

#[test]
fn the_rate_is_that_of_the_clients_then_the_nodes_own_then_the_old_one_then_unknown() {
    let mut rates = Rates::new();
    assert!(!rates.on_counters(at(0), 3, Counters::default()), "no interval yet");
    assert_eq!(only(&mut rates, at(0)), None);
    assert!(rates.on_counters(at(1), 3, counted(8, 4 * MIB, 10)));
    assert_eq!(only(&mut rates, at(1)), Some((10, Source::Node)));
    for n in 0..8 {
        // Seven samples of clients do not count, eight do.
        assert_eq!(only(&mut rates, at(2)), Some((10, Source::Node)), "{n}");
        rates.add(at(2), 3, sample(4 * MIB, 100));
    }
    assert_eq!(only(&mut rates, at(2)), Some((40, Source::Clients)));
    // The clients have told nothing for a minute, the node has.
    assert!(rates.on_counters(at(50), 3, counted(16, 4 * MIB, 10)));
    assert_eq!(only(&mut rates, at(50)), Some((40, Source::Clients)));
    assert_eq!(only(&mut rates, at(65)), Some((10, Source::Node)));
    assert_eq!(only(&mut rates, at(105)), Some((10, Source::Node)));
    assert_eq!(only(&mut rates, at(111)), Some((10, Source::Earlier)));
    assert_eq!(only(&mut rates, at(165)), Some((10, Source::Earlier)));
    assert_eq!(only(&mut rates, at(166)), None);
}

#[test]
fn a_node_needs_eight_requests_as_clients_need_eight_samples() {
    let mut rates = Rates::new();
    rates.on_counters(at(0), 1, counted(0, 4 * MIB, 10));
    assert!(rates.on_counters(at(1), 1, counted(7, 4 * MIB, 10)));
    assert_eq!(only(&mut rates, at(1)), None);
    assert!(rates.on_counters(at(2), 1, counted(8, 4 * MIB, 10)));
    assert_eq!(only(&mut rates, at(2)), Some((10, Source::Node)));
}

#[test]
fn intervals_of_small_requests_say_nothing() {
    let mut rates = Rates::new();
    rates.on_counters(at(0), 1, Counters::default());
    let small = counted(100, 4 * MIB - 1, 500);
    assert!(!rates.on_counters(at(1), 1, small));
    assert_eq!(only(&mut rates, at(1)), None);
    let large = counted(8, 4 * MIB, 10);
    let sum = Counters {
        requests: small.requests + large.requests,
        bytes: small.bytes + large.bytes,
        time_ms: small.time_ms + large.time_ms,
        copies: 0,
    };
    assert!(rates.on_counters(at(2), 1, sum));
    assert_eq!(
        only(&mut rates, at(2)),
        Some((10, Source::Node)),
        "the small ones are not in it"
    );
}

#[test]
fn intervals_with_blocks_for_the_balancer_say_nothing() {
    let mut rates = Rates::new();
    rates.on_counters(at(0), 1, Counters::default());
    let copied = Counters {
        copies: 1,
        ..counted(8, 4 * MIB, 1)
    };
    assert!(!rates.on_counters(at(1), 1, copied));
    let mut more = counted(16, 4 * MIB, 1);
    more.copies = 1;
    assert!(rates.on_counters(at(2), 1, more));
}

#[test]
fn counters_that_go_backwards_begin_anew() {
    let full = Counters {
        copies: 5,
        ..counted(100, 8 * MIB, 10)
    };
    let zero = Counters::default();
    let backwards = [
        Counters { requests: 99, ..full },
        Counters {
            bytes: full.bytes - 1,
            ..full
        },
        Counters {
            time_ms: full.time_ms - 1,
            ..full
        },
        Counters { copies: 4, ..full },
        zero,
    ];
    for lower in backwards {
        let mut rates = Rates::new();
        rates.on_counters(at(0), 1, full);
        assert!(!rates.on_counters(at(1), 1, lower), "{lower:?}");
        assert_eq!(only(&mut rates, at(1)), None, "{lower:?}");
        let next = Counters {
            requests: lower.requests + 8,
            bytes: lower.bytes + 32 * MIB,
            time_ms: lower.time_ms + 3200,
            ..lower
        };
        assert!(rates.on_counters(at(2), 1, next), "{lower:?}");
        assert_eq!(only(&mut rates, at(2)), Some((10, Source::Node)), "{lower:?}");
    }
}

#[test]
fn a_node_that_tells_old_counters_for_some_seconds_loses_nothing() {
    let mut rates = Rates::new();
    rates.on_counters(at(0), 1, Counters::default());
    for second in 1..200 {
        assert!(!rates.on_counters(at(second), 1, Counters::default()));
    }
    // Bytes of a request that is not yet counted as one.
    let early = Counters {
        requests: 0,
        ..counted(8, 4 * MIB, 10)
    };
    assert!(!rates.on_counters(at(200), 1, early));
    assert!(rates.on_counters(at(201), 1, counted(8, 4 * MIB, 10)));
    assert_eq!(only(&mut rates, at(201)), Some((10, Source::Node)));
    // Not heard of for more than a minute: that rate would be an old one.
    assert!(!rates.on_counters(at(262), 1, counted(16, 4 * MIB, 10)));
    assert!(rates.on_counters(at(263), 1, counted(24, 4 * MIB, 10)));
}

#[test]
fn counters_that_cannot_be_true_say_nothing() {
    let most = u64::MAX;
    for told in [
        Counters {
            bytes: most,
            ..counted(8, 4 * MIB, 10)
        },
        Counters {
            time_ms: most,
            ..counted(8, 4 * MIB, 10)
        },
        Counters {
            time_ms: 0,
            ..counted(8, 4 * MIB, 10)
        },
        Counters {
            requests: most,
            bytes: most,
            time_ms: most,
            copies: 0,
        },
    ] {
        let mut rates = Rates::new();
        rates.on_counters(at(0), 1, Counters::default());
        assert!(!rates.on_counters(at(1), 1, told), "{told:?}");
        assert_eq!(only(&mut rates, at(1)), None);
    }
}

proptest! {
    #[test]
    fn no_counters_give_a_rate_that_is_no_number(
        told in prop::collection::vec((0..u64::MAX, 0..u64::MAX, 0..u64::MAX), 0..40)
    ) {
        let mut rates = Rates::new();
        for (n, (requests, bytes, time_ms)) in told.into_iter().enumerate() {
            // Small ones too, so that some make sense.
            let shift = (n % 8) as u32 * 8;
            let (bytes, time_ms) = (bytes >> shift, time_ms >> shift);
            let counters = Counters { requests: requests >> 56, bytes, time_ms, copies: 0 };
            rates.on_counters(at(n as u64), 1, counters);
            for rate in rates.known(at(n as u64)) {
                prop_assert!(rate.bytes_per_s.is_finite() && rate.bytes_per_s > 0.0);
            }
        }
    }
}

#[test]
fn a_straggler_is_found_by_the_nodes_counters_alone() {
    let mut rates = Rates::new();
    for (second, requests) in [(0, 0), (10, 20)] {
        for node in 0..5 {
            let rate = if node == 2 { 4 } else { 28 };
            rates.on_counters(at(second), node, counted(requests, 8 * MIB, rate));
        }
    }
    assert_eq!(rates.stragglers(at(10), Estimator::Mad), [2]);
}

#[test]
fn rates_of_clients_are_not_compared_with_those_that_nodes_tell() {
    let mut rates = Rates::new();
    // All nodes send at 100 MiB a second by their own counters; clients see 20, and only of five.
    for (second, requests) in [(0, 0), (10, 20)] {
        for node in 0..12 {
            rates.on_counters(at(second), node, counted(requests, 8 * MIB, 100));
        }
    }
    for node in 0..5 {
        for _ in 0..8 {
            rates.add(at(10), node, sample(4 * MIB, 200));
        }
    }
    let sources = rates.known(at(10));
    assert_eq!(sources.iter().filter(|rate| rate.source == Source::Clients).count(), 5);
    for estimator in [Estimator::Mad, Estimator::LeaveOneOut, Estimator::ThreeSigma] {
        assert!(rates.stragglers(at(10), estimator).is_empty(), "{estimator}");
    }
    // Among those of which clients tell, one is slow: node 5. Its own counters do not show it.
    for _ in 0..8 {
        rates.add(at(10), 5, sample(4 * MIB, 1400));
    }
    assert_eq!(rates.stragglers(at(10), Estimator::Mad), [5]);
    // Clients tell of too few nodes for this rule, so the nodes' own counters decide.
    assert!(rates.stragglers(at(10), Estimator::ThreeSigma).is_empty());
}

#[test]
fn clients_that_read_from_few_nodes_do_not_hide_what_the_nodes_tell() {
    let mut rates = Rates::new();
    for (second, requests) in [(0, 0), (10, 20)] {
        for node in 0..12 {
            let rate = if node < 2 { 4 } else { 28 };
            rates.on_counters(at(second), node, counted(requests, 8 * MIB, rate));
        }
    }
    // Of three nodes the two slow ones are the usual case.
    for node in 0..3 {
        for _ in 0..8 {
            rates.add(at(10), node, sample(4 * MIB, if node < 2 { 1400 } else { 200 }));
        }
    }
    assert_eq!(rates.stragglers(at(10), Estimator::Mad), [0, 1]);
}

#[test]
fn clients_of_two_nodes_alone_do_not_hide_what_the_nodes_tell() {
    let mut rates = Rates::new();
    for (second, requests) in [(0, 0), (10, 20)] {
        for node in 0..5 {
            let rate = if node == 2 { 4 } else { 28 };
            rates.on_counters(at(second), node, counted(requests, 8 * MIB, rate));
        }
    }
    for node in [1, 2] {
        for _ in 0..8 {
            rates.add(at(10), node, sample(4 * MIB, 200));
        }
    }
    assert_eq!(rates.stragglers(at(10), Estimator::Mad), [2]);
}
