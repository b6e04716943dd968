mod golden;
mod samples;

use super::*;
use paritas_base::{Sections, formats};
use samples::with_each;

fn header() -> Header {
    Header {
        stream: StreamId {
            list: ListId(3),
            x: Position(2),
        },
        epoch: Epoch(9),
    }
}

/// A frame from its kind on, with length and CRC before it.
fn sealed(covered: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    varint::push(&mut frame, covered.len() as u64);
    frame.extend_from_slice(&crc32c::crc32c(covered).to_le_bytes());
    frame.extend_from_slice(covered);
    frame
}

#[test]
fn a_length_of_each_size_comes_back() {
    for bytes in [0, 1, 116, 117, 118, 119, 16_000, 16_400, 2_097_100, 2_097_200] {
        let long = vec![7; bytes];
        let message = Message::Reply {
            conn: paritas_base::ConnId(1),
            n: 2,
            bytes: &long,
        };
        let mut frames = b"before".to_vec();
        encode(&mut frames, &header(), &message);
        encode(&mut frames, &header(), &Message::Seal);
        let frames = &frames[6..];
        let length = split(frames).unwrap().unwrap();
        assert_eq!(decode(&frames[..length]), Ok((header(), message)));
        assert_eq!(decode(&frames[length..]), Ok((header(), Message::Seal)));
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
        let from = bytes.len() - covered(&bytes).unwrap().0.len();
        for at in from..bytes.len() {
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
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err());
        }
        // The CRC is right again: the body alone must be refused, or mean something else.
        let mut body = covered(&bytes).unwrap().0.to_vec();
        for cut in 0..body.len() {
            let _ = decode(&sealed(&body[..cut]));
        }
        for at in 0..body.len() {
            for bit in 0..8 {
                body[at] ^= 1 << bit;
                let _ = decode(&sealed(&body));
                body[at] ^= 1 << bit;
            }
        }
    });
}

/// What fills the frame leaves no place for sections.
const ENDS_WITH_A_RUN: [Kind; 18] = [
    Kind::Delta,
    Kind::Sync,
    Kind::Alloc,
    Kind::LeaseRequest,
    Kind::Lease,
    Kind::SealReply,
    Kind::Directory,
    Kind::ParityValue,
    Kind::ChunkValue,
    Kind::Stale,
    Kind::Reply,
    Kind::Import,
    Kind::ImportBody,
    Kind::StageBytes,
    Kind::PutUnit,
    Kind::FreeGroups,
    Kind::AliveGroups,
    Kind::UnitValue,
];

#[test]
fn sections_may_follow_a_body_of_known_length_and_one_that_must_be_known_is_refused_by_name() {
    let (mut may, mut must) = (Sections::none(), Sections::none());
    may.put(7, b"later");
    // Of a forwarded command, 129 is kept for the user, 130 for places of arguments.
    must.put(129, b"\x01");
    with_each(|message| {
        let (mut bytes, kind) = (Vec::new(), message.kind());
        encode(&mut bytes, &header(), message);
        let body = covered(&bytes).unwrap().0;
        let with = |sections: &[u8]| sealed(&[body, sections].concat());
        let read = decode(&with(may.bytes())).map(|(_, read)| read == *message);
        if matches!(
            message,
            Message::Forward { database: 1.., .. }
                | Message::OpenPart { by_client: true, .. }
                | Message::PartState {
                    fingerprint: Some(_),
                    ..
                }
                | Message::Stage { class: [_, ..], .. }
        ) {
            // It has a section already, which must come last.
            return;
        }
        if !ENDS_WITH_A_RUN.contains(&kind) && kind != Kind::Hello {
            assert_eq!(read, Ok(true), "left out");
            let refused = |bad| Err(BadFrame::Section(kind, bad));
            assert_eq!(decode(&with(must.bytes())), refused(BadSections::Unknown(129)));
            assert_eq!(decode(&with(b"\x07\x05late")), refused(BadSections::Malformed));
        } else {
            // They are a part of its run, or refused with it.
            assert_ne!(read, Ok(true), "{message:?}");
        }
    });
    let told = BadFrame::Section(Kind::Forward, BadSections::Unknown(129)).to_string();
    assert!(told.contains("kind 33") && told.contains("section 129"), "{told}");
}

