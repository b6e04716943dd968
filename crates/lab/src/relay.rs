//! Relays: one kind counts the data that passes, the other delays it.

use paritas_base::Prng;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const READ_BYTES: usize = 256 << 10;

/// Data that has passed, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Bytes.
    pub(crate) bytes: AtomicU64,
    /// Reads of at least a value's length. With one request at a time, this counts messages with a value.
    pub(crate) large: AtomicU64,
}

/// Starts a relay from `listen` to `target`. Its threads end with the process; those of a connection end when one side
/// closes.
pub(crate) fn start(listen: SocketAddr, target: SocketAddr, large: usize, traffic: Arc<Traffic>) -> io::Result<()> {
    accept(listen, target, move |here, there| {
        for (from, to) in [(&here, &there), (&there, &here)] {
            if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                let traffic = Arc::clone(&traffic);
                thread::spawn(move || pass(from, to, large, &traffic));
            }
        }
    })
}

/// Starts a relay that delays data while `is_slow` is set. Data from `target` is late by 2 ms on average with a
/// deviation of 1 ms, as in MemEC's failures (§7.2). The order is kept.
pub(crate) fn start_slow(listen: SocketAddr, target: SocketAddr, is_slow: Arc<AtomicBool>) -> io::Result<()> {
    let traffic = Arc::new(Traffic::default());
    accept(listen, target, move |here, there| {
        if let (Ok(from), Ok(to)) = (here.try_clone(), there.try_clone()) {
            let traffic = Arc::clone(&traffic);
            thread::spawn(move || pass(from, to, usize::MAX, &traffic));
        }
        let is_slow = Arc::clone(&is_slow);
        thread::spawn(move || delay(there, here, &is_slow));
    })
}

fn accept(
    listen: SocketAddr,
    target: SocketAddr,
    relay: impl Fn(TcpStream, TcpStream) + Send + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    thread::spawn(move || {
        for here in listener.incoming().map_while(Result::ok) {
            // A failed dial looks like a closed connection.
            let Ok(there) = TcpStream::connect(target) else {
                continue;
            };
            for stream in [&here, &there] {
                let _ = stream.set_nodelay(true);
            }
            relay(here, there);
        }
    });
    Ok(())
}

/// The sum of twelve uniform draws is approximately normal, with a deviation of 1.
fn lateness(random: &mut Prng) -> Duration {
    let sum: f64 = (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20)).sum();
    Duration::from_secs_f64((2.0 + sum - 6.0).max(0.0) / 1000.0)
}

fn delay(mut from: TcpStream, mut to: TcpStream, is_slow: &AtomicBool) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    let later = thread::spawn(move || {
        for (at, bytes) in receiver {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut random = Prng::new(from.local_addr().map_or(1, |address| address.port().into()));
    let (mut bytes, mut last) = (vec![0; READ_BYTES], Instant::now());
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let late = match is_slow.load(Ordering::Relaxed) {
            true => lateness(&mut random),
            false => Duration::ZERO,
        };
        last = last.max(Instant::now() + late);
        if sender.send((last, bytes[..count].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = later.join();
}

fn pass(mut from: TcpStream, mut to: TcpStream, large: usize, traffic: &Traffic) {
    let mut bytes = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        traffic.bytes.fetch_add(count as u64, Ordering::Relaxed);
        traffic.large.fetch_add(u64::from(count >= large), Ordering::Relaxed);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // The other side may have closed the connection already.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_that_of_the_paper() {
        let mut random = Prng::new(1);
        let draws: Vec<f64> = (0..20_000)
            .map(|_| lateness(&mut random).as_secs_f64() * 1000.0)
            .collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let deviation = (draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64).sqrt();
        // Negative delays count as zero, which lowers the deviation a little.
        assert!(
            (mean - 2.0).abs() < 0.05 && (deviation - 1.0).abs() < 0.05,
            "{mean} ± {deviation}"
        );
    }
}
