//! Words of a line, and the numbers in them.

/// The words of a line. Only spaces divide them.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// A number of 64 bits without a sign.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 {
        return None;
    }
    word.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum.checked_mul(10)?.checked_add(digit.into())
    })
}

/// A number that may have a sign.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => number(digits).and_then(|n| 0i64.checked_sub_unsigned(n)),
        None => number(word).and_then(|n| i64::try_from(n).ok()),
    }
}

/// An expiry: far more than any date is an error, so that sums cannot overflow.
pub(super) fn exptime(word: &[u8]) -> Option<i64> {
    signed(word).filter(|seconds| (-(1 << 40)..1 << 40).contains(seconds))
}
