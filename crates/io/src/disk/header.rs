//! The header of a log directory (`docs/formats/paritylog.md`, "The directory"): who owns the log, and the settings it
//! was made with.

use super::problem::{Difference, LogDirectoryProblem};
use paritas_base::{ClusterId, NodeId, Reader};
use paritas_paritylog::{Layout, Settings};

const MAGIC: [u8; 8] = *b"paritlog";
/// The format that this program writes. It refuses a newer one.
const FORMAT: u32 = 1;
pub(super) const HEADER_BYTES: usize = 72;

/// The owner of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node in it.
    pub node: NodeId,
}

#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) owner: Owner,
    /// A random number drawn when the directory was made.
    pub(super) log: u32,
    /// The settings. Only the sizes are stored: limits of memory may differ from start to start.
    pub(super) settings: Settings,
    pub(super) segment_bytes: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Settings {
            layout,
            chunk_bytes,
            data_max,
            block_bytes,
            reserve_bytes,
            slots_max,
            log_bytes,
            ..
        } = self.settings;
        let mut rest = Vec::with_capacity(HEADER_BYTES);
        rest.extend_from_slice(&FORMAT.to_le_bytes());
        rest.extend_from_slice(&self.owner.cluster.0.to_le_bytes());
        rest.extend_from_slice(&self.owner.node.0.to_le_bytes());
        rest.extend_from_slice(&[number_of(layout), 0]);
        for word in [
            self.log,
            chunk_bytes as u32,
            data_max as u32,
            block_bytes as u32,
            reserve_bytes as u32,
            slots_max,
            0,
        ] {
            rest.extend_from_slice(&word.to_le_bytes());
        }
        rest.extend_from_slice(&log_bytes.to_le_bytes());
        rest.extend_from_slice(&self.segment_bytes.to_le_bytes());
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&crc32c::crc32c(&rest).to_le_bytes());
        bytes.append(&mut rest);
        bytes
    }

    /// Parses a header. Settings that are not sizes are taken from `settings`.
    pub(super) fn parse(bytes: &[u8], settings: &Settings) -> Result<Self, LogDirectoryProblem> {
        let damaged = |what: &str| LogDirectoryProblem::Damaged(format!("its file header.paritas {what}"));
        let mut read = Reader(bytes);
        if read.array() != Some(MAGIC) {
            return Err(damaged("is not one of a log"));
        }
        let crc = read.u32().ok_or_else(|| damaged("is cut off"))?;
        if crc32c::crc32c(read.0) != crc {
            return Err(damaged("has changed since it was written"));
        }
        // A newer format may be longer. Its checksum is at the same offset, and covers all bytes that follow.
        let format = read.u32().ok_or_else(|| damaged("is cut off"))?;
        if format != FORMAT {
            return Err(LogDirectoryProblem::OtherFormat { format, known: FORMAT });
        }
        header(&mut read, settings).ok_or_else(|| damaged("has invalid fields"))
    }

    /// Checks that this is the log of `owner`, made with the same sizes.
    pub(super) fn check(&self, owner: Owner, settings: &Settings) -> Result<(), LogDirectoryProblem> {
        let there = self.owner;
        if there.cluster != owner.cluster {
            return Err(LogDirectoryProblem::OtherCluster {
                there: there.cluster,
                here: owner.cluster,
            });
        }
        if there.node != owner.node {
            return Err(LogDirectoryProblem::OtherNode {
                there: there.node,
                here: owner.node,
            });
        }
        let differences: Vec<Difference> = sizes(&self.settings)
            .into_iter()
            .zip(sizes(settings))
            .filter(|((_, there), (_, here))| there != here)
            .map(|((name, there), (_, here))| Difference { name, there, here })
            .collect();
        if differences.is_empty() {
            Ok(())
        } else {
            Err(LogDirectoryProblem::OtherSizes(differences))
        }
    }
}

