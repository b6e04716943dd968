//! Times, limits and rates of a node (P5b).

use crate::rules::Rules;
use core::fmt;
use core::str::FromStr;
use paritas_base::{Span, formats};
use paritas_code::Scheme;
use paritas_large::{Class, ClassRules, Hotness, HotnessSetting, Placement};
use paritas_store::{Limits, Policy, VALUE_BYTES_MAX};
use paritas_wire::peer::FRAME_BYTES_MAX;

/// Limits on what clients can make a shard hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// The most client connections.
    pub clients_max: usize,
    /// The most bytes of an incomplete command, and of commands that wait because their client does not read its
    /// replies. A connection whose command exceeds it is closed.
    pub query_bytes_max: usize,
    /// The most unwritten reply bytes of a client. A connection that exceeds it is closed.
    pub reply_bytes_max: usize,
    /// The most bytes for all clients together. Beyond it, the clients that use most are disconnected (P8.3).
    pub bytes_max: usize,
    /// The client that uses most stays if it uses no more than this, and all others together no more than `bytes_max`:
    /// one client can always write or read a value of the greatest length.
    pub alone_bytes: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            clients_max: 10_000,
            query_bytes_max: 64 << 20,
            reply_bytes_max: 256 << 20,
            bytes_max: usize::MAX,
            alone_bytes: 0,
        }
    }
}

/// What lets an owner answer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reads {
    /// Leases from its members (P4.2). A read sends nothing, and clocks must run at rates within 1 % of each other.
    #[default]
    Leases,
    /// One round trip to a quorum of members for the reads of a turn (P4.6). Nothing is assumed of clocks.
    Confirmed,
}

impl Reads {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leases => "leases",
            Self::Confirmed => "confirmed",
        }
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Reads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Leases, Self::Confirmed];
        let found = all.into_iter().find(|reads| reads.name() == text);
        found.ok_or_else(|| format!("{text:?} is neither leases nor confirmed"))
    }
}

/// Which keys a client's transaction may have (P1.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transactions {
    /// Any: the commands of each hash slot are a transaction of their own.
    #[default]
    BySlot,
    /// Those of one hash slot.
    Strict,
}

impl Transactions {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::BySlot => "by-slot",
            Self::Strict => "strict",
        }
    }
}

impl fmt::Display for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transactions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::BySlot, Self::Strict];
        let found = all.into_iter().find(|transactions| transactions.name() == text);
        found.ok_or_else(|| format!("{text:?} is neither by-slot nor strict"))
    }
}

/// Whether clients may read parts of large values themselves (P14.17), and write them (P14.18).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientCoding {
    /// They may not.
    Off,
    /// They may read.
    #[default]
    Read,
    /// They may read and write.
    On,
}

impl ClientCoding {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Off, Self::Read, Self::On];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Read => "read",
            Self::On => "on",
        }
    }
}

impl fmt::Display for ClientCoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ClientCoding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|coding| coding.name() == text);
        found.ok_or_else(|| format!("{text:?} is none of off, read and on"))
    }
}

/// Whether a background rebuild uses parities of log nodes in place of chunks or parities in memory, where the latter
/// would be enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogAssist {
    /// Log nodes are asked as often as other nodes.
    On,
    /// Log nodes are asked only if memory does not have enough.
    Off,
    /// Nodes are asked that are likely to answer first, by measured times.
    #[default]
    Auto,
}

impl LogAssist {
    /// All values.
    pub const ALL: [Self; 3] = [Self::On, Self::Off, Self::Auto];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for LogAssist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LogAssist {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|assist| assist.name() == text);
        found.ok_or_else(|| format!("{text:?} is neither on, off nor auto"))
    }
}

/// Checks that the classes of hot and cold values fit the scheme of the cluster.
pub fn check_hotness(scheme: Scheme, setting: HotnessSetting) -> Result<(), String> {
    let positions = scheme.width() - scheme.logged();
    let classes = setting.0.into_iter().flat_map(|hotness| [hotness.hot, hotness.cold]);
    let mut placed = classes.map(|class| Placement::new(class, 0, positions, 0));
    let wrong = placed.find_map(Result::err);
    wrong.map_or(Ok(()), |error| Err(error.to_string()))
}

/// Checks that the classes of rules fit the scheme of the cluster. An error says which does not, and why.
pub fn check_class_rules(scheme: Scheme, rules: &ClassRules) -> Result<(), String> {
    let positions = scheme.width() - scheme.logged();
    let logged = scheme.logged();
    let mut placed = rules.classes().map(|class| Placement::new(class, 0, positions, logged));
    placed
        .find_map(Result::err)
        .map_or(Ok(()), |error| Err(error.to_string()))
}

