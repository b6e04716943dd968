use super::*;
use crate::greeting::{Called, Caller, Reason, Secrets};

const RIGHT: &[u8] = b"0123456789abcdef0123456789abcdef";
const NEXT: &[u8] = b"fedcba9876543210fedcba9876543210";

fn secrets(lines: &[&[u8]]) -> Secrets {
    Secrets::of_file(&lines.join(&b'\n')).unwrap()
}

fn greeting(node: u16, nonce: u8) -> Greeting {
    Greeting {
        low: 4,
        high: 7,
        features: 0,
        nonce: [nonce; NONCE_BYTES],
        secret: SecretId::NONE,
        role: Role::Node,
        channel: 1,
        cluster: Some(ClusterId(0x0102_0304_0506_0708)),
        from: Process {
            node: NodeId(node),
            incarnation: Incarnation(100 + u64::from(node)),
        },
        to: Process {
            node: NodeId(9 - node),
            incarnation: Incarnation(0),
        },
        session: 77,
        build: b"0.1.0".to_vec(),
        ended: vec![Process {
            node: NodeId(3),
            incarnation: Incarnation(33),
        }],
    }
}

/// What each end learns.
type Learnt = (Result<Greeting, Reason>, Result<Greeting, Reason>);

fn meet(caller: (Greeting, &Secrets), called: (Greeting, &Secrets)) -> Learnt {
    let (calls, call) = Caller::new(caller.0, caller.1);
    match Called::on_call(&call, called.1, called.0, |_| Ok(())) {
        Ok((waits, answer)) => match calls.on_answer(&answer) {
            Ok((theirs, proof)) => (Ok(theirs), waits.on_proof(&proof)),
            Err(reason) => (Err(reason.clone()), Err(reason)),
        },
        Err(Refused { reason, packet }) => {
            let heard = packet.map_or_else(
                || Err(reason.clone()),
                |refusal| calls.on_answer(&refusal).map(|(theirs, _)| theirs),
            );
            (heard, Err(reason))
        }
    }
}

#[test]
fn two_ends_with_one_secret_know_each_other() {
    let (old, both, none) = (secrets(&[RIGHT]), secrets(&[NEXT, RIGHT]), Secrets::default());
    for (here, there) in [(&old, &old), (&old, &both), (&none, &none)] {
        let (theirs, ours) = meet((greeting(1, 1), here), (greeting(8, 2), there));
        let (theirs, ours) = (theirs.unwrap(), ours.unwrap());
        assert_eq!((theirs.from.node, ours.from.node), (NodeId(8), NodeId(1)));
        assert_eq!((theirs.session, theirs.channel), (77, 1));
        assert_eq!(ours.ended, greeting(1, 1).ended);
        assert_eq!(ours.secret, here.first());
    }
}

#[test]
fn what_does_not_fit_is_refused_and_both_ends_say_why() {
    let (right, other, none) = (secrets(&[RIGHT]), secrets(&[NEXT]), Secrets::default());
    let cases = [
        (greeting(1, 1), &other, &right, Reason::OtherSecret),
        (greeting(1, 1), &none, &right, Reason::NoSecret),
        (greeting(1, 1), &right, &none, Reason::OtherSecret),
        (
            Greeting {
                cluster: Some(ClusterId(5)),
                ..greeting(1, 1)
            },
            &right,
            &right,
            Reason::Cluster,
        ),
    ];
    for (greeted, here, there, why) in cases {
        let (heard, said) = meet((greeted, here), (greeting(8, 2), there));
        assert_eq!((heard, said), (Err(why.clone()), Err(why)));
    }
    let newer = Greeting {
        low: 8,
        high: 9,
        ..greeting(1, 1)
    };
    let (heard, said) = meet((newer, &right), (greeting(8, 2), &right));
    assert_eq!(
        (heard, said),
        (Err(Reason::Version(4, 7)), Err(Reason::Version(8, 9))),
        "each end names the versions of the other"
    );
}

#[test]
fn only_what_was_made_for_this_greeting_proves_anything() {
    let right = secrets(&[RIGHT]);
    let (calls, call) = Caller::new(greeting(1, 1), &right);
    let (waits, answer) = Called::on_call(&call, &right, greeting(8, 2), |_| Ok(())).unwrap();
    let (_, proof) = calls.on_answer(&answer).unwrap();
    // The same call once more, to a process that has drawn another nonce.
    let (again, fresh) = Called::on_call(&call, &right, greeting(8, 3), |_| Ok(())).unwrap();
    assert_eq!(again.on_proof(&proof), Err(Reason::Proof), "a replayed proof");
    // What the called end has sent, sent back to it.
    let mut mirrored = packet(Kind::Proof, 0, |to| {
        to.extend_from_slice(&answer[answer.len() - PROOF_BYTES..]);
    });
    let (again, _) = Called::on_call(&call, &right, greeting(8, 2), |_| Ok(())).unwrap();
    assert_eq!(again.on_proof(&mirrored), Err(Reason::Proof), "the answer's own proof");
    mirrored.pop();
    let (again, _) = Called::on_call(&call, &right, greeting(8, 2), |_| Ok(())).unwrap();
    assert_eq!(again.on_proof(&mirrored), Err(Reason::Bad(BadPacket::Body)));
    let (calls, _) = Caller::new(greeting(1, 4), &right);
    assert_eq!(
        calls.on_answer(&fresh).unwrap_err(),
        Reason::Proof,
        "an answer to another call"
    );
    assert!(waits.on_proof(&proof).is_ok());
}

