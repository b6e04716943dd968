//! `cargo bench --package paritas-code --bench floor`: the fastest of many short rounds, of this crate and ISA-L in
//! turn.
//!
//! On a shared machine, means and medians also measure the other users; the fastest round is the least disturbed one.
//! Prints the table of `docs/benchmarks-code.md`.

#![allow(missing_docs, unreachable_pub, unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../tests/support/mod.rs"]
mod support;

use paritas_base::Prng;
use paritas_code::{Rdp, kernel_name, mul_add, sum, use_kernel};
use std::hint::black_box;
use std::time::Instant;
use support::{bytes, code, isal::Isal, matrix};

const ROUNDS: usize = 300;

/// Chunks on page boundaries, as in the store.
#[repr(C, align(4096))]
struct Chunk([u8; 1 << 20]);

fn chunks(prng: &mut Prng, count: usize) -> Vec<Box<Chunk>> {
    (0..count)
        .map(|_| {
            let mut chunk = Box::new(Chunk([0; 1 << 20]));
            chunk.0.copy_from_slice(&bytes(prng, 1 << 20));
            chunk
        })
        .collect()
}

/// Nanoseconds of one call of each task, in its fastest round. The tasks take turns.
fn floor<const N: usize>(calls: usize, mut tasks: [&mut dyn FnMut(usize); N]) -> [f64; N] {
    let mut best = [f64::MAX; N];
    for _ in 0..ROUNDS {
        for (best, task) in best.iter_mut().zip(&mut tasks) {
            let start = Instant::now();
            task(calls);
            *best = best.min(start.elapsed().as_nanos() as f64 / calls as f64);
        }
    }
    best
}

/// Row-diagonal parity compared with this crate's code, with 8+2 as in MemEC.
fn rdp() {
    let mut prng = Prng::new(2);
    let (code, rdp) = (code(8, 2), Rdp::new(8, 17).expect("a prime"));
    let data = chunks(&mut prng, 8);
    println!("\n8+2, ns a stripe (GB/s of data), and ns for a delta of 32 B into both parities");
    println!("| chunk | ours | RDP | decode two, ours | RDP | delta, ours | RDP |");
    println!("|---|---|---|---|---|---|---|");
    for len in [4 << 10, 16 << 10, 64 << 10] {
        let sources: Vec<&[u8]> = data.iter().map(|chunk| &chunk.0[..len]).collect();
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        let (mut row, mut diagonal) = (vec![0; len], vec![0; len]);
        let calls = (1 << 18) / len + 1;
        let [ours, theirs] = floor(
            calls,
            [
                &mut |n| (0..n).for_each(|_| code.encode(black_box(&sources), &mut [&mut p, &mut q])),
                &mut |n| {
                    (0..n).for_each(|_| rdp.encode(black_box(&sources), &mut row, &mut diagonal).expect("fits"));
                },
            ],
        );
        let mut present: Vec<(u8, &[u8])> = (0..8)
            .zip(sources.iter().copied())
            .filter(|(x, _)| ![1, 6].contains(x))
            .collect();
        present.extend([(8, &p[..]), (9, &q[..])]);
        let mut lost = [vec![0; len], vec![0; len]];
        let mut whole: Vec<Vec<u8>> = sources.iter().map(|chunk| chunk.to_vec()).collect();
        whole.extend([row.clone(), diagonal.clone()]);
        let mut whole: Vec<&mut [u8]> = whole.iter_mut().map(Vec::as_mut_slice).collect();
        let [two, two_theirs] = floor(
            calls,
            [
                &mut |n| {
                    let [a, b] = &mut lost;
                    (0..n).for_each(|_| code.decode(black_box(&present), &[1, 6], &mut [a, b]).expect("enough"));
                },
                &mut |n| (0..n).for_each(|_| rdp.decode(black_box(&mut whole), &[1, 6]).expect("enough")),
            ],
        );
        let delta = &sources[0][..32];
        let at = |i: usize| (i & 31) * 89;
        let [small] = floor(
            4000,
            [&mut |n| {
                (0..n).for_each(|i| {
                    mul_add(code.coefficient(3, 0), black_box(delta), &mut p[at(i)..at(i) + 32]);
                    mul_add(code.coefficient(3, 1), black_box(delta), &mut q[at(i)..at(i) + 32]);
                });
            }],
        );
        let [small_theirs] = floor(
            4000,
            [&mut |n| {
                (0..n).for_each(|i| {
                    rdp.update(3, at(i), black_box(delta), &mut row, &mut diagonal)
                        .expect("fits");
                });
            }],
        );
        let show = |ns: f64| format!("{ns:.0} ({:.0})", 8.0 * len as f64 / ns);
        let (ours, theirs, two, two_theirs) = (show(ours), show(theirs), show(two), show(two_theirs));
        println!("| {len} | {ours} | {theirs} | {two} | {two_theirs} | {small:.1} | {small_theirs:.1} |");
    }
}

