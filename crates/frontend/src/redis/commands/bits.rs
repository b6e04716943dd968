//! Strings as arrays of bits. Bit 0 is the highest bit of the first byte.

use super::strings::Text;
use super::{Operation, Stop};
use core::ops::RangeInclusive;
use paritas_protocol::{LARGE_VALUE_BYTES_MAX, Out, Piece};
use paritas_wire::resp::{encode, errors, parse_integer};

/// The most bytes of values that one of these commands reads at a time. GETBIT and SETBIT read one.
const READ_BYTES_MAX: usize = 4 << 20;
/// Steps of a turn's budget for a byte that is read.
const BYTE_STEPS: u64 = 1;
/// The most operations of one BITFIELD: they run in one turn.
const FIELDS_MAX: usize = 4096;

/// What a part of a string is measured in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measure {
    Bytes,
    Bits,
}

/// An integer of BITFIELD.
#[derive(Clone, Copy, Debug)]
struct FieldType {
    is_signed: bool,
    bits: u32,
}

/// What BITFIELD does when a number does not fit.
#[derive(Clone, Copy, Debug)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug)]
enum FieldAction {
    Get,
    Set(i64),
    Increment(i64),
}

/// One operation of BITFIELD.
#[derive(Clone, Copy, Debug)]
struct FieldOperation {
    kind: FieldType,
    /// The field's first bit.
    at: usize,
    action: FieldAction,
    overflow: Overflow,
}

/// What BITOP does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Join {
    And,
    Or,
    Xor,
    Not,
}

/// What BITOP has made so far.
#[derive(Default, Debug)]
struct Joined {
    bytes: Vec<u8>,
    /// All bytes from here on are zeros. So a short string costs only its own length.
    zeros_from: usize,
}

impl Joined {
    /// Joins the next string, which counts as if zeros followed it.
    fn add(&mut self, join: Join, is_first: bool, next: Vec<u8>) {
        if is_first {
            self.bytes = next;
            self.zeros_from = self.bytes.len();
            if join == Join::Not {
                self.bytes.iter_mut().for_each(|byte| *byte = !*byte);
            }
            return;
        }
        if next.len() > self.bytes.len() {
            self.bytes.resize(next.len(), 0);
        }
        let pairs = self.bytes.iter_mut().zip(&next);
        match join {
            Join::And => {
                pairs.for_each(|(to, from)| *to &= from);
                if let Some(rest) = self.bytes.get_mut(next.len()..self.zeros_from) {
                    rest.fill(0);
                }
                self.zeros_from = self.zeros_from.min(next.len());
            }
            Join::Or | Join::Not => pairs.for_each(|(to, from)| *to |= from),
            Join::Xor => pairs.for_each(|(to, from)| *to ^= from),
        }
        if join != Join::And {
            self.zeros_from = self.zeros_from.max(next.len());
        }
    }
}

impl FieldType {
    fn parse(text: &[u8]) -> Option<Self> {
        let (is_signed, bits) = match text.split_first()? {
            (b'i', bits) => (true, bits),
            (b'u', bits) => (false, bits),
            _ => return None,
        };
        let bits = u32::try_from(parse_integer(bits)?).ok()?;
        let bits_max = if is_signed { 64 } else { 63 };
        (1..=bits_max).contains(&bits).then_some(Self { is_signed, bits })
    }

    fn range(self) -> RangeInclusive<i128> {
        match self.is_signed {
            true => -(1 << (self.bits - 1))..=(1 << (self.bits - 1)) - 1,
            false => 0..=(1 << self.bits) - 1,
        }
    }

    /// The number with the lowest bits of this one.
    fn wrap(self, number: i128) -> i128 {
        let low = number & ((1 << self.bits) - 1);
        if self.is_signed && low >> (self.bits - 1) == 1 {
            low - (1 << self.bits)
        } else {
            low
        }
    }

    fn read(self, bytes: &[u8], at: usize) -> i128 {
        let bit = |at: usize| i128::from(bit_of(bytes, at));
        let number = (at..at + self.bits as usize).fold(0, |number, at| number << 1 | bit(at));
        self.wrap(number)
    }

    fn write(self, bytes: &mut [u8], at: usize, number: i128) {
        for n in 0..self.bits as usize {
            let is_set = number >> (self.bits as usize - 1 - n) & 1 == 1;
            if let Some(byte) = bytes.get_mut((at + n) / 8) {
                set_bit(byte, at + n, is_set);
            }
        }
    }
}

