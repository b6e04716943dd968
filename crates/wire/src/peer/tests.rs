use super::*;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ClusterId, ConnId, Incarnation, NodeId, Stripe, Version};

fn header() -> Header {
    Header {
        stream: Stream {
            list: ListId(3),
            x: Position(2),
        },
        epoch: Epoch(9),
        sent: Time(77),
    }
}

fn tenure() -> Tenure {
    Tenure {
        node: NodeId(4),
        incarnation: Incarnation(5),
        since: Epoch(6),
    }
}

fn with_each(mut check: impl FnMut(&Message<'_>)) {
    let mut deltas = Vec::new();
    Deltas::push(&mut deltas, 1, 2, b"abc");
    Deltas::push(&mut deltas, 1, 3, b"");
    let mut stripes = Vec::new();
    Stripes::push(&mut stripes, Stripe::index_page(1));
    let mut versions = Vec::new();
    Versions::push(&mut versions, Version::new(1, 2));
    let mut leases = Vec::new();
    Leases::push(
        &mut leases,
        &LeaseEntry {
            stream: header().stream,
            epoch: Epoch(1),
            term: 2,
            stable: 3,
        },
    );
    let mut held = Vec::new();
    LeaseRecord {
        holder: tenure(),
        remaining_ns: 5,
    }
    .push(&mut held);
    let mut entries = Vec::new();
    Message::push_directory_entry(&mut entries, Stripe::data(1), Version::new(1, 1));
    let configuration = Configuration {
        list: ListId(1),
        epoch: Epoch(2),
        born: Epoch(1),
        data: 1,
        parity: 0,
        ack_quorum: 0,
        positions: vec![None],
        gone: vec![(NodeId(1), Incarnation(2))],
        lost: false,
    };
    let deltas = Deltas::new(&deltas);
    let parity = Parity {
        recv: 1,
        term: 2,
        versions: Versions::new(&versions),
        sum: 3,
        bytes: b"pp",
    };
    let hello = Hello {
        cluster: ClusterId(1),
        node: NodeId(2),
        incarnation: Incarnation(3),
        to_node: NodeId(4),
        to_incarnation: Incarnation(5),
        bulk: true,
        version_low: 1,
        version_high: 2,
        features: 6,
        session: 7,
    };
    let all = [
        Message::Hello(hello),
        Message::Delta {
            term: 1,
            seq: 2,
            acked: 3,
            stable: 4,
            extents: b"xyz",
        },
        Message::Ack {
            term: 1,
            recv: 2,
            lease_sent: Time(3),
        },
        Message::Stable {
            term: 1,
            acked: 2,
            stable: 3,
        },
        Message::Sync {
            term: 1,
            base: 1,
            top: 3,
            deltas,
        },
        Message::SyncAck { term: 1, recv: 2 },
        Message::Alloc {
            term: 1,
            as_of: 2,
            stripes: Stripes::new(&stripes),
        },
        Message::LeaseRequest {
            streams: Leases::new(&leases),
        },
        Message::Lease {
            sent: Time(1),
            streams: Leases::new(&leases),
        },
        Message::Seal,
        Message::SealReply {
            known: true,
            term: 1,
            recv: 2,
            credit_data: 3,
            credit_index: 4,
            leases: &held,
            deltas,
        },
        Message::YieldQuery { tenure: tenure() },
        Message::Yielded { tenure: tenure() },
        Message::ReadDirectory { term: 1, at_least: 2 },
        Message::Directory {
            term: 1,
            complete_for: 2,
            entries: &entries,
        },
        Message::ReadParity {
            id: 1,
            stripe: Stripe::data(2),
        },
        Message::ParityValue {
            id: 1,
            stripe: Stripe::data(2),
            parity: Some(parity),
        },
        Message::ParityValue {
            id: 1,
            stripe: Stripe::data(2),
            parity: None,
        },
        Message::ReadChunk {
            id: 1,
            stripe: Stripe::data(2),
            want: Some(Version::new(1, 2)),
        },
        Message::ReadChunk {
            id: 1,
            stripe: Stripe::data(2),
            want: None,
        },
        Message::ChunkValue {
            id: 1,
            stripe: Stripe::data(2),
            status: ChunkStatus::Here,
            version: Version::new(1, 2),
            sum: 3,
            as_of: 4,
            term: 5,
            bytes: b"cc",
        },
        Message::Hold {
            stripe: Stripe::data(2),
        },
        Message::CreditRequest {
            term: 1,
            data_end: 2,
            index_end: 3,
        },
        Message::Credit {
            term: 1,
            data_end: 2,
            index_end: 3,
            window_bytes: 4,
        },
        Message::GetConfiguration,
        Message::Stale {
            configuration: Box::new(configuration),
        },
        Message::Forward {
            conn: ConnId(1),
            n: 2,
            resp3: true,
            command: b"cmd",
        },
        Message::Reply {
            conn: ConnId(1),
            n: 2,
            bytes: b"+OK\r\n",
        },
    ];
    for message in &all {
        check(message);
    }
}

#[test]
fn every_message_comes_back_as_it_went() {
    with_each(|message| {
        let mut bytes = Vec::new();
        encode(&mut bytes, &header(), message);
        assert_eq!(split(&bytes), Ok(Some(bytes.len())));
        assert_eq!(decode(&bytes), Ok((header(), message.clone())));
    });
}

#[test]
fn a_frame_cut_short_is_waited_for_and_a_changed_one_refused() {
    with_each(|message| {
        let mut bytes = Vec::new();
        encode(&mut bytes, &header(), message);
        for cut in 0..bytes.len() {
            assert_eq!(split(&bytes[..cut]), Ok(None));
        }
        for at in COVERED_FROM..bytes.len() {
            bytes[at] ^= 0x10;
            assert_eq!(split(&bytes), Err(BadFrame::Crc), "byte {at} of {message:?}");
            bytes[at] ^= 0x10;
        }
    });
}

#[test]
fn a_body_that_does_not_fit_its_kind_is_refused_and_never_panics() {
    with_each(|message| {
        let mut bytes = Vec::new();
        encode(&mut bytes, &header(), message);
        for cut in HEADER_BYTES..bytes.len() {
            let _ = decode(&bytes[..cut]);
        }
        for at in HEADER_BYTES..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                let _ = decode(&bytes);
                bytes[at] ^= 1 << bit;
            }
        }
    });
}

#[test]
fn lengths_out_of_bounds_and_unknown_kinds_are_refused() {
    assert_eq!(split(&[0, 0, 0, 0]), Err(BadFrame::Length(0)));
    assert_eq!(split(&[0xff; 4]), Err(BadFrame::Length(u32::MAX)));
    let mut bytes = Vec::new();
    encode(&mut bytes, &header(), &Message::Seal);
    bytes[8] = 200;
    assert_eq!(decode(&bytes), Err(BadFrame::Kind(200)));
}

/// The bytes of protocol version 1. They change only together with the version.
#[test]
fn golden_bytes_of_version_1() {
    let mut bytes = Vec::new();
    encode(
        &mut bytes,
        &header(),
        &Message::Ack {
            term: 1,
            recv: 2,
            lease_sent: Time(3),
        },
    );
    let expected = [
        44, 0, 0, 0, 0, 0, 0, 0, 11, 2, 3, 0, 9, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, // header
        1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes[..4], expected[..4]);
    assert_eq!(bytes[8..], expected[8..]);
    assert_eq!(bytes[4..8], crc32c::crc32c(&expected[8..]).to_le_bytes());
}
