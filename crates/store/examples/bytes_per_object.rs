//! Measures the cost of an object. Bytes by kind, counted and as RSS, over a sweep of key counts, new and after
//! overwriting; and the time of a command. There are six stripe lists of four streams, as `paritas dev` makes them.
//!
//! ```text
//! cargo run --release -p paritas-store --example bytes_per_object [sweep|churn|time] [chunk bytes]
//! ```

use paritas_base::{Prng, Version};
use paritas_store::{Arena, Blocked, Delta, Gauges, ObjectStore, Settings, Value};

const LISTS: usize = 6;
const DATA: usize = 4;
const PARITY: usize = 2;
const KEY_BYTES: usize = 24;

struct Store {
    arena: Arena,
    streams: Vec<ObjectStore>,
    seq: u64,
    bytes: Vec<u8>,
    delta_bytes: u64,
    housekeeping_bytes: u64,
}

impl Store {
    fn new(chunk_bytes: usize, streams: usize) -> Self {
        let settings = Settings::new(chunk_bytes, [3, 4]);
        let mut all: Vec<ObjectStore> = (0..streams).map(|_| ObjectStore::new(settings)).collect();
        for stream in &mut all {
            stream.set_credit(u32::MAX, u32::MAX);
        }
        Self {
            arena: Arena::new(chunk_bytes, (6u64 << 30 >> chunk_bytes.trailing_zeros()) as u32),
            streams: all,
            seq: 0,
            bytes: Vec::new(),
            delta_bytes: 0,
            housekeeping_bytes: 0,
        }
    }

    fn put(&mut self, id: u64, value: &[u8]) {
        let key = key(id);
        // The stream is chosen by another hash than the index's, as hash slots do.
        let at = (Prng::new(id).next_u64() % self.streams.len() as u64) as usize;
        let stream = &mut self.streams[at];
        let hash = stream.hash(0, &key);
        self.seq += 1;
        let mut delta = Delta::new(Version::new(1, self.seq), std::mem::take(&mut self.bytes));
        let value = Value {
            bytes: value,
            ..Value::default()
        };
        let done = stream.put(&mut self.arena, &mut delta, hash, &key, value);
        assert_eq!(done, Ok(()));
        self.delta_bytes += delta.bytes().len() as u64;
        self.bytes = delta.into_bytes();
    }

    /// One turn's housekeeping of one stream; the streams take turns.
    fn housekeep(&mut self, at: usize, budget: usize) -> bool {
        self.seq += 1;
        let mut delta = Delta::new(Version::new(1, self.seq), std::mem::take(&mut self.bytes));
        let did = self.streams[at].housekeep(&mut self.arena, &mut delta, budget);
        self.housekeeping_bytes += delta.bytes().len() as u64;
        self.bytes = delta.into_bytes();
        did == Ok(true)
    }

    fn counted(&self) -> Counted {
        let gauges: Vec<Gauges> = self.streams.iter().map(ObjectStore::gauges).collect();
        let chunk = self.arena.chunk_bytes() as u64;
        let sum = |f: fn(&Gauges) -> u64| gauges.iter().map(f).sum::<u64>();
        // One parity chunk for every stripe that any of the list's streams uses.
        let parity: u64 = gauges
            .chunks(DATA)
            .map(|list| {
                let most = |f: fn(&Gauges) -> u32| list.iter().map(f).max().unwrap_or(0);
                u64::from(most(|g| g.data_chunks) + most(|g| g.index_chunks))
            })
            .sum();
        let here = sum(|g| u64::from(g.data_chunks + g.index_chunks));
        Counted {
            data: sum(|g| u64::from(g.data_chunks)) * chunk,
            index: sum(|g| u64::from(g.index_chunks)) * chunk,
            live: sum(|g| g.live_bytes),
            dead: sum(|g| g.dead_bytes),
            open: sum(|g| g.open_bytes),
            free: sum(|g| u64::from(g.free_chunks)) * chunk,
            tables: sum(|g| g.tables_bytes),
            user: sum(|g| g.user_bytes),
            cluster: (here + PARITY as u64 * parity) * chunk
                + sum(|g| g.tables_bytes)
                // A parity member keeps a version and a sum for each data position of a stripe.
                + PARITY as u64 * parity * (DATA as u64 * 12 + 8),
            arena: self.arena.resident_bytes(),
        }
    }
}

struct Counted {
    data: u64,
    index: u64,
    live: u64,
    dead: u64,
    open: u64,
    free: u64,
    tables: u64,
    user: u64,
    cluster: u64,
    arena: u64,
}

