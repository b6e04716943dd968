//! Parity equals, byte for byte, what ISA-L and rusty_erasure compute with the same matrix.

mod support;

use paritas_base::Prng;
use rusty_erasure::isal as rusty;
use support::{bytes, code, isal::Isal, matrix, slices, slices_mut};

const SCHEMES: [(u8, u8); 12] = [
    (1, 1),
    (1, 2),
    (2, 1),
    (4, 1),
    (4, 2),
    (6, 3),
    (8, 2),
    (5, 5),
    (12, 4),
    (10, 7),
    (128, 4),
    (30, 20),
];
const LENGTHS: [usize; 12] = [1, 7, 16, 31, 32, 63, 64, 100, 255, 1000, 4096, 20_001];

/// Calls `check` with each scheme's data, the encoded parity, and a name.
fn each(seed: u64, mut check: impl FnMut(&paritas_code::Code, &[Vec<u8>], &[Vec<u8>], &str)) {
    let mut prng = Prng::new(seed);
    for (k, m) in SCHEMES {
        let code = code(k, m);
        for len in LENGTHS {
            let data: Vec<_> = (0..k).map(|_| bytes(&mut prng, len)).collect();
            let mut parity = vec![vec![0xee; len]; usize::from(m)];
            code.encode(&slices(&data), &mut slices_mut(&mut parity));
            check(&code, &data, &parity, &format!("{k}+{m}, {len} bytes, seed {seed}"));
        }
    }
}

#[test]
fn encode_and_delta_equal_isal() {
    let Some(isal) = Isal::open() else { return };
    each(21, |code, data, ours, name| {
        let tables = isal.tables(&matrix(code), data.len(), ours.len());
        let mut theirs = vec![vec![0; data[0].len()]; ours.len()];
        isal.encode(&tables, &slices(data), &mut slices_mut(&mut theirs));
        assert!(ours == theirs, "encode {name}");

        // A delta to the last data chunk, applied by each library to its own parity.
        let column = data.len() - 1;
        let delta = &data[0];
        let mut updated = ours.to_vec();
        code.encode_from(column as u8, delta, &mut slices_mut(&mut updated));
        isal.update(&tables, column, delta, &mut slices_mut(&mut theirs));
        assert!(updated == theirs, "delta {name}");
    });
}

#[test]
fn encode_equals_rusty_erasure() {
    each(22, |code, data, ours, name| {
        let (k, m, len) = (data.len(), ours.len(), data[0].len());
        let mut tables = vec![0; 32 * k * m];
        rusty::ec_init_tables(k, m, &matrix(code), &mut tables).expect("a valid matrix");
        let mut theirs = vec![vec![0; len]; m];
        rusty::ec_encode_data(len, k, m, &tables, &slices(data), &mut slices_mut(&mut theirs)).expect("valid sizes");
        assert!(ours == theirs, "encode {name}");
    });
}
