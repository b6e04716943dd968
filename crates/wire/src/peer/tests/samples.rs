//! One message of every kind, and of every variant of a kind: those of `docs/formats/peer-golden.md`, in the same
//! order.

use super::*;
use paritas_base::configuration::{Assignment, Configuration, PositionState, Tenure};
use paritas_base::hash_slots::{HandOff, ListSlots, SlotRange};
use paritas_base::{ClusterId, ConnId, Incarnation, NodeId, PartState, Stripe, Time, Version};

/// The `i`-th number of a message. All numbers of a message differ, and so do the bytes of one number.
pub(super) fn n(i: u64) -> u64 {
    0x100 * i + 0x10 + i
}

fn n32(i: u64) -> u32 {
    n(i) as u32
}

fn n16(i: u64) -> u16 {
    n(i) as u16
}

/// A time that the wire can tell.
pub(super) fn at(i: u64) -> Time {
    Time(n(i) << 16)
}

fn tenure(first: u64) -> Tenure {
    Tenure {
        node: NodeId(n16(first)),
        incarnation: Incarnation(n(first + 1)),
        since: Epoch(n32(first + 2)),
    }
}

fn stream(first: u64) -> StreamId {
    StreamId {
        list: ListId(n16(first)),
        x: Position(first as u8 + 1),
    }
}

fn leases(first: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let entry = LeaseEntry {
        stream: StreamId {
            list: ListId(n16(first)),
            x: Position(first as u8 + 1),
        },
        epoch: Epoch(n32(first + 2)),
        term: n32(first + 3),
        stable: n(first + 4),
    };
    Leases::push(&mut bytes, &entry);
    bytes
}

/// Encoded as `paritas_store::delta` does.
const EXTENTS: &[u8] = &[
    0x60, 5, 0xa3, 2, 1, 0xa1, 0xa2, 0xa3, // with a version before
    0x2c, 0x80, 4, 0xb1, // again
    0x43, 6, 0, 2, 0xc1, 0xc2, // free
    0x1c, 1, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, // next, long
];

