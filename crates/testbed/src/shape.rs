//! The shape of a cluster: its record, and the first configurations of its lists.

use super::{configuration, tenure};
use paritas_base::configuration::{Assignment, ClusterRecord, Configuration, PositionState};
use paritas_base::{ClusterId, ListId, Position, StreamId};
use paritas_protocol::paritylog::Layout;

/// The record of a cluster, whose last `logged` parities are on log nodes.
pub(crate) fn record(
    (data, parity): (u8, u8),
    slots: Vec<(u16, StreamId)>,
    log: Option<(u8, Layout, u32)>,
) -> ClusterRecord {
    ClusterRecord {
        id: ClusterId(7),
        active_version: paritas_base::formats::HIGHEST,
        data,
        parity,
        ack_quorum: parity,
        chunk_bytes: 16 << 10,
        hash_key: [1, 2],
        lease_ms: 2000,
        suspicion_ms: 1000,
        min_redundancy: parity.min(1),
        slots,
        logged: log.map_or(0, |(logged, ..)| logged),
        more: Default::default(),
    }
}

/// The record and the first configurations of a cluster whose streams have equal parts of the slots.
pub(crate) fn shape(
    (data, parity): (u8, u8),
    lists: u16,
    log: Option<(u8, Layout, u32)>,
) -> (ClusterRecord, Vec<Configuration>) {
    let width = usize::from(data + parity);
    let in_memory = width - log.map_or(0, |(logged, ..)| usize::from(logged));
    let streams: Vec<StreamId> = (0..lists)
        .flat_map(|list| {
            (0..data).map(move |x| StreamId {
                list: ListId(list),
                x: Position(x),
            })
        })
        .collect();
    let slots = (1..=streams.len())
        .map(|i| ((16384 * i / streams.len() - 1) as u16, streams[i - 1]))
        .collect();
    let configurations = (0..lists)
        .map(|list| Configuration {
            data,
            parity,
            ack_quorum: parity,
            positions: (0..width)
                .map(|i| {
                    // Log nodes have the same positions in all lists.
                    let turned = if i < in_memory {
                        (i + usize::from(list)) % in_memory
                    } else {
                        i
                    };
                    Some(Assignment {
                        tenure: tenure(turned, 1),
                        state: PositionState::Born,
                    })
                })
                .collect(),
            ..configuration(list, 0, 1, 1)
        })
        .collect();
    (record((data, parity), slots, log), configurations)
}