impl FieldOperation {
    /// The byte behind the field.
    fn end(&self) -> usize {
        (self.at + self.kind.bits as usize).div_ceil(8)
    }

    /// Runs it. Returns what it answers: nothing if the number did not fit and was not written.
    fn run(&self, bytes: &mut [u8]) -> Option<i64> {
        let kind = self.kind;
        let before = kind.read(bytes, self.at);
        let wanted = match self.action {
            FieldAction::Get => return Some(before as i64),
            FieldAction::Increment(by) => before + i128::from(by),
            // As in Redis, a negative number is a large one if the field is unsigned.
            FieldAction::Set(value) if kind.is_signed => value.into(),
            FieldAction::Set(value) => (value as u64).into(),
        };
        let range = kind.range();
        let after = match self.overflow {
            _ if range.contains(&wanted) => wanted,
            Overflow::Wrap => kind.wrap(wanted),
            Overflow::Saturate => wanted.clamp(*range.start(), *range.end()),
            Overflow::Fail => return None,
        };
        kind.write(bytes, self.at, after);
        match self.action {
            FieldAction::Increment(_) => Some(after as i64),
            FieldAction::Get | FieldAction::Set(_) => Some(before as i64),
        }
    }
}

/// The bit with this number, false behind the end.
fn bit_of(bytes: &[u8], at: usize) -> bool {
    bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
}

/// Sets or clears the bit with this number in its byte.
fn set_bit(byte: &mut u8, at: usize, is_set: bool) {
    let mask = 1 << (7 - at % 8);
    *byte = if is_set { *byte | mask } else { *byte & !mask };
}

/// From the first to the last of `length` bytes or bits that two numbers name. Negative ones count from the end.
fn part_of(start: i64, end: i64, length: usize) -> Option<RangeInclusive<usize>> {
    let length = length as i64;
    let from_end = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(length - 1));
    (start <= end).then_some(start as usize..=end as usize)
}

/// How many bits are set from the first to the last one.
fn count_bits(bytes: &[u8], bits: &RangeInclusive<usize>) -> u64 {
    let (start, end) = (*bits.start(), *bits.end() + 1);
    // Whole bytes are counted as such.
    let (whole_start, whole_end) = (start.div_ceil(8), end / 8);
    if whole_start >= whole_end {
        return (start..end).filter(|at| bit_of(bytes, *at)).count() as u64;
    }
    let edges = (start..whole_start * 8).chain(whole_end * 8..end);
    let whole = bytes.get(whole_start..whole_end).unwrap_or_default();
    let (words, rest) = whole.as_chunks::<8>();
    let of_words: u64 = words
        .iter()
        .map(|w| u64::from(u64::from_le_bytes(*w).count_ones()))
        .sum();
    let of_rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    of_words + of_rest + edges.filter(|at| bit_of(bytes, *at)).count() as u64
}

