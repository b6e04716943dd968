//! What the processes of a cluster share, so that they know each other.

use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A short name of a secret, by which the called end finds it. It is made of the secret, and does not tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecretId(pub u32);

impl SecretId {
    /// That of a process without a secret.
    pub const NONE: Self = Self(0);
}

/// A secret: one line of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key: Vec<u8>,
    id: SecretId,
}

impl Secret {
    /// Shortest secret, in bytes. Whoever calls a port gets a hash to try guesses on, so none may be guessable.
    pub const BYTES_MIN: usize = 32;
    /// Longest secret, in bytes.
    pub const BYTES_MAX: usize = 512;

    fn new(line: &[u8]) -> Self {
        let [a, b, c, d, ..] = hash(line, &[b"paritas: the id of a secret"]);
        // 0 means that there is no secret.
        let id = SecretId(u32::from_le_bytes([a, b, c, d]).max(1));
        Self { key: line.to_vec(), id }
    }

    /// Its short name.
    pub fn id(&self) -> SecretId {
        self.id
    }
}

// It stands in no log.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The secrets of a process: none, one, or two while they are being changed. It proves with the first and accepts
/// both.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Secrets {
    all: Vec<Secret>,
}

impl Secrets {
    /// Most secrets.
    pub const COUNT_MAX: usize = 2;
    /// Longest file of secrets that is read, in bytes.
    pub const FILE_BYTES_MAX: usize = Self::COUNT_MAX * (Secret::BYTES_MAX + 2);

    /// The lines of a file.
    ///
    /// # Errors
    /// If a line is too short or too long, or there are too many; the text says what is wrong, and never the secret.
    pub fn of_file(text: &[u8]) -> Result<Self, String> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let lines: Vec<&[u8]> = text
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .collect();
        if lines.len() > Self::COUNT_MAX {
            return Err("it must have one line, with the secret, or two while the secret is being changed".into());
        }
        for (line, number) in lines.iter().zip(1..) {
            if line.len() < Secret::BYTES_MIN || line.len() > Secret::BYTES_MAX {
                let (min, max) = (Secret::BYTES_MIN, Secret::BYTES_MAX);
                return Err(format!(
                    "line {number} has {} bytes, and a secret has {min} to {max}: `openssl rand -hex 32` makes one, \
                     and so does `paritas coordinator --create`",
                    line.len()
                ));
            }
        }
        let all = lines.into_iter().map(Secret::new).collect();
        Ok(Self { all })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The name of the secret with which to call.
    pub fn first(&self) -> SecretId {
        self.all.first().map_or(SecretId::NONE, Secret::id)
    }

    /// The key with this name. A process without secrets has an empty one, with the name 0.
    pub(super) fn key(&self, id: SecretId) -> Option<&[u8]> {
        if self.is_empty() && id == SecretId::NONE {
            return Some(&[]);
        }
        self.all
            .iter()
            .find(|secret| secret.id == id)
            .map(|secret| secret.key.as_slice())
    }
}

/// HMAC-SHA256 of the parts, one after the other.
fn hash(key: &[u8], parts: &[&[u8]]) -> [u8; super::PROOF_BYTES] {
    mac(key, parts).finalize().into_bytes().into()
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| unreachable!());
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// Makes a proof.
pub(super) fn prove(key: &[u8], parts: &[&[u8]]) -> [u8; super::PROOF_BYTES] {
    hash(key, parts)
}

/// Whether a proof is right; in a time that does not depend on how much of it is.
pub(super) fn is_proof(key: &[u8], parts: &[&[u8]], proof: &[u8]) -> bool {
    mac(key, parts).verify_slice(proof).is_ok()
}
