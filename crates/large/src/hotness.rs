//! Which values are hot, by how often clients read them, and the classes of hot and cold values.
//!
//! [`Hotness`] is the setting. [`Heat`] is what the owner of a stream knows: for each of a bounded number of values,
//! the bytes of it that were read. They are halved once a period, so old reads count less and less.

use crate::{Class, GroupId};
use core::fmt;
use core::str::FromStr;
use paritas_base::Span;
use std::collections::BTreeMap;

/// A hot value becomes cold when its count is below one in this many of the count that makes it hot.
const COLD_PART: u64 = 4;
/// The most values that one stream counts, and bytes of their keys.
const VALUES_MAX: usize = 4096;
const KEYS_BYTES_MAX: usize = 512 << 10;
/// When the table is full, at most this many values are examined to find one to forget.
const LOOKED_AT_MAX: usize = 16;

const READS: u32 = 8;
const READS_MAX: u32 = 1_000_000;
const PERIOD: Span = Span::from_secs(60);
const PERIOD_SECONDS_MAX: u64 = 86_400;

/// The classes of hot and of cold values, and what makes a value hot.
///
/// As text: `hot CLASS cold CLASS`, with `reads NUMBER` and `seconds NUMBER` behind it if they are not the defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hotness {
    /// The class of values that are read often.
    pub hot: Class,
    /// The class of the others, and of new values.
    pub cold: Class,
    /// A value that was read this often within a period is hot.
    pub reads: u32,
    /// Reads are halved after each period.
    pub period: Span,
}

impl Hotness {
    /// Bytes read from which a value is hot.
    fn hot_bytes(&self, value_bytes: u64) -> u64 {
        value_bytes.saturating_mul(u64::from(self.reads))
    }

    fn is_hot(&self, value: &Value) -> bool {
        value.read_bytes >= self.hot_bytes(value.value_bytes)
    }

    fn is_cold(&self, value: &Value) -> bool {
        value.read_bytes < self.hot_bytes(value.value_bytes).div_ceil(COLD_PART)
    }
}

impl fmt::Display for Hotness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hot {} cold {}", self.hot, self.cold)?;
        if self.reads != READS {
            write!(f, " reads {}", self.reads)?;
        }
        if self.period != PERIOD {
            write!(f, " seconds {}", self.period.as_ms() / 1000)?;
        }
        Ok(())
    }
}

impl FromStr for Hotness {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(80).collect();
        let form = || format!("{shown:?}: expected hot CLASS cold CLASS, and perhaps reads NUMBER and seconds NUMBER");
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(form());
        }
        let (mut hot, mut cold, mut reads, mut seconds) = (None, None, None, None);
        for [name, value] in pairs {
            let known = match *name {
                "hot" => hot.replace(value.parse::<Class>()?).is_some(),
                "cold" => cold.replace(value.parse::<Class>()?).is_some(),
                "reads" => reads
                    .replace(number(name, value, u64::from(READS_MAX))? as u32)
                    .is_some(),
                "seconds" => seconds.replace(number(name, value, PERIOD_SECONDS_MAX)?).is_some(),
                _ => return Err(form()),
            };
            if known {
                return Err(format!("{shown:?}: `{name}` is there twice"));
            }
        }
        let (Some(hot), Some(cold)) = (hot, cold) else {
            return Err(form());
        };
        if hot == cold {
            return Err(format!("{shown:?}: the classes of hot and cold values are the same"));
        }
        Ok(Self {
            hot,
            cold,
            reads: reads.unwrap_or(READS),
            period: seconds.map_or(PERIOD, Span::from_secs),
        })
    }
}

/// The setting as people write it: empty if classes do not depend on reads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HotnessSetting(pub Option<Hotness>);

impl fmt::Display for HotnessSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |hotness| hotness.fmt(f))
    }
}

impl FromStr for HotnessSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Ok(Self(None)),
            text => Ok(Self(Some(text.parse()?))),
        }
    }
}

fn number(name: &str, text: &str, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("`{name}` must be a number from 1 to {most}"))
}

