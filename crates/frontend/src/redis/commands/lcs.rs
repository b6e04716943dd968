//! LCS: the longest common subsequence of two strings.
//!
//! The lengths of the longest common subsequences of all prefixes grow by 0 or 1 from one column to the next. So a row
//! of that table is kept as bits, and the next row is computed from it 64 columns at a time.

use super::{Operation, Stop};
use paritas_protocol::Out;
use paritas_wire::resp::{encode, errors};

/// The longest string, and the most words of 64 columns of all rows: two strings of 8 KiB have as many.
const STRING_BYTES_MAX: usize = 1 << 20;
const WORDS_MAX: usize = 1 << 20;
/// Steps of a turn's budget for a word, and for each byte of the strings on the way back.
const WORD_STEPS: u64 = 2;
const BYTE_STEPS: u64 = 2;

/// The options of LCS.
#[derive(Default)]
struct Options {
    length: bool,
    ranges: bool,
    with_length: bool,
    range_min: usize,
}

/// The rows of the table, one for each byte of the first string. Bit `j` of a row is clear if the column `j + 1` has
/// one more than the column `j`.
struct Table<'a> {
    strings: [&'a [u8]; 2],
    words: usize,
    /// Only the last one, if nobody goes back through the table.
    rows: Vec<u64>,
    keeps_all: bool,
}

impl<'a> Table<'a> {
    fn of(strings: [&'a [u8]; 2], keeps_all: bool) -> Self {
        let [first, second] = strings;
        let words = second.len().div_ceil(64);
        // Where in the second string each byte of the first one is.
        let mut place_of = [None; 256];
        let mut places: Vec<u64> = Vec::new();
        for byte in first {
            let Some(place) = place_of.get_mut(usize::from(*byte)) else {
                continue;
            };
            if place.is_none() {
                *place = Some(places.len());
                places.resize(places.len() + words, 0);
            }
        }
        for (at, byte) in second.iter().enumerate() {
            if let Some(Some(place)) = place_of.get(usize::from(*byte))
                && let Some(word) = places.get_mut(place + at / 64)
            {
                *word |= 1 << (at % 64);
            }
        }
        let mut table = Self {
            strings,
            words,
            rows: Vec::with_capacity(if keeps_all { first.len() * words } else { words }),
            keeps_all,
        };
        let mut row = vec![u64::MAX; words];
        for byte in first {
            let place = place_of.get(usize::from(*byte)).copied().flatten().unwrap_or_default();
            let same = places.get(place..place + words).unwrap_or_default();
            let mut carry = false;
            for (word, same) in row.iter_mut().zip(same) {
                let (sum, first) = word.overflowing_add(*word & same);
                let (sum, second) = sum.overflowing_add(u64::from(carry));
                carry = first || second;
                *word = sum | (*word & !same);
            }
            if keeps_all {
                table.rows.extend_from_slice(&row);
            }
        }
        if !keeps_all {
            table.rows = row;
        }
        table
    }

    /// The length of the longest common subsequence.
    fn length(&self) -> usize {
        let [first, second] = self.strings;
        if first.is_empty() {
            return 0;
        }
        let last = self.rows.len() - self.words..;
        let last = self.rows.get(last).unwrap_or_default();
        let in_use = |at: usize| u64::MAX >> (64 - (second.len() - 64 * at).min(64));
        let clear = last
            .iter()
            .enumerate()
            .map(|(at, word)| (!word & in_use(at)).count_ones());
        clear.sum::<u32>() as usize
    }

    /// The subsequence that Redis chooses, as runs that both strings have: where each begins in either, and its length.
    /// The last run comes first.
    fn runs(&self) -> Vec<([usize; 2], usize)> {
        debug_assert!(self.keeps_all);
        let [first, second] = self.strings;
        let (mut i, mut j) = (first.len(), second.len());
        let mut runs: Vec<([usize; 2], usize)> = Vec::new();
        let mut is_open = false;
        while i > 0 && j > 0 {
            let is_same = first.get(i - 1) == second.get(j - 1);
            if is_same {
                (i, j) = (i - 1, j - 1);
                match runs.last_mut().filter(|_| is_open) {
                    Some((begin, length)) => (*begin, *length) = ([i, j], *length + 1),
                    None => runs.push(([i, j], 1)),
                }
            } else {
                // Redis goes to the column before, if that has no less than the row before.
                let word = self.rows.get((i - 1) * self.words + (j - 1) / 64);
                match word.is_some_and(|word| word >> ((j - 1) % 64) & 1 == 1) {
                    true => j -= 1,
                    false => i -= 1,
                }
            }
            is_open = is_same;
        }
        runs
    }
}

impl<O: Out> Operation<'_, '_, O> {
    fn lcs_options(&self) -> Result<Options, Stop> {
        let mut options = Options::default();
        let mut at = 3;
        while at < self.count() {
            if self.is_word(at, "len") {
                options.length = true;
            } else if self.is_word(at, "idx") {
                options.ranges = true;
            } else if self.is_word(at, "withmatchlen") {
                options.with_length = true;
            } else if self.is_word(at, "minmatchlen") && at + 1 < self.count() {
                at += 1;
                options.range_min = usize::try_from(self.integer(at)?).unwrap_or(0);
            } else {
                return Err(Stop::Error(errors::SYNTAX));
            }
            at += 1;
        }
        match options.length && options.ranges {
            true => Err(Stop::Error(errors::LCS_BOTH)),
            false => Ok(options),
        }
    }

