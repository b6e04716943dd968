//! The contents of every version of every chunk, as issued by the owners (invariants I1 and I2 of P13).

use crate::driver::Process;
use paritas_base::{Epoch, Map, Position, Stripe, Term, Version, map};
use paritas_code::{Code, mul_add, sum};
use paritas_protocol::{ParityMember, StreamOwner};
use paritas_store::delta::extents;
use paritas_store::{Arena, Old};

/// The contents, by chunk and version.
#[derive(Debug, Default)]
pub(crate) struct Ghost {
    contents: Map<(Position, Stripe, Version), Vec<u8>>,
    seen: Map<(Position, Term), u64>,
}

impl Ghost {
    /// No contents: the list begins, or was reset.
    pub(crate) fn new() -> Self {
        Self {
            contents: map(),
            seen: map(),
        }
    }

    /// Forgets contents of this epoch and later ones. Those decisions are undone, so their tenures are used again.
    pub(crate) fn forget_from(&mut self, epoch: Epoch) {
        self.contents.retain(|(.., version), _| version.term() < epoch.0);
        self.seen.retain(|(_, term), _| *term < epoch.0);
    }

    /// Records what an owner has issued since the last call.
    pub(crate) fn observe(&mut self, owner: &StreamOwner, arena: &Arena) -> Result<(), String> {
        if owner.ring().first().is_none() && !owner.members().is_empty() {
            // The usual case after most turns.
            return Ok(());
        }
        let (x, term) = (owner.stream().x, owner.tenure().term());
        let chunk_bytes = arena.chunk_bytes();
        let seen = self.seen.get(&(x, term)).copied().unwrap_or(0);
        for record in owner.ring().after(seen).filter(|r| r.term == term) {
            let version = record.version();
            for extent in extents(version, record.extents, chunk_bytes) {
                let extent = extent.map_err(|_| format!("I2: delta {version} of {} is malformed", owner.stream()))?;
                let from = extent.base.unwrap_or(version);
                let Some(mut bytes) = self.content(x, extent.stripe, from, chunk_bytes) else {
                    continue;
                };
                for (b, d) in bytes[extent.offset..].iter_mut().zip(extent.xor) {
                    *b ^= d;
                }
                if extent.free {
                    if bytes.iter().any(|b| *b != 0) {
                        return Err(format!(
                            "I2: FREE of {} {} at {version} leaves bytes",
                            owner.stream(),
                            extent.stripe
                        ));
                    }
                    // The chunk may be written again in the same delta. Contents in the middle of a delta are never
                    // used.
                    self.contents.remove(&(x, extent.stripe, version));
                } else {
                    let again = extent.base.is_none();
                    let before = self.contents.insert((x, extent.stripe, version), bytes.clone());
                    if !again && before.is_some_and(|b| b != bytes) {
                        return Err(format!(
                            "I2: two contents for {} {} {version}",
                            owner.stream(),
                            extent.stripe
                        ));
                    }
                }
            }
            self.seen.insert((x, term), record.seq);
        }
        if owner.members().is_empty() {
            // Without members no raw deltas are kept. The chunks themselves give the contents.
            for (stripe, version) in owner.store().chunks().stripes() {
                if let Ok(Some(bytes)) = owner.store().chunks().bytes(arena, stripe) {
                    self.contents
                        .entry((x, stripe, version))
                        .or_insert_with(|| bytes.to_vec());
                }
            }
            self.seen.insert((x, term), owner.seq());
        }
        Ok(())
    }

    fn content(&self, x: Position, stripe: Stripe, version: Version, chunk_bytes: usize) -> Option<Vec<u8>> {
        if version == Version::ZERO {
            return Some(vec![0; chunk_bytes]);
        }
        self.contents.get(&(x, stripe, version)).cloned()
    }