/// A value whose class should change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its data group now.
    pub group: GroupId,
    /// The database of its key.
    pub database: u8,
    /// Its key.
    pub key: Box<[u8]>,
    /// It becomes hot; else it becomes cold.
    pub to_hot: bool,
}

#[derive(Clone, Debug)]
struct Value {
    database: u8,
    key: Box<[u8]>,
    value_bytes: u64,
    read_bytes: u64,
    /// It has the class of hot values.
    has_hot_class: bool,
    /// The change of its class was refused. It is not tried again before the next halving.
    is_refused: bool,
}

/// The reads of one stream's large values.
#[derive(Default, Debug)]
pub struct Heat {
    values: BTreeMap<GroupId, Value>,
    keys_bytes: usize,
    /// Where the search for a value to forget goes on.
    hand: Option<GroupId>,
}

impl Heat {
    /// Clients have read `read_bytes` bytes of a value. `key`: its database and its bytes.
    pub fn on_read(
        &mut self,
        group: GroupId,
        key: (u8, &[u8]),
        value_bytes: u64,
        read_bytes: u64,
        has_hot_class: bool,
    ) {
        if let Some(value) = self.values.get_mut(&group) {
            value.read_bytes = value.read_bytes.saturating_add(read_bytes);
        } else {
            self.insert(group, key, value_bytes, read_bytes, has_hot_class);
        }
    }

    /// A value of the class of hot values was found. If nothing is known of it, because the owner is new or counts it
    /// no more, it counts as one that has just stopped being read: it is cold after a period.
    pub fn on_found_hot(&mut self, hotness: &Hotness, group: GroupId, key: (u8, &[u8]), value_bytes: u64) {
        if !self.values.contains_key(&group) {
            let read_bytes = hotness.hot_bytes(value_bytes).div_ceil(COLD_PART);
            self.insert(group, key, value_bytes, read_bytes, true);
        }
    }

    /// The class of a value has changed. `after` is equal to `before` if the data group stayed.
    pub fn on_changed(&mut self, before: GroupId, after: GroupId, to_hot: bool) {
        if let Some(value) = self.forget(before) {
            let key = (value.database, &*value.key);
            self.insert(after, key, value.value_bytes, value.read_bytes, to_hot);
        }
    }

    /// The class of a value can't change now.
    pub fn on_refused(&mut self, group: GroupId) {
        if let Some(value) = self.values.get_mut(&group) {
            value.is_refused = true;
        }
    }

    /// Removes a value from the counts.
    pub fn on_gone(&mut self, group: GroupId) {
        self.forget(group);
    }

    /// A period has ended: all reads are halved. Values that are not alive, or not read and not hot, are forgotten.
    pub fn halve(&mut self, is_alive: impl Fn(GroupId) -> bool) {
        let mut keys_bytes = 0;
        self.values.retain(|group, value| {
            value.read_bytes /= 2;
            value.is_refused = false;
            let stays = (value.read_bytes > 0 || value.has_hot_class) && is_alive(*group);
            keys_bytes += if stays { value.key.len() } else { 0 };
            stays
        });
        self.keys_bytes = keys_bytes;
    }

