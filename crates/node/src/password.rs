//! Files with passwords.

use paritas_wire::resp::Password;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Reads the only line of a file.
///
/// # Errors
/// If the file cannot be read, or has no password; the text names the file and says what is wrong.
pub fn read(path: &Path) -> Result<Password, String> {
    let name = path.display();
    let wrong = |error: std::io::Error| format!("{name}: {error}");
    let file = File::open(path).map_err(wrong)?;
    let mut text = Vec::new();
    // A longer line is refused whatever follows.
    let bytes_max = Password::BYTES_MAX as u64 + 3;
    file.take(bytes_max).read_to_end(&mut text).map_err(wrong)?;
    Password::of_file(&text).map_err(|why| format!("{name}: {why}"))
}

/// As [`read`], when a process starts: with a warning if other users of the machine can read the file.
///
/// # Errors
/// As those of [`read`].
pub fn read_first(path: &Path) -> Result<Password, String> {
    let password = read(path)?;
    if std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o004 != 0) {
        tracing::warn!(file = %path.display(), "everybody on this machine can read this password: use chmod 600");
    }
    Ok(password)
}
