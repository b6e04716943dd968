//! Reads or writes large values at random keys for some seconds, and prints bytes a second. Clusters are parted by `;`:
//! each has a part of the keys. Each value says its key, and is compared.
//!
//! `uniform CLUSTERS fill|server|client|auto BYTES KEYS SECONDS WINDOW SEED`; CLUSTERS: `ADDRESS[,ADDRESS…][;…]`

use paritas_client_io::{Client, Command, Decode, Settings, Value};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

fn key(n: usize) -> Vec<u8> {
    format!("uniform:{n}").into_bytes()
}

fn value(n: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i / 64 + i * 3 + n * 7) as u8).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [clusters, mode, numbers @ ..] = args.as_slice() else {
        return Err("usage: uniform CLUSTERS fill|server|client|auto BYTES KEYS SECONDS WINDOW SEED".into());
    };
    let numbers: Vec<usize> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [bytes, keys, seconds, window, seed] = numbers[..] else {
        return Err("five numbers: BYTES KEYS SECONDS WINDOW SEED".into());
    };
    let decode = match mode.as_str() {
        "fill" | "server" => Decode::Server,
        "client" => Decode::Client,
        _ => Decode::Auto,
    };
    let clients: Vec<Client> = clusters
        .split(';')
        .map(|addresses| {
            let settings = Settings {
                decode,
                bytes_max: 64 << 20,
                seed: seed as u64,
                ..Settings::default()
            };
            Client::connect(addresses.split(',').map(str::to_owned).collect(), settings)
        })
        .collect::<Result<_, _>>()?;
    if mode == "fill" {
        for n in 0..keys {
            clients[n % clients.len()].set(&key(n), value(n, bytes))?;
        }
        println!("filled {keys} keys");
        return Ok(());
    }
    let mut random = seed as u64 * 2 + 1;
    let mut times: Vec<Duration> = Vec::new();
    let mut under_way = VecDeque::new();
    let (began, lasts) = (Instant::now(), Duration::from_secs(seconds as u64));
    let mut here = 0;
    while began.elapsed() < lasts {
        while under_way.len() < window {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let n = (random >> 33) as usize % keys;
            let client = &clients[n % clients.len()];
            under_way.push_back((n, Instant::now(), client.submit(Command::get(&key(n)))));
        }
        let Some((n, since, ticket)) = under_way.pop_front() else {
            break;
        };
        let outcome = clients[n % clients.len()].wait(ticket);
        times.push(since.elapsed());
        here += usize::from(outcome.is_decoded_here);
        match outcome.result? {
            Value::Bulk(found) if found == value(n, bytes) => {}
            _ => return Err(format!("the value of {} is another one", n).into()),
        }
    }
    let took = began.elapsed().as_secs_f64();
    times.sort();
    let replaced: u64 = clients.iter().map(|client| client.stats().replaced_bytes).sum();
    println!(
        "{} reads, {:.2} MB/s, median {:.1} ms, {here} decoded here, {:.3} of the bytes asked for twice",
        times.len(),
        (times.len() * bytes) as f64 / took / 1e6,
        times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3),
        replaced as f64 / (times.len() * bytes).max(1) as f64,
    );
    Ok(())
}