    /// The value whose class should change first. `may_grow`: there is memory for values that become hot. `is_short`:
    /// hot values must become cold, those first that are read least.
    pub fn wanted(&self, hotness: &Hotness, may_grow: bool, is_short: bool) -> Option<Wanted> {
        let of = |(group, value): (&GroupId, &Value), to_hot| Wanted {
            group: *group,
            database: value.database,
            key: value.key.clone(),
            to_hot,
        };
        let open = || self.values.iter().filter(|(_, value)| !value.is_refused);
        let weight = |value: &Value| value.read_bytes / value.value_bytes.max(1);
        let leaves = |value: &Value| value.has_hot_class && (is_short || hotness.is_cold(value));
        let coldest = open()
            .filter(|(_, value)| leaves(value))
            .min_by_key(|(_, value)| weight(value));
        let comes = |value: &Value| !value.has_hot_class && may_grow && hotness.is_hot(value);
        let hottest = || {
            open()
                .filter(|(_, value)| comes(value))
                .max_by_key(|(_, value)| weight(value))
        };
        coldest
            .map(|entry| of(entry, false))
            .or_else(|| hottest().map(|entry| of(entry, true)))
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Number of values that are counted.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Its memory in bytes, about.
    pub fn held_bytes(&self) -> usize {
        self.keys_bytes + self.values.len() * (size_of::<(GroupId, Value)>() + size_of::<usize>())
    }

    fn insert(&mut self, group: GroupId, key: (u8, &[u8]), value_bytes: u64, read_bytes: u64, has_hot_class: bool) {
        let (database, key) = key;
        self.forget(group);
        if !self.has_room(key.len()) {
            self.forget_one();
        }
        if !self.has_room(key.len()) {
            return;
        }
        self.keys_bytes += key.len();
        let value = Value {
            database,
            key: key.into(),
            value_bytes,
            read_bytes,
            has_hot_class,
            is_refused: false,
        };
        self.values.insert(group, value);
    }

    fn has_room(&self, key_bytes: usize) -> bool {
        self.values.len() < VALUES_MAX && self.keys_bytes + key_bytes <= KEYS_BYTES_MAX
    }

    fn forget(&mut self, group: GroupId) -> Option<Value> {
        let value = self.values.remove(&group)?;
        self.keys_bytes -= value.key.len();
        Some(value)
    }

    /// Forgets a value that was read at most once: values of a client that reads all keys take each other's places.
    fn forget_one(&mut self) {
        let from = self
            .hand
            .map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
        let behind = self.values.range((from, core::ops::Bound::Unbounded));
        let around = behind.chain(self.values.iter()).take(LOOKED_AT_MAX);
        let mut last = None;
        let found = around.inspect(|(group, _)| last = Some(**group)).find(|(_, value)| {
            let is_rare = value.read_bytes <= value.value_bytes;
            is_rare && !value.has_hot_class
        });
        let found = found.map(|(group, _)| *group);
        self.hand = last;
        if let Some(group) = found {
            self.forget(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 100_000;

    fn hotness(text: &str) -> Hotness {
        text.parse().expect("a setting")
    }

    fn group(n: u64) -> GroupId {
        GroupId::new(1, n).expect("an id")
    }

    fn read(heat: &mut Heat, n: u64, times: u64) {
        for _ in 0..times {
            heat.on_read(group(n), (0, format!("key{n}").as_bytes()), BYTES, BYTES, false);
        }
    }

    fn wanted(heat: &Heat, hotness: &Hotness) -> Option<(GroupId, bool)> {
        heat.wanted(hotness, true, false).map(|w| (w.group, w.to_hot))
    }

    #[test]
    fn text_and_setting_agree() {
        for text in [
            "hot eor:3,4 cold ec:4,2",
            "hot rep:3 cold ec:4,2 reads 3",
            "hot rep:3 cold none reads 3 seconds 10",
        ] {
            assert_eq!(hotness(text).to_string(), text);
        }
        assert_eq!(
            hotness(" cold ec:4,2  hot rep:3 seconds 60 reads 8").to_string(),
            "hot rep:3 cold ec:4,2"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("", "expected hot CLASS cold CLASS"),
            ("on", "expected hot CLASS"),
            ("hot rep:3", "expected hot CLASS cold CLASS"),
            ("hot rep:3 cold rep:3", "are the same"),
            ("hot rep:3 hot rep:2 cold none", "`hot` is there twice"),
            ("hot raid:5 cold ec:4,2", "is not a redundancy class"),
            ("hot rep:3 cold ec:4,2 reads 0", "`reads` must be a number from 1 to"),
            (
                "hot rep:3 cold ec:4,2 seconds x",
                "`seconds` must be a number from 1 to",
            ),
            ("hot rep:3 cold ec:4,2 warm rep:2", "expected hot CLASS"),
        ] {
            let error = text.parse::<Hotness>().expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_becomes_hot_by_its_reads_and_cold_only_far_below() {
        let (hotness, mut heat) = (hotness("hot eor:3,4 cold ec:4,2"), Heat::default());
        read(&mut heat, 1, 7);
        assert_eq!(wanted(&heat, &hotness), None);
        read(&mut heat, 1, 1);
        assert_eq!(wanted(&heat, &hotness), Some((group(1), true)));
        heat.on_changed(group(1), group(9), true);
        assert_eq!(wanted(&heat, &hotness), None);
        // 8, 4, 2, 1 reads.
        heat.halve(|_| true);
        heat.halve(|_| true);
        assert_eq!(wanted(&heat, &hotness), None);
        heat.halve(|_| true);
        assert_eq!(wanted(&heat, &hotness), Some((group(9), false)));
        // Between the two limits nothing changes, from either side.
        heat.on_changed(group(9), group(9), false);
        read(&mut heat, 9, 5);
        assert_eq!(wanted(&heat, &hotness), None);
    }

    #[test]
    fn ranges_count_with_their_bytes() {
        let (hotness, mut heat) = (hotness("hot rep:3 cold ec:4,2 reads 2"), Heat::default());
        for _ in 0..19 {
            heat.on_read(group(1), (0, b"k"), BYTES, BYTES / 10, false);
        }
        assert_eq!(wanted(&heat, &hotness), None);
        heat.on_read(group(1), (0, b"k"), BYTES, BYTES / 10, false);
        assert_eq!(wanted(&heat, &hotness), Some((group(1), true)));
    }

    #[test]
    fn a_client_that_reads_all_keys_makes_none_hot_and_hides_none() {
        let (hotness, mut heat) = (hotness("hot rep:3 cold ec:4,2"), Heat::default());
        read(&mut heat, 1, 6);
        for n in 2..50_000 {
            read(&mut heat, n, 1);
            assert!(heat.len() <= VALUES_MAX && heat.keys_bytes <= KEYS_BYTES_MAX);
        }
        assert_eq!(wanted(&heat, &hotness), None);
        read(&mut heat, 1, 2);
        assert_eq!(wanted(&heat, &hotness), Some((group(1), true)));
    }

    #[test]
    fn long_keys_are_bounded_together() {
        let mut heat = Heat::default();
        let key = [b'k'; 8 << 10];
        for n in 1..1_000 {
            heat.on_read(group(n), (0, &key), BYTES, BYTES, false);
        }
        assert_eq!(heat.keys_bytes, KEYS_BYTES_MAX);
        assert_eq!(heat.len(), 64);
        heat.halve(|_| false);
        assert!(heat.is_empty() && heat.keys_bytes == 0);
    }

    #[test]
    fn with_little_memory_nothing_becomes_hot_and_what_is_read_least_becomes_cold_first() {
        let (hotness, mut heat) = (hotness("hot rep:3 cold ec:4,2"), Heat::default());
        for (n, times) in [(1, 30), (2, 10), (3, 20)] {
            read(&mut heat, n, times);
            heat.on_changed(group(n), group(n), true);
        }
        read(&mut heat, 4, 50);
        assert_eq!(heat.wanted(&hotness, false, false), None);
        for n in [2, 3, 1] {
            let first = heat.wanted(&hotness, false, true).expect("a value");
            assert_eq!((first.group, first.to_hot), (group(n), false));
            assert_eq!(&*first.key, format!("key{n}").as_bytes());
            heat.on_changed(group(n), group(n), false);
        }
        assert_eq!(heat.wanted(&hotness, false, true), None);
    }

    #[test]
    fn a_new_owner_gives_hot_values_a_period() {
        let (hotness, mut heat) = (hotness("hot rep:3 cold ec:4,2"), Heat::default());
        heat.on_found_hot(&hotness, group(1), (0, b"k"), BYTES);
        assert_eq!(wanted(&heat, &hotness), None);
        heat.on_found_hot(&hotness, group(1), (0, b"k"), BYTES);
        heat.halve(|_| true);
        assert_eq!(wanted(&heat, &hotness), Some((group(1), false)));
        heat.on_refused(group(1));
        assert_eq!(wanted(&heat, &hotness), None);
        heat.halve(|_| true);
        assert_eq!(wanted(&heat, &hotness), Some((group(1), false)));
    }
}
