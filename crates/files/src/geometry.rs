//! Which parity a file has: stripes, rows and subblocks (`docs/formats/files.md`).

use crate::File;
use crate::record::hex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Most data units of a stripe.
pub const K_MAX: u32 = 128;
/// Limits of a block of the store, in bytes.
pub const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 30;
/// Limits of a subblock or cell, in bytes.
pub const SUB_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=16 << 20;
/// Longest file, in bytes.
pub const LENGTH_MAX: u64 = 1 << 53;
/// Most parity subblocks of a file that is cached.
pub const SUBBLOCKS_MAX: u64 = 1 << 20;

/// How the store lays out files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Whole blocks one after another, each on another node. A stripe is k of them.
    Contiguous,
    /// Cells in turn over k blocks, which are a block group. A stripe is a group.
    Striped,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contiguous => "contiguous",
            Self::Striped => "striped",
        })
    }
}

impl FromStr for Layout {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "contiguous" => Ok(Self::Contiguous),
            "striped" => Ok(Self::Striped),
            _ => Err(()),
        }
    }
}

/// The parity of one file. All numbers are within their limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The store's layout.
    pub layout: Layout,
    /// Data units of a stripe.
    pub k: u32,
    /// Parity rows of a stripe.
    pub m: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of a subblock; with the striped layout, of a cell.
    pub sub_bytes: u64,
    /// Bytes of the file, or all that it may get if it is under construction.
    pub length: u64,
}

