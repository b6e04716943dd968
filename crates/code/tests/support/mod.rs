//! Shared helpers of this crate's tests.

#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod isal;

use paritas_base::Prng;
use paritas_code::{Code, Scheme};

pub fn bytes(prng: &mut Prng, len: usize) -> Vec<u8> {
    (0..len).map(|_| prng.next_u64() as u8).collect()
}

pub fn code(data: u8, parity: u8) -> Code {
    Code::new(Scheme::new(data, parity).expect("a valid scheme"))
}

/// The parity rows of the matrix, in order.
pub fn matrix(code: &Code) -> Vec<u8> {
    let scheme = code.scheme();
    (0..scheme.parity())
        .flat_map(|j| (0..scheme.data()).map(move |i| code.coefficient(i, j)))
        .collect()
}

pub fn slices(chunks: &[Vec<u8>]) -> Vec<&[u8]> {
    chunks.iter().map(Vec::as_slice).collect()
}

pub fn slices_mut(chunks: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    chunks.iter_mut().map(Vec::as_mut_slice).collect()
}

/// A stripe of random data with its parity, by position.
pub fn stripe(code: &Code, prng: &mut Prng, len: usize) -> Vec<Vec<u8>> {
    let scheme = code.scheme();
    let data: Vec<_> = (0..scheme.data()).map(|_| bytes(prng, len)).collect();
    let mut parity = vec![vec![0xee; len]; usize::from(scheme.parity())];
    code.encode(&slices(&data), &mut slices_mut(&mut parity));
    data.into_iter().chain(parity).collect()
}
