//! Checks of large values at rest: each unit is the encoding of its body (B1), a value has the class that its write
//! gave it (P14.1), and no part is left of a value that is gone (B3).

use crate::fleet::Fleet;
use crate::swarm::Swarm;
use paritas_base::configuration::Configuration;
use paritas_base::{Position, StreamId};
use paritas_protocol::large::{Content, Keeper, Layout, Part, PartId, Placement, Record, Writer};
use paritas_protocol::{PositionParts, StreamOwner, UnitRef};
use std::borrow::Cow;
use std::collections::BTreeMap;

impl Fleet {
    /// B1: each unit of a large value, in memory or on a disk, is what its body gives when it is cut and coded again.
    /// `classes`: those of values that were written with one, by their numbers.
    pub(crate) fn check_units(
        &self,
        swarm: &Swarm,
        classes: &BTreeMap<i64, u8>,
        configuration: &Configuration,
    ) -> Result<(), String> {
        for x in configuration.data_positions() {
            let stream = StreamId {
                list: configuration.list,
                x,
            };
            let owner = self.owner_of_stream(configuration, stream);
            let Some(page) = owner.and_then(|owner| owner.ledger().page(None, usize::MAX - 1)) else {
                continue;
            };
            for alive in page.alive {
                let record = &alive.record;
                let is_judged = !alive.is_staging
                    && alive.group == record.data_group
                    && owner.is_some_and(|owner| !owner.may_be_lost(configuration, record));
                if is_judged {
                    let body = self.check_value(swarm, configuration, x, record)?;
                    if swarm.classes_stay {
                        check_class(swarm, classes, record, &body)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn check_value(
        &self,
        swarm: &Swarm,
        configuration: &Configuration,
        x: Position,
        record: &Record,
    ) -> Result<Vec<u8>, String> {
        let positions = configuration.data + configuration.parity - swarm.logged;
        let placement = record.placement(positions).map_err(|error| format!("B1: {error}"))?;
        let group = record.data_group.bits();
        let layout = self.layout_of(record).ok_or("B1: a body of no length")?;
        let Some(body) = self.body(configuration, x, record, placement) else {
            return Err(format!(
                "B1: not all data of group {group:x} of stream {} is there",
                x.0
            ));
        };
        let parts: Vec<Part> = placement.parts().collect();
        let mut writer = Writer::new(layout, placement);
        let (mut at, mut wrong) = (0, None);
        while at < body.len() {
            let taken = writer.push(&body[at..], |number, unit, bytes| {
                let part = parts[number];
                let kept = self.unit(configuration, x, record, &part, unit);
                if kept.as_deref() != Some(bytes) {
                    wrong = Some(format!(
                        "B1: unit {unit} of {:?} of group {group:x} differs at position {}",
                        part.content, part.position
                    ));
                }
            });
            at += taken;
            // No unit is sent.
            (0..parts.len()).for_each(|part| writer.on_taken(part, u32::MAX));
            if taken == 0 {
                break;
            }
        }
        wrong.map_or(Ok(body), Err)
    }

    /// The body, from its data blocks or its first copy.
    fn body(
        &self,
        configuration: &Configuration,
        x: Position,
        record: &Record,
        placement: Placement,
    ) -> Option<Vec<u8>> {
        let layout = self.layout_of(record)?;
        let mut body = Vec::new();
        for number in 0..layout.units() {
            let mut sources = placement.parts();
            let (part, unit) = sources.find_map(|part| {
                let is_data = !matches!(part.content, Content::Parity(_));
                Some((part, part.content.has(&layout, number).filter(|_| is_data)?))
            })?;
            let bytes = self.unit(configuration, x, record, &part, unit)?;
            let range = layout.unit_range(number);
            body.extend_from_slice(bytes.get(..(range.end - range.start) as usize)?);
        }
        Some(body)
    }

    fn layout_of(&self, record: &Record) -> Option<Layout> {
        let process = self.processes.iter().flatten().next()?;
        record.layout(process.node.replica().arena().chunk_bytes() as u32)
    }

    fn parts_at(&self, configuration: &Configuration, position: Position) -> Option<(usize, &PositionParts)> {
        let at = usize::from(configuration.tenure(position)?.node.0);
        let list = self.processes[at].as_ref()?.node.replica().list(configuration.list)?;
        Some((at, list.parts.iter().find(|parts| parts.position() == position)?))
    }

    /// A unit that is kept, with its padding.
    fn unit(
        &self,
        configuration: &Configuration,
        x: Position,
        record: &Record,
        part: &Part,
        unit: u32,
    ) -> Option<Cow<'_, [u8]>> {
        let (at, parts) = self.parts_at(configuration, Position(part.position))?;
        let process = self.processes[at].as_ref()?;
        let name = record.name_of(part);
        let arena = process.node.replica().arena();
        let keeper: &Keeper<UnitRef> = parts.keeper();
        let (stored, length, _) = keeper.stored(arena.chunk_bytes() as u32, &PartId { x, name }, unit)?;
        let length = length as usize;
        match *stored {
            UnitRef::Memory(slot) => arena.bytes(slot).get(..length).map(Cow::Borrowed),
            UnitRef::Disk(key) => {
                let mut bytes = process.chunk_on_disk(key)?;
                bytes.truncate(length);
                Some(Cow::Owned(bytes))
            }
            UnitRef::Lost => None,
        }
    }

    fn owner_of_stream(&self, configuration: &Configuration, stream: StreamId) -> Option<&StreamOwner> {
        let at = usize::from(configuration.tenure(stream.x)?.node.0);
        self.processes[at]
            .as_ref()?
            .node
            .replica()
            .list(stream.list)?
            .owner(stream.x)
    }

    /// B3: what is not yet at rest of the large values of a list, if anything.
    pub(crate) fn unsettled_values(&self, configuration: &Configuration) -> Option<String> {
        for x in configuration.data_positions() {
            let stream = StreamId {
                list: configuration.list,
                x,
            };
            let owner = self.owner_of_stream(configuration, stream)?;
            let page = owner.ledger().page(None, usize::MAX - 1);
            let mut alive = page.into_iter().flat_map(|page| page.alive);
            if let Some(kept) = alive.find(|alive| alive.is_staging || !owner.ledger().is_named(alive.group)) {
                let what = if kept.is_staging { "staged" } else { "pinned" };
                let group = kept.group.bits();
                return Some(format!("group {group:x} of stream {} is still {what}", x.0));
            }
            for i in 0..configuration.positions.len() {
                let Some((_, parts)) = self.parts_at(configuration, Position(i as u8)) else {
                    continue;
                };
                let mut of_stream = parts.keeper().parts().filter(|part| part.x == x);
                if let Some(dead) = of_stream.find(|part| !owner.ledger().is_alive(part.name.group)) {
                    let group = dead.name.group.bits();
                    return Some(format!(
                        "position {i} has a part of group {group:x} of stream {}, which is dead",
                        x.0
                    ));
                }
            }
        }
        None
    }
}

/// P14.1: a value that was written with a class has it.
fn check_class(swarm: &Swarm, classes: &BTreeMap<i64, u8>, record: &Record, body: &[u8]) -> Result<(), String> {
    let number = body.split(|byte| *byte == b';').next().unwrap_or_default();
    let number = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    let Some((n, class)) = number.and_then(|n: i64| Some((n, *classes.get(&n)?))) else {
        return Ok(());
    };
    let wanted = swarm.lengths().class(class);
    match wanted.parse() == Ok(record.class) {
        true => Ok(()),
        false => Err(format!(
            "P14.1: value {n} was written as {wanted}, and is {}",
            record.class
        )),
    }
}
