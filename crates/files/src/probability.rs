//! The probability that a read meets a straggler, by the paper's formulas (§2.2, Figs 3 and 4).
//!
//! A read needs k data blocks, of which each storage node has one; c cache nodes have one more block each. A storage
//! node is a straggler with probability `storage`, a cache node with `cache`.

/// Probabilities of stragglers.
#[derive(Clone, Copy, Debug)]
pub struct Chances {
    /// Of a storage node: the paper's p_s.
    pub storage: f64,
    /// Of a cache node: p_c.
    pub cache: f64,
    /// Of a whole rack: p_r.
    pub rack: f64,
}

/// Independent stragglers, caching c copies of data blocks (§2.2.1). With c = 0 nothing is cached.
pub fn data_only(k: u32, c: u32, chances: Chances) -> f64 {
    let (s, n) = (chances.storage, 1.0 - chances.cache);
    let good = (0..=c.min(k)).map(|i| choose(c, i) * power(s, i) * power(1.0 - s, k - i) * power(n, i));
    1.0 - good.sum::<f64>()
}

/// Independent stragglers, caching c parity blocks (§2.2.1).
pub fn parity_only(k: u32, c: u32, chances: Chances) -> f64 {
    let (s, p) = (chances.storage, chances.cache);
    let mut good = 0.0;
    for i in 0..=c {
        for j in 0..=i.min(k) {
            good += choose(k, j)
                * power(s, j)
                * power(1.0 - s, k - j)
                * choose(c, i - j)
                * power(p, i - j)
                * power(1.0 - p, c + j - i);
        }
    }
    1.0 - good
}

/// Independent stragglers and slow racks of `a` blocks each, caching c copies (§2.2.2). `k` and `c` are multiples of a.
pub fn data_only_racks(k: u32, c: u32, a: u32, chances: Chances) -> f64 {
    let (s, r, racks) = (chances.storage, chances.rack, k / a);
    let mut good = 0.0;
    for i in 0..=(c / a).min(racks) {
        for j in 0..=(c - i * a).min(k - i * a) {
            let blocks = i * a + j;
            good += choose(c / a, i)
                * power(r, i)
                * power(1.0 - r, racks - i)
                * choose(c - i * a, j)
                * power(s, j)
                * power(1.0 - s, k - blocks)
                * power(1.0 - r, blocks.div_ceil(a))
                * power(1.0 - chances.cache, blocks);
        }
    }
    1.0 - good
}

/// Independent stragglers and slow racks of `a` blocks each, caching c parity blocks (§2.2.2).
pub fn parity_only_racks(k: u32, c: u32, a: u32, chances: Chances) -> f64 {
    let (s, p, r, racks) = (chances.storage, chances.cache, chances.rack, k / a);
    let mut good = 0.0;
    for i in 0..=(c / a).min(racks) {
        for j in 0..=(c - i * a).min(k - i * a) {
            let data = choose(racks, i)
                * power(r, i)
                * power(1.0 - r, racks - i)
                * choose(k - i * a, j)
                * power(s, j)
                * power(1.0 - s, k - i * a - j);
            for l in 0..=c - i * a - j {
                for v in 0..=l / a {
                    good += data
                        * choose(c / a, v)
                        * power(r, v)
                        * power(1.0 - r, c / a - v)
                        * choose(c - v * a, l - v * a)
                        * power(p, l - v * a)
                        * power(1.0 - p, c - l);
                }
            }
        }
    }
    1.0 - good
}

fn choose(n: u32, k: u32) -> f64 {
    (0..k).map(|i| f64::from(n - i) / f64::from(i + 1)).product()
}

fn power(base: f64, exponent: u32) -> f64 {
    base.powi(exponent as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIG_3: Chances = Chances {
        storage: 0.005,
        cache: 0.005,
        rack: 0.0,
    };
    const FIG_4: Chances = Chances { rack: 0.001, ..FIG_3 };

    /// Equal to the three digits that the paper prints.
    fn same(paper: &str, ours: f64) {
        assert_eq!(paper, format!("{ours:.2E}"));
    }

    #[test]
    fn figure_3_is_exact() {
        same("2.48E-4", parity_only(4, 1, FIG_3));
        // What the figure shows and the text says: linear in k without parity, and hardly any effect of p_c.
        for k in 1..=10 {
            let none = data_only(k, 0, FIG_3);
            assert!((none - (1.0 - 0.995f64.powi(k as i32))).abs() < 1e-12);
            assert!(parity_only(k, 1, FIG_3) < 0.0015 && parity_only(k, 1, FIG_3) < data_only(k, 1, FIG_3) + 1e-12);
        }
        let further = [2, 3, 4].map(|c| parity_only(4, c, FIG_3));
        assert!(further.iter().all(|p| *p < 2e-5 && *p >= 0.0));
        let never = Chances { cache: 0.0, ..FIG_3 };
        assert!((parity_only(4, 1, Chances { cache: 0.01, ..FIG_3 }) - parity_only(4, 1, never)).abs() < 2.1e-4);
    }

    #[test]
    fn figure_4_is_exact() {
        same("1.91E-3", parity_only_racks(10, 1, 1, FIG_4));
        same("3.33E-4", parity_only_racks(10, 2, 2, FIG_4));
        same("4.32E-2", data_only_racks(10, 2, 2, FIG_4));
        for k in [2, 4, 6, 8] {
            assert!(parity_only_racks(k, 2, 2, FIG_4) < 3.33e-4);
            assert!(data_only_racks(k, 2, 2, FIG_4) < 4.32e-2);
        }
    }

    #[test]
    fn without_slow_racks_the_racks_change_nothing_for_parity() {
        for k in 1..=10 {
            for c in 1..=3 {
                let flat = parity_only_racks(k, c, 1, Chances { rack: 0.0, ..FIG_4 });
                assert!((flat - parity_only(k, c, FIG_3)).abs() < 1e-12, "{k} {c}");
            }
        }
    }
}
