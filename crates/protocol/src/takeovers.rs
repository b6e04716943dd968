//! Durations of takeovers by this node, from `Seal` to `Serve` (P5a). They are only shown in the status.

use core::fmt;
use paritas_base::Span;

/// The most durations kept: enough for the takeovers after the loss of one node, and some before.
const RECENT_MAX: usize = 16;

/// The takeovers of a node's present incarnation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Takeovers {
    /// Number of takeovers.
    pub count: u64,
    /// Durations of the newest takeovers in microseconds, as a ring.
    recent: [u64; RECENT_MAX],
}

impl Takeovers {
    pub(crate) fn note(&mut self, took: Span) {
        if let Some(place) = self.recent.get_mut(self.count as usize % RECENT_MAX) {
            *place = took.0 / 1000;
        }
        self.count += 1;
    }
}

/// The newest first.
impl fmt::Display for Takeovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recent = (self.count as usize).min(RECENT_MAX);
        for back in 1..=recent {
            let at = (self.count as usize - back) % RECENT_MAX;
            let comma = if back > 1 { "," } else { "" };
            write!(f, "{comma}{}", self.recent.get(at).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_shown_newest_first() {
        let mut takeovers = Takeovers::default();
        assert_eq!(takeovers.to_string(), "");
        (1..=2).for_each(|ms| takeovers.note(Span::from_ms(ms)));
        assert_eq!(takeovers.to_string(), "2000,1000");
        (3..=20).for_each(|ms| takeovers.note(Span::from_ms(ms)));
        let shown = takeovers.to_string();
        assert!(shown.starts_with("20000,19000,") && shown.ends_with(",5000"), "{shown}");
    }
}
