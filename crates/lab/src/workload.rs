//! Requests as made by YCSB: Zipfian popularity with exponent 0.99, scattered over the objects by a hash.

use paritas_base::Prng;

/// YCSB draws ranks from this many items whatever the number of objects, and uses their known zeta sum.
const ITEMS: f64 = 1e10;
const ZETA_OF_ITEMS: f64 = 26.469_028_201_783_02;
const THETA: f64 = 0.99;

/// A request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Reads an object.
    Read(u32),
    /// Replaces an object's value.
    Update(u32),
}

/// An endless sequence of requests for objects 0 to `objects - 1`.
#[derive(Clone, Debug)]
pub struct Workload {
    random: Prng,
    objects: u64,
    update_percent: u64,
}

impl Workload {
    /// A workload in which `update_percent` of the requests are updates, drawn at random.
    pub fn new(seed: u64, objects: u32, update_percent: u64) -> Self {
        Self {
            random: Prng::new(seed),
            objects: u64::from(objects),
            update_percent,
        }
    }

    /// The next request.
    pub fn next_request(&mut self) -> Request {
        let object = self.next_object();
        if self.random.below(100) < self.update_percent {
            Request::Update(object)
        } else {
            Request::Read(object)
        }
    }

    /// An object, drawn by popularity.
    pub fn next_object(&mut self) -> u32 {
        (scatter(self.next_rank()) % self.objects) as u32
    }

    /// Gray et al., "Quickly generating billion-record synthetic databases", as in YCSB.
    pub(crate) fn next_rank(&mut self) -> u64 {
        let u = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let of_two = 1.0 + 0.5f64.powf(THETA);
        let scaled = u * ZETA_OF_ITEMS;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < of_two {
            return 1;
        }
        let eta = (1.0 - (2.0 / ITEMS).powf(1.0 - THETA)) / (1.0 - of_two / ZETA_OF_ITEMS);
        (ITEMS * (eta * u - eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
    }
}

/// Maps a rank to an object: FNV over its eight bytes.
fn scatter(rank: u64) -> u64 {
    rank.to_le_bytes()
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
}

/// The jump hash of Lamping and Veach: keys are spread evenly, and few move when a node is added.
pub fn jump_hash(key: u64, nodes: usize) -> usize {
    let mut key = Prng::new(key).next_u64();
    let (mut found, mut next) = (0u64, 0u64);
    while next < nodes as u64 {
        found = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((found + 1) as f64 * ((1u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as u64;
    }
    found as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_is_that_of_ycsb() {
        let (objects, draws) = (100_000, 200_000);
        let mut workload = Workload::new(1, objects, 30);
        let mut counts = vec![0u32; objects as usize];
        let mut updates = 0;
        for _ in 0..draws {
            let (Request::Read(object) | Request::Update(object)) = match workload.next_request() {
                Request::Update(object) => {
                    updates += 1;
                    Request::Update(object)
                }
                read @ Request::Read(_) => read,
            };
            counts[object as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The first object has 1 / zeta of all requests, the second 0.5^0.99 of that.
        let share = |n: usize| f64::from(counts[n]) / f64::from(draws);
        assert!((share(0) - 1.0 / ZETA_OF_ITEMS).abs() < 0.002, "{}", share(0));
        assert!(
            (share(1) / share(0) - 0.5f64.powf(0.99)).abs() < 0.03,
            "{}",
            share(1) / share(0)
        );
        assert!((f64::from(updates) / f64::from(draws) - 0.3).abs() < 0.01);
    }

    #[test]
    fn nodes_get_equal_shares_and_few_keys_move() {
        let mut counts = [0; 7];
        let mut moved = 0;
        for key in 0..70_000 {
            let node = jump_hash(key, 7);
            counts[node] += 1;
            moved += usize::from(jump_hash(key, 8) != node);
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        assert!((8_000..9_500).contains(&moved), "{moved}");
    }
}