#[test]
fn a_configuration_with_what_must_not_be_left_out_is_refused_by_name() {
    with_each(|message| {
        let mut message = message.clone();
        let Message::Stale { configuration } = &mut message else {
            return;
        };
        for (tag, refused) in [(7, None), (200, Some(BadSections::Unknown(200)))] {
            configuration.more = Sections::none();
            configuration.more.put(tag, b"later");
            let message = Message::Stale {
                configuration: configuration.clone(),
            };
            let mut bytes = Vec::new();
            encode(&mut bytes, &header(), &message);
            let expected = refused.map_or_else(
                || Ok((header(), message)),
                |bad| Err(BadFrame::Section(Kind::Stale, bad)),
            );
            assert_eq!(decode(&bytes), expected);
        }
    });
}

#[test]
fn an_object_of_a_kind_to_come_is_refused_by_its_bits() {
    let object = ObjectRecord {
        database: 0,
        key: b"k",
        value: b"v",
        record: &[],
        expiry_ms: None,
        flags: None,
        marks: 0,
        hash_kind: false,
    };
    let mut objects = Vec::new();
    Objects::push(&mut objects, &object);
    let form = objects.len() + 2;
    Objects::push(&mut objects, &object);
    // Pieces are joined before; invisible.
    for bit in [4, 32] {
        let mut bent = objects.clone();
        bent[form] |= bit;
        let message = Message::Import {
            version: 1,
            term: 2,
            round: 3,
            n: 4,
            objects: Objects::new(&bent),
        };
        let mut bytes = Vec::new();
        encode(&mut bytes, &header(), &message);
        assert_eq!(decode(&bytes), Err(BadFrame::Object(bit)));
    }
    let told = BadFrame::Object(64).to_string();
    assert!(told.contains("kind bits 64"), "{told}");
}

#[test]
fn a_forwarded_command_has_a_database_from_1_to_16_or_none() {
    let message = Message::Forward {
        conn: paritas_base::ConnId(1),
        n: 2,
        dialect: dialect::RESP2,
        database: 0,
        command: b"*1\r\n$4\r\nPING\r\n",
    };
    let mut bytes = Vec::new();
    encode(&mut bytes, &header(), &message);
    let body = covered(&bytes).unwrap().0.to_vec();
    let with = |database: &[u8]| {
        let mut section = Sections::none();
        section.put(128, database);
        let frame = sealed(&[&body, section.bytes()].concat());
        decode(&frame).map(|(_, read)| match read {
            Message::Forward { database, .. } => database,
            other => panic!("{other:?}"),
        })
    };
    for number in 1..=16 {
        assert_eq!(with(&[number]), Ok(number));
    }
    for wrong in [&[0][..], &[17], &[255], &[], &[1, 1]] {
        assert_eq!(with(wrong), Err(BadFrame::Body(Kind::Forward)), "{wrong:?}");
    }
}

