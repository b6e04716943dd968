//! The first bytes of a connection between processes of a cluster, on the port of peers and on that of the coordinator.
//! Their layout never changes: by them versions that do not know each other find out. `docs/formats/greeting.md`.
//!
//! ```text
//!  caller                                 called
//!    | call: a greeting                     |
//!    |------------------------------------->|
//!    |     answer: a greeting, and a proof  |
//!    |<-------------------------------------|
//!    | proof, then the first frame          |
//!    |------------------------------------->|
//! ```
//! A proof is a keyed hash over both greetings. Nobody acts on anything before it has seen the other end's proof.

mod exchange;
mod secret;

pub use exchange::{Called, Caller, Reason, Refused};
pub use secret::{Secret, SecretId, Secrets};

use core::fmt;
use paritas_base::Reader;
use paritas_base::{ClusterId, Incarnation, NodeId};

/// The first bytes of every packet. The first one is neither that of a TLS record (0x16) nor a printable one.
pub const MAGIC: [u8; 4] = [0xB7, b'P', b'R', b'T'];
/// Bytes of a packet before its body: magic, length of the whole packet, kind.
pub const PREFIX_BYTES: usize = 7;
/// Longest packet that is accepted. Longer ones than those of today are left for fields of later versions.
pub const PACKET_BYTES_MAX: usize = 2_048;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;
/// Most ends of incarnations in a greeting.
pub const ENDED_MAX: usize = 64;
/// Longest name of a build, in bytes.
pub const BUILD_BYTES_MAX: usize = 32;

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The caller's greeting.
    Call,
    /// The greeting of the called end, with its proof.
    Answer,
    /// The caller's proof.
    Proof,
    /// The called end does not take the call: why, and which versions it speaks.
    Refusal,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Call, Self::Answer, Self::Proof, Self::Refusal];

    fn number(self) -> u8 {
        match self {
            Self::Call => 1,
            Self::Answer => 2,
            Self::Proof => 3,
            Self::Refusal => 4,
        }
    }
}

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A node, to a peer or to the coordinator.
    Node,
    /// A process that starts nodes and certifies their ends, to the coordinator.
    Supervisor,
    /// An operator's command, to the coordinator.
    Operator,
    /// The coordinator.
    Coordinator,
}

impl Role {
    const ALL: [Self; 4] = [Self::Node, Self::Supervisor, Self::Operator, Self::Coordinator];

    fn number(self) -> u8 {
        match self {
            Self::Node => 1,
            Self::Supervisor => 2,
            Self::Operator => 3,
            Self::Coordinator => 4,
        }
    }
}

/// One process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// The node. 0 for what is no node.
    pub node: NodeId,
    /// Its incarnation. 0: none, or not known.
    pub incarnation: Incarnation,
}

impl Process {
    /// What is no node.
    pub const NONE: Self = Self {
        node: NodeId(0),
        incarnation: Incarnation(0),
    };
}

/// What a process says of itself and of whom it wants to reach, before anything else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// The lowest version of this port's frames that the sender speaks.
    pub low: u16,
    /// The highest one.
    pub high: u16,
    /// Feature bits. None is used yet; unknown ones are ignored.
    pub features: u64,
    /// Drawn for this greeting alone.
    pub nonce: [u8; NONCE_BYTES],
    /// The secret with which the caller proves, and the called end too.
    pub secret: SecretId,
    /// What the sender is.
    pub role: Role,
    /// The channel of a link between peers: 0 main, 1 bulk. 0 elsewhere.
    pub channel: u8,
    /// The sender's cluster, if it knows.
    pub cluster: Option<ClusterId>,
    /// The sender.
    pub from: Process,
    /// Whom the sender wants to reach. Its incarnation is 0 if any will do.
    pub to: Process,
    /// The caller's number of this connection. The called end repeats it.
    pub session: u64,
    /// The sender's version, for people: printable ASCII.
    pub build: Vec<u8>,
    /// Incarnations that the sender has certified as ended. At most [`ENDED_MAX`].
    pub ended: Vec<Process>,
}

impl Greeting {
    /// The newest version that both ends speak.
    pub fn common_version(&self, other: &Self) -> Option<u16> {
        let version = self.high.min(other.high);
        (version >= self.low.max(other.low)).then_some(version)
    }

    /// That of a caller, not proven yet.
    ///
    /// # Errors
    /// If the packet is no call.
    pub fn of_call(packet: &[u8]) -> Result<Self, BadPacket> {
        match open(packet)? {
            (Kind::Call, body) => Self::decode(&mut Reader(body)).ok_or(BadPacket::Body),
            (other, _) => Err(BadPacket::Kind(other.number())),
        }
    }

