//! Parity of files that are gone: workers ask which files to look for, and tell what was deleted. The store tells
//! nobody but its superuser what becomes of files.

use super::Steward;
use super::entry::State;
use crate::File;
use paritas_base::{Span, Time};

/// A file is looked for that long after it was last known to exist.
const CHECK_AFTER: Span = Span::from_secs(30);
/// Opens for each file with parity until the numbers of accesses are halved, as in TinyLFU (Einziger et al.).
const AGE_OPENS: usize = 10;
/// The same for few files.
const AGE_OPENS_MIN: usize = 100;

impl Steward {
    /// The file of this entry exists: a client has just seen it.
    pub(super) fn see(&mut self, now: Time, token: u64) {
        let Some(entry) = self.entries.get_mut(&token) else {
            return;
        };
        self.seen.remove(&(entry.seen, token));
        entry.seen = now;
        self.seen.insert((now, token));
    }

    /// The file that nobody has seen for the longest time, if that is long enough. It is named again later only.
    pub(super) fn on_check(&mut self, now: Time) -> Option<File> {
        while let Some((seen, token)) = self.seen.first().copied()
            && seen + CHECK_AFTER <= now
        {
            let cached = self.entries.get(&token).filter(|entry| entry.state == State::Cached);
            if let Some(file) = cached.map(|entry| entry.file) {
                self.counters.checks += 1;
                self.see(now, token);
                return Some(file);
            }
            self.seen.pop_first();
        }
        None
    }

    /// A file is opened.
    pub(super) fn age(&mut self) {
        self.opens_count += 1;
        if self.opens_count >= (AGE_OPENS * self.by_file.len()).max(AGE_OPENS_MIN) {
            self.opens_count = 0;
            self.csac.age();
        }
    }
}