#[test]
fn a_part_has_a_fingerprint_of_256_bytes_and_is_opened_for_a_client_by_an_empty_section() {
    let name = PartName { group: 1, number: 2 };
    let state = Message::PartState {
        name,
        question: 0,
        state: paritas_base::PartState::Kept(3),
        fingerprint: None,
    };
    let open = Message::OpenPart {
        term: 1,
        question: 2,
        name,
        record: b"\x02rr",
        by_client: false,
    };
    let with = |message: &Message<'_>, section: &[u8]| {
        let mut bytes = Vec::new();
        encode(&mut bytes, &header(), message);
        let mut sections = Sections::none();
        sections.put(128, section);
        let frame = sealed(&[covered(&bytes).unwrap().0, sections.bytes()].concat());
        decode(&frame).map(|(_, read)| match read {
            Message::PartState { fingerprint, .. } => fingerprint.is_some(),
            Message::OpenPart { by_client, .. } => by_client,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(with(&state, &[7; 256]), Ok(true));
    for wrong in [0, 255, 257] {
        let bytes = vec![7; wrong];
        assert_eq!(with(&state, &bytes), Err(BadFrame::Body(Kind::PartState)), "{wrong}");
    }
    assert_eq!(with(&open, &[]), Ok(true));
    assert_eq!(with(&open, &[1]), Err(BadFrame::Body(Kind::OpenPart)));
}

#[test]
fn an_object_of_a_hand_off_has_a_database_from_1_to_16_or_none() {
    let mut object = ObjectRecord {
        database: 1,
        key: b"k",
        value: b"v",
        record: &[],
        expiry_ms: None,
        flags: None,
        marks: 0,
        hash_kind: false,
    };
    let mut objects = Vec::new();
    for database in [16, 1] {
        object.database = database;
        objects.clear();
        Objects::push(&mut objects, &object);
        assert_eq!(Objects::new(&objects).split_first().map(|(read, _)| read), Some(object));
    }
    // Behind lengths and form: no database, or a type that is not known.
    for wrong in [0x00, 0x11, 0x0e] {
        objects[3] = wrong;
        assert_eq!(Objects::new(&objects).split_first(), None, "{wrong}");
    }
}

#[test]
fn a_run_whose_last_entry_is_cut_is_refused() {
    let runs = [
        Kind::Sync,
        Kind::Alloc,
        Kind::LeaseRequest,
        Kind::Lease,
        Kind::SealReply,
        Kind::Directory,
        Kind::Import,
        Kind::FreeGroups,
        Kind::AliveGroups,
    ];
    let mut tried = 0;
    with_each(|message| {
        let mut bytes = Vec::new();
        encode(&mut bytes, &header(), message);
        let body = covered(&bytes).unwrap().0;
        let kind = message.kind();
        if runs.contains(&kind) {
            // No entry has a single byte. This one is a whole first field of most.
            for cut in [&body[..body.len() - 1], &[body, &[1]].concat()] {
                assert_eq!(decode(&sealed(cut)), Err(BadFrame::Body(kind)), "{message:?}");
            }
            tried += 1;
        }
    });
    assert_eq!(tried, runs.len());
}

#[test]
fn a_dialect_to_come_is_refused() {
    for dialect in [3, 4, 64, 65, 131] {
        let message = Message::Forward {
            database: 0,
            conn: paritas_base::ConnId(1),
            n: 2,
            dialect,
            command: b"*1\r\n$4\r\nPING\r\n",
        };
        let mut bytes = Vec::new();
        encode(&mut bytes, &header(), &message);
        assert_eq!(decode(&bytes), Err(BadFrame::Body(Kind::Forward)));
    }
}

#[test]
fn lengths_out_of_bounds_and_unknown_kinds_are_refused() {
    assert_eq!(split(&[0]), Err(BadFrame::Length(0)), "nothing after the CRC");
    assert_eq!(
        split(&[0x80, 0]),
        Err(BadFrame::Length(u32::MAX)),
        "longer than it must be"
    );
    assert_eq!(split(&[0xff; 3]), Ok(None));
    assert_eq!(split(&[0xff; 4]), Err(BadFrame::Length(u32::MAX)));
    assert_eq!(split(&[0xff, 0xff, 0xff, 0x7f]), Err(BadFrame::Length((1 << 28) - 1)));
    let mut bytes = Vec::new();
    encode(&mut bytes, &header(), &Message::Seal);
    assert_eq!(split(&bytes), Ok(Some(bytes.len())));
    let mut body = covered(&bytes).unwrap().0.to_vec();
    body[0] = 200;
    assert_eq!(decode(&sealed(&body)), Err(BadFrame::Kind(200)));
}

#[test]
fn the_section_of_tomorrow_may_be_left_out_and_its_kind_has_its_version() {
    let (mut plain, mut more) = (Vec::new(), Vec::new());
    encode(&mut plain, &header(), &Message::GetConfiguration { tomorrow: false });
    let message = Message::GetConfiguration { tomorrow: true };
    encode(&mut more, &header(), &message);
    assert_eq!(more.len(), plain.len() + 2);
    assert_eq!(decode(&more).map(|(_, read)| read), Ok(message));
    let since = |kind| Kind::new(kind).map(Kind::since);
    assert!((0..255).filter_map(since).all(|since| since == formats::LOWEST));
    assert_eq!(since(255), Some(formats::TOMORROW));
}

#[test]
fn a_frame_with_more_groups_of_parts_than_its_limit_is_refused() {
    let (mut dead, mut alive) = (Vec::new(), Vec::new());
    (0..Groups::COUNT_MAX as u64).for_each(|group| Groups::push(&mut dead, group));
    (0..AliveGroups::COUNT_MAX as u64).for_each(|group| AliveGroups::push(&mut alive, group, false, b"\x01r"));
    let decoded = |dead: &[u8], alive: &[u8]| {
        let mut results = Vec::new();
        with_each(|message| {
            let mut message = message.clone();
            match &mut message {
                Message::FreeGroups { groups } => *groups = Groups::new(dead),
                Message::AliveGroups { groups, .. } => *groups = AliveGroups::new(alive),
                _ => return,
            }
            let mut bytes = Vec::new();
            encode(&mut bytes, &header(), &message);
            results.push(decode(&bytes).map(|_| ()));
        });
        results
    };
    assert_eq!(decoded(&dead, &alive), [Ok(()); 2]);
    Groups::push(&mut dead, 1);
    AliveGroups::push(&mut alive, 1, false, b"\x01r");
    let refused = [Kind::FreeGroups, Kind::AliveGroups].map(|kind| Err(BadFrame::Body(kind)));
    assert_eq!(decoded(&dead, &alive), refused);
}
