//! Lua's patterns (reference manual of Lua 5.1, section 5.4.1), with a count of steps.
//!
//! Those of Lua's own library run in C, where no hook ends them: `("a?"):rep(24) .. ("a"):rep(24)` takes seconds.

/// The most captures of a pattern, and the deepest nesting of its items.
const CAPTURES_MAX: usize = 32;
const DEPTH_MAX: usize = 200;
/// Steps are reported in portions of this size.
const PORTION_STEPS: u32 = 256;
/// Nanoseconds of a step, about.
const STEP_NS: u64 = 4;

const ESCAPE: u8 = b'%';
/// What stands after the last byte of text, for `%f`.
const END: u8 = 0;

/// Why a match ends early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The pattern is malformed.
    Malformed(&'static str),
    /// The script has no work left.
    OutOfSteps,
}

use Failure::Malformed;

/// What a capture has caught.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capture {
    /// Bytes of the text.
    Text { start: usize, end: usize },
    /// A position, `()`: an offset from 0.
    Position(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caught {
    Open(usize),
    Closed(usize, usize),
    Position(usize),
}

/// A match: where it is, and its captures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Vec<Capture>,
}

/// Finds the first match at or after `from`. `may_anchor`: whether `^` is an anchor. `spend` takes nanoseconds of work,
/// and answers whether there is more.
///
/// # Errors
/// A malformed pattern, or the end of the script.
pub(crate) fn find(
    text: &[u8],
    pattern: &[u8],
    from: usize,
    may_anchor: bool,
    spend: &dyn Fn(u64) -> bool,
) -> Result<Option<Match>, Failure> {
    let (is_anchored, items) = match pattern {
        [b'^', rest @ ..] if may_anchor => (true, rest),
        all => (false, all),
    };
    let mut matcher = Matcher {
        text,
        pattern: items,
        caught: Vec::new(),
        depth: 0,
        steps: 0,
        spend,
    };
    let mut start = from;
    while start <= text.len() {
        matcher.caught.clear();
        matcher.step()?;
        if let Some(end) = matcher.run(start, 0)? {
            let captures = matcher.captures()?;
            matcher.report()?;
            return Ok(Some(Match { start, end, captures }));
        }
        if is_anchored {
            break;
        }
        start += 1;
    }
    matcher.report()?;
    Ok(None)
}

struct Matcher<'m> {
    text: &'m [u8],
    pattern: &'m [u8],
    caught: Vec<Caught>,
    depth: usize,
    steps: u32,
    spend: &'m dyn Fn(u64) -> bool,
}

