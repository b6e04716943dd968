//! Service rates of the store's nodes, and which nodes are stragglers (§3.3).
//!
//! A node's rate is the sum of bytes over the sum of times of its samples in the last minute. Samples of clients
//! decide. Where they are too few, the node's own counters do. A node without enough of either keeps its last rate for
//! another minute. Then its rate is unknown, and it is no straggler.
//!
//! Clients measure arrival, nodes measure sending. So a rate is compared only with those of the same source, and nodes
//! have one of each source if they can.
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
/// A request that was cancelled sooner may not have begun to bring bytes, as far as the client knows.
const CANCELLED_MIN: Span = Span::from_ms(5);
/// Mean size of the requests of an interval below which a node's own counters say nothing: what is smaller fits in the
/// buffers of its sockets, so that the node takes a slow link for a fast one.
const REQUEST_BYTES_MIN: u64 = 4 << 20;
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

impl Estimator {
    /// Below this number of rates it names no node.
    const fn rates_min(self) -> usize {
        match self {
            Self::Mad | Self::LeaveOneOut => 3,
            Self::ThreeSigma => NODES_MIN_THREE_SIGMA,
            Self::None => 0,
        }
    }
}

/// The indexes of the rates that belong to stragglers.
pub fn stragglers(estimator: Estimator, rates: &[f64]) -> Vec<usize> {
    if rates.len() < estimator.rates_min() {
        return Vec::new();
    }
    let is_slow: Box<dyn Fn(f64) -> bool> = match estimator {
        Estimator::None => Box::new(|_| false),
        Estimator::ThreeSigma => {
            let (mean, deviation) = moments(rates);
            let limit = mean - 3.0 * deviation - mean * ROUNDING;
            Box::new(move |rate| rate < limit)
        }
        Estimator::LeaveOneOut => {
            let (mean, deviation) = moments(rates);
            let (count, others) = (rates.len() as f64, (rates.len() - 1) as f64);
            Box::new(move |rate| {
                // Mean and variance of the others, from those of all: sums of distances to the mean of all.
                let distance = rate - mean;
                let squares = (deviation.powi(2) * count - distance.powi(2)).max(0.0);
                let shift = distance / others;
                let deviation = (squares / others - shift.powi(2)).max(0.0).sqrt();
                let mean = mean - shift;
                rate < mean - 3.0 * deviation.max(mean * DEVIATION_MIN)
            })
        }
        Estimator::Mad => {
            let middle = median(rates.to_vec());
            let distance = median(rates.iter().map(|rate| (rate - middle).abs()).collect());
            let limit = (middle - 3.0 * 1.4826 * distance).min(middle / 2.0);
            Box::new(move |rate| rate < limit)
        }
    };
    let slow = rates.iter().enumerate().filter(|(_, rate)| is_slow(**rate));
    slow.map(|(at, _)| at).collect()
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

/// What a node of the store has counted since it started, of the requests for data that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Number of requests.
    pub requests: u64,
    /// Bytes that it sent.
    pub bytes: u64,
    /// Milliseconds that sending took.
    pub time_ms: u64,
    /// Requests of other nodes that took blocks over to balance the store. The store holds them back, so their rate is
    /// not the node's.
    pub copies: u64,
}

impl Counters {
    /// What was counted since `earlier`; `None` if the node has started again.
    fn since(self, earlier: Self) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_sub(earlier.requests)?,
            bytes: self.bytes.checked_sub(earlier.bytes)?,
            time_ms: self.time_ms.checked_sub(earlier.time_ms)?,
            copies: self.copies.checked_sub(earlier.copies)?,
        })
    }

    /// Whether such an interval says something about a rate.
    fn says_something(self) -> bool {
        let mean = |sum: u64| sum.checked_div(self.requests).unwrap_or(0);
        self.copies == 0
            && self.time_ms > 0
            && (REQUEST_BYTES_MIN..=SAMPLE_BYTES_MAX).contains(&mean(self.bytes))
            && mean(self.time_ms) <= SAMPLE_MAX.as_ms()
    }
}

/// Where a rate comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// Samples of clients.
    Clients,
    /// The node's own counters.
    Node,
    /// What either said earlier.
    Earlier,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Clients, Self::Node, Self::Earlier];

    /// For people and scripts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Node => "node",
            Self::Earlier => "earlier",
        }
    }
}

/// The rate of a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Whose it is.
    pub node: Node,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Where it comes from.
    pub source: Source,
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

/// The samples of the last minute.
#[derive(Clone, Default, Debug)]
struct Window {
    buckets: [Bucket; BUCKETS],
}

impl Window {
    /// Adds `count` samples together.
    fn add(&mut self, now: Time, bytes: u64, time: Span, count: u64) {
        let part = now.0 / BUCKET.0;
        let bucket = &mut self.buckets[(part % BUCKETS as u64) as usize];
        if bucket.part != part {
            *bucket = Bucket {
                part,
                ..Bucket::default()
            };
        }
        bucket.bytes = bucket.bytes.saturating_add(bytes);
        bucket.time = bucket.time + time;
        bucket.count = bucket.count.saturating_add(count);
    }

    /// Bytes a second, if there are enough samples.
    fn rate(&self, now: Time) -> Option<f64> {
        let part = now.0 / BUCKET.0;
        let recent = self.buckets.iter();
        let recent = recent.filter(|bucket| bucket.count > 0 && part.saturating_sub(bucket.part) < BUCKETS as u64);
        let sum = recent.fold(Bucket::default(), |sum, bucket| Bucket {
            part,
            bytes: sum.bytes.saturating_add(bucket.bytes),
            time: sum.time + bucket.time,
            count: sum.count.saturating_add(bucket.count),
        });
        (sum.count >= SAMPLES_MIN).then(|| sum.bytes as f64 * 1e9 / sum.time.0 as f64)
    }
}

