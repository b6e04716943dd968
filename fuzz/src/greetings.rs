//! What both ports of a cluster read before the other end has proven who it is. The target has no secret: whatever it
//! sends, neither end may believe it.

use crate::script::{Script, push_piece};
use paritas_base::{ClusterId, Incarnation, NodeId};
use paritas_wire::greeting::{
    Called, Caller, Greeting, MAGIC, NONCE_BYTES, PACKET_BYTES_MAX, PREFIX_BYTES, Process, Role, SecretId, Secrets,
    split,
};

fn secrets(byte: u8) -> Secrets {
    Secrets::of_file(&[byte; 64]).expect("64 bytes are a secret")
}

fn greeting(node: u16, nonce: u8) -> Greeting {
    let process = |node| Process {
        node: NodeId(node),
        incarnation: Incarnation(u64::from(node) + 1),
    };
    Greeting {
        low: 1,
        high: 2,
        features: 0,
        nonce: [nonce; NONCE_BYTES],
        secret: SecretId::NONE,
        role: Role::Node,
        channel: 0,
        cluster: Some(ClusterId(7)),
        from: process(node),
        to: process(1 - node),
        session: 5,
        build: b"0.1.0".to_vec(),
        ended: vec![process(3)],
    }
}

/// What a stranger may have seen of a greeting of others: a call, its answer, and the proof.
fn seen() -> [Vec<u8>; 3] {
    let right = secrets(b's');
    let (caller, call) = Caller::new(greeting(0, 1), &right);
    let (_, answer) = Called::on_call(&call, &right, greeting(1, 2), |_| Ok(())).expect("they know each other");
    let (_, proof) = caller.on_answer(&answer).expect("they know each other");
    [call, answer, proof]
}

/// A packet of the stranger: something that it has seen, with some bytes changed; or any bytes in a right envelope.
fn invent(script: &mut Script<'_>, seen: &[Vec<u8>]) -> Vec<u8> {
    let mut packet = match script.below(4) {
        0 => {
            let mut packet = MAGIC.to_vec();
            let body = script.piece();
            let length = (PREFIX_BYTES + body.len()).min(usize::from(u16::MAX)) as u16;
            packet.extend_from_slice(&length.to_le_bytes());
            packet.push(script.byte());
            packet.extend_from_slice(body);
            packet
        }
        at => seen[at - 1].clone(),
    };
    for _ in 0..script.below(4) {
        let at = script.below(packet.len().max(1));
        let xor = script.byte();
        if let Some(byte) = packet.get_mut(at) {
            *byte ^= xor;
        }
    }
    if script.flag() {
        packet.truncate(script.below(packet.len() + 1));
    }
    packet
}

/// Splits as a driver does, in pieces too.
fn read(bytes: &[u8]) -> Option<&[u8]> {
    let whole = split(bytes);
    for cut in 0..bytes.len().min(8) {
        if let (Err(early), Err(late)) = (split(&bytes[..cut]), whole) {
            assert_eq!(early, late, "the first bytes decide");
        }
    }
    let length = whole.ok()??;
    assert!((PREFIX_BYTES..=PACKET_BYTES_MAX).contains(&length));
    Some(&bytes[..length])
}

/// A stranger talks to both ends.
pub(crate) fn strangers(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let right = secrets(b's');
    let seen = seen();
    let mut nonce = 10;
    while !script.is_over() {
        nonce += 1;
        let first = invent(&mut script, &seen);
        let Some(packet) = read(&first) else { continue };
        if script.flag() {
            // It is called.
            let (caller, _) = Caller::new(greeting(0, nonce), &right);
            assert!(caller.on_answer(packet).is_err(), "a stranger's answer is believed");
            continue;
        }
        let answered = Called::on_call(packet, &right, greeting(1, nonce), |_| Ok(()));
        let (called, answer) = match answered {
            Ok(answered) => answered,
            Err(refused) => {
                assert!(refused.packet.is_none_or(|packet| read(&packet).is_some()));
                continue;
            }
        };
        assert_eq!(read(&answer).map(<[u8]>::len), Some(answer.len()));
        let mut known = seen.to_vec();
        // It may send back what it was sent.
        known[2] = answer;
        let second = invent(&mut script, &known);
        if let Some(packet) = read(&second) {
            assert!(called.on_proof(packet).is_err(), "a stranger's proof is believed");
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = crate::script::random(16, 64);
    for packet in seen() {
        let mut script = vec![0];
        push_piece(&mut script, &packet[PREFIX_BYTES..]);
        script.extend_from_slice(&[1, 2, 0, 0, 0]);
        seeds.push(script);
    }
    seeds
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_random_stranger_is_believed() {
        for script in crate::script::random(20_000, 256) {
            super::strangers(&script);
        }
    }
}
