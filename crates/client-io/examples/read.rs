//! Reads one large value again and again, and prints how long it took and where the time went.
//!
//! `cargo run --release --example read -- ADDRESS[,ADDRESS…] [server|client|auto] [BYTES] [READS] [WINDOW]`

use paritas_client_io::{Client, Command, Decode, Settings, Value};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: read ADDRESS[,ADDRESS…] [server|client|auto] [BYTES] [READS] [WINDOW]";
    let addresses = args.first().ok_or(usage)?.split(',').map(str::to_owned).collect();
    let decode = match args.get(1).map_or("auto", String::as_str) {
        "server" => Decode::Server,
        "client" => Decode::Client,
        "auto" => Decode::Auto,
        other => return Err(format!("{other}: not server, client or auto. {usage}").into()),
    };
    let number = |at: usize, default: usize| args.get(at).map_or(Ok(default), |text| text.parse());
    let (bytes, reads, window) = (number(2, 1 << 20)?, number(3, 200)?, number(4, 1)?);
    let settings = Settings {
        decode,
        ..Settings::default()
    };
    let client = Client::connect(addresses, settings)?;
    let value: Vec<u8> = (0..bytes).map(|i| (i * i / 7) as u8).collect();
    client.set(b"example:read", value.clone())?;
    let (mut times, mut coding, mut decoded_here) = (Vec::new(), Duration::ZERO, 0);
    let mut under_way = VecDeque::new();
    let began = Instant::now();
    for n in 0..reads + window {
        if n < reads {
            under_way.push_back((Instant::now(), client.submit(Command::get(b"example:read"))));
        }
        if under_way.len() < window && n < reads {
            continue;
        }
        let Some((since, ticket)) = under_way.pop_front() else {
            break;
        };
        let outcome = client.wait(ticket);
        times.push(since.elapsed());
        coding += Duration::from_nanos(outcome.phases.coding.0);
        decoded_here += usize::from(outcome.is_decoded_here);
        if outcome.result? != Value::Bulk(value.clone()) {
            return Err("the value that was read is not the one that was written".into());
        }
    }
    let took = began.elapsed();
    times.sort();
    let count = times.len().max(1);
    println!(
        "{count} reads of {bytes} B: median {:.2} ms, longest {:.2} ms, {:.0} MB/s; {decoded_here} decoded here, \
         coding {:.3} ms a read",
        times[count / 2].as_secs_f64() * 1e3,
        times[count - 1].as_secs_f64() * 1e3,
        (bytes * count) as f64 / took.as_secs_f64() / 1e6,
        coding.as_secs_f64() * 1e3 / count as f64,
    );
    println!("{:?}", client.stats());
    Ok(())
}
