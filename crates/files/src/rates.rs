//! Service rates of the store's nodes, and which nodes are stragglers (§3.3).
//!
//! A node's rate is the sum of bytes over the sum of times of its samples in the last minute. A node without enough
//! samples keeps its last rate for another minute; then its rate is unknown, and it is no straggler.
//!
//! The paper's rule is v < μ − 3σ. It cannot name any node below 11 nodes: an outlier is itself part of μ and σ, so of
//! n values none is more than √(n − 1) standard deviations away from their mean. Two nodes that are equally slow hide
//! each other below 21 nodes: then √(n/2 − 1) is the limit. The other two rules work from three nodes.

use crate::Node;
use crate::choice::choice;
use paritas_base::{Map, Span, Time, map};

/// Below this number of nodes with a known rate, [`Estimator::ThreeSigma`] names none.
pub const NODES_MIN_THREE_SIGMA: usize = 11;

/// Samples older than this no longer count.
const WINDOW: Span = Span::from_secs(60);
const BUCKETS: usize = 12;
const BUCKET: Span = Span(WINDOW.0 / BUCKETS as u64);
/// Fewer samples in the window give no rate.
const SAMPLES_MIN: u64 = 8;
/// A finished request below this says more about latency than about rate.
const SAMPLE_BYTES_MIN: u64 = 64 << 10;
/// A cancelled request below this has not begun yet, for all that the client knows.
const CANCELLED_MIN: Span = Span::from_ms(5);
/// Largest values of a sample that count: 1 TiB, one hour.
const SAMPLE_BYTES_MAX: u64 = 1 << 40;
const SAMPLE_MAX: Span = Span::from_secs(3600);
/// Standard deviation that the other nodes are taken to have at least, as a part of their mean. Without it, nodes that
/// are all equal would make a straggler of one that is a hair slower.
const DEVIATION_MIN: f64 = 0.1;
/// What sums of equal rates may differ by, as a part of their mean.
const ROUNDING: f64 = 1e-9;

/// What a client measured at one request to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Time that they took.
    pub time: Span,
    /// The client did not wait for the rest. The node's rate is then at most that of the sample.
    pub cancelled: bool,
}

choice! {
    /// By which rule a node is a straggler.
    Estimator, "an estimator":
    /// v < median − 3 · 1.4826 · MAD, and v < median / 2. MAD is the median of distances to the median.
    Mad = "mad",
    /// The paper's v < μ − 3σ with μ and σ of the other nodes, and σ at least a tenth of μ.
    LeaveOneOut = "leave-one-out",
    /// v < μ − 3σ, as in the paper; it never fires below 11 nodes.
    ThreeSigma = "three-sigma",
    /// No node is a straggler: a cache that does not know of them.
    None = "none",
}

/// The indexes of the rates that belong to stragglers.
pub fn stragglers(estimator: Estimator, rates: &[f64]) -> Vec<usize> {
    let is_slow: Box<dyn Fn(usize) -> bool> = match estimator {
        Estimator::None => Box::new(|_| false),
        Estimator::ThreeSigma => {
            let (mean, deviation) = moments(rates);
            let limit = mean - 3.0 * deviation - mean * ROUNDING;
            Box::new(move |at| rates[at] < limit)
        }
        _ if rates.len() < 3 => Box::new(|_| false),
        Estimator::LeaveOneOut => Box::new(|at| {
            let others: Vec<f64> = [&rates[..at], &rates[at + 1..]].concat();
            let (mean, deviation) = moments(&others);
            rates[at] < mean - 3.0 * deviation.max(mean * DEVIATION_MIN)
        }),
        Estimator::Mad => {
            let middle = median(rates.to_vec());
            let distance = median(rates.iter().map(|rate| (rate - middle).abs()).collect());
            let limit = (middle - 3.0 * 1.4826 * distance).min(middle / 2.0);
            Box::new(move |at| rates[at] < limit)
        }
    };
    (0..rates.len()).filter(|at| is_slow(*at)).collect()
}

/// Mean and standard deviation of a population.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

/// Sums of the samples in one part of the window.
#[derive(Clone, Copy, Default, Debug)]
struct Bucket {
    /// Number of the part since time 0.
    part: u64,
    bytes: u64,
    time: Span,
    count: u64,
}

#[derive(Clone, Default, Debug)]
struct Measured {
    buckets: [Bucket; BUCKETS],
    /// The last rate that was known, in bytes a second, and when it was.
    last: Option<(f64, Time)>,
}

/// The rates of all nodes.
#[derive(Clone, Default, Debug)]
pub struct Rates {
    nodes: Map<Node, Measured>,
}

impl Rates {
    /// No samples yet.
    pub fn new() -> Self {
        Self { nodes: map() }
    }

    /// Adds a sample. Returns false if it says nothing about a rate.
    pub fn add(&mut self, now: Time, node: Node, sample: Sample) -> bool {
        let says_something = match sample.cancelled {
            true => sample.time >= CANCELLED_MIN,
            false => sample.bytes >= SAMPLE_BYTES_MIN,
        };
        if !says_something || sample.time.0 == 0 || sample.time > SAMPLE_MAX || sample.bytes > SAMPLE_BYTES_MAX {
            return false;
        }
        let part = now.0 / BUCKET.0;
        let measured = self.nodes.entry(node).or_default();
        let bucket = &mut measured.buckets[(part % BUCKETS as u64) as usize];
        if bucket.part != part {
            *bucket = Bucket {
                part,
                ..Bucket::default()
            };
        }
        bucket.bytes = bucket.bytes.saturating_add(sample.bytes);
        bucket.time = bucket.time + sample.time;
        bucket.count += 1;
        true
    }

    /// The rate of each node that has one, in bytes a second, in the order of their numbers.
    pub fn known(&mut self, now: Time) -> Vec<(Node, f64)> {
        let part = now.0 / BUCKET.0;
        let mut rates = Vec::new();
        for (node, measured) in &mut self.nodes {
            let recent = measured.buckets.iter();
            let recent = recent.filter(|bucket| bucket.count > 0 && part.saturating_sub(bucket.part) < BUCKETS as u64);
            let sum = recent.fold(Bucket::default(), |sum, bucket| Bucket {
                part,
                bytes: sum.bytes.saturating_add(bucket.bytes),
                time: sum.time + bucket.time,
                count: sum.count + bucket.count,
            });
            if sum.count >= SAMPLES_MIN {
                measured.last = Some((sum.bytes as f64 * 1e9 / sum.time.0 as f64, now));
            }
            match measured.last {
                Some((rate, since)) if now - since <= WINDOW => rates.push((*node, rate)),
                _ => measured.last = None,
            }
        }
        rates.sort_by_key(|(node, _)| *node);
        rates
    }

    /// The nodes that are stragglers now.
    pub fn stragglers(&mut self, now: Time, estimator: Estimator) -> Vec<Node> {
        let known = self.known(now);
        let rates: Vec<f64> = known.iter().map(|(_, rate)| *rate).collect();
        let slow = stragglers(estimator, &rates);
        slow.into_iter().map(|at| known[at].0).collect()
    }
}

#[cfg(test)]
mod tests {
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
        assert!((known[0].1 - expected).abs() < 1.0, "{known:?}");
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
}
