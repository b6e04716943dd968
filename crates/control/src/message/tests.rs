use super::*;
use crate::status::{FillStatus, HaltedRole, LogStatus, ScrubStatus};
use paritas_base::Prng;

fn register() -> ToCoordinator {
    ToCoordinator::Register(Box::new(Registration {
        cluster: Some(ClusterId(7)),
        node: NodeId(3),
        incarnation: Incarnation(0x1122),
        domain: None,
        role: NodeRole::Member,
        pid: 42,
        supervised: true,
        client_address: "h:1".into(),
        cluster_address: "h:2".into(),
        peer_address: "h:3".into(),
        coordinators: 1,
        installed: vec![(ListId(1), Epoch(5), 300)],
        heard: vec![(ListId(1), Epoch(6), 301)],
        incarnations: vec![(NodeId(3), Incarnation(9), 300)],
        more: Default::default(),
    }))
}

#[test]
fn golden_bytes_of_this_version() {
    let shard = ShardProgress {
        shard: 1,
        turns: 2,
        objects: 3,
        user_bytes: 4,
        memory_bytes: 5,
        by_kind: vec![("k".into(), 6)],
        rebuild_done_bytes: 7,
        rebuild_total_bytes: 8,
        scrub: ScrubStatus {
            checked_chunks: 11,
            bad_chunks: 12,
            repaired_chunks: 13,
        },
        halted: vec![HaltedRole::new(ListId(9), Position(10), "r".into())],
        ack_us: vec![(NodeId(14), 15)],
        fill: FillStatus {
            limit_bytes: 18,
            used_bytes: 19,
            writable_bytes: 20,
            refused_writes: 21,
            evicted_keys: 22,
        },
        log: Some(LogStatus {
            chunks: 16,
            chunks_max: 17,
        }),
    };
    let cases: [(ToCoordinator, &[u8]); 4] = [
        (
            register(),
            &[
                40, 0, 0, 0, 34, 121, 236, 152, 8, 0, 1, 7, 3, 162, 34, 0, 0, 42, 1, 3, 104, 58, 49, 3, 104, 58, 50, 3,
                104, 58, 51, 1, 1, 1, 5, 172, 2, 1, 1, 6, 173, 2, 1, 3, 9, 172, 2, 0,
            ],
        ),
        (
            ToCoordinator::Heartbeat {
                nonce: 300,
                shards: vec![],
                silent: vec![(NodeId(2), Incarnation(9))],
                opinions: None,
            },
            &[9, 0, 0, 0, 97, 81, 66, 174, 8, 1, 172, 2, 0, 1, 2, 9, 0],
        ),
        (
            ToCoordinator::Heartbeat {
                nonce: 300,
                shards: vec![shard],
                silent: vec![],
                opinions: None,
            },
            &[
                37, 0, 0, 0, 245, 176, 65, 111, 8, 1, 172, 2, 1, 1, 2, 3, 4, 5, 1, 1, 107, 6, 7, 8, 11, 12, 13, 1, 9,
                10, 1, 114, 1, 14, 15, 18, 19, 20, 21, 22, 1, 16, 17, 0, 0,
            ],
        ),
        (
            ToCoordinator::Exited {
                node: NodeId(1),
                incarnation: Incarnation(2),
            },
            &[4, 0, 0, 0, 182, 54, 11, 157, 8, 6, 1, 2],
        ),
    ];
    for (message, golden) in cases {
        let frame = encode(&message, TO_COORDINATOR_BYTES_MAX).unwrap();
        assert_eq!(
            decode::<ToCoordinator>(&frame, TO_COORDINATOR_BYTES_MAX).unwrap(),
            message
        );
        assert_eq!(frame, golden, "{message:?}");
    }
}

#[test]
fn a_frame_is_split_only_when_whole() {
    let frame = encode(&register(), TO_COORDINATOR_BYTES_MAX).unwrap();
    for cut in 0..frame.len() {
        assert_eq!(split(&frame[..cut], TO_COORDINATOR_BYTES_MAX), Ok(None));
    }
    let two = [frame.clone(), frame.clone()].concat();
    assert_eq!(split(&two, TO_COORDINATOR_BYTES_MAX), Ok(Some(frame.len())));
}

