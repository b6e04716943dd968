mod golden;
mod samples;

use super::*;
use samples::with_each;

fn header() -> Header {
    Header {
        stream: StreamId {
            list: ListId(3),
            x: Position(2),
        },
        epoch: Epoch(9),
        sent: Time(77),
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
    let refused = [kind::FREE_GROUPS, kind::ALIVE_GROUPS].map(|kind| Err(BadFrame::Body(kind)));
    assert_eq!(decoded(&dead, &alive), refused);
}