    /// I2: every resident chunk has the contents of its version, and its sum is right.
    pub(crate) fn check_owner(&self, owner: &StreamOwner, arena: &Arena) -> Result<(), String> {
        let chunks = owner.store().chunks();
        for (stripe, version) in chunks.stripes() {
            let Ok(Some(bytes)) = chunks.bytes(arena, stripe) else {
                continue;
            };
            let what = || {
                format!(
                    "{} {stripe} at {version}, owner {}",
                    owner.stream(),
                    owner.tenure().node
                )
            };
            if let Some(ghost) = self.contents.get(&(owner.stream().x, stripe, version))
                && ghost != bytes
            {
                return Err(format!("I2: wrong bytes in {}", what()));
            }
            if sum::of(bytes) != chunks.sum(stripe) {
                return Err(format!(
                    "I2: wrong sum of {}; seq {}, {} bytes in the open delta",
                    what(),
                    owner.seq(),
                    owner.open_bytes()
                ));
            }
        }
        Ok(())
    }

    /// I2 for a chunk whose owner has lost the position: it must never be used for a version other than its own.
    pub(crate) fn check_stashed(
        &self,
        x: Position,
        old: &Old<'_>,
        code: &Code,
        wrong: Option<Stripe>,
    ) -> Result<(), String> {
        if let Some(parity) = x.0.checked_sub(code.scheme().data()) {
            if wrong == Some(old.stripe) {
                return Ok(());
            }
            let what = || format!("{} in the stash, parity {parity}", old.stripe);
            return self.check_parity(old.stripe, parity, code, old.versions, Some(old.bytes), what);
        }
        let (Some(version), Some(sum)) = (old.versions.first(), old.sums.first()) else {
            return Err(format!("I2: a stashed chunk of {} has no version", old.stripe));
        };
        match self.contents.get(&(x, old.stripe, *version)) {
            Some(ghost) if ghost != old.bytes || sum::of(old.bytes) != *sum => Err(format!(
                "I2: wrong bytes in the stash, {} {} at {version}",
                x.0, old.stripe
            )),
            _ => Ok(()),
        }
    }

    /// I1: every valid parity chunk is the encoding of the contents at its versions. The chunk `wrong`, if any, has a
    /// flipped bit.
    pub(crate) fn check_member(
        &self,
        process: &Process,
        member: &ParityMember,
        code: &Code,
        wrong: Option<Stripe>,
    ) -> Result<(), String> {
        let parity = member.position().0 - code.scheme().data();
        for stripe in member.valid_stripes().filter(|stripe| wrong != Some(*stripe)) {
            let Some((versions, bytes)) = process.parity(member, stripe) else {
                continue;
            };
            let what = || {
                format!(
                    "{stripe} at node {}, parity {}",
                    member.tenure().node,
                    member.position().0
                )
            };
            self.check_parity(stripe, parity, code, &versions, bytes.as_deref(), what)?;
        }
        Ok(())
    }

    fn check_parity(
        &self,
        stripe: Stripe,
        parity: u8,
        code: &Code,
        versions: &[Version],
        bytes: Option<&[u8]>,
        what: impl Fn() -> String,
    ) -> Result<(), String> {
        let mut expected: Option<Vec<u8>> = None;
        for (x, version) in versions.iter().enumerate().filter(|(_, v)| **v != Version::ZERO) {
            // No owner with this version has been observed, so its contents are not known here.
            let Some(content) = self.contents.get(&(Position(x as u8), stripe, *version)) else {
                return Ok(());
            };
            let expected = expected.get_or_insert_with(|| vec![0; content.len()]);
            mul_add(code.coefficient(x as u8, parity), content, expected);
        }
        let zeros = |bytes: &[u8]| bytes.iter().all(|b| *b == 0);
        let same = match (bytes, expected) {
            (Some(bytes), Some(expected)) => bytes == expected,
            (bytes, expected) => bytes.is_none_or(zeros) && expected.is_none_or(|e| zeros(&e)),
        };
        if !same {
            return Err(format!("I1: {} is not the encoding of {versions:?}", what()));
        }
        Ok(())
    }
}
