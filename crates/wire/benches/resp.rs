//! Decoding of requests and encoding of replies, compared with redis-protocol.

#![expect(missing_docs, reason = "criterion_group makes a public function")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use paritas_wire::command;
use paritas_wire::resp::{Args, Decoded, Limits, decode, encode};

const COMMANDS: usize = 64;

fn requests(args: impl Fn(usize) -> Vec<Vec<u8>>) -> Vec<u8> {
    let mut input = Vec::new();
    for n in 0..COMMANDS {
        encode::request(&mut input, &args(n));
    }
    input
}

fn key(n: usize) -> Vec<u8> {
    format!("key:{n:020}").into_bytes()
}

fn ours(mut input: &[u8], args: &mut Args) -> usize {
    let mut bytes = 0;
    while let Ok(Decoded::Complete { consumed }) = decode(input, &Limits::DEFAULT, args) {
        let list = args.list(input);
        bytes += list.arg(0).len() + list.arg(1).len();
        input = &input[consumed..];
    }
    bytes
}

fn redis_protocol(mut input: &[u8]) -> usize {
    let mut bytes = 0;
    while let Ok(Some((frame, used))) = redis_protocol::resp2::decode::decode_range(input) {
        black_box(frame);
        bytes += used;
        input = &input[used..];
    }
    bytes
}

fn decoding(c: &mut Criterion) {
    let get = requests(|n| vec![b"GET".to_vec(), key(n)]);
    let set = requests(|n| vec![b"SET".to_vec(), key(n), vec![b'v'; 32]]);
    let mixed = requests(|n| match n * 7 % 5 {
        0 => vec![b"SET".to_vec(), key(n), vec![b'v'; n * 37 % 400]],
        1 => vec![b"INCRBY".to_vec(), key(n)[..n % 20 + 3].to_vec(), b"12".to_vec()],
        2 => vec![b"EXPIRE".to_vec(), key(n), b"1000".to_vec()],
        _ => vec![b"GET".to_vec(), key(n)[..n * 13 % 20 + 4].to_vec()],
    });
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(COMMANDS as u64));
    for (name, input) in [("get", &get), ("set 32 B", &set), ("mixed", &mixed)] {
        let mut args = Args::new();
        group.bench_function(format!("{name}, ours"), |b| {
            b.iter(|| ours(black_box(input), &mut args));
        });
        group.bench_function(format!("{name}, redis-protocol"), |b| {
            b.iter(|| redis_protocol(black_box(input)));
        });
    }
    group.finish();
}

fn encoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements(COMMANDS as u64));
    let mut out = Vec::with_capacity(1 << 16);
    for bytes in [8, 32, 1000] {
        let value = vec![b'v'; bytes];
        group.bench_function(format!("bulk {bytes} B"), |b| {
            b.iter(|| {
                out.clear();
                for _ in 0..COMMANDS {
                    encode::bulk(&mut out, black_box(&value));
                }
                out.len()
            });
        });
    }
    group.bench_function("integer", |b| {
        b.iter(|| {
            out.clear();
            for n in 0..COMMANDS as i64 {
                encode::integer(&mut out, black_box(n * 1_000_003));
            }
            out.len()
        });
    });
    group.finish();
}

fn table(c: &mut Criterion) {
    let mut group = c.benchmark_group("command");
    let names: Vec<&[u8]> = (0..COMMANDS)
        .map(|n| [&b"GET"[..], b"SET", b"get", b"INCRBY", b"EXPIRE", b"MGET", b"DEL"][n * 5 % 7])
        .collect();
    group.throughput(Throughput::Elements(COMMANDS as u64));
    group.bench_function("lookup", |b| {
        b.iter(|| black_box(&names).iter().filter_map(|n| command::lookup(n)).count());
    });
    let keys: Vec<Vec<u8>> = (0..COMMANDS).map(key).collect();
    group.bench_function("slot, 24 B key", |b| {
        b.iter(|| {
            black_box(&keys)
                .iter()
                .map(|k| u64::from(command::slot(k)))
                .sum::<u64>()
        });
    });
    group.finish();
}

criterion_group!(benches, decoding, encoding, table);
criterion_main!(benches);