/// What one source told of a node.
#[derive(Clone, Default, Debug)]
struct Told {
    window: Window,
    /// The last rate that was known, in bytes a second, and when it was.
    last: Option<(f64, Time)>,
}

impl Told {
    /// The rate that is known now or was in the minute before, and when.
    fn rate(&mut self, now: Time) -> Option<(f64, Time)> {
        if let Some(rate) = self.window.rate(now) {
            self.last = Some((rate, now));
        }
        self.last = self.last.filter(|(_, at)| now - *at <= WINDOW);
        self.last
    }
}

#[derive(Clone, Default, Debug)]
struct Measured {
    by_clients: Told,
    by_node: Told,
    /// What the node had counted when that last told something new, and when it was last heard of.
    counted: Option<(Time, Counters)>,
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

    /// Adds a client's sample. Returns false if it says nothing about a rate.
    pub fn add(&mut self, now: Time, node: Node, sample: Sample) -> bool {
        let says_something = match sample.cancelled {
            true => sample.time >= CANCELLED_MIN,
            false => sample.bytes >= SAMPLE_BYTES_MIN,
        };
        if !says_something || sample.time.0 == 0 || sample.time > SAMPLE_MAX || sample.bytes > SAMPLE_BYTES_MAX {
            return false;
        }
        let measured = self.nodes.entry(node).or_default();
        measured.by_clients.window.add(now, sample.bytes, sample.time, 1);
        true
    }

    /// A node tells its counters. Returns false if the interval since the last time says nothing about its rate.
    pub fn on_counters(&mut self, now: Time, node: Node, counters: Counters) -> bool {
        let measured = self.nodes.entry(node).or_default();
        let earlier = measured.counted.replace((now, counters));
        let Some((_, before)) = earlier.filter(|(at, _)| now - *at <= WINDOW) else {
            return false;
        };
        let Some(interval) = counters.since(before) else {
            return false;
        };
        if interval.requests == 0 {
            // A node repeats its counters for some seconds. It may also have counted the bytes of a request, and not
            // yet the request.
            measured.counted = Some((now, before));
            return false;
        }
        if !interval.says_something() {
            return false;
        }
        let time = Span(interval.time_ms.saturating_mul(Span::from_ms(1).0));
        measured
            .by_node
            .window
            .add(now, interval.bytes, time, interval.requests);
        true
    }

    /// The rate of each node that has one, in the order of their numbers.
    pub fn known(&mut self, now: Time) -> Vec<Rate> {
        let mut rates = Vec::new();
        for (node, measured) in &mut self.nodes {
            let told = [
                (Source::Clients, measured.by_clients.rate(now)),
                (Source::Node, measured.by_node.rate(now)),
            ];
            let told = told.iter().filter_map(|(source, rate)| Some((*source, (*rate)?)));
            // Of two that are equally new, that of the clients.
            let newest = told.reduce(|a, b| if b.1.1 > a.1.1 { b } else { a });
            if let Some((source, (bytes_per_s, at))) = newest {
                rates.push(Rate {
                    node: *node,
                    bytes_per_s,
                    source: if at == now { source } else { Source::Earlier },
                });
            }
        }
        rates.sort_by_key(|rate| rate.node);
        rates
    }

    /// The nodes that are stragglers now. A node is compared with others by what clients say, or by what the nodes say:
    /// by the newer of the two, or by the only one that has enough rates. Of two that are equally new the clients'
    /// counts, unless clients tell of less than half as many nodes: the few that they read from may all be slow.
    pub fn stragglers(&mut self, now: Time, estimator: Estimator) -> Vec<Node> {
        let mut sources = [
            self.told(now, |measured| &mut measured.by_clients),
            self.told(now, |measured| &mut measured.by_node),
        ];
        if sources[0].len() * 2 < sources[1].len() {
            sources.reverse();
        }
        // For each node: when the rate was known by which it is judged, and if it is slow.
        let mut judged: Map<Node, (Time, bool)> = map();
        for rates in sources {
            if rates.len() < estimator.rates_min() {
                continue;
            }
            let values: Vec<f64> = rates.iter().map(|(_, rate, _)| *rate).collect();
            let slow = stragglers(estimator, &values);
            let mut is_slow = vec![false; rates.len()];
            slow.into_iter().for_each(|at| is_slow[at] = true);
            for ((node, _, at), is_slow) in rates.into_iter().zip(is_slow) {
                let judgement = judged.entry(node).or_insert((at, is_slow));
                if at > judgement.0 {
                    *judgement = (at, is_slow);
                }
            }
        }
        let slow = judged.into_iter().filter(|(_, (_, is_slow))| *is_slow);
        let mut slow: Vec<Node> = slow.map(|(node, _)| node).collect();
        slow.sort_unstable();
        slow
    }

    /// The rates of one source, and when each was known.
    fn told(&mut self, now: Time, of: fn(&mut Measured) -> &mut Told) -> Vec<(Node, f64, Time)> {
        let rates = self.nodes.iter_mut().filter_map(|(node, measured)| {
            let (rate, at) = of(measured).rate(now)?;
            Some((*node, rate, at))
        });
        rates.collect()
    }
}

#[cfg(test)]
mod tests;
