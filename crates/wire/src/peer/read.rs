//! Little-endian reading that cannot run past the end, and its twin for writing.

use paritas_base::configuration::Tenure;
use paritas_base::{Epoch, Incarnation, NodeId};

/// What is left of a body. Every method gives `None` past the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }
    pub(super) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
    pub(super) fn tenure(&mut self) -> Option<Tenure> {
        Some(Tenure {
            node: NodeId(self.u16()?),
            incarnation: Incarnation(self.u64()?),
            since: Epoch(self.u32()?),
        })
    }
    /// The end, and nothing left over.
    pub(super) fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

pub(super) trait Write {
    fn u8(&mut self, n: u8);
    fn u16(&mut self, n: u16);
    fn u32(&mut self, n: u32);
    fn u64(&mut self, n: u64);
    fn tenure(&mut self, tenure: &Tenure);
}

impl Write for Vec<u8> {
    fn u8(&mut self, n: u8) {
        self.push(n);
    }
    fn u16(&mut self, n: u16) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    fn u32(&mut self, n: u32) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    fn u64(&mut self, n: u64) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    fn tenure(&mut self, tenure: &Tenure) {
        self.u16(tenure.node.0);
        self.u64(tenure.incarnation.0);
        self.u32(tenure.since.0);
    }
}