fn key(id: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key:00000000000000000000";
    let digits = format!("{id:020}");
    key[4..].copy_from_slice(digits.as_bytes());
    key
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// CPU time of this thread in ns, so that other work on the machine is left out.
fn cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = schedstat.split(' ').next().and_then(|n| n.parse().ok());
    first.unwrap_or(0)
}

fn sweep(chunk_bytes: usize) {
    println!("fresh, {chunk_bytes} B chunks, {KEY_BYTES} B keys; bytes per object, mean of 20 key counts (worst)");
    println!("value | one copy: counted   RSS | live  index  tails  open  tables | 4+2 counted     worst | x user");
    for value_bytes in [8usize, 32, 100, 1000, 4000] {
        let scale = if value_bytes < 1000 { 1 } else { 10 };
        let before = resident();
        let mut store = Store::new(chunk_bytes, LISTS * DATA);
        let mut prng = Prng::new(1);
        let mut value = vec![0; value_bytes];
        let mut next = 0;
        let mut rows: Vec<[f64; 9]> = Vec::new();
        for step in 0..20u64 {
            let count = (700_000 + 700_000 * step / 19) / scale;
            while next < count {
                value.iter_mut().for_each(|b| *b = prng.next_u64() as u8);
                store.put(next, &value);
                next += 1;
            }
            let c = store.counted();
            let each = |bytes: u64| bytes as f64 / count as f64;
            rows.push([
                each(c.data + c.index + c.tables),
                each(resident() - before),
                each(c.live),
                each(c.index),
                each(c.dead),
                each(c.open),
                each(c.tables),
                each(c.cluster),
                c.cluster as f64 / c.user as f64,
            ]);
        }
        let mean = |i: usize| rows.iter().map(|row| row[i]).sum::<f64>() / rows.len() as f64;
        let worst = rows.iter().map(|row| row[7]).fold(0.0, f64::max);
        println!(
            "{value_bytes:5} | {:17.1} {:7.1} | {:6.1} {:5.2} {:5.2} {:5.2} {:5.2} | {:11.1} {worst:9.1} | {:.3}",
            mean(0),
            mean(1),
            mean(2),
            mean(3),
            mean(4),
            mean(5),
            mean(6),
            mean(7),
            mean(8)
        );
    }
}

fn churn(chunk_bytes: usize) {
    println!("ten-fold overwriting with sizes 50-150 % of the first, {chunk_bytes} B chunks");
    println!(
        "value | fresh | after: counted  ratio  arena  dead%  free% | delta B a put | of it compaction | moved B a put"
    );
    for value_bytes in [8usize, 32, 100, 1000, 4000] {
        let count = if value_bytes < 1000 { 400_000u64 } else { 100_000 };
        // Few streams, each as large as one of the sweep.
        let mut store = Store::new(chunk_bytes, (LISTS * DATA * count as usize / 1_000_000).max(2));
        let mut prng = Prng::new(1);
        let buffer = vec![7; value_bytes * 2];
        for id in 0..count {
            store.put(id, &buffer[..value_bytes]);
        }
        let fresh = store.counted();
        store.delta_bytes = 0;
        let streams = store.streams.len();
        let mut worst = 0;
        let mut housekept = 0;
        for put in 0..10 * count {
            let id = prng.below(count);
            let length = prng.between(value_bytes as u64 / 2, value_bytes as u64 * 3 / 2);
            store.put(id, &buffer[..length as usize]);
            // A turn of 16 commands, then housekeeping.
            if put % 16 == 0 {
                let written = (store.delta_bytes - housekept) as usize;
                housekept = store.delta_bytes;
                for at in 0..streams {
                    store.housekeep(at, 3 * written / streams);
                }
            }
            if put % (count / 8) == 0 {
                let c = store.counted();
                worst = worst.max(c.data + c.index + c.tables);
            }
        }
        let after = store.counted();
        let total = |c: &Counted| (c.data + c.index + c.tables) as f64 / count as f64;
        let puts = 10.0 * count as f64;
        let moved: u64 = store.streams.iter().map(|s| s.gauges().moved_bytes).sum();
        println!(
            "{value_bytes:5} | {:6.1} | {:7.1} {:.3} (worst {:.3}) {:7.1} {:5.1} {:5.1} | {:7.1} | {:6.1} | {:6.1}",
            total(&fresh),
            total(&after),
            total(&after) / total(&fresh),
            worst as f64 / count as f64 / total(&fresh),
            after.arena as f64 / count as f64,
            after.dead as f64 * 100.0 / (after.data - after.free) as f64,
            after.free as f64 * 100.0 / after.data as f64,
            (store.delta_bytes + store.housekeeping_bytes) as f64 / puts,
            store.housekeeping_bytes as f64 / puts,
            moved as f64 / puts,
        );
    }
}

