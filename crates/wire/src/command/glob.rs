//! Patterns of KEYS, SCAN, CONFIG GET and COMMAND LIST: `*`, `?`, `[a-z]`, `[^…]` and `\`.
//!
//! A pattern is an automaton: state `n` means that `n` elements have matched, and a star behind an element lets its
//! state stay. 64 states go forward in one step, so the work for a text is bounded by its length times a 64th of that
//! of the pattern, whatever the pattern is. It is counted, because commands have a budget of work (P10.2b).

use core::ops::RangeInclusive;

/// The longest pattern in bytes. A command looks at its pattern once for each step of a walk.
pub const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Most bytes of the patterns of one command for names of settings or commands.
pub const NAME_PATTERNS_BYTES_MAX: usize = 1 << 10;
const WORD_BITS: usize = u64::BITS as usize;
/// Values of a byte.
const BYTES: usize = 256;

/// A set of bytes.
type ByteSet = [u64; BYTES / WORD_BITS];

/// Whether upper and lower case differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// They do.
    Matters,
    /// They do not.
    Ignored,
}

/// A pattern that texts can be compared with.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// What each element matches: one byte of the set. Stars are none.
    elements: Vec<ByteSet>,
    /// Bit `n`: a star follows element `n`.
    stars: Vec<u64>,
    /// A star comes before the first element.
    begins_with_star: bool,
    /// It is exactly `*`. In Redis no other pattern of stars matches the empty text.
    is_one_star: bool,
    /// For each byte, bit `n`: element `n` matches it. Made when the byte is met first.
    rows: Vec<u64>,
    known: ByteSet,
    /// The states that are reached.
    states: Vec<u64>,
}

impl Pattern {
    /// Reads a pattern. Every text is one, but `None` if it is longer than [`PATTERN_BYTES_MAX`]. Adds its steps to
    /// `steps`, as [`Self::matches`] does.
    pub fn new(text: &[u8], case: Case, steps: &mut u64) -> Option<Self> {
        if text.len() > PATTERN_BYTES_MAX {
            return None;
        }
        *steps += 64 + text.len() as u64 * 8;
        let mut stars = vec![0; text.len().div_ceil(WORD_BITS)];
        let (mut elements, mut begins_with_star) = (Vec::new(), false);
        let mut rest = text;
        while let [first, tail @ ..] = rest {
            rest = tail;
            let element = match (first, rest) {
                (b'*', _) => {
                    match elements.len().checked_sub(1) {
                        Some(last) => insert(&mut stars, last),
                        None => begins_with_star = true,
                    }
                    continue;
                }
                (b'?', _) => [u64::MAX; 4],
                (b'[', _) => class(&mut rest, case, steps),
                (b'\\', [literal, tail @ ..]) => {
                    rest = tail;
                    only(*literal, case)
                }
                (literal, _) => only(*literal, case),
            };
            elements.push(element);
        }
        let words = elements.len().div_ceil(WORD_BITS);
        stars.truncate(words);
        Some(Self {
            elements,
            stars,
            begins_with_star,
            is_one_star: text == b"*",
            rows: Vec::new(),
            known: ByteSet::default(),
            states: vec![0; words],
        })
    }

    /// Whether the whole text matches. Adds the steps that this took to `steps`; one is about a nanosecond.
    pub fn matches(&mut self, text: &[u8], steps: &mut u64) -> bool {
        let (count, spare) = match (self.elements.len(), text.len().checked_sub(self.elements.len())) {
            (0, _) => return self.is_one_star || self.begins_with_star != text.is_empty(),
            (_, None) => return false,
            (count, Some(spare)) => (count, spare),
        };
        let ends_with_star = contains(&self.stars, count - 1);
        if spare > 0 && !self.begins_with_star && self.stars.iter().all(|word| *word == 0) {
            return false;
        }
        self.states.fill(0);
        for (at, byte) in text.iter().enumerate() {
            let row = self.row(*byte, steps);
            // A state below the first of these cannot reach the end any more, and none above the last is reached yet.
            let words = at.saturating_sub(spare) / WORD_BITS..=at.min(count - 1) / WORD_BITS;
            *steps += (words.end() - words.start()) as u64 + 4;
            let begins = at == 0 || self.begins_with_star;
            if !self.step(row, words, begins) && !self.begins_with_star {
                return false;
            }
            if ends_with_star && contains(&self.states, count - 1) {
                return true;
            }
        }
        contains(&self.states, count - 1)
    }

