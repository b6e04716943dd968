//! Patterns match what they match in Redis, and the work for one is bounded.

use paritas_base::Prng;
use paritas_wire::command::glob::{Case, PATTERN_BYTES_MAX, Pattern};

fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let steps = &mut 0;
    Pattern::new(pattern, case, steps).unwrap().matches(text, steps)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

#[test]
fn patterns_list_the_keys_that_they_list_in_redis() {
    let recorded = include_str!("redis-globs.txt");
    let texts: Vec<Vec<u8>> = recorded
        .lines()
        .filter_map(|line| line.strip_prefix("= "))
        .map(bytes)
        .collect();
    let mut count = 0;
    for line in recorded.lines().filter_map(|line| line.strip_prefix("> ")) {
        let (pattern, listed) = line.split_once(':').unwrap();
        let listed: Vec<usize> = listed.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let (text, steps) = (bytes(pattern), &mut 0);
        let mut pattern = Pattern::new(&text, Case::Matters, steps).unwrap();
        for (at, key) in texts.iter().enumerate() {
            let shown = (text.escape_ascii(), key.escape_ascii());
            assert_eq!(
                pattern.matches(key, steps),
                listed.contains(&at),
                "{} {}",
                shown.0,
                shown.1
            );
        }
        count += listed.len();
    }
    assert!(count > 1000, "{count} keys listed");
}

/// What the function of Redis does, written as it is there. `skip`: no longer match of an earlier star helps.
fn model(mut pattern: &[u8], mut text: &[u8], no_case: bool, skip: &mut bool) -> bool {
    let lower = |byte: u8| i32::from(if no_case { byte.to_ascii_lowercase() } else { byte }.cast_signed());
    while let ([first, ..], [byte, ..]) = (pattern, text) {
        match first {
            b'*' => {
                while let [b'*', b'*', ..] = pattern {
                    pattern = &pattern[1..];
                }
                if pattern.len() == 1 {
                    return true;
                }
                for at in 0..text.len() {
                    if model(&pattern[1..], &text[at..], no_case, skip) {
                        return true;
                    }
                    if *skip {
                        return false;
                    }
                }
                *skip = true;
                return false;
            }
            b'?' => {}
            b'[' => {
                pattern = &pattern[1..];
                let not = pattern.first() == Some(&b'^');
                if not {
                    pattern = &pattern[1..];
                }
                let mut found = false;
                loop {
                    match pattern {
                        [b'\\', literal, ..] => {
                            pattern = &pattern[1..];
                            found |= literal == byte;
                        }
                        [b']', ..] | [] => break,
                        [from, b'-', to, ..] => {
                            let (from, to) = if from.cast_signed() > to.cast_signed() {
                                (to, from)
                            } else {
                                (from, to)
                            };
                            found |= (lower(*from)..=lower(*to)).contains(&lower(*byte));
                            pattern = &pattern[2..];
                        }
                        [literal, ..] => found |= lower(*literal) == lower(*byte),
                    }
                    pattern = &pattern[1..];
                }
                if found == not {
                    return false;
                }
            }
            _ => {
                if let [b'\\', _, ..] = pattern {
                    pattern = &pattern[1..];
                }
                if lower(pattern[0]) != lower(*byte) {
                    return false;
                }
            }
        }
        pattern = pattern.get(1..).unwrap_or_default();
        text = &text[1..];
        if text.is_empty() {
            while let [b'*', tail @ ..] = pattern {
                pattern = tail;
            }
        }
    }
    pattern.is_empty() && text.is_empty()
}

