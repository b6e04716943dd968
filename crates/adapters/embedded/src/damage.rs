//! A damaged file. redb finds most wrong bytes by checksums, and reports them. Others end in a panic in redb: it
//! believes what the file says of its own layout before it compares checksums. The binary is built to abort on a panic,
//! so such a panic cannot be caught. It ends the process with words about the file instead.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Once;

thread_local! {
    /// The file that this thread is working on.
    static IN_USE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// While it lives, a panic of this thread ends the process with words about the file.
pub(crate) struct Guard;

impl Guard {
    pub(crate) fn begin(path: &Path) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(end_on_panic);
        IN_USE.set(Some(path.to_owned()));
        Self
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        IN_USE.set(None);
    }
}

/// An error of redb, in words. If bytes of the file are wrong: also what to do.
pub(crate) fn describe(path: &Path, error: &redb::Error) -> String {
    let is_damage = match error {
        redb::Error::Corrupted(_) | redb::Error::UpgradeRequired(_) | redb::Error::RepairAborted => true,
        redb::Error::Io(error) => matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof),
        _ => false,
    };
    match is_damage {
        true => describe_damage(path, &error.to_string()),
        false => format!("{}: {error}", path.display()),
    }
}

fn describe_damage(path: &Path, why: &str) -> String {
    format!(
        "{} is damaged, or no store ({why}). Put a copy of it back, or move it away and start the coordinator with \
         --adopt: the nodes know what was in it",
        path.display()
    )
}

fn end_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let Some(path) = IN_USE.take() else {
            return before(panic);
        };
        let payload = panic.payload();
        let literal = payload.downcast_ref::<&str>().copied();
        let why = literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let words = describe_damage(&path, why.unwrap_or("wrong bytes"));
        eprintln!("paritas: the configuration store failed: {words}");
        std::process::exit(1);
    }));
}