    /// Goes one byte forward, for the states in these words. Returns whether any of them is reached.
    fn step(&mut self, row: usize, words: RangeInclusive<usize>, begins: bool) -> bool {
        let row = self.rows.get(row..row + self.states.len()).unwrap_or_default();
        let below = words.start().checked_sub(1).map(|below| self.states.get(below));
        // Once the word below is out of reach of the end, so is what it carries over.
        let mut carry = match below {
            None => u64::from(begins),
            Some(below) => below.map_or(0, |state| state >> (WORD_BITS - 1)),
        };
        let mut any = 0;
        let states = self.states.iter_mut().zip(row).zip(&self.stars);
        for ((state, row), stars) in states.take(words.end() + 1).skip(*words.start()) {
            let before = *state;
            *state = (before << 1 | carry) & row | before & stars;
            carry = before >> (WORD_BITS - 1);
            any |= *state;
        }
        any != 0
    }

    /// Where the row of a byte begins.
    fn row(&mut self, byte: u8, steps: &mut u64) -> usize {
        let (words, number) = (self.states.len(), usize::from(byte));
        if !contains(&self.known, number) {
            insert(&mut self.known, number);
            self.rows.resize(BYTES * words, 0);
            *steps += self.elements.len() as u64 * 2;
            let row = self.rows.get_mut(number * words..).unwrap_or_default();
            for (at, element) in self.elements.iter().enumerate() {
                if contains(element, number) {
                    insert(row, at);
                }
            }
        }
        number * words
    }
}

fn insert(set: &mut [u64], number: usize) {
    if let Some(word) = set.get_mut(number / WORD_BITS) {
        *word |= 1 << (number % WORD_BITS);
    }
}

fn contains(set: &[u64], number: usize) -> bool {
    set.get(number / WORD_BITS)
        .is_some_and(|word| word >> (number % WORD_BITS) & 1 == 1)
}

fn only(byte: u8, case: Case) -> ByteSet {
    let mut set = ByteSet::default();
    insert_letter(&mut set, byte, case);
    set
}

fn insert_letter(set: &mut ByteSet, byte: u8, case: Case) {
    insert(set, usize::from(byte));
    if case == Case::Ignored {
        insert(set, usize::from(byte.to_ascii_lowercase()));
        insert(set, usize::from(byte.to_ascii_uppercase()));
    }
}

/// Reads a class, after its `[`. A class without `]` ends with the pattern, as in Redis.
fn class(rest: &mut &[u8], case: Case, steps: &mut u64) -> ByteSet {
    let negated = matches!(rest, [b'^', ..]);
    if let [b'^', tail @ ..] = rest {
        *rest = tail;
    }
    let mut set = ByteSet::default();
    loop {
        *rest = match rest {
            [] => break,
            [b']', tail @ ..] => {
                *rest = tail;
                break;
            }
            // As in Redis, this one keeps its case even if case is ignored.
            [b'\\', literal, tail @ ..] => {
                insert(&mut set, usize::from(*literal));
                tail
            }
            [from, b'-', to, tail @ ..] => {
                *steps += 16;
                insert_range(&mut set, *from, *to, case);
                tail
            }
            [literal, tail @ ..] => {
                insert_letter(&mut set, *literal, case);
                tail
            }
        };
    }
    if negated {
        set = set.map(|word| !word);
    }
    set
}

/// Redis compares bytes as signed numbers, on the machines on which it is used most: 0xff is less than `a`. It orders
/// the two ends before it ignores their case.
fn insert_range(set: &mut ByteSet, from: u8, to: u8, case: Case) {
    let (from, to) = if from.cast_signed() > to.cast_signed() {
        (to, from)
    } else {
        (from, to)
    };
    if case == Case::Matters {
        if from > to {
            fill(set, from, u8::MAX);
            fill(set, 0, to);
        } else {
            fill(set, from, to);
        }
        return;
    }
    let folded = |byte: u8| byte.to_ascii_lowercase().cast_signed();
    let range = folded(from)..=folded(to);
    for byte in (0..=u8::MAX).filter(|byte| range.contains(&folded(*byte))) {
        insert(set, usize::from(byte));
    }
}

/// Inserts all bytes from `from` to `to`, as unsigned numbers.
fn fill(set: &mut ByteSet, from: u8, to: u8) {
    for (word, first) in set.iter_mut().zip((0..BYTES).step_by(WORD_BITS)) {
        let low = usize::from(from).saturating_sub(first);
        let end = (usize::from(to) + 1).saturating_sub(first).min(WORD_BITS);
        if low < end {
            *word |= u64::MAX >> (WORD_BITS - (end - low)) << low;
        }
    }
}
