//! The protocol of memcached: a second form of commands on strings. What a line asks for runs where its key is, as the
//! commands of Redis do, and its reply is written there.

mod lines;
mod stats;
pub(crate) mod texts;

/// How much of a reply its client sees.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Shown {
    #[default]
    All,
    /// Nothing: the client does not want it.
    Nothing,
    /// One of several items that a line asks for. Behind an error none of the others is shown.
    OneOfMany,
    /// The last of them.
    LastOfMany,
}

/// What is known of a client between two of its commands.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Dialog {
    /// Bytes of the line at the front whose keys are done.
    done_bytes: usize,
    /// Bytes of data that are thrown away before the next line.
    skipped_bytes: u64,
    /// How much of the next reply is shown.
    pub(crate) shown: Shown,
    /// The line whose items are being shown has met an error.
    is_cut: bool,
}

impl Dialog {
    /// Whether a reply that comes next is hidden from the client.
    pub(crate) fn hides(&mut self, shown: Shown, is_error: bool) -> bool {
        match shown {
            Shown::All => false,
            Shown::Nothing => true,
            Shown::OneOfMany | Shown::LastOfMany => {
                let was_cut = self.is_cut;
                self.is_cut = (was_cut || is_error) && shown == Shown::OneOfMany;
                was_cut
            }
        }
    }
}
