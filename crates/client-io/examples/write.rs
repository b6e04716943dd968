//! Writes one large value again and again, reads it at the end, and prints how long it took and where the time went.
//!
//! `cargo run --release --example write -- ADDRESS[,ADDRESS…] [server|client|auto] [BYTES] [WRITES] [WINDOW]`

use paritas_client_io::{Client, Command, Encode, Settings, Value};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: write ADDRESS[,ADDRESS…] [server|client|auto] [BYTES] [WRITES] [WINDOW]";
    let addresses = args.first().ok_or(usage)?.split(',').map(str::to_owned).collect();
    let encode = match args.get(1).map_or("auto", String::as_str) {
        "server" => Encode::Server,
        "client" => Encode::Client,
        "auto" => Encode::Auto,
        other => return Err(format!("{other}: not server, client or auto. {usage}").into()),
    };
    let number = |at: usize, default: usize| args.get(at).map_or(Ok(default), |text| text.parse());
    let (bytes, writes, window) = (number(2, 1 << 20)?, number(3, 200)?, number(4, 1)?);
    let settings = Settings {
        encode,
        ..Settings::default()
    };
    let client = Client::connect(addresses, settings)?;
    let value: Vec<u8> = (0..bytes).map(|i| (i * i / 7) as u8).collect();
    // Keys of their own, because writes of one key wait for each other.
    let key = |n: usize| format!("example:write:{}", n % window).into_bytes();
    let (mut times, mut coding, mut encoded_here) = (Vec::new(), Duration::ZERO, 0);
    let mut under_way = VecDeque::new();
    let began = Instant::now();
    for n in 0..writes + window {
        if n < writes {
            let command = Command::set(&key(n), value.clone());
            under_way.push_back((Instant::now(), client.submit(command)));
        }
        if under_way.len() < window && n < writes {
            continue;
        }
        let Some((since, ticket)) = under_way.pop_front() else {
            break;
        };
        let outcome = client.wait(ticket);
        times.push(since.elapsed());
        coding += Duration::from_nanos(outcome.phases.coding.0);
        encoded_here += usize::from(outcome.is_encoded_here);
        outcome.result?;
    }
    let took = began.elapsed();
    for n in 0..window.min(writes) {
        if client.wait(client.submit(Command::get(&key(n)))).result? != Value::Bulk(value.clone()) {
            return Err("the value that was read is not the one that was written".into());
        }
    }
    times.sort();
    let count = times.len().max(1);
    println!(
        "{count} writes of {bytes} B: median {:.2} ms, longest {:.2} ms, {:.0} MB/s; {encoded_here} encoded here, \
         coding {:.3} ms a write",
        times[count / 2].as_secs_f64() * 1e3,
        times[count - 1].as_secs_f64() * 1e3,
        (bytes * count) as f64 / took.as_secs_f64() / 1e6,
        coding.as_secs_f64() * 1e3 / count as f64,
    );
    println!("{:?}", client.stats());
    Ok(())
}