/// The first bit that is set, or clear, from the first to the last one.
fn find_bit(bytes: &[u8], bits: &RangeInclusive<usize>, wanted: bool) -> Option<usize> {
    let (start, end) = (*bits.start(), *bits.end());
    let is_other = |byte: &u8| *byte == if wanted { 0 } else { 0xFF };
    let mut at = start;
    while at <= end {
        if at.is_multiple_of(8) {
            // Whole bytes without such a bit are passed over.
            let rest = bytes.get(at / 8..=end / 8).unwrap_or_default();
            at += 8 * rest.iter().take_while(|byte| is_other(byte)).count();
            if at > end {
                return None;
            }
        }
        if bit_of(bytes, at) == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

impl<O: Out> Operation<'_, '_, O> {
    /// The number of a bit, as in Redis below 8 × the longest value. With `bits`, `#n` is the n-th field of that many.
    fn bit_number(&self, at: usize, bits: Option<u32>) -> Result<usize, Stop> {
        let text = self.job.args.arg(at);
        let (text, unit) = match (text.split_first(), bits) {
            (Some((b'#', rest)), Some(bits)) => (rest, i64::from(bits)),
            _ => (text, 1),
        };
        let number = parse_integer(text).and_then(|number| number.checked_mul(unit));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number
            .filter(|number| number / 8 < LARGE_VALUE_BYTES_MAX)
            .ok_or(Stop::Error(errors::BIT_OFFSET))
    }

    /// Waits for the next turn if nothing of this one's budget is left. Commands that read whole strings begin so.
    pub(super) fn admit(&mut self) -> Result<(), Stop> {
        match self.is_admitted || self.access.turn_budget().admits() {
            true => Ok(()),
            false => Err(Stop::Wait),
        }
    }

    /// All bytes of a string. `read`: bytes of others that the command has.
    pub(super) fn whole(&mut self, text: &Text<'_>, read: usize) -> Result<Vec<u8>, Stop> {
        let length = text.length();
        if read + length > READ_BYTES_MAX {
            return Err(Stop::Error(errors::TOO_MANY_BITS));
        }
        let mut bytes = Vec::with_capacity(length);
        if !text.record.is_empty() {
            bytes.extend_from_slice(self.access.body(&text.record, 0..u64::MAX)?);
        }
        bytes.extend_from_slice(&text.rest);
        self.access.turn_budget().spend(length as u64 * BYTE_STEPS);
        Ok(bytes)
    }

    /// The byte of a string at an index, 0 behind its end.
    fn byte(&mut self, text: &Text<'_>, index: usize) -> Result<u8, Stop> {
        if index >= text.body_bytes {
            return Ok(text.rest.get(index - text.body_bytes).copied().unwrap_or(0));
        }
        let index = index as u64;
        let body = self.access.body(&text.record, index..index + 1)?;
        Ok(body.first().copied().unwrap_or(0))
    }

    pub(crate) fn getbit(&mut self) -> Result<(), Stop> {
        let at = self.bit_number(2, None)?;
        let before = self.lookups;
        let here = self.look_string(1, |object, _| {
            let Some(object) = object else { return Ok(Some(0)) };
            let value = object.whole().filter(|_| object.record().is_none());
            Ok(value.map(|value| value.get(at / 8).copied().unwrap_or(0)))
        })?;
        let byte = match here {
            Some(byte) => byte,
            // It is large, or in two pieces.
            None => {
                self.lookups = before;
                let text = self.old_string(1)?;
                self.byte(&text, at / 8)?
            }
        };
        encode::integer(self.reply, i64::from(bit_of(&[byte], at % 8)));
        Ok(())
    }

    pub(crate) fn setbit(&mut self) -> Result<(), Stop> {
        let at = self.bit_number(2, None)?;
        let is_set = match self.job.args.arg(3) {
            b"0" => false,
            b"1" => true,
            _ => return Err(Stop::Error(errors::NOT_A_BIT)),
        };
        let old = self.old_string(1)?;
        let (index, length) = (at / 8, old.length());
        let mut byte = self.byte(&old, index)?;
        let was_set = bit_of(&[byte], at % 8);
        // What would change nothing is not written.
        if index >= length || was_set != is_set {
            set_bit(&mut byte, at, is_set);
            let [body, rest] = old.pieces(0..index.min(length));
            let gap = Piece::Zeros(index.saturating_sub(length) as u64);
            let [body_after, rest_after] = old.pieces((index + 1).min(length)..length);
            let changed = [byte];
            let pieces = [body, rest, gap, Piece::Bytes(&changed), body_after, rest_after];
            self.put_changed(1, &old, &pieces, length.max(index + 1))?;
        }
        encode::integer(self.reply, i64::from(was_set));
        Ok(())
    }

    /// What the argument `at` says that a part is measured in; bytes if it is missing.
    fn measure(&self, at: usize) -> Result<Measure, Stop> {
        match self.count() {
            count if count <= at => Ok(Measure::Bytes),
            _ if self.is_word(at, "byte") => Ok(Measure::Bytes),
            _ if self.is_word(at, "bit") => Ok(Measure::Bits),
            _ => Err(Stop::Error(errors::SYNTAX)),
        }
    }

    pub(crate) fn bitcount(&mut self) -> Result<(), Stop> {
        self.admit()?;
        let text = self.old_string(1)?;
        if text.seen.is_none() {
            encode::integer(self.reply, 0);
            return Ok(());
        }
        let (start, end) = match self.count() {
            2 => (0, -1),
            4 | 5 => (self.integer(2)?, self.integer(3)?),
            _ => return Err(Stop::Error(errors::SYNTAX)),
        };
        let measure = self.measure(4)?;
        // As in Redis, such a part is empty here, but not for BITPOS.
        let is_empty = start < 0 && end < 0 && start > end;
        let bits = bits_of(start, end, measure, text.length()).filter(|_| !is_empty);
        let bytes = self.whole(&text, 0)?;
        let count = bits.map_or(0, |bits| count_bits(&bytes, &bits));
        encode::integer(self.reply, count as i64);
        Ok(())
    }

    pub(crate) fn bitpos(&mut self) -> Result<(), Stop> {
        let wanted = match self.integer(2)? {
            0 => false,
            1 => true,
            _ => return Err(Stop::Error(errors::BIT_ARGUMENT)),
        };
        let count = self.count();
        self.admit()?;
        let text = self.old_string(1)?;
        if text.seen.is_none() {
            encode::integer(self.reply, if wanted { -1 } else { 0 });
            return Ok(());
        }
        let start = if count > 3 { self.integer(3)? } else { 0 };
        let measure = self.measure(5)?;
        let end = if count > 4 { self.integer(4)? } else { -1 };
        if count > 6 {
            return Err(Stop::Error(errors::SYNTAX));
        }
        let bits = bits_of(start, end, measure, text.length());
        let bytes = self.whole(&text, 0)?;
        let found = bits.as_ref().map(|bits| find_bit(&bytes, bits, wanted));
        let answer = match found {
            Some(Some(at)) => at as i64,
            // As in Redis, zeros follow a string, unless the command has named its last byte.
            Some(None) if !wanted && count <= 4 => 8 * bytes.len() as i64,
            _ => -1,
        };
        encode::integer(self.reply, answer);
        Ok(())
    }

    pub(crate) fn bitop(&mut self) -> Result<(), Stop> {
        let join = match () {
            () if self.is_word(1, "and") => Join::And,
            () if self.is_word(1, "or") => Join::Or,
            () if self.is_word(1, "xor") => Join::Xor,
            () if self.is_word(1, "not") => Join::Not,
            () => return Err(Stop::Error(errors::SYNTAX)),
        };
        if join == Join::Not && self.count() != 4 {
            return Err(Stop::Error(errors::BITOP_NOT));
        }
        self.admit()?;
        let (mut basis, mut read, mut joined) = (Vec::new(), 0, Joined::default());
        for at in 3..self.count() {
            let text = self.old_string(at)?;
            let bytes = self.whole(&text, read)?;
            read += bytes.len();
            for part in [&text.record[..], &text.rest] {
                basis.extend_from_slice(&part.len().to_le_bytes());
                basis.extend_from_slice(part);
            }
            joined.add(join, at == 3, bytes);
        }
        let made = joined.bytes;
        if made.is_empty() {
            self.remove(2)?;
        } else {
            self.put_made(2, None, &basis, &[Piece::Bytes(&made)], made.len())?;
        }
        encode::integer(self.reply, made.len() as i64);
        Ok(())
    }

    /// The operations of BITFIELD.
    fn fields(&self) -> Result<Vec<FieldOperation>, Stop> {
        let (mut operations, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
        while at < self.count() {
            let left = self.count() - at - 1;
            let words = match () {
                () if self.is_word(at, "get") => 2,
                () if self.is_word(at, "set") || self.is_word(at, "incrby") => 3,
                () if self.is_word(at, "overflow") => 1,
                () => 0,
            };
            if words == 0 || left < words {
                return Err(Stop::Error(errors::SYNTAX));
            }
            if words == 1 {
                overflow = match () {
                    () if self.is_word(at + 1, "wrap") => Overflow::Wrap,
                    () if self.is_word(at + 1, "sat") => Overflow::Saturate,
                    () if self.is_word(at + 1, "fail") => Overflow::Fail,
                    () => return Err(Stop::Error(errors::BITFIELD_OVERFLOW)),
                };
            } else {
                let kind = FieldType::parse(self.job.args.arg(at + 1)).ok_or(Stop::Error(errors::BITFIELD_TYPE))?;
                let number = self.bit_number(at + 2, Some(kind.bits))?;
                let action = match () {
                    () if words == 2 => FieldAction::Get,
                    () if self.is_word(at, "set") => FieldAction::Set(self.integer(at + 3)?),
                    () => FieldAction::Increment(self.integer(at + 3)?),
                };
                if operations.len() == FIELDS_MAX {
                    return Err(Stop::Error(errors::TOO_MANY_FIELDS));
                }
                operations.push(FieldOperation {
                    kind,
                    at: number,
                    action,
                    overflow,
                });
            }
            at += 1 + words;
        }
        Ok(operations)
    }

    /// BITFIELD, or BITFIELD_RO, which only reads.
    pub(crate) fn bitfield(&mut self, only_reads: bool) -> Result<(), Stop> {
        let operations = self.fields()?;
        let writes = |operation: &&FieldOperation| !matches!(operation.action, FieldAction::Get);
        let end = operations.iter().filter(writes).map(FieldOperation::end).max();
        if only_reads && end.is_some() {
            return Err(Stop::Error(errors::BITFIELD_RO));
        }
        self.admit()?;
        let old = self.old_string(1)?;
        // As in Redis, the string has all fields that are to be written, even those that were not for overflow.
        let length = old.length().max(end.unwrap_or(0));
        if length > READ_BYTES_MAX {
            return Err(Stop::Error(errors::TOO_MANY_BITS));
        }
        let before = self.whole(&old, 0)?;
        let mut bytes = before.clone();
        bytes.resize(length, 0);
        self.access.turn_budget().spend(length as u64 * BYTE_STEPS);
        let answers: Vec<Option<i64>> = operations.iter().map(|operation| operation.run(&mut bytes)).collect();
        if bytes != before {
            self.put_changed(1, &old, &[Piece::Bytes(&bytes)], length)?;
        }
        encode::array_header(self.reply, answers.len());
        let proto = self.proto();
        for answer in answers {
            match answer {
                Some(number) => encode::integer(self.reply, number),
                None => encode::null(self.reply, proto),
            }
        }
        Ok(())
    }
}

/// The bits of a part of a string of `bytes` bytes.
fn bits_of(start: i64, end: i64, measure: Measure, bytes: usize) -> Option<RangeInclusive<usize>> {
    match measure {
        Measure::Bits => part_of(start, end, 8 * bytes),
        Measure::Bytes => part_of(start, end, bytes).map(|part| 8 * part.start()..=8 * part.end() + 7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_and_found_as_one_by_one() {
        let mut random = paritas_base::Prng::new(7);
        for _ in 0..2_000 {
            let length = random.below(40) as usize;
            let of_kind = [0u8, 0xFF, random.next_u64() as u8];
            let bytes: Vec<u8> = (0..length).map(|_| of_kind[random.below(3) as usize]).collect();
            let number = |random: &mut paritas_base::Prng| random.below(700) as i64 - 350;
            let (start, end) = (number(&mut random), number(&mut random));
            let measure = if random.below(2) == 0 {
                Measure::Bytes
            } else {
                Measure::Bits
            };
            let Some(bits) = bits_of(start, end, measure, length) else {
                continue;
            };
            assert!(*bits.end() < 8 * length);
            let ones = bits.clone().filter(|at| bit_of(&bytes, *at)).count();
            assert_eq!(count_bits(&bytes, &bits), ones as u64, "{bytes:?} {bits:?}");
            for wanted in [false, true] {
                let first = bits.clone().find(|at| bit_of(&bytes, *at) == wanted);
                assert_eq!(find_bit(&bytes, &bits, wanted), first, "{bytes:?} {bits:?}");
            }
        }
    }

    #[test]
    fn strings_are_joined_as_if_zeros_followed_them() {
        let mut random = paritas_base::Prng::new(9);
        for _ in 0..2_000 {
            let join = *random.pick(&[Join::And, Join::Or, Join::Xor]);
            let strings: Vec<Vec<u8>> = (0..1 + random.below(5))
                .map(|_| (0..random.below(12)).map(|_| random.next_u64() as u8).collect())
                .collect();
            let mut joined = Joined::default();
            for (n, string) in strings.iter().enumerate() {
                joined.add(join, n == 0, string.clone());
            }
            let longest = strings.iter().map(Vec::len).max().unwrap();
            let byte = |at: usize| {
                let all = strings.iter().map(|string| string.get(at).copied().unwrap_or(0));
                all.reduce(|a, b| match join {
                    Join::And => a & b,
                    Join::Xor => a ^ b,
                    Join::Or | Join::Not => a | b,
                })
            };
            let expected: Vec<u8> = (0..longest).filter_map(byte).collect();
            assert_eq!(joined.bytes, expected, "{join:?} of {strings:?}");
        }
    }

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut random = paritas_base::Prng::new(8);
        for _ in 0..2_000 {
            let is_signed = random.below(2) == 0;
            let bits = 1 + random.below(if is_signed { 64 } else { 63 }) as u32;
            let kind = FieldType { is_signed, bits };
            let number = kind.wrap(i128::from(random.next_u64()));
            assert!(kind.range().contains(&number));
            let at = random.below(64) as usize;
            let mut bytes = vec![random.next_u64() as u8; 16];
            let before = bytes.clone();
            kind.write(&mut bytes, at, number);
            assert_eq!(kind.read(&bytes, at), number);
            let others = (0..128).filter(|bit| !(at..at + bits as usize).contains(bit));
            for bit in others {
                assert_eq!(bit_of(&bytes, bit), bit_of(&before, bit));
            }
        }
    }
}
