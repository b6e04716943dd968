//! Patterns of KEYS, SCAN, CONFIG GET and COMMAND LIST: `*`, `?`, `[a-z]`, `[^…]` and `\`.

/// Whether the whole `text` matches `pattern`. Upper and lower case differ.
///
/// Takes at most `pattern × text` steps: only the last star is tried again, because it can match whatever an earlier
/// star could.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Where to continue if the rest does not match after the last star: the star then takes one byte more.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', tail @ ..] = pattern {
            if tail.is_empty() {
                return true;
            }
            retry = Some((tail, text));
            pattern = tail;
            continue;
        }
        match (one(pattern, text.first().copied()), text) {
            (Some(after), [_, tail @ ..]) => (pattern, text) = (after, tail),
            _ if pattern.is_empty() && text.is_empty() => return true,
            _ => match retry {
                Some((after_star, [_, tail @ ..])) => {
                    retry = Some((after_star, tail));
                    (pattern, text) = (after_star, tail);
                }
                _ => return false,
            },
        }
    }
}

/// The rest of the pattern if its first element matches this byte.
fn one(pattern: &[u8], byte: Option<u8>) -> Option<&[u8]> {
    let byte = byte?;
    match pattern {
        [b'?', tail @ ..] => Some(tail),
        [b'[', tail @ ..] => class(tail, byte),
        [b'\\', literal, tail @ ..] => (*literal == byte).then_some(tail),
        [literal, tail @ ..] => (*literal == byte).then_some(tail),
        [] => None,
    }
}

/// Matches a class, after its `[`. A class without `]` ends with the pattern, as in Redis.
fn class(mut rest: &[u8], byte: u8) -> Option<&[u8]> {
    let negated = matches!(rest, [b'^', ..]);
    if let [b'^', tail @ ..] = rest {
        rest = tail;
    }
    let mut found = false;
    let after = loop {
        rest = match rest {
            [] => break rest,
            [b'\\', literal, tail @ ..] => {
                found |= *literal == byte;
                tail
            }
            [b']', tail @ ..] => break tail,
            [from, b'-', to, tail @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                tail
            }
            [literal, tail @ ..] => {
                found |= *literal == byte;
                tail
            }
        };
    };
    (found != negated).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_mean_what_they_mean_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("a[\\]]b", "a]b", true),
            ("a[bc", "ab", true),
            ("*a*b", "xaxxbab", true),
            ("*a*b", "xaxxba", false),
            ("a**c", "abc", true),
            ("get*", "getrange", true),
            ("?", "", false),
            ("[^a]", "", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn many_stars_end_soon() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(50_000).as_bytes()));
    }
}
