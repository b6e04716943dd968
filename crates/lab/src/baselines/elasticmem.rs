//! ElasticMem as in its paper (JUSTC'24): redundancy by object, made and changed by the client, over stock memcached
//! servers (§4). Parts and transitions come from the crate `large`, which cuts a value into one row here: each block is
//! one item.

pub mod work_table;

use super::missing;
use super::network::{Ask, Name, Network};
use crate::workload::jump_hash;
use paritas_base::{Map, map};
use paritas_large::{Class, Content, Group, Layout, Part, Placement, Reader, Transition, Writer};
use std::io;

/// Blocks are multiples of this length, in bytes. The paper's are multiples of 16 (§5).
const ALIGN_BYTES: u64 = 64;

/// A client with its table of objects (§4.1).
#[derive(Debug)]
pub struct ElasticMem {
    network: Network,
    /// Placement and length of each object.
    objects: Map<u32, (Placement, u64)>,
}

impl ElasticMem {
    /// A client of these servers, without objects.
    pub fn new(network: Network) -> Self {
        Self {
            network,
            objects: map(),
        }
    }

    /// Writes an object with this redundancy.
    pub fn set(&mut self, object: u32, class: Class, value: &[u8]) -> io::Result<()> {
        let nodes = self.network.memory_nodes();
        let placement = Placement::at(class, first_node(object, nodes), nodes as u8, 0).map_err(io::Error::other)?;
        self.write(object, placement, value, |_| true)?;
        self.objects.insert(object, (placement, value.len() as u64));
        Ok(())
    }

    /// Reads an object. Parts at the `lost` nodes are not asked for.
    pub fn get(&mut self, object: u32, lost: &[usize]) -> io::Result<Vec<u8>> {
        let (placement, bytes) = self.entry(object)?;
        let layout = layout(bytes, placement.class())?;
        let rank = |part: &Part| (!lost.contains(&usize::from(part.position))).then_some(0);
        let mut reader = Reader::new(layout, placement, 0..bytes, rank);
        let (mut value, mut done) = (vec![0; bytes as usize], 0);
        while !reader.is_done() {
            let mut requests = Vec::new();
            while let Some(request) = reader.next_request().map_err(io::Error::other)? {
                requests.push(request);
            }
            if requests.is_empty() {
                return Err(missing("a part"));
            }
            // All units of a part are one item: it is asked for once.
            let mut parts: Vec<Part> = Vec::new();
            for request in &requests {
                if !parts.contains(&request.part) {
                    parts.push(request.part);
                }
            }
            let asks: Vec<(usize, Ask)> = parts
                .iter()
                .map(|part| (node(part), Ask::Get(name(object, placement, part))))
                .collect();
            let items = self.network.ask(&asks)?;
            for request in &requests {
                let item = parts
                    .iter()
                    .position(|part| *part == request.part)
                    .and_then(|at| items[at].as_ref());
                let start: u32 = (0..request.unit)
                    .map(|unit| request.part.content.unit_bytes(&layout, unit))
                    .sum();
                let range = start as usize..(start + request.unit_bytes) as usize;
                reader.on_unit(request, item.and_then(|item| item.get(range)), &mut value[done..]);
            }
            while let Some(taken) = reader.take(&mut value[done..]) {
                done += taken;
            }
        }
        Ok(value)
    }

    /// Gives an object another redundancy (§4.2): reads it and writes the parts that the new one lacks. Then it deletes
    /// those that the new one does not need, without waiting.
    pub fn change(&mut self, object: u32, class: Class) -> io::Result<()> {
        let value = self.get(object, &[])?;
        self.change_from(object, class, &value)
    }

