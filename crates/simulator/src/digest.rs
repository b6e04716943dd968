//! `--digest`: a CRC of everything that machines send, so that two builds can be compared.

use crc::{CRC_64_XZ, Crc, Table};

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);

/// The CRC of a sequence of messages. If it is disabled, it costs one test for each message.
#[derive(Default)]
pub(crate) struct Digest(Option<crc::Digest<'static, u64, Table<16>>>);

impl Digest {
    /// A digest that is enabled.
    pub(crate) fn enabled() -> Self {
        Self(Some(CRC.digest()))
    }

    /// Adds one message: its time, its sender and receiver, and its bytes.
    pub(crate) fn add(&mut self, head: [u64; 3], bytes: &[u8]) {
        let Some(digest) = &mut self.0 else { return };
        for word in head.into_iter().chain([bytes.len() as u64]) {
            digest.update(&word.to_le_bytes());
        }
        digest.update(bytes);
    }

    /// Adds the digest of a whole run.
    pub(crate) fn add_run(&mut self, seed: u64, run: &Self) {
        if let Some(number) = run.number() {
            self.add([seed, number, 0], &[]);
        }
    }

    /// The CRC of everything added; `None` if it is disabled.
    pub(crate) fn number(&self) -> Option<u64> {
        self.0.clone().map(|digest| digest.finalize())
    }
}
