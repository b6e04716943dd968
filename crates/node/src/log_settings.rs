//! Converts the disk settings of a log node into those of `paritylog`. Sizes that are inconsistent are refused before
//! anything is created.

use crate::settings::NodeSettings;
use crate::{ByteCount, Failure};
use paritas_paritylog::{Layout, PL_AREA_SHARE, Settings};
use std::str::FromStr;

/// Default bytes on disk, reserved at the first start.
const SIZE: u64 = 8 << 30;
/// Default limit of bytes that wait in memory. The next constant is the default number of bytes that starts a write.
const BUFFER: u64 = 64 << 20;
const FLUSH: u64 = 1 << 20;
/// Default space for deltas after each chunk, in chunks. One chunk of space halves the additional accesses (`paritas
/// lab run log-sizes`). More than two chunks save little and cost slots.
const RESERVE_CHUNKS: u64 = 2;
/// The area written sequentially is 1/8 of the size by default, with layouts that also have slots.
const AREA_SHARE: u64 = 8;
/// Block size in bytes that direct I/O needs.
const DIRECT_BLOCK: usize = 4096;
/// Fewest chunks of a log: some chunks are always being moved.
const CHUNKS_MIN: u64 = 64;
/// A write takes at most a quarter of the area, so that the rest can be folded meanwhile.
const WRITES_IN_AREA: u64 = 4;

/// The layout of parity on the disk, as operators write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLayout(pub Layout);

impl FromStr for LogLayout {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plm" => Ok(Self(Layout::Plm)),
            "plr" => Ok(Self(Layout::Plr)),
            "plr-m" => Ok(Self(Layout::PlrM)),
            "pl" => Ok(Self(Layout::Pl)),
            _ => Err(format!("`{text}` is not a layout of a log: use plm, plr, plr-m or pl")),
        }
    }
}

/// The settings of a log node's log; `None` for other nodes.
///
/// # Errors
/// Names the settings that are inconsistent, and what to change.
pub fn log_settings(settings: &NodeSettings, chunk_bytes: usize, data_max: usize) -> Result<Option<Settings>, Failure> {
    check_alone(settings)?;
    if settings.log_dir.is_none() {
        return Ok(None);
    }
    let bytes = |given: Option<ByteCount>, default: u64| given.map_or(default, |given| given.0);
    let (direct, chunk) = (settings.log_direct.unwrap_or(false), chunk_bytes as u64);
    let mut log = Settings {
        layout: settings.log_layout.map_or(Layout::Plm, |layout| layout.0.0),
        chunk_bytes,
        data_max,
        block_bytes: if direct { DIRECT_BLOCK } else { 1 },
        reserve_bytes: 0,
        slots_max: 0,
        log_bytes: 0,
        flush_bytes: 0,
        buffer_max_bytes: 0,
    };
    let record = log.chunk_record_bytes().next_multiple_of(log.block_bytes) as u64;
    let reserve = bytes(settings.log_reserve, RESERVE_CHUNKS * chunk);
    if reserve > chunk * WRITES_IN_AREA {
        return fail(format!(
            "log_reserve {}: after a chunk of {} at most {} can be used; lower it",
            ByteCount(reserve),
            ByteCount(chunk),
            ByteCount(chunk * WRITES_IN_AREA)
        ));
    }
    log.reserve_bytes = reserve as usize;
    // In memory, `log_flush` must be less than the buffer, and the buffer less than the node's memory.
    let memory = bytes(settings.memory, crate::process::DEFAULT_MEMORY_BYTES);
    let buffer = bytes(settings.log_buffer, BUFFER.min(memory / 8));
    if buffer > memory / 2 {
        return fail(format!(
            "log_buffer {}: more than half of the node's memory, {}; lower it, or raise memory",
            ByteCount(buffer),
            ByteCount(memory)
        ));
    }
    let flush = bytes(settings.log_flush, FLUSH.min(buffer / 4));
    if buffer < flush.saturating_mul(2).max(record * 2) {
        return fail(format!(
            "log_buffer {}: it must hold twice log_flush ({}) and two chunks of {}; raise it, or lower log_flush",
            ByteCount(buffer),
            ByteCount(flush),
            ByteCount(chunk)
        ));
    }
    if flush == 0 {
        return fail("log_flush 0: it must be at least one byte; raise it".into());
    }
    (log.flush_bytes, log.buffer_max_bytes) = (flush as usize, buffer as usize);
    share_disk(settings, log, record, flush).map(Some)
}

