//! The two ends of a greeting, as machines. They draw nothing and wait for nothing.

use super::secret::{SecretId, Secrets, is_proof, prove};
use super::{BadPacket, Greeting, Kind, PREFIX_BYTES, PROOF_BYTES, open, packet};
use core::fmt;
use paritas_base::Reader;

/// What makes the proof of one end no proof of the other.
const OF_CALLER: &[u8] = b"paritas: the caller";
const OF_CALLED: &[u8] = b"paritas: the called";

/// Why a call is not taken, or an answer not believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The bytes are no greeting.
    Bad(BadPacket),
    /// The called end has a secret, and the caller none.
    NoSecret,
    /// The called end does not have the secret that the caller names, or has none.
    OtherSecret,
    /// The proof is wrong: who sent it does not have the secret.
    Proof,
    /// No version is spoken by both ends. Lowest and highest of the other end.
    Version(u16, u16),
    /// The other end belongs to another cluster.
    Cluster,
    /// The call is meant for another process, or answered by another than was called.
    Process,
    /// This port takes no such caller, or such a one does not answer here.
    Role,
}

impl Reason {
    fn code(&self) -> u8 {
        match self {
            Self::NoSecret => 1,
            Self::OtherSecret => 2,
            Self::Version(..) => 3,
            Self::Cluster => 4,
            Self::Process => 5,
            Self::Role => 6,
            // Nothing is said to whom greets wrongly.
            Self::Bad(_) | Self::Proof => 0,
        }
    }

    fn of_code(code: u8, low: u16, high: u16) -> Self {
        match code {
            1 => Self::NoSecret,
            2 => Self::OtherSecret,
            3 => Self::Version(low, high),
            4 => Self::Cluster,
            5 => Self::Process,
            6 => Self::Role,
            // A reason of a later version.
            _ => Self::Bad(BadPacket::Body),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(bad) => bad.fmt(f),
            Self::NoSecret => f.write_str(
                "the caller gave no secret, and one is needed: name its file by `secret_file`, or by --secret-file",
            ),
            Self::OtherSecret => f.write_str(
                "the called end does not have the caller's secret: `secret_file` must have the same line at both",
            ),
            Self::Proof => f.write_str("a wrong proof: the other end does not have the secret"),
            Self::Version(low, high) => write!(
                f,
                "no version is spoken by both: the other end speaks version {low} to version {high}. Run the same \
                 version of Paritas on both"
            ),
            Self::Cluster => f.write_str("it is of another cluster"),
            Self::Process => f.write_str("the call was meant for another process"),
            Self::Role => f.write_str("no such process is taken at this port"),
        }
    }
}

impl From<BadPacket> for Reason {
    fn from(bad: BadPacket) -> Self {
        Self::Bad(bad)
    }
}

/// A call that is not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// What to send before the connection is closed. `None`: nothing.
    pub packet: Option<Vec<u8>>,
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Self {
        Self { reason, packet: None }
    }
}

/// The secret of a proof.
struct Key(Vec<u8>);

// It stands in no log.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The end that has called.
#[derive(Debug)]
pub struct Caller {
    packet: Vec<u8>,
    greeting: Greeting,
    key: Key,
}

impl Caller {
    /// Names the first of the secrets in the greeting. Returns the packet to send, too.
    pub fn new(mut greeting: Greeting, secrets: &Secrets) -> (Self, Vec<u8>) {
        greeting.secret = secrets.first();
        let key = Key(secrets.key(greeting.secret).unwrap_or_default().to_vec());
        let packet = packet(Kind::Call, 0, |to| greeting.encode(to));
        let sent = packet.clone();
        (Self { packet, greeting, key }, sent)
    }

