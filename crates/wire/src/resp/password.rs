//! The password that clients of a server must give.

use core::fmt;

/// The only user.
pub const USER: &[u8] = b"default";

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Vec<u8>);

impl Password {
    /// Longest password, in bytes.
    pub const BYTES_MAX: usize = 512;

    /// The only line of a file.
    ///
    /// # Errors
    /// If the file has no line, several lines, or a line that is too long; the text says which.
    pub fn of_file(text: &[u8]) -> Result<Self, String> {
        let line = text.strip_suffix(b"\n").unwrap_or(text);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line.contains(&b'\n') {
            return Err("it must have one line, with the password".into());
        }
        if line.len() > Self::BYTES_MAX {
            return Err(format!("a password has at most {} bytes", Self::BYTES_MAX));
        }
        Ok(Self(line.to_owned()))
    }

    /// The password itself, to give it to a server.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares in a time that depends only on the lengths, so that a client cannot guess byte by byte.
    pub fn is(&self, other: &[u8]) -> bool {
        let difference = self.0.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
        // The compiler must not end the loop early.
        core::hint::black_box(difference) == 0 && self.0.len() == other.len()
    }
}

// It stands in no log.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_line() {
        for text in [&b"secret"[..], b"secret\n", b"secret\r\n"] {
            let password = Password::of_file(text).unwrap();
            assert!(password.is(b"secret"));
            for wrong in [&b""[..], b"secre", b"secrets", b"Secret"] {
                assert!(!password.is(wrong));
            }
        }
        let long = vec![b'x'; Password::BYTES_MAX];
        assert!(Password::of_file(&long).is_ok());
        for text in [&b""[..], b"\n", b"\r\n", b"one\ntwo\n", &[&long[..], b"x"].concat()] {
            assert!(Password::of_file(text).is_err());
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        assert_eq!(format!("{:?}", Password(b"secret".to_vec())), "Password");
    }
}