/// Divides the bytes on disk into slots and the area that is written sequentially.
fn share_disk(settings: &NodeSettings, mut log: Settings, record: u64, flush: u64) -> Result<Settings, Failure> {
    let block = log.block_bytes as u64;
    let size = settings.log_size.map_or(SIZE, |size| size.0);
    let asked = settings.log_area.map(|area| area.0);
    let area = match (log.layout.appends(), log.layout.has_slots()) {
        (true, true) => asked.unwrap_or(size / AREA_SHARE),
        (true, false) => size,
        (false, _) => 0,
    };
    if let Some(asked) = asked.filter(|asked| *asked != area) {
        return fail(format!(
            "log_area {}: only layout plm divides the disk; leave it out",
            ByteCount(asked)
        ));
    }
    let area = area / block * block;
    let area_min = WRITES_IN_AREA.saturating_mul(flush.max(record));
    if log.layout.appends() && area < area_min {
        return fail(format!(
            "log_area {}: at least {} are needed, four times what is written at once; raise {}, or lower log_flush",
            ByteCount(area),
            ByteCount(area_min),
            if log.layout.has_slots() {
                "log_area or log_size"
            } else {
                "log_size"
            }
        ));
    }
    let slot = log.slot_bytes() as u64;
    let needed = match log.layout.has_slots() {
        true => area.saturating_add(CHUNKS_MIN * slot),
        false => PL_AREA_SHARE * CHUNKS_MIN * record,
    };
    if size < needed {
        return fail(format!(
            "log_size {}: at least {} are needed for {CHUNKS_MIN} chunks{}; raise it",
            ByteCount(size),
            ByteCount(needed),
            if area > 0 && log.layout.has_slots() {
                " beside log_area"
            } else {
                ""
            }
        ));
    }
    if log.layout.has_slots() {
        log.slots_max = u32::try_from((size - area) / slot).unwrap_or(u32::MAX);
    }
    log.log_bytes = area;
    Ok(log)
}