    fn encode(&self, to: &mut Vec<u8>) {
        debug_assert!(self.build.len() <= BUILD_BYTES_MAX && self.ended.len() <= ENDED_MAX);
        to.extend_from_slice(&self.low.to_le_bytes());
        to.extend_from_slice(&self.high.to_le_bytes());
        to.extend_from_slice(&self.features.to_le_bytes());
        to.extend_from_slice(&self.nonce);
        to.extend_from_slice(&self.secret.0.to_le_bytes());
        to.extend_from_slice(&[self.role.number(), self.channel]);
        to.extend_from_slice(&self.cluster.map_or(0, |cluster| cluster.0).to_le_bytes());
        for process in [self.from, self.to] {
            encode_process(to, process);
        }
        to.extend_from_slice(&self.session.to_le_bytes());
        to.push(self.build.len() as u8);
        to.extend_from_slice(&self.build);
        to.extend_from_slice(&(self.ended.len() as u16).to_le_bytes());
        for process in &self.ended {
            encode_process(to, *process);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Option<Self> {
        let (low, high, features) = (from.u16()?, from.u16()?, from.u64()?);
        let nonce = from.array()?;
        let secret = SecretId(from.u32()?);
        let number = from.u8()?;
        let role = Role::ALL.into_iter().find(|role| role.number() == number)?;
        let channel = from.u8()?;
        let cluster = Some(from.u64()?).filter(|cluster| *cluster != 0).map(ClusterId);
        let (sender, to) = (decode_process(from)?, decode_process(from)?);
        let session = from.u64()?;
        let length = usize::from(from.u8()?);
        let build = from.bytes(length)?;
        if length > BUILD_BYTES_MAX || !build.iter().all(|byte| (b' '..=b'~').contains(byte)) {
            return None;
        }
        let count = usize::from(from.u16()?);
        if count > ENDED_MAX {
            return None;
        }
        let ended = (0..count).map(|_| decode_process(from)).collect::<Option<_>>()?;
        Some(Self {
            low,
            high,
            features,
            nonce,
            secret,
            role,
            channel,
            cluster,
            from: sender,
            to,
            session,
            build: build.to_vec(),
            ended,
        })
    }
}

fn encode_process(to: &mut Vec<u8>, process: Process) {
    to.extend_from_slice(&process.node.0.to_le_bytes());
    to.extend_from_slice(&process.incarnation.0.to_le_bytes());
}

fn decode_process(from: &mut Reader<'_>) -> Option<Process> {
    let node = NodeId(from.u16()?);
    Some(Process {
        node,
        incarnation: Incarnation(from.u64()?),
    })
}

/// Why bytes are no packet of a greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPacket {
    /// They begin otherwise: it is another protocol, or a version before the greeting.
    Magic,
    /// The length is impossible.
    Length(u16),
    /// There is no such kind, or it is not this one's turn.
    Kind(u8),
    /// The body does not fit its kind.
    Body,
}

impl fmt::Display for BadPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("no greeting: the other end speaks another protocol, or an older version"),
            Self::Length(n) => write!(f, "a greeting of {n} bytes"),
            Self::Kind(n) => write!(f, "a part of a greeting of kind {n}, which is not expected here"),
            Self::Body => f.write_str("a greeting with a malformed body"),
        }
    }
}

/// The length of the first packet in `input`, in bytes. `None` while more bytes are needed; a wrong beginning is an
/// error as soon as it is there.
///
/// # Errors
/// If this is no packet: close the connection.
pub fn split(input: &[u8]) -> Result<Option<usize>, BadPacket> {
    let seen = input.len().min(MAGIC.len());
    if input[..seen] != MAGIC[..seen] {
        return Err(BadPacket::Magic);
    }
    let mut reader = Reader(&input[seen..]);
    let Some(length) = reader.u16() else {
        return Ok(None);
    };
    let bytes = usize::from(length);
    if !(PREFIX_BYTES..=PACKET_BYTES_MAX).contains(&bytes) {
        return Err(BadPacket::Length(length));
    }
    Ok((input.len() >= bytes).then_some(bytes))
}

/// Kind and body of a packet that [`split`] has found to be complete.
fn open(packet: &[u8]) -> Result<(Kind, &[u8]), BadPacket> {
    if split(packet)? != Some(packet.len()) {
        return Err(BadPacket::Body);
    }
    let number = packet[PREFIX_BYTES - 1];
    let kind = Kind::ALL.into_iter().find(|kind| kind.number() == number);
    let kind = kind.ok_or(BadPacket::Kind(number))?;
    Ok((kind, &packet[PREFIX_BYTES..]))
}

/// Makes a packet whose body `fill` writes.
fn packet(kind: Kind, extra_bytes: usize, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = MAGIC.to_vec();
    packet.extend_from_slice(&[0, 0, kind.number()]);
    fill(&mut packet);
    let length = packet.len() + extra_bytes;
    debug_assert!(length <= PACKET_BYTES_MAX);
    packet[4..6].copy_from_slice(&(length as u16).to_le_bytes());
    packet
}

#[cfg(test)]
mod tests;
