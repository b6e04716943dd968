//! Fingerprints: whether parts that a client has made belong together (P14.20; bytes: `docs/formats/large.md`).
//!
//! A fingerprint is linear over the field of the code, with the same coefficients for all parts of a value. So the
//! fingerprint of a parity is that combination of the fingerprints of the data blocks which the code makes of the
//! blocks. Who does not know the coefficients cannot make a wrong parity that fits.
//!
//! Four sums of 64 bytes each are independent of one another. In each of them, a byte of the part counts with a product
//! of three coefficients: of its row, of its slice of 512 bytes in the unit, and of its 64 bytes in the slice. No
//! coefficient is 0, so one wrong byte always changes all four sums.

use crate::{Class, GroupId};
use core::fmt;
use core::hash::Hasher;
use paritas_base::StreamId;
use paritas_code::{Code, Scheme, combine, mul_add};
use siphasher::sip::SipHasher24;

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = SUMS * SUM_BYTES;

/// Independent sums in a fingerprint: as many as one pass of the kernels computes.
const SUMS: usize = 4;
/// Bytes of a sum.
const SUM_BYTES: usize = 64;
/// A unit is first folded to this number of bytes for each sum.
const SLICE_BYTES: usize = 512;
/// Slices that are folded in one pass: those of a unit of 16 KiB.
const SLICES: usize = 32;
/// What is hashed under the cluster's key for each half of the key of fingerprints.
const HALVES: [&[u8]; 2] = [b"paritas fingerprint 0", b"paritas fingerprint 1"];
/// What a coefficient belongs to.
const ROW: u8 = b'r';
const SLICE: u8 = b's';
const EIGHTH: u8 = b'e';

/// The key of the coefficients for one value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FingerprintKey([u64; 2]);

impl FingerprintKey {
    /// That of a value of this stream. `hash_key`: the cluster's.
    pub fn new(hash_key: [u64; 2], stream: StreamId, data_group: GroupId) -> Self {
        // Who knew this key would not know that of the cluster, which places keys in the index.
        let own = HALVES.map(|half| sip(hash_key, half));
        let mut named = [0; 12];
        named[..2].copy_from_slice(&stream.list.0.to_le_bytes());
        named[2] = stream.x.0;
        named[3..11].copy_from_slice(&data_group.bits().to_le_bytes());
        Self([0, 1].map(|half| {
            named[11] = half;
            sip(own, &named)
        }))
    }

    /// The coefficient in each sum: one of 1 to 255.
    fn coefficients(self, of: u8, number: u32) -> [u8; SUMS] {
        let mut named = [of, 0, 0, 0, 0];
        named[1..].copy_from_slice(&number.to_le_bytes());
        let bits = sip(self.0, &named);
        core::array::from_fn(|sum| 1 + ((bits >> (16 * sum)) as u16 % 255) as u8)
    }
}

// It stands in no log.
impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey")
    }
}

fn sip(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    hasher.write(bytes);
    hasher.finish()
}

/// The fingerprint of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

// Its beginning tells two of them apart.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:02x?}..)", &self.0[..4])
    }
}

/// Makes the fingerprint of a part from its units, one after the other.
#[derive(Clone, Debug)]
pub struct Folding {
    key: FingerprintKey,
    /// The number of the next unit.
    row: u32,
    /// For each [`SLICES`] slices of a unit, as far as units had so many: their coefficients, sum by sum.
    slices: Vec<[u8; SUMS * SLICES]>,
    folded: [[u8; SLICE_BYTES]; SUMS],
}

impl Folding {
    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.slices.capacity() * SUMS * SLICES
    }

    /// Without units.
    pub fn new(key: FingerprintKey) -> Self {
        Self {
            key,
            row: 0,
            slices: Vec::new(),
            folded: [[0; SLICE_BYTES]; SUMS],
        }
    }

    /// Adds the next unit.
    pub fn push(&mut self, unit: &[u8]) {
        let of_row = self.key.coefficients(ROW, self.row);
        self.row = self.row.wrapping_add(1);
        for (run, bytes) in unit.chunks(SLICES * SLICE_BYTES).enumerate() {
            while self.slices.len() <= run {
                self.slices.push(of_slices(self.key, self.slices.len() as u32));
            }
            let (whole, rest) = bytes.as_chunks::<SLICE_BYTES>();
            // The last slice may be shorter: what is missing counts as zeros.
            let mut last = [0; SLICE_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            let last = (!rest.is_empty()).then_some(&last[..]);
            let mut sources: [&[u8]; SLICES] = [&[]; SLICES];
            let all = whole.iter().map(<[u8; SLICE_BYTES]>::as_slice).chain(last);
            let mut count = 0;
            for (source, slice) in sources.iter_mut().zip(all) {
                *source = slice;
                count += 1;
            }
            let mut rows = [0; SUMS * SLICES];
            for (row, all) in rows.chunks_exact_mut(count).zip(self.slices[run].chunks_exact(SLICES)) {
                row.copy_from_slice(&all[..count]);
            }
            let mut sums = [[0; SLICE_BYTES]; SUMS];
            let mut targets = sums.each_mut().map(|sum| &mut sum[..]);
            combine(&rows[..SUMS * count], &sources[..count], &mut targets);
            for ((sum, folded), coefficient) in sums.iter().zip(&mut self.folded).zip(of_row) {
                mul_add(coefficient, sum, folded);
            }
        }
    }

    /// The fingerprint of the part that these units are.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut print = [0; FINGERPRINT_BYTES];
        let (sums, _) = print.as_chunks_mut::<SUM_BYTES>();
        for (number, at) in (0..).zip((0..SLICE_BYTES).step_by(SUM_BYTES)) {
            let coefficients = self.key.coefficients(EIGHTH, number);
            for ((sum, folded), coefficient) in sums.iter_mut().zip(&self.folded).zip(coefficients) {
                mul_add(coefficient, &folded[at..at + SUM_BYTES], sum);
            }
        }
        Fingerprint(print)
    }
}

/// The coefficients of a run of slices, sum by sum.
fn of_slices(key: FingerprintKey, run: u32) -> [u8; SUMS * SLICES] {
    let mut rows = [0; SUMS * SLICES];
    for slice in 0..SLICES {
        let coefficients = key.coefficients(SLICE, run * SLICES as u32 + slice as u32);
        for (sum, coefficient) in coefficients.into_iter().enumerate() {
            rows[sum * SLICES + slice] = coefficient;
        }
    }
    rows
}

/// Whether these are the fingerprints of parts of one value: of all its parts, in the order of
/// [`crate::Placement::parts`]. False for classes that clients do not write.
pub fn belong_together(class: Class, prints: &[Fingerprint]) -> bool {
    match class {
        Class::Rep { copies } => {
            prints.len() == usize::from(copies) && prints.windows(2).all(|pair| pair[0] == pair[1])
        }
        Class::Ec { data, parity } => {
            let Ok(scheme) = Scheme::new(data, parity) else {
                return false;
            };
            if prints.len() != usize::from(data) + usize::from(parity) {
                return false;
            }
            let (blocks, parities) = prints.split_at(usize::from(data));
            let blocks: Vec<&[u8]> = blocks.iter().map(|print| &print.0[..]).collect();
            let mut made = vec![[0; FINGERPRINT_BYTES]; parities.len()];
            let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|print| &mut print[..]).collect();
            Code::new(scheme).encode(&blocks, &mut targets);
            made.iter().zip(parities).all(|(made, print)| *made == print.0)
        }
        Class::Eor { .. } => false,
    }
}

#[cfg(test)]
mod tests;