/// Checks that values above `bytes` bytes can be large. An error says which number would do, and why.
pub fn check_large_from(scheme: Scheme, chunk_bytes: u32, bytes: u64) -> Result<(), String> {
    let most = Limits::of(chunk_bytes as usize).value_bytes as u64;
    let whole = u64::from(scheme.data()) * u64::from(chunk_bytes);
    if bytes > most {
        return Err(format!(
            "{bytes} bytes do not fit one object: at most {most} are possible"
        ));
    }
    match bytes >= whole.min(most) {
        true => Ok(()),
        false => Err(format!(
            "at least {} are needed, not {bytes}: a large value should have a whole chunk of {chunk_bytes} bytes for \
             each of {} data blocks. With fewer blocks it would take more memory than in stripes",
            whole.min(most),
            scheme.data()
        )),
    }
}

/// The parameters of a node. Defaults are those of production; the simulator draws its own.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// How long a lease lasts for its holder (L). The grantor keeps it a tenth longer.
    pub lease: Span,
    /// What an owner needs to answer reads.
    pub reads: Reads,
    /// The time between lease requests when no deltas are sent.
    pub lease_renewal: Span,
    /// The first wait before an unanswered message is sent again. Links are TCP: in production frames are lost only
    /// when a link ends, and both sides notice that at once.
    pub resend: Span,
    /// The wait before a question is repeated that a peer could not answer yet.
    pub retry: Span,
    /// The longest wait before an unanswered message is sent again.
    pub resend_max: Span,
    /// How long `stable` waits for a delta that carries it, before it is sent in a message of its own.
    pub stable_flush: Span,
    /// A peer whose ack is overdue by more than this is reported.
    pub silence_report: Span,
    /// The longest time for which an owner begins no write after a successor asked it to hold (P5.8).
    pub hold_max: Span,
    /// How long an owner begins no write after it was last asked to drain (P5.12).
    pub drain_max: Span,
    /// Data chunks of a stream that a stand-in keeps while there is memory (P5.10): all keys of a line of the index, or
    /// the two longest values, must be resident at the same time. For these it may use the headroom, which writers may
    /// not.
    pub kept_chunks: u32,
    /// Mismatches after which a hold is asked for.
    pub mismatches_before_hold: u32,
    /// The most chunks under way in the background. For the node as a whole, only chunks at their first try count. For
    /// a single role, chunks that were asked for again count too.
    pub fetch_max: usize,
    /// The most bytes a second that a node rebuilds in the background; `None`: limited only by the load of clients.
    pub rebuild_rate: Option<u64>,
    /// Whether log nodes help with rebuilds. Clients can change it while the node runs.
    pub log_assist: LogAssist,
    /// Values of more bytes than this are large, and those that do not fit one object. Clients can change it while the
    /// node runs.
    pub large_from: usize,
    /// The classes of new large values.
    pub class_rules: ClassRules,
    /// The classes of values that are read often, and of the others; `None`: classes do not depend on reads.
    pub hotness: Option<Hotness>,
    /// A value of this length in bytes, or a longer one, is never held whole: it is read and written in pieces.
    pub streamed_bytes_min: u64,
    /// The longest reply to an MGET that is made whole. A longer one is read value by value (P14.16). It fits a frame.
    pub mget_bytes_max: usize,
    /// The longest data in bytes that a client of memcached stores.
    pub item_bytes_max: usize,
    /// About the length in bytes of a piece in which a long value is read or written. Of a value that comes ahead of
    /// its command (P14.13), twice this number of bytes may be on the way to its owner.
    pub piece_bytes: u64,
    /// Bytes of chunks that a node checks in a second (P9.2); `None`: it checks none.
    pub scrub_rate: Option<u64>,
    /// The pause between two passes of these checks over all chunks.
    pub scrub_pause: Span,
    /// The time between two inventories that a holder asks for, of a stream of which it has parts (P14.6).
    pub inventory: Span,
    /// Which keys are evicted when memory is full. Clients can change it while the node runs.
    pub policy: Policy,
    /// Limits of the memory that clients may use in the driver. Clients can change it while the node runs.
    pub client_limits: ClientLimits,
    /// Stripes for which credit is asked for at a time (P8.2).
    pub credit_batch: u32,
    /// Keys that one step of a walk over all keys looks at, in each stream (P10.2b).
    pub walk_keys: u32,
    /// Steps of work in a turn for commands whose work is not bounded by their size (P10.2b).
    pub turn_steps: u64,
    /// Which keys a transaction may have.
    pub transactions: Transactions,
    /// Whether clients may read parts of large values. Clients can change it while the node runs.
    pub client_coding: ClientCoding,
    /// The highest version of formats that the process may speak.
    pub version_max: u16,
    /// The most bytes of deltas above `stable` of a stream (W).
    pub window_bytes: u64,
    /// The most bytes of stable deltas that a stream keeps for undoing (H).
    pub history_bytes: u64,
    /// How long stable deltas are kept for undoing.
    pub history: Span,
    /// How long chunks of a lost position are cached, unless their memory is needed (P2.4); zero: not at all.
    pub stash: Span,
    /// How long bytes for the disk of a parity log wait for more bytes before they are written.
    pub log_flush: Span,
    /// The shortest wait before a dial is tried again.
    pub redial: Span,
    /// The longest wait before a dial is tried again.
    pub redial_max: Span,
    /// How long slots that are handed off may wait without progress before they are served again (P10.8).
    pub hand_off_timeout: Span,
    /// The rules of the protocol, of which a test may break one.
    pub rules: Rules,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            lease: Span::from_secs(2),
            reads: Reads::Leases,
            lease_renewal: Span::from_ms(250),
            resend: Span::from_ms(200),
            retry: Span::from_ms(20),
            resend_max: Span::from_secs(1),
            stable_flush: Span::from_ms(10),
            silence_report: Span::from_ms(500),
            hold_max: Span::from_ms(20),
            drain_max: Span::from_ms(500),
            kept_chunks: 32,
            mismatches_before_hold: 8,
            fetch_max: 32,
            rebuild_rate: None,
            log_assist: LogAssist::Auto,
            large_from: VALUE_BYTES_MAX,
            class_rules: ClassRules::default(),
            hotness: None,
            streamed_bytes_min: 1 << 20,
            mget_bytes_max: FRAME_BYTES_MAX - 256,
            item_bytes_max: (1 << 20) - 1,
            piece_bytes: 256 << 10,
            inventory: Span::from_secs(600),
            scrub_rate: None,
            scrub_pause: Span::from_secs(1),
            policy: Policy::NoEviction,
            client_limits: ClientLimits::default(),
            credit_batch: 64,
            walk_keys: 1024,
            turn_steps: 2_000_000,
            transactions: Transactions::BySlot,
            client_coding: ClientCoding::Read,
            version_max: formats::HIGHEST,
            window_bytes: 1 << 20,
            history_bytes: 1 << 20,
            history: Span::from_secs(1),
            stash: Span::from_secs(600),
            log_flush: Span::from_secs(1),
            redial: Span::from_ms(20),
            redial_max: Span::from_secs(1),
            hand_off_timeout: Span::from_ms(500),
            rules: Rules::default(),
        }
    }
}