#[test]
fn a_changed_bit_anywhere_is_noticed() {
    let right = secrets(&[RIGHT]);
    let (_, call) = Caller::new(greeting(1, 1), &right);
    for at in 0..call.len() * 8 {
        let mut changed = call.clone();
        changed[at / 8] ^= 1 << (at % 8);
        let (calls, _) = Caller::new(greeting(1, 1), &right);
        if let Ok((_, answer)) = Called::on_call(&changed, &right, greeting(8, 2), |_| Ok(())) {
            assert!(calls.on_answer(&answer).is_err(), "bit {at} of the call");
        }
    }
    let (_, answer) = Called::on_call(&call, &right, greeting(8, 2), |_| Ok(())).unwrap();
    for at in 0..answer.len() * 8 {
        let mut changed = answer.clone();
        changed[at / 8] ^= 1 << (at % 8);
        let (calls, _) = Caller::new(greeting(1, 1), &right);
        assert!(calls.on_answer(&changed).is_err(), "bit {at} of the answer");
    }
}

#[test]
fn packets_are_found_in_any_pieces_and_wrong_ones_at_once() {
    let (_, call) = Caller::new(greeting(1, 1), &Secrets::default());
    for cut in 0..call.len() {
        assert_eq!(split(&call[..cut]), Ok(None), "{cut} bytes");
    }
    let long = [call.as_slice(), b"more"].concat();
    assert_eq!(split(&long), Ok(Some(call.len())));
    assert_eq!(split(b"\x16"), Err(BadPacket::Magic), "a TLS record");
    assert_eq!(split(b"PING\r\n"), Err(BadPacket::Magic));
    for length in [0_u16, 6, 2_049, u16::MAX] {
        let mut wrong = call.clone();
        wrong[4..6].copy_from_slice(&length.to_le_bytes());
        assert_eq!(split(&wrong), Err(BadPacket::Length(length)));
    }
}

#[test]
fn fields_of_a_later_version_are_covered_and_passed_over() {
    let right = secrets(&[RIGHT]);
    let (_, mut call) = Caller::new(greeting(1, 1), &right);
    // The caller of a later version appends a field.
    call.extend_from_slice(b"later");
    let length = call.len() as u16;
    call[4..6].copy_from_slice(&length.to_le_bytes());
    let mut sessions = Vec::new();
    let check = |greeting: &Greeting| {
        sessions.push(greeting.session);
        Ok(())
    };
    let (_, answer) = Called::on_call(&call, &right, greeting(8, 2), check).unwrap();
    assert_eq!(sessions, [77]);
    assert!(answer.starts_with(&MAGIC));
}

#[test]
fn a_greeting_is_as_docs_formats_greeting_shows_it() {
    let text = include_str!("../../../../docs/formats/greeting.md");
    let (_, call) = Caller::new(greeting(1, 0xAA), &secrets(&[RIGHT]));
    let (_, answer) = Called::on_call(&call, &secrets(&[RIGHT]), greeting(8, 0xBB), |_| Ok(())).unwrap();
    let (calls, _) = Caller::new(greeting(1, 0xAA), &secrets(&[RIGHT]));
    let (_, proof) = calls.on_answer(&answer).unwrap();
    for (name, packet) in [("call", &call), ("answer", &answer), ("proof", &proof)] {
        let hex: Vec<String> = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        let lines: Vec<String> = hex.chunks(32).map(|bytes| format!("    {}", bytes.concat())).collect();
        let shown = lines.join("\n");
        assert!(text.contains(&shown), "the bytes of the {name} have changed:\n{shown}");
    }
}

#[test]
fn a_file_has_one_secret_or_two_and_none_that_can_be_guessed() {
    let text = [RIGHT, b"\r\n", NEXT, b"\n"].concat();
    let both = Secrets::of_file(&text).unwrap();
    assert_eq!(both.first(), secrets(&[RIGHT]).first());
    assert!(both.key(secrets(&[NEXT]).first()).is_some() && both.key(SecretId::NONE).is_none());
    let long = vec![b'x'; 513];
    let wrong: [&[u8]; 6] = [
        b"",
        b"\n",
        b"short\n",
        &long,
        &[RIGHT, b"\n\n"].concat(),
        &[RIGHT, b"\n", NEXT, b"\n", RIGHT].concat(),
    ];
    for text in wrong {
        let why = Secrets::of_file(text).unwrap_err();
        assert!(why.contains("line") && !why.contains("short"), "{why}");
    }
    assert_eq!(format!("{both:?}"), "Secrets { all: [Secret, Secret] }");
}
