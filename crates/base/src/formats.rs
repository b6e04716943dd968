//! One number for all formats: frames and control messages, records, objects and index pages, records of large values,
//! the disk of a log node. The cluster's record says which version is active: all nodes speak its formats, whatever
//! they could (`docs/formats/sections.md`).

use crate::Sections;
use core::fmt;

/// The lowest version that this build speaks.
pub const LOWEST: u16 = 8;
/// The highest version that this build speaks.
pub const HIGHEST: u16 = 8;
/// The version after it has one more message and one more section, and is for trials alone: processes of the simulator
/// may speak it, so that clusters of two versions are tried before there are two.
pub const TOMORROW: u16 = HIGHEST + 1;
/// The section that `TOMORROW` adds to a registration and to a frame. Who does not know it leaves it out.
pub const TOMORROW_SECTION: u8 = 127;

/// The version of processes that do not say what they speak: they are from before that was said.
const UNSAID: u16 = 8;
/// The section of a registration with the versions that its process may speak.
const VERSIONS_SECTION: u8 = 2;

/// The versions that a process may speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// The lowest.
    pub low: u16,
    /// The highest.
    pub high: u16,
}

impl Versions {
    /// Those of this build.
    pub const OURS: Self = Self::up_to(HIGHEST);

    /// Those of this build, up to a highest one.
    pub const fn up_to(high: u16) -> Self {
        Self { low: LOWEST, high }
    }

    /// Whether the process may speak it.
    pub fn has(self, version: u16) -> bool {
        (self.low..=self.high).contains(&version)
    }

    /// Says in a registration what its process may speak, and the highest version that it knows to be active.
    pub fn say(self, active: u16, more: &mut Sections) {
        if self != Self::up_to(UNSAID) {
            let numbers = [self.low, self.high, active];
            more.put(VERSIONS_SECTION, &numbers.map(u16::to_le_bytes).concat());
        }
    }

    /// What a registration, or the record that was made of it, says so.
    pub fn said(more: &Sections) -> (Self, u16) {
        let unsaid = (
            Self {
                low: UNSAID,
                high: UNSAID,
            },
            0,
        );
        let Some([a, b, c, d, e, f]) = more.find(VERSIONS_SECTION) else {
            return unsaid;
        };
        let [low, high, active] = [[a, b], [c, d], [e, f]].map(|[one, two]| u16::from_le_bytes([*one, *two]));
        (Self { low, high }, active)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_says_what_it_speaks_unless_that_is_the_first_version() {
        let mut more = Sections::none();
        Versions::up_to(8).say(8, &mut more);
        assert_eq!(more, Sections::none());
        assert_eq!(Versions::said(&more), (Versions { low: 8, high: 8 }, 0));
        let wide = Versions { low: 8, high: 0x0109 };
        wide.say(9, &mut more);
        assert_eq!(more.bytes(), [2, 6, 8, 0, 9, 1, 9, 0]);
        assert_eq!(Versions::said(&more), (wide, 9));
        assert!(wide.has(8) && wide.has(9) && !wide.has(7));
        more.put(VERSIONS_SECTION, &[9, 0, 9, 0]);
        assert_eq!(Versions::said(&more).0.high, 8, "what cannot be read is not said");
    }
}