#[test]
fn random_patterns_match_as_in_redis_whether_case_matters_or_not() {
    let mut random = Prng::new(34);
    let mut found = 0;
    for round in 0..200_000 {
        // Long ones have many words of states.
        let most = if round % 50 == 0 { 300 } else { 12 };
        let mut draw = |letters: &[u8], most: u64| -> Vec<u8> {
            let count = random.next_u64() % (most + 1);
            (0..count)
                .map(|_| letters[random.next_u64() as usize % letters.len()])
                .collect()
        };
        let letters: &[u8] = if round % 2 == 0 {
            b"aAb*?"
        } else {
            b"aAbBzZ*?[]^-\\\x80\xff"
        };
        let (pattern, text) = (draw(letters, most), draw(b"aAbBZ]-\\\x80\xff", most * 3 / 2));
        for case in [Case::Matters, Case::Ignored] {
            // Only here Redis differs from itself: KEYS and SCAN never look at the pattern `*`.
            let expected = pattern == b"*" || model(&pattern, &text, case == Case::Ignored, &mut false);
            let is = matches(&pattern, &text, case);
            assert_eq!(
                is,
                expected,
                "{case:?} {} {}",
                pattern.escape_ascii(),
                text.escape_ascii()
            );
            found += u32::from(is);
        }
    }
    println!("{found} of 400,000 match");
    assert!(found > 10_000);
}

/// Patterns made of the text, so that most match: of many words, and with the last state in any place of a word.
#[test]
fn long_patterns_match_what_they_were_made_of() {
    let mut random = Prng::new(35);
    let mut found = 0;
    for _ in 0..3_000 {
        let count = random.next_u64() % 700 + 1;
        let text: Vec<u8> = (0..count).map(|_| b'a' + (random.next_u64() % 8 / 7) as u8).collect();
        let (mut pattern, stars) = (Vec::new(), random.next_u64() % 30 * 3);
        let mut at = 0;
        while at < text.len() {
            match random.next_u64() % 1000 {
                n if n < stars => {
                    pattern.push(b'*');
                    at += random.next_u64() as usize % 200;
                }
                n if n < 900 => pattern.push(text[at]),
                n if n < 950 => pattern.push(b'?'),
                n if n < 999 => pattern.extend(*b"[ab]"),
                _ => pattern.push(b'b'),
            }
            at += 1;
        }
        let expected = pattern == b"*" || model(&pattern, &text, false, &mut false);
        let is = matches(&pattern, &text, Case::Matters);
        assert_eq!(is, expected, "{} {}", pattern.escape_ascii(), text.escape_ascii());
        found += u32::from(is);
    }
    assert!((1_000..2_900).contains(&found), "{found} match");
}

/// The longest key takes 0.4 million steps at most, and 16,384 more for each byte value that is new.
#[test]
fn no_pattern_takes_long() {
    let mixed: Vec<u8> = (0..8192_u32).map(|n| (n * 7) as u8).collect();
    let key = vec![b'a'; 8192];
    for (pattern, most) in [
        (["*", &"a".repeat(4000), "b"].concat(), 400_000),
        (["*", &"a".repeat(4000), "b*"].concat(), 400_000),
        ("a*".repeat(4000) + "b", 400_000),
        ("*?".repeat(4096) + "b*", 400_000),
        (["*[", &"b".repeat(40_000), "]"].concat(), 500_000),
        ("*[^b]".repeat(10_000), 600_000),
        (["*", &"[!-z]".repeat(4096), "b*"].concat(), 2_000_000),
    ] {
        let steps = &mut 0;
        let mut pattern = Pattern::new(pattern.as_bytes(), Case::Matters, steps).unwrap();
        pattern.matches(&key, steps);
        assert!(*steps < most, "{steps} steps");
        let before = *steps;
        pattern.matches(&key, steps);
        assert!(
            *steps - before < 400_000,
            "{} steps for the second key",
            *steps - before
        );
        let before = *steps;
        pattern.matches(&mixed, steps);
        assert!(*steps - before < 400_000 + 255 * 2 * 8192, "{} steps", *steps - before);
    }
    assert!(Pattern::new(&vec![b'a'; PATTERN_BYTES_MAX + 1], Case::Matters, &mut 0).is_none());
}