impl Matcher<'_> {
    fn step(&mut self) -> Result<(), Failure> {
        self.steps += 1;
        if self.steps >= PORTION_STEPS {
            self.report()
        } else {
            Ok(())
        }
    }

    fn report(&mut self) -> Result<(), Failure> {
        let steps = core::mem::take(&mut self.steps);
        match (self.spend)(u64::from(steps) * STEP_NS) {
            true => Ok(()),
            false => Err(Failure::OutOfSteps),
        }
    }

    fn at(&self, p: usize) -> Option<u8> {
        self.pattern.get(p).copied()
    }

    fn byte(&self, s: usize) -> Option<u8> {
        self.text.get(s).copied()
    }

    /// The end of the match of the items from `p` on, at `s`.
    fn run(&mut self, s: usize, p: usize) -> Result<Option<usize>, Failure> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Malformed("pattern too complex"));
        }
        let found = self.run_items(s, p);
        self.depth -= 1;
        found
    }

    fn run_items(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, Failure> {
        loop {
            self.step()?;
            let Some(item) = self.at(p) else { return Ok(Some(s)) };
            match (item, self.at(p + 1)) {
                (b'(', Some(b')')) => return self.with_capture(Caught::Position(s), s, p + 2),
                (b'(', _) => return self.with_capture(Caught::Open(s), s, p + 1),
                (b')', _) => return self.close(s, p + 1),
                (b'$', None) => return Ok((s == self.text.len()).then_some(s)),
                (ESCAPE, Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (ESCAPE, Some(b'f')) => {
                    let set = p + 2;
                    if self.at(set) != Some(b'[') {
                        return Err(Malformed("missing '[' after '%f' in pattern"));
                    }
                    let after = self.class_end(set)?;
                    let before = s.checked_sub(1).and_then(|s| self.byte(s)).unwrap_or(END);
                    let here = self.byte(s).unwrap_or(END);
                    if self.in_set(before, set, after - 1) || !self.in_set(here, set, after - 1) {
                        return Ok(None);
                    }
                    p = after;
                }
                (ESCAPE, Some(digit)) if digit.is_ascii_digit() => {
                    let (start, end) = self.captured(digit)?;
                    let length = end - start;
                    self.steps += length as u32 / 16;
                    if self.text.get(s..s + length) != self.text.get(start..end) {
                        return Ok(None);
                    }
                    (s, p) = (s + length, p + 2);
                }
                _ => {
                    let after = self.class_end(p)?;
                    let is_one = self.byte(s).is_some_and(|byte| self.is_one(byte, p, after));
                    match self.at(after) {
                        Some(b'?') => {
                            if is_one && let Some(end) = self.run(s + 1, after + 1)? {
                                return Ok(Some(end));
                            }
                            p = after + 1;
                        }
                        Some(b'*') => return self.longest(s, p, after, 0),
                        Some(b'+') => return if is_one { self.longest(s, p, after, 1) } else { Ok(None) },
                        Some(b'-') => return self.shortest(s, p, after),
                        _ if is_one => (s, p) = (s + 1, after),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// As many of a class as match, at least `least`, then the rest.
    fn longest(&mut self, s: usize, p: usize, after: usize, least: usize) -> Result<Option<usize>, Failure> {
        let mut count = 0;
        while self.byte(s + count).is_some_and(|byte| self.is_one(byte, p, after)) {
            count += 1;
            self.step()?;
        }
        loop {
            if count < least {
                return Ok(None);
            }
            if let Some(end) = self.run(s + count, after + 1)? {
                return Ok(Some(end));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few of a class as match, then the rest.
    fn shortest(&mut self, mut s: usize, p: usize, after: usize) -> Result<Option<usize>, Failure> {
        loop {
            if let Some(end) = self.run(s, after + 1)? {
                return Ok(Some(end));
            }
            if !self.byte(s).is_some_and(|byte| self.is_one(byte, p, after)) {
                return Ok(None);
            }
            s += 1;
            self.step()?;
        }
    }

    fn with_capture(&mut self, caught: Caught, s: usize, p: usize) -> Result<Option<usize>, Failure> {
        if self.caught.len() >= CAPTURES_MAX {
            return Err(Malformed("too many captures"));
        }
        self.caught.push(caught);
        let level = self.caught.len();
        let end = self.run(s, p)?;
        if end.is_none() {
            self.caught.truncate(level - 1);
        }
        Ok(end)
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Option<usize>, Failure> {
        let open = self.caught.iter().rposition(|caught| matches!(caught, Caught::Open(_)));
        let (Some(at), Some(Caught::Open(start))) = (open, open.and_then(|at| self.caught.get(at).copied())) else {
            return Err(Malformed("invalid pattern capture"));
        };
        self.set_caught(at, Caught::Closed(start, s));
        let end = self.run(s, p)?;
        if end.is_none() {
            self.set_caught(at, Caught::Open(start));
        }
        Ok(end)
    }

    fn set_caught(&mut self, at: usize, caught: Caught) {
        if let Some(place) = self.caught.get_mut(at) {
            *place = caught;
        }
    }

    fn captured(&self, digit: u8) -> Result<(usize, usize), Failure> {
        let at = usize::from(digit - b'0').checked_sub(1);
        match at.and_then(|at| self.caught.get(at)) {
            Some(Caught::Closed(start, end)) => Ok((*start, *end)),
            _ => Err(Malformed("invalid capture index")),
        }
    }

    fn balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>, Failure> {
        let (Some(open), Some(close)) = (self.at(p), self.at(p + 1)) else {
            return Err(Malformed("unbalanced pattern"));
        };
        if self.byte(s) != Some(open) {
            return Ok(None);
        }
        let (mut depth, mut at) = (1, s + 1);
        while let Some(byte) = self.byte(at) {
            self.step()?;
            at += 1;
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// The end of the class that begins at `p`.
    fn class_end(&mut self, p: usize) -> Result<usize, Failure> {
        match self.at(p) {
            Some(ESCAPE) => match self.at(p + 1) {
                Some(_) => Ok(p + 2),
                None => Err(Malformed("malformed pattern (ends with '%')")),
            },
            Some(b'[') => {
                let mut at = p + 1;
                if self.at(at) == Some(b'^') {
                    at += 1;
                }
                loop {
                    let missing = Malformed("malformed pattern (missing ']')");
                    let byte = self.at(at).ok_or(missing)?;
                    self.steps += 1;
                    at += 1;
                    if byte == ESCAPE && self.at(at).is_some() {
                        at += 1;
                    }
                    if self.at(at).ok_or(missing)? == b']' {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether a byte is of the class at `p`, which ends before `after`.
    fn is_one(&mut self, byte: u8, p: usize, after: usize) -> bool {
        match self.at(p) {
            Some(b'.') => true,
            Some(ESCAPE) => is_of_class(byte, self.at(p + 1).unwrap_or_default()),
            Some(b'[') => self.in_set(byte, p, after - 1),
            item => item == Some(byte),
        }
    }

    /// Whether a byte is in the set between `[` at `p` and `]` at `end`.
    fn in_set(&mut self, byte: u8, p: usize, end: usize) -> bool {
        self.steps += (end - p) as u32 / 4;
        let is_negated = self.at(p + 1) == Some(b'^');
        let mut at = if is_negated { p + 2 } else { p + 1 };
        while at < end {
            let item = self.at(at).unwrap_or_default();
            if item == ESCAPE {
                if is_of_class(byte, self.at(at + 1).unwrap_or_default()) {
                    return !is_negated;
                }
                at += 2;
            } else if self.at(at + 1) == Some(b'-') && at + 2 < end {
                if (item..=self.at(at + 2).unwrap_or_default()).contains(&byte) {
                    return !is_negated;
                }
                at += 3;
            } else if item == byte {
                return !is_negated;
            } else {
                at += 1;
            }
        }
        is_negated
    }

    fn captures(&self) -> Result<Vec<Capture>, Failure> {
        let capture = |caught: &Caught| match caught {
            Caught::Open(_) => Err(Malformed("unfinished capture")),
            Caught::Closed(start, end) => Ok(Capture::Text {
                start: *start,
                end: *end,
            }),
            Caught::Position(at) => Ok(Capture::Position(*at)),
        };
        self.caught.iter().map(capture).collect()
    }
}

/// Whether a byte is of a class such as `%a`. A letter in upper case is the complement.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 11,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, pattern: &str) -> Option<(usize, usize, Vec<Capture>)> {
        let found = find(text.as_bytes(), pattern.as_bytes(), 0, true, &|_| true).unwrap();
        found.map(|found| (found.start, found.end, found.captures))
    }

    #[test]
    fn items_match_as_the_manual_says() {
        let text = |start, end| Capture::Text { start, end };
        assert_eq!(found("hello world", "o w"), Some((4, 7, vec![])));
        assert_eq!(found("hello", "^e"), None);
        assert_eq!(
            found("key=val", "(%w+)=(%w+)"),
            Some((0, 7, vec![text(0, 3), text(4, 7)]))
        );
        assert_eq!(found("aaa", "a-$"), Some((0, 3, vec![])));
        assert_eq!(found("[[x]]", "%b[]"), Some((0, 5, vec![])));
        assert_eq!(found("THE (quick) fox", "%f[%a]%a+%f[%A]"), Some((0, 3, vec![])));
        assert_eq!(found("abcabc", "(abc)%1"), Some((0, 6, vec![text(0, 3)])));
        assert_eq!(
            found("ab", "()b()"),
            Some((1, 2, vec![Capture::Position(1), Capture::Position(2)]))
        );
        assert_eq!(found("a-b", "[a%-]+"), Some((0, 2, vec![])));
        assert_eq!(found("]x", "[]]"), Some((0, 1, vec![])));
        assert_eq!(found("x^", "[%^x]+"), Some((0, 2, vec![])));
        assert_eq!(found("abc", "[^a-b]"), Some((2, 3, vec![])));
        assert_eq!(found("", ""), Some((0, 0, vec![])));
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for (pattern, why) in [
            ("%", "malformed pattern (ends with '%')"),
            ("[a", "malformed pattern (missing ']')"),
            ("(a", "unfinished capture"),
            ("a)", "invalid pattern capture"),
            ("%1", "invalid capture index"),
            ("%f", "missing '[' after '%f' in pattern"),
        ] {
            let failure = find(b"aaa", pattern.as_bytes(), 0, true, &|_| true);
            assert_eq!(failure, Err(Malformed(why)), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_explodes_ends_with_the_work_of_its_script() {
        let left = core::cell::Cell::new(1_000_000u64);
        let spend = |ns: u64| {
            left.set(left.get().saturating_sub(ns));
            left.get() > 0
        };
        let pattern = ["a?".repeat(24), "a".repeat(24)].concat();
        let failure = find("a".repeat(24).as_bytes(), pattern.as_bytes(), 0, true, &spend);
        assert_eq!(failure, Err(Failure::OutOfSteps));
    }
}
