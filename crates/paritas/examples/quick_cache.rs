//! Hit rate of quick_cache, a cache library, on a trace. `scripts/bench/hits.py` runs it for comparison.
//!
//! Reads lines `key bytes` from standard input. The argument is the capacity in bytes. Prints the hit rate of the
//! second half of the requests.

use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::error::Error;
use std::io::stdin;

#[derive(Clone)]
struct Bytes;

impl Weighter<u64, u64> for Bytes {
    fn weight(&self, _: &u64, bytes: &u64) -> u64 {
        *bytes
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let bytes_max: u64 = std::env::args().nth(1).ok_or("how many bytes it may hold")?.parse()?;
    let mut trace = Vec::new();
    for line in stdin().lines() {
        let line = line?;
        let (key, bytes) = line.split_once(' ').ok_or("lines `key bytes` on standard input")?;
        trace.push((key.parse::<u64>()?, bytes.parse::<u64>()?));
    }
    let all: u64 = trace.iter().map(|(_, bytes)| bytes).sum();
    let mean = all / trace.len().max(1) as u64;
    let mut cache = Cache::with_weighter((bytes_max / mean.max(1)) as usize, bytes_max, Bytes);
    let half = trace.len() / 2;
    let mut hits = 0;
    for (at, (key, bytes)) in trace.iter().enumerate() {
        if cache.get(key).is_some() {
            hits += usize::from(at >= half);
        } else {
            cache.insert(*key, *bytes);
        }
    }
    println!("{}", hits as f64 / (trace.len() - half).max(1) as f64);
    Ok(())
}
