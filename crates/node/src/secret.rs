//! Files with the cluster's secret.

use crate::Failure;
use paritas_io::door::SharedSecrets;
use paritas_io::entropy;
use paritas_wire::greeting::Secrets;
use std::fmt::Write as _;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Time between two looks whether a file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Random bytes of a new secret.
const NEW_BYTES: usize = 32;

/// Reads the secrets of a file: one line, or two while the secret is being changed.
///
/// # Errors
/// If the file cannot be read, or has none; the text names the file and says what is wrong.
pub fn read(path: &Path) -> Result<Secrets, String> {
    let name = path.display();
    let wrong = |error: std::io::Error| format!("{name}: {error}");
    let mut text = Vec::new();
    // A longer file is refused whatever follows.
    let bytes_max = Secrets::FILE_BYTES_MAX as u64 + 1;
    let file = File::open(path).map_err(wrong)?;
    file.take(bytes_max).read_to_end(&mut text).map_err(wrong)?;
    Secrets::of_file(&text).map_err(|why| format!("{name}: {why}"))
}

/// The secrets of a process that runs on: those of the file as it is now, and as it is changed later. None if there is
/// no file.
///
/// # Errors
/// As those of [`read`].
pub(crate) fn watch(path: Option<&Path>) -> Result<SharedSecrets, Failure> {
    let secrets = SharedSecrets::default();
    let Some(path) = path else {
        return Ok(secrets);
    };
    let seen = look(path);
    secrets.replace(read(path).map_err(|why| Failure(format!("secret_file: {why}")))?);
    if std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o077 != 0) {
        tracing::warn!(file = %path.display(), "others on this machine can read or write this secret: use chmod 600");
    }
    let (path, shared) = (path.to_path_buf(), secrets.clone());
    let started = thread::Builder::new()
        .name("secret".into())
        .spawn(move || follow(&path, seen, &shared));
    started.map_err(|error| Failure(format!("no thread for secret_file: {error}")))?;
    Ok(secrets)
}

/// What shows that a file is another, or was written to.
type Look = Option<(u64, i64, i64, u64)>;

fn look(path: &Path) -> Look {
    let of = |about: Metadata| (about.ino(), about.mtime(), about.mtime_nsec(), about.len());
    std::fs::metadata(path).ok().map(of)
}

fn follow(path: &Path, mut seen: Look, secrets: &SharedSecrets) {
    let mut said = String::new();
    loop {
        thread::sleep(LOOK_EVERY);
        let now = look(path);
        if now == seen && said.is_empty() {
            continue;
        }
        seen = now;
        match read(path) {
            Ok(fresh) => {
                said.clear();
                if *secrets.now() != fresh {
                    secrets.replace(fresh);
                    tracing::info!(file = %path.display(), "the secret has changed: it holds for new connections");
                }
            }
            Err(why) => {
                if said != why {
                    tracing::error!("secret_file: {why}; the secrets from before still hold");
                    said = why;
                }
            }
        }
    }
}

/// Writes a new secret to a file that only its owner can read. A file that is there stays as it is. Returns whether a
/// new one was made.
///
/// # Errors
/// If it cannot be written; or if there is one without a secret.
pub(crate) fn create(path: &Path) -> Result<bool, Failure> {
    let failed = |error: std::io::Error| Failure(format!("secret_file: {}: {error}", path.display()));
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return read(path)
                .map(|_| false)
                .map_err(|why| Failure(format!("secret_file: {why}")));
        }
        Err(error) => return Err(failed(error)),
    };
    let mut line = String::new();
    for byte in entropy::random::<NEW_BYTES>().map_err(failed)? {
        // Writing to a string cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
    line.push('\n');
    let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a secret would be in the way once the disk works again.
        let _ = std::fs::remove_file(PathBuf::from(path));
        failed(error)
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("paritas-secret-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_new_secret_is_its_owners_alone_and_an_old_one_stays() {
        let directory = directory("new");
        let path = directory.join("secret");
        assert_eq!(create(&path), Ok(true));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let first = read(&path).unwrap();
        assert_eq!(create(&path), Ok(false));
        assert_eq!(read(&path).unwrap(), first);
        std::fs::write(&path, "guess\n").unwrap();
        let why = create(&path).unwrap_err().0;
        assert!(
            why.contains("secret_file") && why.contains("line 1 has 5 bytes") && !why.contains("guess"),
            "{why}"
        );
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_changed_file_holds_without_a_restart_and_a_broken_one_changes_nothing() {
        let directory = directory("changed");
        let path = directory.join("secret");
        create(&path).unwrap();
        let secrets = watch(Some(&path)).unwrap();
        let first = secrets.now().first();
        let next = format!("{}\n", "n".repeat(64));
        std::fs::write(&path, &next).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while secrets.now().first() == first {
            assert!(Instant::now() < until, "the new secret does not hold");
            thread::sleep(Duration::from_millis(10));
        }
        let second = secrets.now().first();
        std::fs::write(&path, "no secret\n").unwrap();
        let third = format!("{}\n{next}", "3".repeat(64));
        std::fs::write(directory.join("third"), third).unwrap();
        assert_eq!(secrets.now().first(), second);
        std::fs::rename(directory.join("third"), &path).unwrap();
        while secrets.now().first() == second {
            assert!(Instant::now() < until, "the third secret does not hold");
            thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