fn time(chunk_bytes: usize) {
    let count = 4_000_000u64;
    let mut store = Store::new(chunk_bytes, 1);
    let start = cpu_ns();
    for id in 0..count {
        store.put(id, &[7; 32]);
    }
    let each = |start: u64, n: u64| (cpu_ns() - start) as f64 / n as f64;
    println!(
        "{count} keys of {KEY_BYTES} B, values of 32 B, one stream, {chunk_bytes} B chunks; ns each with key making"
    );
    println!("insert, growing               {:6.0}", each(start, count));
    let n = 2_000_000;
    let mut prng = Prng::new(2);
    let start = cpu_ns();
    let mut sum = 0u64;
    for _ in 0..n {
        let key = key(prng.below(count));
        sum += u64::from(key[20]);
    }
    let making = each(start, n);
    println!("making a key                  {making:6.0}");
    // The cost of memory on this machine: reads one byte at random places of as much memory.
    while let Some(range) = store.arena.next_huge() {
        range.make();
    }
    let plain = vec![1u8; (store.arena.resident_bytes() as usize).next_power_of_two()];
    let start = cpu_ns();
    for _ in 0..n {
        sum += u64::from(plain[prng.next_u64() as usize & (plain.len() - 1)]);
    }
    println!("read a byte, independent      {:6.0}", each(start, n));
    let start = cpu_ns();
    let mut at = 0;
    for _ in 0..n {
        at = (prng.next_u64() as usize + usize::from(plain[at])) & (plain.len() - 1);
    }
    sum += at as u64;
    println!("read a byte, dependent        {:6.0}", each(start, n));
    drop(plain);
    let stream = &store.streams[0];
    let start = cpu_ns();
    for _ in 0..n {
        let key = key(prng.below(count));
        let found = stream.find(&store.arena, stream.hash(0, &key), &key);
        let value = found.ok().flatten().and_then(|object| object.whole());
        sum += value.map_or(0, |v| u64::from(v[31]));
    }
    println!("find a key and its value      {:6.0}", each(start, n) - making);
    let start = cpu_ns();
    for _ in 0..n {
        let key = key(count + prng.below(count));
        sum += u64::from(matches!(
            stream.find(&store.arena, stream.hash(0, &key), &key),
            Ok(None)
        ));
    }
    println!("find nothing                  {:6.0}", each(start, n) - making);
    let start = cpu_ns();
    let mut batch = [([0; KEY_BYTES], 0); 16];
    for _ in 0..n / 16 {
        for (key, hash) in &mut batch {
            *key = self::key(prng.below(count));
            *hash = stream.hash(0, &*key);
            stream.prefetch_line(&store.arena, *hash);
        }
        for (_, hash) in &batch {
            stream.prefetch_object(&store.arena, *hash);
        }
        for (key, hash) in &batch {
            let found = stream.find(&store.arena, *hash, key);
            let value = found.ok().flatten().and_then(|object| object.whole());
            sum += value.map_or(0, |v| u64::from(v[31]));
        }
    }
    println!("find, 16 at a time, prefetched{:6.0}", each(start, n) - making);
    let start = cpu_ns();
    for _ in 0..n {
        store.put(prng.below(count), &[prng.next_u64() as u8; 32]);
    }
    println!("overwrite in place            {:6.0}", each(start, n) - making);
    let start = cpu_ns();
    for id in 0..n {
        let key = key(id);
        let stream = &mut store.streams[0];
        let hash = stream.hash(0, &key);
        let mut delta = Delta::new(Version::new(2, id + 1), std::mem::take(&mut store.bytes));
        let gone: Result<bool, Blocked> = stream.delete(&mut store.arena, &mut delta, hash, &key);
        sum += u64::from(gone == Ok(true));
        store.bytes = delta.into_bytes();
    }
    println!("delete                        {:6.0}", each(start, n) - making);
    println!("(check {sum})");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "all".into());
    let chunk_bytes = args.next().and_then(|n| n.parse().ok()).unwrap_or(16384);
    if what == "all" || what == "sweep" {
        sweep(chunk_bytes);
    }
    if what == "all" || what == "churn" {
        churn(chunk_bytes);
    }
    if what == "all" || what == "time" {
        time(chunk_bytes);
    }
}
