//! What the steward keeps of a file in the cache store, as JSON (`docs/formats/files.md`).

use crate::geometry::{Geometry, Layout};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest record that is read, in bytes.
pub const RECORD_BYTES_MAX: usize = 4096;
const FORMAT: u8 = 1;

/// How far the parity is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// A client is writing it.
    Filling,
    /// It is whole.
    Cached,
    /// It was evicted while somebody read it.
    Doomed,
}

/// The record of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// How far the parity is.
    pub stage: Stage,
    /// Part of the parity's keys.
    pub token: u64,
    /// Version of the file; `None` while it is under construction.
    pub version: Option<u64>,
    /// Which parity there is.
    pub geometry: Geometry,
    /// Blocks of the cache that it takes.
    pub blocks: u64,
}

/// Why bytes are not a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRecord(String);

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The JSON object.
#[derive(Serialize, Deserialize)]
struct Text {
    format: u8,
    state: Stage,
    token: String,
    version: String,
    layout: Layout,
    k: u32,
    m: u32,
    sub: u64,
    block: u64,
    length: u64,
    blocks: u64,
}

/// The 16 hex digits of a token or a version.
pub fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// The number of exactly 16 hex digits.
pub fn from_hex(text: &str) -> Option<u64> {
    let all_digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    all_digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

impl Record {
    /// The record as JSON.
    pub fn to_json(&self) -> String {
        let text = Text {
            format: FORMAT,
            state: self.stage,
            token: hex(self.token),
            version: self.version.map(hex).unwrap_or_default(),
            layout: self.geometry.layout,
            k: self.geometry.k,
            m: self.geometry.m,
            sub: self.geometry.sub_bytes,
            block: self.geometry.block_bytes,
            length: self.geometry.length,
            blocks: self.blocks,
        };
        // Numbers and strings are always written.
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If the bytes are not a record, or of another format, or a number is outside its limits.
    pub fn from_json(bytes: &[u8]) -> Result<Self, BadRecord> {
        let bad = |why: &str| BadRecord(why.to_owned());
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(BadRecord(format!(
                "{} bytes, at most {RECORD_BYTES_MAX} are allowed",
                bytes.len()
            )));
        }
        let text: Text = serde_json::from_slice(bytes).map_err(|error| BadRecord(error.to_string()))?;
        if text.format != FORMAT {
            return Err(BadRecord(format!("format {} is unknown", text.format)));
        }
        let version = match text.version.as_str() {
            "" => None,
            digits => Some(from_hex(digits).ok_or_else(|| bad("version is not 16 hex digits"))?),
        };
        let geometry = Geometry {
            layout: text.layout,
            k: text.k,
            m: text.m,
            block_bytes: text.block,
            sub_bytes: text.sub,
            length: text.length,
        };
        if !geometry.is_valid() || text.blocks == 0 {
            return Err(bad("k, m, sub, block, length or blocks is outside its limits"));
        }
        if text.state == Stage::Cached && version.is_none() {
            return Err(bad("it is cached and has no version"));
        }
        Ok(Self {
            stage: text.state,
            token: from_hex(&text.token).ok_or_else(|| bad("token is not 16 hex digits"))?,
            version,
            geometry,
            blocks: text.blocks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            stage: Stage::Cached,
            token: 0x1234_5678_9abc_def0,
            version: Some(0xff),
            geometry: Geometry {
                layout: Layout::Striped,
                k: 6,
                m: 1,
                block_bytes: 128 << 20,
                sub_bytes: 1 << 20,
                length: 5_000_000_000,
            },
            blocks: 7,
        }
    }

    /// The bytes of `docs/formats/files.md`.
    #[test]
    fn the_bytes_are_those_of_the_page() {
        let golden = concat!(
            r#"{"format":1,"state":"cached","token":"123456789abcdef0","version":"00000000000000ff","#,
            r#""layout":"striped","k":6,"m":1,"sub":1048576,"block":134217728,"length":5000000000,"blocks":7}"#,
        );
        assert_eq!(record().to_json(), golden);
        assert_eq!(Record::from_json(golden.as_bytes()), Ok(record()));
    }

    #[test]
    fn a_file_under_construction_has_no_version() {
        let filling = Record {
            stage: Stage::Filling,
            version: None,
            ..record()
        };
        assert_eq!(Record::from_json(filling.to_json().as_bytes()), Ok(filling));
        let cached = Record {
            stage: Stage::Cached,
            ..filling
        };
        assert!(Record::from_json(cached.to_json().as_bytes()).is_err());
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let text = record().to_json();
        for (from, to) in [
            ("\"format\":1", "\"format\":2"),
            ("\"k\":6", "\"k\":0"),
            ("\"k\":6", "\"k\":129"),
            ("\"block\":134217728", "\"block\":1"),
            ("\"length\":5000000000", "\"length\":0"),
            ("\"blocks\":7", "\"blocks\":0"),
            ("\"sub\":1048576", "\"sub\":-1"),
            ("123456789abcdef0", "123456789abcdef"),
            ("00000000000000ff", "00000000000000fg"),
            ("cached", "resting"),
            ("}", ""),
        ] {
            let broken = text.replacen(from, to, 1);
            assert_ne!(broken, text);
            assert!(Record::from_json(broken.as_bytes()).is_err(), "{broken}");
        }
        assert!(Record::from_json(&vec![b' '; RECORD_BYTES_MAX + 1]).is_err());
        assert!(Record::from_json(b"").is_err());
    }
}