/// The most bytes of a window. A `Sync` or a `SealReply` is one frame, and with the smallest deltas it takes twice the
/// bytes of the window.
const SHARE_BYTES_MAX: u64 = 12 << 20;

impl Parameters {
    /// The class of a new large value: that of the first rule that it meets, then that of cold values. `None`: that of
    /// the scheme.
    pub(crate) fn class_of(&self, key: &[u8], value_bytes: u64) -> Option<Class> {
        let by_rule = self.class_rules.class_of(key, value_bytes);
        by_rule.or_else(|| self.hotness.map(|hotness| hotness.cold))
    }

    /// With windows and histories for a node with `maxmemory_bytes` bytes of memory and `streams` streams (P8.2): they
    /// share a 64th of the memory, and none has more than a quarter of that.
    pub fn for_memory(maxmemory_bytes: u64, streams: u64) -> Self {
        let pool_bytes = (maxmemory_bytes / 64).max(4 << 20);
        // An owner keeps a window and as much history. A member of a stream keeps a window.
        let most = SHARE_BYTES_MAX.min(pool_bytes / 4);
        let share_bytes = (pool_bytes / (2 * streams.max(1))).clamp(256 << 10, most);
        Self {
            window_bytes: share_bytes,
            history_bytes: share_bytes,
            // All of the memory is checked in a day (P9.2).
            scrub_rate: Some((maxmemory_bytes / (24 * 3600)).max(1)),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_have_a_chunk_for_each_data_block() {
        let check = |scheme: &str, chunk_bytes, bytes| check_large_from(scheme.parse().unwrap(), chunk_bytes, bytes);
        for (scheme, chunk_bytes, bytes) in [
            ("4+2", 16 << 10, 64 << 10),
            ("4+2", 4 << 10, 16 << 10),
            ("4+2", 4 << 10, 20_000),
            ("1+2", 16 << 10, 16 << 10),
            // A value up to 64 KiB fits one object.
            ("8+2", 16 << 10, 64 << 10),
        ] {
            assert_eq!(
                check(scheme, chunk_bytes, bytes),
                Ok(()),
                "{scheme} {chunk_bytes} {bytes}"
            );
        }
        let few = check("4+2", 4 << 10, (16 << 10) - 1).unwrap_err();
        assert!(
            few.contains("at least 16384 are needed, not 16383: a large value should have"),
            "{few}"
        );
        let few = check("8+2", 16 << 10, (64 << 10) - 1).unwrap_err();
        assert!(few.contains("at least 65536 are needed"), "{few}");
        let many = check("4+2", 4 << 10, (64 << 10) + 1).unwrap_err();
        assert!(
            many.contains("65537 bytes do not fit one object: at most 65536"),
            "{many}"
        );
    }

    #[test]
    fn a_window_of_whatever_deltas_fits_a_frame() {
        for streams in [1, 2, 4, 10, 24, 1000] {
            for gib in (0..12).map(|n| 1 << n) {
                let window_bytes = Parameters::for_memory(gib << 30, streams).window_bytes;
                let frame_bytes = 2 * window_bytes as usize + paritas_store::delta::COMMAND_DELTA_BYTES_MAX;
                assert!(
                    frame_bytes < FRAME_BYTES_MAX,
                    "{streams} streams in {gib} GiB: {frame_bytes}"
                );
            }
        }
    }
}
