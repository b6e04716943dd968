//! A client that lies about large values which it writes itself (P14.18). It stands between an honest engine and the
//! network, and changes requests on their way: units, checks, capabilities, keys. Nodes must refuse each lie, and the
//! engine then writes its value by SET. So a liar needs no checks of its own: what it gets through breaks those of all
//! clients (B1, B6, I9, I12).

use paritas_base::Prng;
use paritas_client::LinkId;
use paritas_code::{crc32c_append, sum};
use paritas_wire::resp::{Args, Decoded, Limits, decode, encode};
use std::collections::{BTreeMap, BTreeSet};

/// Of a million values, those about which it lies.
const LIES_PER_MILLION: u32 = 600_000;

/// What it does to a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    /// One byte of the part that it sends first is another one. The check is that of the part as it is sent.
    WrongPart,
    /// One byte of a unit is another one. The checks are those of the right units.
    WrongUnit,
    /// A check is another one.
    WrongCheck,
    /// The tail is longer.
    WrongTail,
    /// The capability of a unit is another one.
    WrongCapability,
    /// The group is another one.
    WrongGroup,
    /// A unit is sent again in place of the next one.
    UnitAgain,
    /// The units come before their turn.
    UnitAhead,
    /// A unit of an earlier value takes the place of one. That value may be committed, or given up.
    OldUnit,
    /// The capability of an earlier value takes the place of that of this one.
    OldCapability,
    /// The command of COMMIT names another key.
    OtherKey,
}

const LIES: [Lie; 11] = [
    Lie::WrongPart,
    Lie::WrongUnit,
    Lie::WrongCheck,
    Lie::WrongTail,
    Lie::WrongCapability,
    Lie::WrongGroup,
    Lie::UnitAgain,
    Lie::UnitAhead,
    Lie::OldUnit,
    Lie::OldCapability,
    Lie::OtherKey,
];

/// The part that it changes: group and number, its check so far, and the check that it has with the right units.
#[derive(Clone, Debug)]
struct Changed {
    part: (Vec<u8>, Vec<u8>),
    check: u32,
    right_check: u32,
}

/// A client that lies.
#[derive(Debug)]
pub(crate) struct Liar {
    unit_bytes: usize,
    /// Requests that have not come whole.
    inputs: BTreeMap<LinkId, Vec<u8>>,
    /// The lie about the value that is written now. There may be several at a time: then it concerns any of them.
    lie: Option<Lie>,
    /// It has been told.
    is_told: bool,
    changed: Option<Changed>,
    /// Group and number of the parts that it has sent.
    parts: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// A key of another value.
    other_key: Vec<u8>,
    last_put: Vec<Vec<u8>>,
    /// A unit of an earlier value.
    old_put: Vec<Vec<u8>>,
    /// Lies that it has told.
    told_count: u64,
}

impl Liar {
    pub(crate) fn new(unit_bytes: usize, other_key: String) -> Self {
        Self {
            unit_bytes,
            inputs: BTreeMap::new(),
            lie: None,
            is_told: false,
            changed: None,
            parts: BTreeSet::new(),
            other_key: other_key.into_bytes(),
            last_put: Vec::new(),
            old_put: Vec::new(),
            told_count: 0,
        }
    }

    /// Lies that it has told.
    pub(crate) fn told_count(&self) -> u64 {
        self.told_count
    }