    /// LCS key key [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN].
    pub(crate) fn lcs(&mut self) -> Result<(), Stop> {
        self.admit()?;
        let strings_only = |stop| match stop {
            Stop::Error(errors::WRONG_TYPE) => Stop::Error(errors::LCS_TYPE),
            stop => stop,
        };
        let texts = [
            self.old_string(1).map_err(strings_only)?,
            self.old_string(2).map_err(strings_only)?,
        ];
        let options = self.lcs_options()?;
        let [first, second] = texts.each_ref().map(|text| text.length());
        let words = first * second.div_ceil(64);
        if first.max(second) > STRING_BYTES_MAX || words > WORDS_MAX {
            return Err(Stop::Error(errors::LCS_TOO_LONG));
        }
        let [first, second] = [self.whole(&texts[0], 0)?, self.whole(&texts[1], 0)?];
        let steps = words as u64 * WORD_STEPS + (first.len() + second.len()) as u64 * BYTE_STEPS;
        self.access.turn_budget().spend(steps);
        let table = Table::of([&first, &second], !options.length);
        let length = table.length();
        if options.length {
            encode::integer(self.reply, length as i64);
            return Ok(());
        }
        let runs = table.runs();
        if !options.ranges {
            let found: Vec<u8> = runs
                .iter()
                .rev()
                .flat_map(|([at, _], length)| first.get(*at..at + length).unwrap_or_default())
                .copied()
                .collect();
            debug_assert_eq!(found.len(), length);
            encode::bulk(self.reply, &found);
            return Ok(());
        }
        let proto = self.proto();
        let shown = runs.iter().filter(|(_, length)| *length >= options.range_min);
        let reply = &mut *self.reply;
        encode::map_header(reply, proto, 2);
        encode::bulk(reply, b"matches");
        encode::array_header(reply, shown.clone().count());
        for (begins, length) in shown {
            encode::array_header(reply, 2 + usize::from(options.with_length));
            for at in begins {
                encode::array_header(reply, 2);
                encode::integer(reply, *at as i64);
                encode::integer(reply, (at + length - 1) as i64);
            }
            if options.with_length {
                encode::integer(reply, *length as i64);
            }
        }
        encode::bulk(reply, b"len");
        encode::integer(reply, length as i64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use paritas_base::Prng;

    /// The same by the table of all lengths, and its way back.
    fn plainly(first: &[u8], second: &[u8]) -> (usize, Vec<u8>) {
        let mut lengths = vec![vec![0; second.len() + 1]; first.len() + 1];
        for i in 1..=first.len() {
            for j in 1..=second.len() {
                lengths[i][j] = match first[i - 1] == second[j - 1] {
                    true => lengths[i - 1][j - 1] + 1,
                    false => lengths[i - 1][j].max(lengths[i][j - 1]),
                };
            }
        }
        let (mut i, mut j, mut found) = (first.len(), second.len(), Vec::new());
        while i > 0 && j > 0 {
            if first[i - 1] == second[j - 1] {
                found.push(first[i - 1]);
                (i, j) = (i - 1, j - 1);
            } else if lengths[i - 1][j] > lengths[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        found.reverse();
        (lengths[first.len()][second.len()], found)
    }

    #[test]
    fn rows_of_bits_give_what_a_table_of_numbers_gives() {
        for seed in 1..=300 {
            let mut random = Prng::new(seed);
            let letters = random.between(1, 6);
            let mut string = || -> Vec<u8> {
                let length = random.below(200);
                (0..length).map(|_| b'a' + random.below(letters) as u8).collect()
            };
            let (first, second) = (string(), string());
            let (length, expected) = plainly(&first, &second);
            let table = Table::of([&first, &second], true);
            let runs = table.runs();
            let found: Vec<u8> = runs
                .iter()
                .rev()
                .flat_map(|([i, j], length)| {
                    assert_eq!(first[*i..i + length], second[*j..j + length], "seed {seed}");
                    first[*i..i + length].to_vec()
                })
                .collect();
            assert_eq!((table.length(), found), (length, expected), "seed {seed}");
            assert_eq!(Table::of([&first, &second], false).length(), length, "seed {seed}");
        }
    }
}