    /// As [`Self::change`], with the value that was read before.
    pub fn change_from(&mut self, object: u32, class: Class, value: &[u8]) -> io::Result<()> {
        let (from, bytes) = self.entry(object)?;
        let (old, new) = (layout(bytes, from.class())?, layout(bytes, class)?);
        let nodes = self.network.memory_nodes() as u8;
        // As in the paper, the data nodes stay, and the first parity node follows from them.
        let x = from.x_of(class);
        let change = Transition::new(from, class, x, (nodes, 0), (&old, &new), false).map_err(io::Error::other)?;
        let written: Vec<Part> = change.written().collect();
        self.write(object, change.to, value, |part| written.contains(part))?;
        self.objects.insert(object, (change.to, bytes));
        let kept: Vec<(usize, Name)> = change
            .to
            .parts()
            .map(|part| (node(&part), name(object, change.to, &part)))
            .collect();
        let old: Vec<(usize, Ask)> = from
            .parts()
            .map(|part| (node(&part), name(object, from, &part)))
            .filter(|item| !kept.contains(item))
            .map(|(node, name)| (node, Ask::Delete(name)))
            .collect();
        self.network.ask(&old).map(drop)
    }

    /// Bytes of memory for each object at the client beside its key: placement, length, and what aligns them. The
    /// table's own bytes come on top of that.
    pub fn metadata_bytes() -> usize {
        size_of::<(u32, (Placement, u64))>() - size_of::<u32>()
    }

    /// The most bytes that a key of this class has at a server beyond the object's own.
    pub fn suffix_bytes(class: Class, nodes: u8) -> io::Result<usize> {
        let placement = Placement::at(class, 0, nodes, 0).map_err(io::Error::other)?;
        let own = Name::Object(0, 0).to_string().len();
        let longest = placement
            .parts()
            .map(|part| name(0, placement, &part).to_string().len());
        Ok(longest.max().unwrap_or(own) - own)
    }

    /// The network that it runs on.
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    fn entry(&self, object: u32) -> io::Result<(Placement, u64)> {
        self.objects.get(&object).copied().ok_or_else(|| missing("the object"))
    }

    fn write(
        &mut self,
        object: u32,
        placement: Placement,
        value: &[u8],
        is_written: impl Fn(&Part) -> bool,
    ) -> io::Result<()> {
        let layout = layout(value.len() as u64, placement.class())?;
        let parts: Vec<Part> = placement.parts().collect();
        let mut items = vec![Vec::new(); parts.len()];
        let mut writer = Writer::new(layout, placement);
        let mut taken = 0;
        while !writer.is_sent() {
            taken += writer.push(&value[taken..], |part, _, unit| items[part].extend_from_slice(unit));
            // A part is one item, sent when it is whole: no unit waits for its holder.
            for part in 0..parts.len() {
                writer.on_taken(part, u32::MAX);
            }
        }
        let asks: Vec<(usize, Ask)> = parts
            .iter()
            .zip(items)
            .filter(|(part, _)| is_written(part))
            .map(|(part, item)| (node(part), Ask::Set(name(object, placement, part), item)))
            .collect();
        self.network.ask(&asks).map(drop)
    }
}

fn node(part: &Part) -> usize {
    usize::from(part.position)
}

/// The node that an object's parts begin at, unless a change has moved them.
pub fn first_node(object: u32, nodes: usize) -> u8 {
    jump_hash(u64::from(object), nodes) as u8
}

/// One row, whatever the length.
fn layout(bytes: u64, class: Class) -> io::Result<Layout> {
    let unit_bytes = bytes.div_ceil(u64::from(class.data())).next_multiple_of(ALIGN_BYTES);
    let unit_bytes = u32::try_from(unit_bytes).map_err(io::Error::other)?;
    Layout::of_body(bytes, class.data(), unit_bytes).ok_or_else(|| missing("a value"))
}

/// The key of a part. Data blocks have the same keys in EC and EOR, so that they can stay (§4.4).
fn name(object: u32, placement: Placement, part: &Part) -> Name {
    let scheme = match (placement.class(), part.group) {
        (Class::Rep { .. }, _) => 'r',
        (_, Group::Data) => 'd',
        (_, Group::Other) if matches!(part.content, Content::Parity(_)) => 'p',
        (_, Group::Other) => 'e',
    };
    Name::Part(object, part.number, scheme)
}