    /// A connection has ended.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.inputs.remove(&link);
    }

    /// What it sends in place of these bytes.
    pub(crate) fn change(&mut self, random: &mut Prng, link: LinkId, bytes: &[u8]) -> Vec<u8> {
        let mut input = self.inputs.remove(&link).unwrap_or_default();
        input.extend_from_slice(bytes);
        let (mut out, mut used) = (Vec::new(), 0);
        let mut args = Args::new();
        while let Ok(Decoded::Complete { consumed }) = decode(&input[used..], &Limits::DEFAULT, &mut args) {
            let words = args.list(&input[used..]).iter().map(<[u8]>::to_vec).collect();
            encode::request(&mut out, &self.changed_request(random, words));
            used += consumed;
        }
        self.inputs.insert(link, input.split_off(used));
        out
    }

    fn changed_request(&mut self, random: &mut Prng, mut words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        match words.first().map(Vec::as_slice) {
            Some(b"PARITAS.STAGE") => {
                let lies = random.chance(LIES_PER_MILLION);
                self.lie = lies.then(|| LIES[random.below(LIES.len() as u64) as usize]);
                (self.is_told, self.changed) = (false, None);
                self.old_put.clone_from(&self.last_put);
            }
            Some(b"PARITAS.PUT") if words.len() == 8 => {
                self.parts.insert((words[3].clone(), words[4].clone()));
                self.change_put(random, &mut words);
            }
            Some(b"PARITAS.COMMIT") if words.len() > 5 => {
                self.change_commit(random, &mut words);
            }
            _ => {}
        }
        words
    }

    /// The lie is told, if it was not before.
    fn tell(&mut self) -> bool {
        let is_new = !core::mem::replace(&mut self.is_told, true);
        self.told_count += u64::from(is_new);
        is_new
    }

    /// PARITAS.PUT list x group part unit capability bytes.
    fn change_put(&mut self, random: &mut Prng, words: &mut Vec<Vec<u8>>) {
        let at = random.below(words[7].len().max(1) as u64) as usize;
        let lie = self.lie;
        match lie {
            Some(Lie::WrongUnit) if self.tell() => words[7][at] ^= 1,
            Some(Lie::WrongPart) => {
                let part = (words[3].clone(), words[4].clone());
                let is_first = words[5] == b"0" && self.tell();
                if is_first {
                    self.changed = Some(Changed {
                        part: part.clone(),
                        check: 0,
                        right_check: 0,
                    });
                }
                if let Some(changed) = self.changed.as_mut().filter(|changed| changed.part == part) {
                    changed.right_check = check_after(changed.right_check, &words[7], self.unit_bytes);
                    words[7][at] ^= u8::from(is_first);
                    changed.check = check_after(changed.check, &words[7], self.unit_bytes);
                }
            }
            Some(Lie::WrongCapability) if self.tell() => words[6][at % 8] ^= 1,
            Some(Lie::WrongGroup) if self.tell() => {
                let group: u64 = String::from_utf8_lossy(&words[3]).parse().unwrap_or(1);
                words[3] = (group + random.between(1, 4)).to_string().into_bytes();
            }
            Some(Lie::UnitAgain) if !self.last_put.is_empty() && self.tell() => words.clone_from(&self.last_put),
            Some(Lie::OldUnit) if !self.old_put.is_empty() && self.tell() => words.clone_from(&self.old_put),
            Some(Lie::OldCapability) if !self.old_put.is_empty() && self.tell() => {
                words[6].clone_from(&self.old_put[6]);
            }
            Some(Lie::UnitAhead) if self.tell() => {
                let unit: u64 = String::from_utf8_lossy(&words[5]).parse().unwrap_or(0);
                words[5] = (unit + random.between(1, 3)).to_string().into_bytes();
            }
            _ => {}
        }
        self.last_put.clone_from(words);
    }

    /// PARITAS.COMMIT n checks tail COMMAND key "" ….
    fn change_commit(&mut self, random: &mut Prng, words: &mut [Vec<u8>]) {
        let lie = self.lie;
        match lie {
            Some(Lie::WrongCheck) if !words[2].is_empty() && self.tell() => {
                let at = random.below(words[2].len() as u64) as usize;
                words[2][at] ^= 1;
            }
            Some(Lie::WrongPart) => {
                let Some(changed) = self.changed.take() else { return };
                // Of a value that has only one copy, that is no lie: the value is another one.
                let of_group = self.parts.iter().filter(|(group, _)| *group == changed.part.0);
                if words[2].len() == 4 && of_group.count() == 1 {
                    return;
                }
                let right = changed.right_check.to_le_bytes();
                let (checks, _) = words[2].as_chunks_mut::<4>();
                if let Some(check) = checks.iter_mut().find(|check| **check == right) {
                    *check = changed.check.to_le_bytes();
                }
            }
            Some(Lie::WrongTail) if self.tell() => words[3].push(b'x'),
            Some(Lie::OtherKey) if words[5] != self.other_key && self.tell() => words[5].clone_from(&self.other_key),
            _ => {}
        }
    }
}

/// The check of a part after these further units.
fn check_after(check: u32, units: &[u8], unit_bytes: usize) -> u32 {
    let sums = units.chunks(unit_bytes).map(|unit| sum::of_extent(unit_bytes, 0, unit));
    sums.fold(check, |check, sum| crc32c_append(check, &sum.to_le_bytes()))
}