#[test]
fn lengths_that_no_frame_has_are_errors() {
    assert!(matches!(split(&[0, 0, 0, 0], 100), Err(MessageError::Length(_))));
    assert!(matches!(
        split(&[255, 255, 255, 255], 100),
        Err(MessageError::Length(_))
    ));
    assert!(matches!(encode(&register(), 20), Err(MessageError::Length(_))));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let frame = encode(&register(), TO_COORDINATOR_BYTES_MAX).unwrap();
    for bit in 0..frame.len() * 8 {
        let mut bad = frame.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(
            decode::<ToCoordinator>(&bad, TO_COORDINATOR_BYTES_MAX).is_err(),
            "bit {bit}"
        );
    }
}

#[test]
fn another_version_is_named() {
    let mut frame = encode(&register(), TO_COORDINATOR_BYTES_MAX).unwrap();
    frame[8] = 1;
    let crc = crc32c::crc32c(&frame[8..]);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(
        decode::<ToCoordinator>(&frame, TO_COORDINATOR_BYTES_MAX),
        Err(MessageError::Version(1))
    );
}

#[test]
fn no_bytes_with_a_good_checksum_panic() {
    let seed = 0x636f_6e74;
    let mut prng = Prng::new(seed);
    for round in 0..20_000 {
        let count = prng.between(1, 60) as usize;
        let mut frame = vec![0; 8];
        frame.push(MESSAGE_VERSION);
        frame.extend((1..count).map(|_| prng.next_u64() as u8));
        let crc = crc32c::crc32c(&frame[8..]);
        frame[..4].copy_from_slice(&(count as u32).to_le_bytes());
        frame[4..8].copy_from_slice(&crc.to_le_bytes());
        if let Ok(message) = decode::<ToCoordinator>(&frame, TO_COORDINATOR_BYTES_MAX) {
            encode(&message, TO_COORDINATOR_BYTES_MAX)
                .unwrap_or_else(|e| panic!("seed {seed:x} round {round}: {message:?}: {e}"));
        }
        let _ = decode::<ToAgent>(&frame, TO_AGENT_BYTES_MAX);
    }
}

#[test]
fn what_a_later_version_has_added_is_left_out_and_what_must_be_known_is_refused_by_name() {
    let (mut may, mut must) = (Sections::none(), Sections::none());
    may.put(3, b"later");
    must.put(200, b"later");
    let read = |message: &ToCoordinator, after: &[u8]| {
        let mut body = vec![MESSAGE_VERSION];
        body.extend(postcard::to_allocvec(message).unwrap());
        body.extend_from_slice(after);
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend(crc32c::crc32c(&body).to_le_bytes());
        frame.extend(body);
        decode::<ToCoordinator>(&frame, TO_COORDINATOR_BYTES_MAX)
    };
    let message = register();
    assert_eq!(read(&message, may.bytes()), Ok(message.clone()));
    let refused = Err(MessageError::Section(BadSections::Unknown(200)));
    assert_eq!(read(&message, must.bytes()), refused);
    assert_eq!(read(&message, &[7]), Err(MessageError::Section(BadSections::Malformed)));
    // In the registration itself: kept, and told to all with the node's record.
    let with = |more: &Sections| match register() {
        ToCoordinator::Register(registration) => ToCoordinator::Register(Box::new(Registration {
            more: more.clone(),
            ..*registration
        })),
        other => other,
    };
    assert_eq!(read(&with(&may), &[]), Ok(with(&may)));
    assert_eq!(read(&with(&must), &[]), refused);
    let ToCoordinator::Register(registration) = with(&may) else {
        panic!("a registration")
    };
    let node = crate::coordinator::first_record(&registration, "a".into());
    assert_eq!(node.record.more, may);
    let told = MessageError::Section(BadSections::Unknown(200)).to_string();
    assert!(told.contains("section 200"), "{told}");
}
