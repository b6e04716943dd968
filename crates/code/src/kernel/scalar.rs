//! The reference: every other kernel must give the same bytes. It runs where no other kernel can.

use crate::field::NIBBLES;

/// `target ^= coefficient · source`.
pub(super) fn mul_add(coefficient: u8, source: &[u8], target: &mut [u8]) {
    if coefficient == 1 {
        for (t, s) in target.iter_mut().zip(source) {
            *t ^= s;
        }
        return;
    }
    let products = &NIBBLES[usize::from(coefficient)].0;
    for (t, s) in target.iter_mut().zip(source) {
        *t ^= products[usize::from(s & 15)] ^ products[16 + usize::from(s >> 4)];
    }
}

/// `targets = rows × sources`.
pub(super) fn combine(rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
    for (row, target) in rows.chunks_exact(sources.len()).zip(targets) {
        target.fill(0);
        for (&coefficient, source) in row.iter().zip(sources) {
            mul_add(coefficient, source, target);
        }
    }
}
