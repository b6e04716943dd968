//! Sources of scripts: their names, and what their first lines say.

use sha1::{Digest, Sha1};

/// The most bytes of a source: it is compiled in one turn.
pub const SOURCE_BYTES_MAX: usize = 128 << 10;

/// The most that a source may have of what makes the compiler of Lua take time by the square of it.
const BRANCHES_MAX: usize = 2000;
const NAME_PAIRS_MAX: usize = 40_000_000;

/// Bytes of a script's name.
pub const SHA_BYTES: usize = 40;

/// The name of a script: the SHA-1 of its source, in hexadecimal digits of lower case.
pub type Sha = [u8; SHA_BYTES];

/// The script changes nothing.
pub const FLAG_NO_WRITES: u32 = 1;

/// The SHA-1 of these bytes.
pub fn digest_of(bytes: &[u8]) -> [u8; 20] {
    Sha1::digest(bytes).into()
}

/// The name of a script with this source.
pub fn sha_of(source: &[u8]) -> Sha {
    let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble & 15)];
    let mut sha = [0; SHA_BYTES];
    let bytes = digest_of(source);
    for (two, byte) in sha.chunks_exact_mut(2).zip(bytes.iter()) {
        two.copy_from_slice(&[digit(byte >> 4), digit(*byte)]);
    }
    sha
}

/// Whether a source compiles in a few milliseconds. Lua's compiler looks a name up in all functions around it, and
/// walks along the list of jumps for each branch. Words in strings and comments count too.
pub(crate) fn is_cheap_to_compile(source: &[u8]) -> bool {
    let (mut words, mut locals, mut branches) = (0usize, 0usize, 0usize);
    for word in source.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_') {
        match word {
            [] => continue,
            b"local" | b"function" | b"for" => locals += 1,
            b"elseif" | b"break" | b"and" | b"or" => branches += 1,
            _ => {}
        }
        words += 1;
    }
    locals += source.iter().filter(|byte| **byte == b',').count();
    branches <= BRANCHES_MAX && words.saturating_mul(locals) <= NAME_PAIRS_MAX
}

/// What a source says in its first line, `#!lua flags=no-writes,…`: its flags, and the bytes of that line.
///
/// # Errors
/// The text of an error for a line that says something else.
pub fn header(source: &[u8]) -> Result<(u32, usize), String> {
    if !source.starts_with(b"#!") {
        return Ok((0, 0));
    }
    let Some(end) = source.iter().position(|byte| *byte == b'\n') else {
        return Err("ERR Invalid script shebang".to_owned());
    };
    let line = String::from_utf8_lossy(source.get(2..end).unwrap_or_default()).into_owned();
    let mut words = line.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(format!("ERR Unexpected engine in script shebang: #!{engine}"));
    }
    let mut flags = 0;
    for word in words {
        let Some(list) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}"));
        };
        for flag in list.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => flags |= FLAG_NO_WRITES,
                // Nothing here depends on them.
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(format!("ERR Unexpected flag in script shebang: {flag}")),
            }
        }
    }
    Ok((flags, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_sha_1_of_the_source() {
        assert_eq!(&sha_of(b"return 1"), b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn the_first_line_has_flags() {
        assert_eq!(header(b"return 1"), Ok((0, 0)));
        assert_eq!(header(b"#!lua\nreturn 1"), Ok((0, 5)));
        assert_eq!(header(b"#!lua flags=no-writes,allow-oom\n"), Ok((FLAG_NO_WRITES, 31)));
        for wrong in ["#!lua", "#!perl\n", "#!lua name=x\n", "#!lua flags=fast\n"] {
            assert!(header(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
