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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arguments;
    use crate::runs::{Run, simulate_one};
    use crate::swarm::Shape;
    use clap::Parser;

    /// The number that `--digest` gives for these seeds. An odd seed is governed.
    fn number_of(seeds: core::ops::Range<u64>) -> u64 {
        let arguments = Arguments::parse_from(["simulator", "--digest"]);
        let mut all = Digest::enabled();
        for seed in seeds {
            let run = Run {
                seed,
                shape: Shape::default(),
                fork: None,
                governed: seed % 2 == 1,
            };
            let (world, _) = simulate_one(&arguments, run, None).expect("a run");
            assert!(
                world.network.sent.number() != Digest::enabled().number(),
                "something was sent"
            );
            all.add_run(seed, &world.network.sent);
        }
        all.number().expect("enabled")
    }

    #[test]
    fn the_same_seeds_give_the_same_number_and_other_seeds_another() {
        let number = number_of(1..5);
        assert_eq!(number_of(1..5), number);
        assert_ne!(number_of(2..6), number);
    }
}
