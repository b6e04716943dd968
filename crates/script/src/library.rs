//! Libraries of functions: what their first lines say, and what they register (docs/scripts.md).

use paritas_wire::resp::{Args, Decoded, Limits, decode};

/// A function that a library has registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: Vec<u8>,
    /// What its library says about it.
    pub description: Option<Vec<u8>>,
    /// Bits of [`FUNCTION_FLAGS`].
    pub flags: u8,
}

/// The names of a function's flags, in the order of their bits.
pub const FUNCTION_FLAGS: [&str; 5] = [
    "no-writes",
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "allow-cross-slot-keys",
];

/// The most functions of a library, and of all together.
pub const FUNCTIONS_MAX: usize = 4096;
/// The most bytes of the names and descriptions that a library registers.
pub(crate) const REGISTERED_BYTES_MAX: usize = 1 << 20;

/// The flag of a function that changes nothing.
pub const FUNCTION_NO_WRITES: u8 = 1;
/// The flag of a function that Redis Cluster refuses.
pub const FUNCTION_NO_CLUSTER: u8 = 8;

/// What Redis says of a bad name of a library, and of a function.
pub(crate) const BAD_NAME: &str =
    "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// Whether this may be the name of a library or of a function.
pub fn is_library_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// The name of a library by the first line of its source, `#!lua name=x`, and the bytes of that line. Its words are
/// those of a line that is typed into telnet, with quotes and all.
///
/// # Errors
/// The text of an error for the client.
pub fn library_header(source: &[u8]) -> Result<(Vec<u8>, usize), String> {
    if !source.starts_with(b"#!") {
        return Err("ERR Missing library metadata".to_owned());
    }
    let Some(end) = source.iter().position(|byte| *byte == b'\n') else {
        return Err("ERR Invalid library metadata".to_owned());
    };
    let (line, mut words) = (source.get(..=end).unwrap_or_default(), Args::new());
    let Ok(Decoded::Complete { .. }) = decode(line, &Limits::DEFAULT, &mut words) else {
        return Err("ERR Invalid library metadata".to_owned());
    };
    let mut words = words.list(line).iter();
    let engine = words.next().and_then(|word| word.get(2..)).unwrap_or_default();
    let mut name = None;
    for word in words {
        match (word.get(..5), word.get(5..)) {
            (Some(key), Some(value)) if key.eq_ignore_ascii_case(b"name=") => {
                if name.replace(value).is_some() {
                    let text = "ERR Invalid metadata value, name argument was given multiple times";
                    return Err(text.to_owned());
                }
            }
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(format!("ERR Invalid metadata value given: {word}"));
            }
        }
    }
    let Some(name) = name else {
        return Err("ERR Library name was not given".to_owned());
    };
    if !is_library_name(name) {
        return Err(BAD_NAME.to_owned());
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("ERR Engine '{}' not found", String::from_utf8_lossy(engine)));
    }
    Ok((name.to_vec(), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_engine_and_library() {
        assert_eq!(library_header(b"#!lua name=a_1\nx"), Ok((b"a_1".to_vec(), 14)));
        assert_eq!(library_header(b"#!LUA  NAME=A\n"), Ok((b"A".to_vec(), 13)));
        for quoted in ["name=\"a\"", "'name=a'", "\"name=\\x61\"", "name='a' "] {
            let source = format!("#!lua {quoted}\nx");
            assert_eq!(library_header(source.as_bytes()), Ok((b"a".to_vec(), source.len() - 2)));
        }
        for (wrong, text) in [
            ("return 1", "Missing library metadata"),
            ("#!lua name=a", "Invalid library metadata"),
            ("#!lua name=\"\n", "Invalid library metadata"),
            ("#!lua name='a'b\n", "Invalid library metadata"),
            ("#!lua\n", "Library name was not given"),
            ("#!lua name=a name=b\n", "given multiple times"),
            ("#!lua name=a x=b\n", "Invalid metadata value given: x=b"),
            ("#!lua name=\n", "can only contain letters"),
            ("#!lua name=a-b\n", "can only contain letters"),
            ("#!perl name=a\n", "Engine 'perl' not found"),
        ] {
            let error = library_header(wrong.as_bytes()).unwrap_err();
            assert!(error.contains(text), "{wrong}: {error}");
        }
    }
}
