//! Reading of a tenure, and a trait for writing that mirrors the reader.

use paritas_base::configuration::Tenure;
use paritas_base::{Epoch, Incarnation, NodeId, Reader};

pub(super) fn tenure(r: &mut Reader<'_>) -> Option<Tenure> {
    Some(Tenure {
        node: NodeId(r.u16()?),
        incarnation: Incarnation(r.u64()?),
        since: Epoch(r.u32()?),
    })
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