/// The bytes 0 to 255.
const FINGERPRINT: [u8; FINGERPRINT_BYTES] = {
    let mut bytes = [0; FINGERPRINT_BYTES];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

#[allow(clippy::too_many_lines)] // A table.
pub(super) fn with_each(mut check: impl FnMut(&Message<'_>)) {
    let mut sync = Vec::new();
    Deltas::push(&mut sync, n32(4), n(5), b"abc");
    Deltas::push(&mut sync, n32(6), n(7), b"");
    let mut sealed = Vec::new();
    Deltas::push(&mut sealed, n32(9), n(10), b"abc");
    let mut allocated = Vec::new();
    Message::push_directory_entry(&mut allocated, Stripe::index_page(1), Version::new(1, 2));
    Message::push_directory_entry(&mut allocated, Stripe::data(2), Version::new(3, 4));
    let mut versions = Vec::new();
    Versions::push(&mut versions, Version::new(1, 2));
    Versions::push(&mut versions, Version::new(3, 4));
    let (asked, granted) = (leases(1), leases(2));
    let mut held = Vec::new();
    LeaseRecord {
        holder: tenure(5),
        remaining_ns: n(8),
    }
    .push(&mut held);
    let name = PartName { group: n(2), number: 7 };
    let (mut dead, mut alive) = (Vec::new(), Vec::new());
    Groups::push(&mut dead, n(1));
    Groups::push(&mut dead, n(2));
    AliveGroups::push(&mut alive, n(7), true, b"\x02rr");
    AliveGroups::push(&mut alive, n(8), false, b"\x01r");
    let mut entries = Vec::new();
    Message::push_directory_entry(&mut entries, Stripe::data(3), Version::new(4, 5));
    let mut objects = Vec::new();
    let plain = ObjectRecord {
        database: 0,
        key: b"k",
        value: b"vv",
        record: &[],
        expiry_ms: None,
        flags: None,
        marks: 0,
        hash_kind: false,
    };
    Objects::push(&mut objects, &plain);
    let with_all = ObjectRecord {
        expiry_ms: Some(n(5)),
        flags: Some(n32(6)),
        marks: 7,
        hash_kind: true,
        ..plain
    };
    Objects::push(&mut objects, &with_all);
    let large = ObjectRecord { record: b"rr", ..plain };
    Objects::push(&mut objects, &large);
    let elsewhere = ObjectRecord {
        database: 9,
        expiry_ms: Some(n(5)),
        ..plain
    };
    Objects::push(&mut objects, &elsewhere);
    let configuration = Configuration {
        list: ListId(n16(1)),
        epoch: Epoch(n32(2)),
        born: Epoch(n32(3)),
        data: 1,
        parity: 1,
        ack_quorum: 1,
        positions: vec![
            Some(Assignment {
                tenure: tenure(4),
                state: PositionState::Filling,
            }),
            None,
        ],
        gone: vec![(NodeId(n16(7)), Incarnation(n(8)))],
        lost: true,
        slots: ListSlots {
            version: n(9),
            ranges: vec![SlotRange {
                first: n16(10),
                last: n16(11),
                x: Position(12),
            }],
            hand_off: Some(HandOff {
                version: n(13),
                first: n16(14),
                last: n16(15),
                from: stream(16),
                to: stream(18),
            }),
        },
        id: n(20),
        trail: vec![n(21), n(22)],
        more: Sections::none(),
    };
    let parity = Parity {
        recv: n(3),
        term: n32(4),
        versions: Versions::new(&versions),
        sum: n32(5),
        bytes: b"pp",
    };
    let hello = Hello {
        cluster: ClusterId(n(1)),
        node: NodeId(n16(2)),
        incarnation: Incarnation(n(3)),
        to_node: NodeId(n16(4)),
        to_incarnation: Incarnation(n(5)),
        bulk: true,
        version_low: n16(6),
        version_high: n16(7),
        features: n(8),
        session: n(9),
    };
    let (id, stripe) = (n(1), Stripe::data(2));
    let all = [
        Message::Hello { hello },
        Message::Delta {
            term: n32(1),
            seq: n(2),
            sent: at(3),
            stable: Behind::new(n(4), n(2)),
            extents: EXTENTS,
        },
        Message::Ack {
            term: n32(1),
            recv: n(2),
            lease_sent: at(3),
        },
        Message::Stable {
            term: n32(1),
            stable: n(2),
        },
        Message::Sync {
            term: n32(1),
            base: n(2),
            top: n(3),
            deltas: Deltas::new(&sync),
        },
        Message::SyncAck {
            term: n32(1),
            recv: n(2),
        },
        Message::Alloc {
            term: n32(1),
            as_of: n(2),
            entries: &allocated,
        },
        Message::LeaseRequest {
            sent: at(6),
            streams: Leases::new(&asked),
        },
        Message::Lease {
            sent: at(1),
            streams: Leases::new(&granted),
        },
        Message::Seal,
        Message::SealReply {
            known: true,
            term: n32(1),
            recv: n(2),
            leases: &held,
            deltas: Deltas::new(&sealed),
        },
        Message::YieldQuery { tenure: tenure(1) },
        Message::Yielded { tenure: tenure(1) },
        Message::ReadDirectory {
            term: n32(1),
            at_least: n(2),
        },
        Message::Directory {
            term: n32(1),
            complete_for: n(2),
            entries: &entries,
        },
        Message::ReadParity { id, stripe },
        Message::ParityValue {
            id,
            stripe,
            parity: Some(parity),
        },
        Message::ParityValue {
            id,
            stripe,
            parity: None,
        },
        Message::ReadChunk {
            id,
            stripe,
            want: Some(Version::new(3, 4)),
        },
        Message::ReadChunk { id, stripe, want: None },
        Message::ChunkValue {
            id,
            stripe,
            status: ChunkStatus::Here,
            version: Version::new(3, 4),
            sum: n32(5),
            as_of: n(6),
            term: n32(7),
            found: Some(crc::tests::sum(b"cc")),
            bytes: b"cc",
        },
        Message::ChunkValue {
            id,
            stripe,
            status: ChunkStatus::None,
            version: Version::default(),
            sum: 0,
            as_of: n(6),
            term: n32(7),
            found: Some(0),
            bytes: b"",
        },
        Message::Hold {
            stripe: Stripe::index_page(1),
        },
        Message::CreditRequest {
            term: n32(1),
            data_end: n32(2),
            index_end: n32(3),
        },
        Message::Credit {
            term: n32(1),
            data_end: n32(2),
            index_end: n32(3),
            window_bytes: n(4),
        },
        Message::GetConfiguration { tomorrow: false },
        Message::Stale {
            configuration: Box::new(configuration),
        },
        Message::Forward {
            conn: ConnId(n(1)),
            n: n(2),
            dialect: dialect::RESP3,
            database: 0,
            command: b"*1\r\n$4\r\nPING\r\n",
        },
        Message::Forward {
            conn: ConnId(n(1)),
            n: n(2),
            dialect: dialect::RESP2,
            database: 15,
            command: b"*1\r\n$4\r\nPING\r\n",
        },
        Message::Reply {
            conn: ConnId(n(1)),
            n: n(2),
            bytes: b"+OK\r\n",
        },
        Message::Import {
            version: n(1),
            term: n32(2),
            round: n32(3),
            n: n32(4),
            objects: Objects::new(&objects),
        },
        Message::ImportBody {
            version: n(1),
            term: n32(2),
            round: n32(3),
            n: n32(4),
            record: b"rr",
            offset: n(5),
            bytes: b"body",
        },
        Message::Stage {
            conn: ConnId(n(1)),
            n: n(2),
            value_bytes: n(3),
            taken: n(4),
            key: b"key",
            class: b"",
        },
        Message::Stage {
            conn: ConnId(n(1)),
            n: n(2),
            value_bytes: n(3),
            taken: n(4),
            key: b"key",
            class: b"ec:4,2",
        },
        Message::StageBytes {
            conn: ConnId(n(1)),
            n: n(2),
            at: n(3),
            bytes: b"value",
        },
        Message::Staged {
            conn: ConnId(n(1)),
            n: n(2),
            taken: n(3),
            state: StageState::Open,
        },
        Message::Staged {
            conn: ConnId(n(1)),
            n: n(2),
            taken: n(3),
            state: StageState::Over,
        },
        Message::Staged {
            conn: ConnId(n(1)),
            n: n(2),
            taken: n(3),
            state: StageState::NotOwner,
        },
        Message::Staged {
            conn: ConnId(n(1)),
            n: n(2),
            taken: n(3),
            state: StageState::NoMemory,
        },
        Message::Staged {
            conn: ConnId(n(1)),
            n: n(2),
            taken: n(3),
            state: StageState::Running,
        },
        Message::GiveUp {
            conn: ConnId(n(1)),
            n: n(2),
        },
        Message::ReplyBody {
            conn: ConnId(n(1)),
            n: n(2),
            from: n(3),
            to: n(4),
            record: b"\x06record",
            tail: b"tail",
        },
        Message::Wanted {
            conn: ConnId(n(1)),
            n: n(2),
            is_stuck: true,
        },
        Message::Imported {
            version: n(1),
            term: n32(2),
            round: n32(3),
            n: n32(4),
            status: ImportStatus::NoRoom,
        },
        Message::OpenPart {
            term: n32(1),
            question: n32(4),
            name,
            record: b"\x02rr",
            by_client: false,
        },
        Message::OpenPart {
            term: n32(1),
            question: n32(4),
            name,
            record: b"\x02rr",
            by_client: true,
        },
        Message::MakePart {
            name,
            record: b"\x02rr",
        },
        Message::PutUnit {
            name,
            unit: n32(3),
            bytes: b"uu",
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::Open(n32(3)),
            fingerprint: None,
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::Taken(n32(3)),
            fingerprint: None,
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::Kept(n32(3)),
            fingerprint: None,
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::Kept(n32(3)),
            fingerprint: Some(&FINGERPRINT),
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::Making,
            fingerprint: None,
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::Broken,
            fingerprint: None,
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::NoRoom,
            fingerprint: None,
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::Declined,
            fingerprint: None,
        },
        Message::PartState {
            name,
            question: n32(4),
            state: PartState::Unknown,
            fingerprint: None,
        },
        Message::FreeGroups {
            groups: Groups::new(&dead),
        },
        Message::ReadGroups {
            position: Position(1),
            tenure: tenure(2),
            after: None,
        },
        Message::AliveGroups {
            term: n32(1),
            position: Position(1),
            tenure: tenure(2),
            after: Some(n(5)),
            last: n(6),
            is_end: true,
            groups: AliveGroups::new(&alive),
        },
        Message::ReadUnit {
            id: n(1),
            name,
            unit: n32(3),
        },
        Message::UnitValue {
            id: n(1),
            unit: Some((n32(2), b"uu")),
        },
        Message::UnitValue { id: n(1), unit: None },
        Message::FindParts { position: Position(1) },
        Message::FoundParts {
            position: Position(1),
            any: true,
        },
        Message::Tomorrow,
    ];
    for message in &all {
        check(message);
    }
}