/// The settings that must not change once the directory is made, by name.
fn sizes(settings: &Settings) -> [(&'static str, String); 7] {
    [
        ("log_layout", format!("{:?}", settings.layout)),
        ("the cluster's chunk", settings.chunk_bytes.to_string()),
        (
            "the number of the cluster's data positions",
            settings.data_max.to_string(),
        ),
        ("the block size, by log_direct,", settings.block_bytes.to_string()),
        ("log_reserve, in bytes,", settings.reserve_bytes.to_string()),
        (
            "the number of chunks, by log_size and log_area,",
            settings.slots_max.to_string(),
        ),
        (
            "the area written in a row, by log_area and log_size,",
            settings.log_bytes.to_string(),
        ),
    ]
}

fn number_of(layout: Layout) -> u8 {
    match layout {
        Layout::Pl => 0,
        Layout::Plr => 1,
        Layout::PlrM => 2,
        Layout::Plm => 3,
    }
}

/// Parses the bytes after the format number.
fn header(read: &mut Reader<'_>, others: &Settings) -> Option<Header> {
    let owner = Owner {
        cluster: ClusterId(read.u64()?),
        node: NodeId(u16::from_le_bytes(read.array()?)),
    };
    let layouts = [Layout::Pl, Layout::Plr, Layout::PlrM, Layout::Plm];
    let [layout, _] = read.array()?;
    let layout = layouts.into_iter().find(|known| number_of(*known) == layout)?;
    let log = read.u32()?;
    let mut settings = Settings {
        layout,
        chunk_bytes: read.u32()? as usize,
        data_max: read.u32()? as usize,
        block_bytes: read.u32()? as usize,
        reserve_bytes: read.u32()? as usize,
        slots_max: read.u32()?,
        ..*others
    };
    let _padding = read.u32()?;
    settings.log_bytes = read.u64()?;
    let segment_bytes = read.u64()?;
    Some(Header {
        owner,
        log,
        settings,
        segment_bytes,
    })
    .filter(|header| header.segment_bytes > 0 && read.0.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            owner: Owner {
                cluster: ClusterId(0x0102_0304_0506_0708),
                node: NodeId(0x090a),
            },
            log: 0x0b0c_0d0e,
            settings: Settings {
                layout: Layout::Plm,
                chunk_bytes: 16 << 10,
                data_max: 6,
                block_bytes: 4096,
                reserve_bytes: 32 << 10,
                slots_max: 1_000_000,
                log_bytes: 1 << 30,
                flush_bytes: 1 << 20,
                buffer_max_bytes: 64 << 20,
            },
            segment_bytes: 1 << 30,
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = header().encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = concat!(
            "70617269746c6f67", // magic
            "df9e10bb",         // sum
            "01000000",         // format
            "0807060504030201", // cluster
            "0a09",             // node
            "0300",             // layout
            "0e0d0c0b",         // log
            "00400000",         // chunk_bytes
            "06000000",         // data_max
            "00100000",         // block_bytes
            "00800000",         // reserve_bytes
            "40420f00",         // slots_max
            "00000000",
            "0000004000000000", // log_bytes
            "0000004000000000", // segment_bytes
        );
        assert_eq!(hex, golden);
        assert_eq!(bytes.len(), HEADER_BYTES);
    }

    #[test]
    fn what_was_written_comes_back_and_nothing_else_does() {
        let bytes = header().encode();
        let (owner, settings) = (header().owner, header().settings);
        let back = Header::parse(&bytes, &settings).unwrap();
        back.check(owner, &settings).unwrap();
        assert_eq!((back.log, back.segment_bytes), (header().log, header().segment_bytes));
        for cut in 0..bytes.len() {
            let found = Header::parse(&bytes[..cut], &settings);
            assert!(
                matches!(found, Err(LogDirectoryProblem::Damaged(_))),
                "cut at {cut}: {found:?}"
            );
        }
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            let found = Header::parse(&wrong, &settings);
            assert!(
                matches!(found, Err(LogDirectoryProblem::Damaged(_))),
                "changed at {at}: {found:?}"
            );
        }
    }
}