impl Geometry {
    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.length.div_ceil(self.stripe_bytes())
    }

    fn stripe_bytes(&self) -> u64 {
        self.block_bytes.saturating_mul(u64::from(self.k))
    }

    /// Bytes of a parity block that covers `data` bytes of a stripe.
    fn parity_block_bytes(&self, data: u64) -> u64 {
        match self.layout {
            Layout::Contiguous => data.min(self.block_bytes),
            Layout::Striped => {
                let row = self.sub_bytes * u64::from(self.k);
                data / row * self.sub_bytes + (data % row).min(self.sub_bytes)
            }
        }
    }

    /// Bytes of data in the last stripe.
    fn last_bytes(&self) -> u64 {
        self.length - self.stripes().saturating_sub(1) * self.stripe_bytes()
    }

    /// Bytes of all parity, without headers.
    pub fn parity_bytes(&self) -> u64 {
        let full = self.stripes().saturating_sub(1);
        let row = full * self.parity_block_bytes(self.stripe_bytes()) + self.parity_block_bytes(self.last_bytes());
        row * u64::from(self.m)
    }

    /// Number of subblocks of a row in this stripe.
    pub fn subblocks_of(&self, stripe: u64) -> u64 {
        let data = if stripe + 1 < self.stripes() {
            self.stripe_bytes()
        } else {
            self.last_bytes()
        };
        self.parity_block_bytes(data).div_ceil(self.sub_bytes)
    }

    /// Number of all parity subblocks.
    pub fn subblocks(&self) -> u64 {
        let full = self.stripes().saturating_sub(1);
        let row = full * self.subblocks_of(0) + self.subblocks_of(full);
        row.saturating_mul(u64::from(self.m))
    }

    /// What the parity takes of the cache, in its unit of this many bytes.
    pub fn cache_blocks(&self, unit_bytes: u64) -> u64 {
        self.parity_bytes().div_ceil(unit_bytes).max(1)
    }

    /// Every parity subblock: stripe, row, index.
    pub fn units(self) -> impl Iterator<Item = (u64, u32, u64)> {
        (0..self.stripes()).flat_map(move |stripe| {
            let rows = 0..self.m;
            rows.flat_map(move |row| (0..self.subblocks_of(stripe)).map(move |sub| (stripe, row, sub)))
        })
    }

    /// The keys in the cache store of the parity that has this token: one for each subblock, and one for the version.
    pub fn keys(self, mount: &str, file: File, token: u64) -> impl Iterator<Item = String> {
        let prefix = format!("fp:{mount}:{file}:{}", hex(token));
        let version = format!("{prefix}:version");
        let subblocks = self
            .units()
            .map(move |(stripe, row, sub)| format!("{prefix}:{stripe}:{row}:{sub}"));
        subblocks.chain([version])
    }

    /// Number of `keys`.
    pub fn keys_count(&self) -> u64 {
        self.subblocks() + 1
    }

    /// Whether the numbers are within their limits.
    pub fn is_valid(&self) -> bool {
        (1..=K_MAX).contains(&self.k)
            && (1..=K_MAX).contains(&self.m)
            && BLOCK_BYTES.contains(&self.block_bytes)
            && SUB_BYTES.contains(&self.sub_bytes)
            && (1..=LENGTH_MAX).contains(&self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn geometry(layout: Layout, k: u32, length: u64) -> Geometry {
        Geometry {
            layout,
            k,
            m: 1,
            block_bytes: 16 * MIB,
            sub_bytes: MIB,
            length,
        }
    }

    #[test]
    fn a_contiguous_stripe_is_k_blocks() {
        let whole = geometry(Layout::Contiguous, 4, 64 * MIB);
        assert_eq!(
            (whole.stripes(), whole.parity_bytes(), whole.subblocks()),
            (1, 16 * MIB, 16)
        );
        let longer = geometry(Layout::Contiguous, 4, 64 * MIB + 1);
        assert_eq!(
            (longer.stripes(), longer.parity_bytes(), longer.subblocks()),
            (2, 16 * MIB + 1, 17)
        );
        let two_blocks_more = geometry(Layout::Contiguous, 4, 90 * MIB);
        assert_eq!(two_blocks_more.subblocks(), 32, "the last stripe has a whole block");
        let short = geometry(Layout::Contiguous, 4, 5);
        assert_eq!((short.subblocks(), short.cache_blocks(16 * MIB)), (1, 1));
    }

    #[test]
    fn a_striped_stripe_is_a_group_and_a_subblock_a_row_of_cells() {
        let whole = geometry(Layout::Striped, 6, 96 * MIB);
        assert_eq!(
            (whole.stripes(), whole.subblocks(), whole.parity_bytes()),
            (1, 16, 16 * MIB)
        );
        let rows = geometry(Layout::Striped, 6, 7 * MIB + 3);
        assert_eq!((rows.subblocks(), rows.parity_bytes()), (2, 2 * MIB));
        assert_eq!(geometry(Layout::Striped, 6, 6 * MIB + 3).parity_bytes(), MIB + 3);
    }

    #[test]
    fn keys_are_those_that_clients_write() {
        let two = geometry(Layout::Contiguous, 4, 64 * MIB + MIB + 1);
        let keys: Vec<String> = two.keys("lake", 16386, 0x0123_4567_89ab_cdef).collect();
        let golden = include_str!("../../../docs/formats/files.md");
        for key in [&keys[3], keys.last().unwrap()] {
            assert!(golden.contains(&format!("`{key}`")), "docs/formats/files.md has {key}");
        }
        assert_eq!(keys[3], "fp:lake:16386:0123456789abcdef:0:0:3");
        assert_eq!(keys[17], "fp:lake:16386:0123456789abcdef:1:0:1");
        assert_eq!(keys[18], "fp:lake:16386:0123456789abcdef:version");
        assert_eq!(keys.len() as u64, two.keys_count());
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_units(
            striped: bool, k in 1u32..9, m in 1u32..3, length in 1u64..600 * MIB, sub in 1u64..5,
        ) {
            let layout = if striped { Layout::Striped } else { Layout::Contiguous };
            let geometry = Geometry { m, sub_bytes: sub * MIB, ..geometry(layout, k, length) };
            prop_assert!(geometry.is_valid());
            prop_assert_eq!(geometry.units().count() as u64, geometry.subblocks());
            let data = geometry.length.div_ceil(u64::from(k));
            prop_assert!(geometry.parity_bytes() >= data * u64::from(m));
            prop_assert!(geometry.parity_bytes() <= geometry.subblocks() * geometry.sub_bytes);
        }

        #[test]
        fn no_valid_geometry_overflows(
            striped: bool, k in 1..=K_MAX, m in 1..=K_MAX, length in 1..=LENGTH_MAX,
            block in BLOCK_BYTES, sub in SUB_BYTES,
        ) {
            let layout = if striped { Layout::Striped } else { Layout::Contiguous };
            let geometry = Geometry { layout, k, m, block_bytes: block, sub_bytes: sub, length };
            prop_assert!(geometry.is_valid());
            prop_assert!(geometry.subblocks() >= 1 && geometry.cache_blocks(1 << 20) >= 1);
        }
    }
}