fn main() {
    let isal = Isal::open();
    let mut prng = Prng::new(1);
    let code = code(4, 2);
    let data = chunks(&mut prng, 4);
    let mut parity = chunks(&mut prng, 6);
    let tables = isal.as_ref().map(|isal| isal.tables(&matrix(&code), 4, 2));
    let best_kernel = kernel_name();

    println!("encode and decode 4+2, ns a stripe (GB/s of data); kernels {best_kernel}");
    println!("| chunk | ours | avx2 | ISA-L | memcpy of the data | decode two | decode one |");
    println!("|---|---|---|---|---|---|---|");
    for len in [4 << 10, 16 << 10, 64 << 10, 1 << 20] {
        let sources: Vec<&[u8]> = data.iter().map(|chunk| &chunk.0[..len]).collect();
        let [p, q, c0, c1, c2, c3] = &mut parity[..] else {
            unreachable!("six")
        };
        let (p, q) = (&mut p.0[..len], &mut q.0[..len]);
        let mut copies = [c0, c1, c2, c3].map(|c| &mut c.0[..len]);
        code.encode(&sources, &mut [p, q]);
        let (kept_p, kept_q) = (p.to_vec(), q.to_vec());
        let present: [(u8, &[u8]); 4] = [(0, sources[0]), (3, sources[3]), (4, &kept_p), (5, &kept_q)];
        let one_lost: [(u8, &[u8]); 4] = [(0, sources[0]), (2, sources[2]), (3, sources[3]), (4, &kept_p)];
        let calls = (1 << 18) / len + 1;
        let [ours] = floor(
            calls,
            [&mut |n| (0..n).for_each(|_| code.encode(black_box(&sources), &mut [p, q]))],
        );
        let avx2 = use_kernel("avx2").then(|| {
            floor(
                calls,
                [&mut |n| (0..n).for_each(|_| code.encode(black_box(&sources), &mut [p, q]))],
            )[0]
        });
        assert!(use_kernel(best_kernel));
        let theirs = isal.as_ref().zip(tables.as_ref()).map(|(isal, tables)| {
            floor(
                calls,
                [&mut |n| (0..n).for_each(|_| isal.encode(tables, black_box(&sources), &mut [p, q]))],
            )[0]
        });
        let [copy] = floor(
            calls,
            [&mut |n| {
                for _ in 0..n {
                    copies
                        .iter_mut()
                        .zip(&sources)
                        .for_each(|(to, from)| to.copy_from_slice(black_box(from)));
                }
            }],
        );
        let [two, one] = floor(
            calls,
            [
                &mut |n| (0..n).for_each(|_| code.decode(black_box(&present), &[1, 2], &mut [p, q]).expect("enough")),
                &mut |n| {
                    let [out, ..] = &mut copies;
                    (0..n).for_each(|_| code.decode(black_box(&one_lost), &[1], &mut [out]).expect("enough"));
                },
            ],
        );
        let show = |ns: f64| format!("{ns:.0} ({:.0})", 4.0 * len as f64 / ns);
        let or_none = |ns: Option<f64>| ns.map_or_else(|| "–".into(), show);
        println!(
            "| {len} | {} | {} | {} | {} | {} | {} |",
            show(ours),
            or_none(avx2),
            or_none(theirs),
            show(copy),
            show(two),
            show(one)
        );
    }

    rdp();

    println!("\none extent, ns, everything in the first-level cache; the loop alone is taken off");
    println!("| bytes | delta into one parity | ISA-L | sum of the extent |");
    println!("|---|---|---|---|");
    let coefficient = code.coefficient(2, 1);
    let source = &data[0].0[..4096];
    let target = &mut parity[0].0[..16_384];
    let column = isal.as_ref().map(|isal| isal.tables(&[coefficient], 1, 1));
    for len in [32, 64, 100, 300, 4096, 16_384] {
        // The offset changes between calls, as with real deltas. Extents of 4 KiB and more begin with the chunk.
        let at = |i: usize| if len < 4096 { (i & 63) * 121 } else { 0 };
        let calls = 200_000 / len.max(50);
        let [empty, sums] = floor(
            calls,
            [
                &mut |n| {
                    (0..n).for_each(|i| {
                        black_box(&target[at(i)..at(i) + black_box(len)]);
                    });
                },
                &mut |n| {
                    (0..n).for_each(|i| {
                        black_box(sum::of_extent(16_384, at(i), &target[at(i)..at(i) + black_box(len)]));
                    });
                },
            ],
        );
        let (mut ours, mut theirs) = (None, None);
        if len <= source.len() {
            ours = Some(
                floor(
                    calls,
                    [&mut |n| {
                        (0..n).for_each(|i| {
                            mul_add(
                                black_box(coefficient),
                                &source[..black_box(len)],
                                &mut target[at(i)..at(i) + len],
                            );
                        });
                    }],
                )[0],
            );
            theirs = isal.as_ref().zip(column.as_ref()).map(|(isal, column)| {
                floor(
                    calls,
                    [&mut |n| {
                        (0..n).for_each(|i| {
                            isal.update(
                                column,
                                0,
                                &source[..black_box(len)],
                                &mut [&mut target[at(i)..at(i) + len]],
                            );
                        });
                    }],
                )[0]
            });
        }
        let show = |ns: Option<f64>| ns.map_or_else(|| "–".into(), |ns| format!("{:.1}", ns - empty));
        println!("| {len} | {} | {} | {} |", show(ours), show(theirs), show(Some(sums)));
    }
}
