//! Hash tables with a fixed hash function: the same inserts give the same order on every run, which replay needs.
//!
//! Keys are internal ids, never bytes that a client chose. Client keys go through the keyed hash of `store`.

use core::hash::{BuildHasherDefault, Hasher};

/// A hash map with the fixed hash.
pub type Map<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<FixedHasher>>;
/// A hash set with the fixed hash.
pub type Set<K> = hashbrown::HashSet<K, BuildHasherDefault<FixedHasher>>;

/// An empty map.
pub fn map<K, V>() -> Map<K, V> {
    Map::default()
}

/// An empty set.
pub fn set<K>() -> Set<K> {
    Set::default()
}

/// A multiply-rotate hash over 64-bit words.
#[derive(Default, Clone, Copy, Debug)]
pub struct FixedHasher(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl FixedHasher {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for FixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.word(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.word(u64::from(n));
    }
    fn write_u16(&mut self, n: u16) {
        self.word(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.word(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.word(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }
    fn finish(&self) -> u64 {
        // hashbrown takes its tag from the top bits and its bucket from the low bits, so the top half is mixed into
        // both.
        self.0 ^ (self.0 >> 32)
    }
}