/// Checks the settings that do not depend on the cluster.
pub(crate) fn check_alone(settings: &NodeSettings) -> Result<(), Failure> {
    if let Some(dir) = &settings.log_dir {
        if dir.as_os_str().is_empty() {
            return fail("log_dir is empty: name a directory, or leave it out".into());
        }
        if settings.spare == Some(true) {
            return fail(
                "spare and log_dir: a spare holds positions in memory, a log node on disk; leave one of them out. A \
                 log node beyond the planned ones serves as a spare anyway"
                    .into(),
            );
        }
        return Ok(());
    }
    let given = [
        ("log_size", settings.log_size.is_some()),
        ("log_layout", settings.log_layout.is_some()),
        ("log_buffer", settings.log_buffer.is_some()),
        ("log_flush", settings.log_flush.is_some()),
        ("log_reserve", settings.log_reserve.is_some()),
        ("log_area", settings.log_area.is_some()),
        ("log_direct", settings.log_direct.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => fail(format!(
            "{name} without log_dir: only a log node has a log; set log_dir, or leave {name} out"
        )),
        None => Ok(()),
    }
}

fn fail<T>(why: String) -> Result<T, Failure> {
    Err(Failure(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log settings of a file, with `log_dir` added.
    fn read(text: &str) -> Result<Option<Settings>, Failure> {
        let settings = NodeSettings::parse(&format!("log_dir = \"logs\"\n{text}")).unwrap();
        log_settings(&settings, 16 << 10, 4)
    }

    fn log(text: &str) -> Settings {
        read(text).unwrap().unwrap()
    }

    fn wrong(text: &str) -> String {
        read(text).unwrap_err().0
    }

    #[test]
    fn without_log_dir_a_node_is_no_log_node_and_has_no_settings_of_one() {
        let none = NodeSettings::parse("memory = \"1gb\"").unwrap();
        assert!(log_settings(&none, 16 << 10, 4).unwrap().is_none());
        for setting in [
            "log_size = \"1gb\"",
            "log_layout = \"pl\"",
            "log_buffer = 1",
            "log_flush = 1",
            "log_reserve = 1",
            "log_area = 1",
            "log_direct = true",
        ] {
            let settings = NodeSettings::parse(setting).unwrap();
            let why = log_settings(&settings, 16 << 10, 4).unwrap_err().0;
            let name = setting.split(' ').next().unwrap();
            assert!(why.starts_with(name) && why.contains("set log_dir"), "{why}");
        }
        assert!(wrong("spare = true").contains("leave one of them out"));
    }

    #[test]
    fn defaults_fit_each_other_in_every_layout_and_memory() {
        for layout in ["plm", "plr", "plr-m", "pl"] {
            for more in ["", "memory = \"32mb\"", "log_direct = true", "log_size = \"64mb\""] {
                let log = log(&format!("log_layout = \"{layout}\"\n{more}"));
                assert!(log.flush_bytes * 2 <= log.buffer_max_bytes, "{layout} {more}");
                assert_eq!(log.slots_max > 0, log.layout.has_slots());
                assert_eq!(log.log_bytes > 0, log.layout.appends());
                assert_eq!(log.log_bytes % log.block_bytes as u64, 0);
                let slots = u64::from(log.slots_max) * log.slot_bytes() as u64;
                let size = if more.contains("64mb") { 64 << 20 } else { SIZE };
                assert!(slots + log.log_bytes <= size && slots + log.log_bytes > size / 100 * 99);
            }
        }
    }

    #[test]
    fn what_is_set_is_what_the_log_gets() {
        let log = log(
            "log_size = \"1gb\"\nlog_area = \"256mb\"\nlog_buffer = \"8mb\"\nlog_flush = \"2mb\"\n\
             log_reserve = \"8kb\"\nlog_direct = true",
        );
        assert_eq!((log.layout, log.data_max, log.chunk_bytes), (Layout::Plm, 4, 16 << 10));
        assert_eq!((log.flush_bytes, log.buffer_max_bytes), (2 << 20, 8 << 20));
        assert_eq!(
            (log.log_bytes, log.reserve_bytes, log.block_bytes),
            (256 << 20, 8 << 10, 4096)
        );
        assert_eq!(u64::from(log.slots_max), (768 << 20) / log.slot_bytes() as u64);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_with_what_to_do() {
        for (text, says) in [
            ("log_buffer = \"600mb\"", "raise memory"),
            ("log_buffer = \"4mb\"\nlog_flush = \"3mb\"", "lower log_flush"),
            ("log_buffer = \"16kb\"\nlog_flush = \"1kb\"", "log_buffer 16.0 KB"),
            ("log_flush = 0", "log_flush 0"),
            ("log_reserve = \"1mb\"", "log_reserve 1.0 MB"),
            ("log_size = \"1mb\"", "raise log_area or log_size"),
            (
                "log_size = \"8mb\"\nlog_area = \"8mb\"",
                "64 chunks beside log_area; raise it",
            ),
            ("log_size = \"1mb\"\nlog_layout = \"plr\"", "log_size 1.0 MB: at least"),
            ("log_size = \"1mb\"\nlog_layout = \"pl\"", "raise log_size"),
            ("log_area = \"1mb\"\nlog_layout = \"plr\"", "only layout plm"),
            ("log_area = \"1mb\"\nlog_layout = \"pl\"", "only layout plm"),
        ] {
            let why = wrong(text);
            assert!(why.contains(says), "{text}: {why}");
        }
        let why = NodeSettings::parse("log_layout = \"plx\"").unwrap_err().1;
        assert!(why.contains("plm, plr, plr-m or pl"), "{why}");
    }
}
