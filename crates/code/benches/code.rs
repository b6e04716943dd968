//! `cargo bench --package paritas-code` compares this crate's kernels with Debian's ISA-L and memcpy, in one run and
//! with one matrix. Figures are in `docs/benchmarks-code.md`.

#![allow(missing_docs, unreachable_pub, unsafe_code)]

#[path = "../tests/support/mod.rs"]
mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paritas_base::Prng;
use paritas_code::{kernel_name, mul_add, sum, use_kernel, xor};
use std::hint::black_box;
use std::time::Duration;
use support::{bytes, code, isal::Isal, matrix, slices, slices_mut};

const CHUNKS: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 1 << 20];

fn chunks(prng: &mut Prng, count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| bytes(prng, len)).collect()
}

/// Throughput counts data bytes.
fn encode(c: &mut Criterion) {
    let (mut prng, isal) = (Prng::new(1), Isal::open());
    for (k, m) in [(4u8, 2u8), (8, 2), (6, 3)] {
        let mut group = c.benchmark_group(format!("encode {k}+{m}"));
        for len in CHUNKS {
            let code = code(k, m);
            let data = chunks(&mut prng, usize::from(k), len);
            let mut parity = chunks(&mut prng, usize::from(m), len);
            group.throughput(Throughput::Bytes((usize::from(k) * len) as u64));
            let (data, mut parity) = (slices(&data), slices_mut(&mut parity));
            group.bench_function(BenchmarkId::new("ours", len), |b| {
                b.iter(|| code.encode(black_box(&data), black_box(&mut parity)));
            });
            if let Some(isal) = &isal {
                let tables = isal.tables(&matrix(&code), data.len(), parity.len());
                group.bench_function(BenchmarkId::new("isal", len), |b| {
                    b.iter(|| isal.encode(&tables, black_box(&data), black_box(&mut parity)));
                });
            }
            if (k, m) == (4, 2) {
                // Copies as many bytes as the encode reads.
                let mut copies = chunks(&mut prng, 4, len);
                group.bench_function(BenchmarkId::new("memcpy", len), |b| {
                    b.iter(|| {
                        for (to, from) in copies.iter_mut().zip(&data) {
                            to.copy_from_slice(black_box(from));
                        }
                        black_box(&mut copies);
                    });
                });
            }
        }
    }
}

/// The same encode and one delta with every kernel that the machine has.
fn kernels(c: &mut Criterion) {
    let mut prng = Prng::new(5);
    let (best, code, len) = (kernel_name(), code(4, 2), 16 << 10);
    let (data, mut parity) = (chunks(&mut prng, 4, len), chunks(&mut prng, 2, len));
    let (data, mut parity) = (slices(&data), slices_mut(&mut parity));
    for name in ["scalar", "avx2", "gfni+avx2", "gfni+avx512", "neon"] {
        if !use_kernel(name) {
            continue;
        }
        let mut group = c.benchmark_group("kernels");
        group.throughput(Throughput::Bytes(4 * len as u64));
        group.bench_function(BenchmarkId::new("encode 4+2 16384", name), |b| {
            b.iter(|| code.encode(black_box(&data), black_box(&mut parity)));
        });
        group.throughput(Throughput::Bytes(100));
        group.bench_function(BenchmarkId::new("delta 100", name), |b| {
            let mut at = 0;
            b.iter(|| {
                at = (at + 121) % 8192;
                mul_add(
                    black_box(0x53),
                    black_box(&data[0][..100]),
                    black_box(&mut parity[0][at..at + 100]),
                );
            });
        });
    }
    assert!(use_kernel(best));
}