    /// Takes the whole packet that came back. Returns the other end's greeting, and the packet to send before the first
    /// frame.
    ///
    /// # Errors
    /// If the call was refused, or the other end has not proven: close the connection.
    pub fn on_answer(self, answer: &[u8]) -> Result<(Greeting, Vec<u8>), Reason> {
        let (kind, body) = open(answer)?;
        match kind {
            Kind::Answer => {}
            Kind::Refusal => {
                let mut reader = Reader(body);
                let read = (reader.u8(), reader.u16(), reader.u16());
                let (Some(code), Some(low), Some(high)) = read else {
                    return Err(BadPacket::Body.into());
                };
                return Err(Reason::of_code(code, low, high));
            }
            Kind::Call | Kind::Proof => return Err(BadPacket::Kind(kind.number()).into()),
        }
        let Some((said, proof)) = answer.split_last_chunk::<PROOF_BYTES>() else {
            return Err(BadPacket::Body.into());
        };
        let Some(mut body) = said.get(PREFIX_BYTES..).map(Reader) else {
            return Err(BadPacket::Body.into());
        };
        let theirs = Greeting::decode(&mut body).ok_or(BadPacket::Body)?;
        let own = &self.greeting;
        if theirs.secret != own.secret {
            return Err(Reason::OtherSecret);
        }
        if !is_proof(&self.key.0, &[OF_CALLED, &self.packet, said], proof) {
            return Err(Reason::Proof);
        }
        if own.common_version(&theirs).is_none() {
            return Err(Reason::Version(theirs.low, theirs.high));
        }
        if let (Some(own), Some(theirs)) = (own.cluster, theirs.cluster)
            && own != theirs
        {
            return Err(Reason::Cluster);
        }
        if theirs.session != own.session || theirs.channel != own.channel || theirs.to != own.from {
            return Err(Reason::Process);
        }
        let proof = prove(&self.key.0, &[OF_CALLER, &self.packet, said]);
        let sent = packet(Kind::Proof, 0, |to| to.extend_from_slice(&proof));
        Ok((theirs, sent))
    }
}

/// The end that was called, between its answer and the caller's proof.
#[derive(Debug)]
pub struct Called {
    call: Vec<u8>,
    /// The answer without its proof.
    said: Vec<u8>,
    greeting: Greeting,
    key: Key,
}

impl Called {
    /// Takes the whole packet with which the caller begins. `own` is the greeting of this end; its fields that follow
    /// from the call are set here. `check` says why a port does not take a caller. Returns the packet to send, too.
    ///
    /// # Errors
    /// If the call is not taken.
    pub fn on_call(
        call: &[u8],
        secrets: &Secrets,
        mut own: Greeting,
        check: impl FnOnce(&Greeting) -> Result<(), Reason>,
    ) -> Result<(Self, Vec<u8>), Refused> {
        let greeting = Greeting::of_call(call).map_err(Reason::from)?;
        let judged = match secrets.key(greeting.secret) {
            None if greeting.secret == SecretId::NONE => Err(Reason::NoSecret),
            None => Err(Reason::OtherSecret),
            Some(_) if own.common_version(&greeting).is_none() => Err(Reason::Version(greeting.low, greeting.high)),
            Some(_) if matches!((own.cluster, greeting.cluster), (Some(own), Some(theirs)) if own != theirs) => {
                Err(Reason::Cluster)
            }
            Some(key) => check(&greeting).map(|()| Key(key.to_vec())),
        };
        let key = judged.map_err(|reason| {
            let refusal = packet(Kind::Refusal, 0, |to| {
                to.push(reason.code());
                to.extend_from_slice(&own.low.to_le_bytes());
                to.extend_from_slice(&own.high.to_le_bytes());
            });
            Refused {
                reason,
                packet: Some(refusal),
            }
        })?;
        own.secret = greeting.secret;
        own.channel = greeting.channel;
        own.session = greeting.session;
        own.to = greeting.from;
        let said = packet(Kind::Answer, PROOF_BYTES, |to| own.encode(to));
        let proof = prove(&key.0, &[OF_CALLED, call, &said]);
        let answer = [said.as_slice(), &proof].concat();
        let call = call.to_vec();
        Ok((
            Self {
                call,
                said,
                greeting,
                key,
            },
            answer,
        ))
    }

    /// Takes the whole packet that follows. Returns the greeting of the caller, who has proven it.
    ///
    /// # Errors
    /// If the caller has not: close the connection.
    pub fn on_proof(self, bytes: &[u8]) -> Result<Greeting, Reason> {
        let (kind, proof) = open(bytes)?;
        if kind != Kind::Proof {
            return Err(BadPacket::Kind(kind.number()).into());
        }
        if !is_proof(&self.key.0, &[OF_CALLER, &self.call, &self.said], proof) {
            return Err(Reason::Proof);
        }
        Ok(self.greeting)
    }
}
