//! Reading of a tenure, and a trait for writing that mirrors the reader.

use paritas_base::configuration::Tenure;
use paritas_base::{Epoch, Incarnation, NodeId, Reader, Time, varint};

pub(super) fn tenure(r: &mut Reader<'_>) -> Option<Tenure> {
    Some(Tenure {
        node: NodeId(r.u16()?),
        incarnation: Incarnation(r.u64()?),
        since: Epoch(r.u32()?),
    })
}

/// A monotonic clock goes over the wire in units of 65,536 ns, rounded down: a lease that is counted from it ends
/// earlier by less than that.
const CLOCK_UNIT_BITS: u32 = 16;

pub(super) fn clock(r: &mut Reader<'_>) -> Option<Time> {
    let units = r.varint()?;
    let ns = units << CLOCK_UNIT_BITS;
    (ns >> CLOCK_UNIT_BITS == units).then_some(Time(ns))
}

pub(super) trait Write {
    fn u8(&mut self, n: u8);
    fn u16(&mut self, n: u16);
    fn u32(&mut self, n: u32);
    fn u64(&mut self, n: u64);
    fn varint(&mut self, n: u64);
    fn clock(&mut self, at: Time);
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
    fn varint(&mut self, n: u64) {
        varint::push(self, n);
    }
    fn clock(&mut self, at: Time) {
        self.varint(at.0 >> CLOCK_UNIT_BITS);
    }
    fn tenure(&mut self, tenure: &Tenure) {
        self.u16(tenure.node.0);
        self.u64(tenure.incarnation.0);
        self.u32(tenure.since.0);
    }
}