/// One extent into one parity chunk. All data is in the first-level cache. The target moves between calls, as with real
/// deltas: with a fixed target the benchmark would measure how soon a store can be loaded again.
fn delta(c: &mut Criterion) {
    let (mut prng, isal) = (Prng::new(2), Isal::open());
    let code = code(4, 2);
    let coefficient = code.coefficient(2, 1);
    for len in [32, 64, 100, 300, 4096] {
        let mut group = c.benchmark_group(format!("delta {len}"));
        group.throughput(Throughput::Bytes(len as u64));
        let source = bytes(&mut prng, len);
        let mut target = bytes(&mut prng, 8192 + len);
        let steps: usize = if len < 1000 { 64 } else { 4 };
        let step = if len < 1000 { 121 } else { 64 };
        let mut at = 0;
        let mut next = move || {
            at = (at + 1) % steps;
            at * step
        };
        group.bench_function("nothing", |b| {
            b.iter(|| {
                let at = next();
                black_box((
                    black_box(coefficient),
                    black_box(&source),
                    black_box(&mut target[at..at + len]),
                ));
            });
        });
        group.bench_function("ours", |b| {
            b.iter(|| {
                let at = next();
                mul_add(
                    black_box(coefficient),
                    black_box(&source),
                    black_box(&mut target[at..at + len]),
                );
            });
        });
        group.bench_function("ours, xor", |b| {
            b.iter(|| {
                let at = next();
                xor(black_box(&source), black_box(&mut target[at..at + len]));
            });
        });
        if let Some(isal) = &isal {
            let tables = isal.tables(&[coefficient], 1, 1);
            group.bench_function("isal", |b| {
                b.iter(|| {
                    let at = next();
                    isal.update(
                        &tables,
                        0,
                        black_box(&source),
                        &mut [black_box(&mut target[at..at + len])],
                    );
                });
            });
        }
    }
}

/// Throughput counts the `k` chunks read, so that it compares with encode.
fn decode(c: &mut Criterion) {
    let mut prng = Prng::new(3);
    let code = code(4, 2);
    for (name, present, wanted) in [
        ("decode 4+2, two losses", [0u8, 3, 4, 5], &[1u8, 2][..]),
        ("decode 4+2, one loss", [0, 2, 3, 4], &[1]),
    ] {
        let mut group = c.benchmark_group(name);
        for len in CHUNKS {
            let stripe = support::stripe(&code, &mut prng, len);
            let present: Vec<(u8, &[u8])> = present.iter().map(|&p| (p, &stripe[usize::from(p)][..])).collect();
            let mut out = chunks(&mut prng, wanted.len(), len);
            let mut out = slices_mut(&mut out);
            group.throughput(Throughput::Bytes((4 * len) as u64));
            group.bench_function(BenchmarkId::new("ours", len), |b| {
                b.iter(|| code.decode(black_box(&present), black_box(wanted), black_box(&mut out)));
            });
        }
    }
}

fn sums(c: &mut Criterion) {
    let mut prng = Prng::new(4);
    let mut group = c.benchmark_group("sum of an extent");
    for len in [16, 32, 64, 100, 300, 4096, 16_384] {
        let chunk = bytes(&mut prng, 16_384);
        group.throughput(Throughput::Bytes(len as u64));
        let mut at = 0;
        group.bench_function(BenchmarkId::new("ours", len), |b| {
            b.iter(|| {
                at = if at + 97 + len > 16_384 { 0 } else { at + 97 };
                black_box(sum::of_extent(16_384, at, black_box(&chunk[at..at + len])))
            });
        });
    }
    group.finish();
    // The cost of checking everything that a command reads: 512 bytes, in memory larger than any cache, compared with
    // the two lines that the command reads anyway.
    let mut group = c.benchmark_group("anywhere in 512 MiB");
    let memory = vec![0x5a_u8; 512 << 20];
    let blocks = (memory.len() / 512) as u64;
    group.bench_function("two lines read", |b| {
        b.iter(|| {
            let at = 512 * prng.below(blocks) as usize;
            black_box(memory[at] ^ memory[at + 64])
        });
    });
    group.bench_function("sum of 512 bytes", |b| {
        b.iter(|| {
            let at = 512 * prng.below(blocks) as usize;
            black_box(sum::of(black_box(&memory[at..at + 512])))
        });
    });
}

fn settings() -> Criterion {
    eprintln!("kernels: {}", kernel_name());
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1000))
        .sample_size(40)
}

criterion_group!(name = benches; config = settings(); targets = encode, kernels, delta, decode, sums);
criterion_main!(benches);
