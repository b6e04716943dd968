//! `Placement`: which part of a value is at which position of its stripe list.
//!
//! Parts form two groups. A group is written, named and freed as a whole; when a value gets another class, one group
//! may stay (see [`crate::Transition`]).
//!
//! | class | data group | other group |
//! | --- | --- | --- |
//! | `rep` | the copies | – |
//! | `ec` | the data blocks | the parity blocks |
//! | `eor` | the data blocks: the first cut replica | the whole copy; the blocks of further cut replicas |

use crate::{BLOCKS_MAX, Class, ClassError, Layout};
use core::fmt;

/// One of the two groups of a value's parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// Copies, or data blocks.
    Data,
    /// Parity, or what `eor` has beside the data blocks.
    Other,
}

/// What a part is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Content {
    /// All units of the body.
    Whole,
    /// The units of one data block.
    Block(u8),
    /// The units of one parity block.
    Parity(u8),
}

impl Content {
    /// Number of units that a part with this content has.
    pub fn units(self, layout: &Layout) -> u32 {
        match self {
            Self::Whole => layout.units(),
            Self::Block(_) | Self::Parity(_) => layout.rows(),
        }
    }

    /// Bytes of one of its units, zeros at the end included.
    pub fn unit_bytes(self, layout: &Layout, unit: u32) -> u32 {
        match self {
            Self::Whole => layout.row_unit_bytes(unit / u32::from(layout.data())),
            Self::Block(_) | Self::Parity(_) => layout.row_unit_bytes(unit),
        }
    }

    /// Which of its units is this unit of the body, if it has it.
    pub fn has(self, layout: &Layout, body_unit: u32) -> Option<u32> {
        let data = u32::from(layout.data());
        match self {
            Self::Whole => Some(body_unit),
            Self::Block(i) if body_unit % data == u32::from(i) => Some(body_unit / data),
            Self::Block(_) | Self::Parity(_) => None,
        }
    }
}

/// One part of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The group that it belongs to.
    pub group: Group,
    /// Its number in the group.
    pub number: u8,
    /// What it is made of.
    pub content: Content,
    /// The position of the stripe list that holds it.
    pub position: u8,
}

/// A class at positions of a stripe list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    class: Class,
    /// Position of data block 0. Positions follow one another from there.
    first: u8,
    /// Number of parity blocks on log nodes.
    logged: u8,
    /// Positions of the list whose memory holds parts; those of log nodes follow them.
    positions: u8,
}

impl Placement {
    /// Places a class on a stripe list with `positions` positions in memory and `logged` ones on log nodes, for the
    /// stream at data position `x`.
    ///
    /// Of `ec`'s parity, as many blocks are logged as the list has log nodes, but not the first one. The whole copy of
    /// `eor` is at `x`, where the value's owner is, and so is parity 0 after it has become `ec`.
    pub fn new(class: Class, x: u8, positions: u8, logged: u8) -> Result<Self, PlacementError> {
        class.check()?;
        let first = match class {
            Class::Rep { .. } | Class::Ec { .. } => x % positions.max(1),
            // first + data is x, modulo the positions.
            Class::Eor { data, .. } => {
                let n = u16::from(positions.max(1));
                ((u16::from(x) + n * u16::from(data) - u16::from(data)) % n) as u8
            }
        };
        Self::at(class, first, positions, logged.min(class.parity().saturating_sub(1)))
    }

    /// The placement that a record names: data block 0 at `first`, and `logged` parities on log nodes.
    pub fn at(class: Class, first: u8, positions: u8, logged: u8) -> Result<Self, PlacementError> {
        class.check()?;
        let needed = match class {
            Class::Rep { copies } => u16::from(copies),
            Class::Ec { data, parity } => u16::from(data) + u16::from(parity.saturating_sub(logged)),
            Class::Eor { data, .. } => u16::from(data) + 1,
        };
        if needed > u16::from(positions) {
            return Err(PlacementError::TooFew {
                class,
                needed,
                positions,
            });
        }
        if first >= positions || logged > class.parity().saturating_sub(1) {
            return Err(PlacementError::NoSuchPosition { first, logged });
        }
        Ok(Self {
            class,
            first,
            logged,
            positions,
        })
    }

    /// The x for which data block 0 of this class is where it is here: see [`Self::new`].
    pub fn x_of(&self, class: Class) -> u8 {
        match class {
            Class::Rep { .. } | Class::Ec { .. } => self.first,
            Class::Eor { data, .. } => self.after(data),
        }
    }

    /// The class.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Position of data block 0.
    pub fn first(&self) -> u8 {
        self.first
    }

    /// Number of parity blocks on log nodes.
    pub fn logged(&self) -> u8 {
        self.logged
    }

    /// All parts, those of the data group first.
    pub fn parts(self) -> impl Iterator<Item = Part> + Clone {
        let (data, other) = match self.class {
            Class::Rep { copies } => (copies, 0),
            Class::Ec { data, parity } => (data, parity),
            Class::Eor { copies, data } => (data, 1 + (copies - 2) * data),
        };
        let of = move |group, count| (0..count).map(move |number| self.part(group, number));
        of(Group::Data, data).chain(of(Group::Other, other))
    }

    /// Whether every byte of the body can be made from those parts for which `has` is true.
    pub fn is_readable(self, has: impl Fn(&Part) -> bool) -> bool {
        let mut blocks = [false; BLOCKS_MAX as usize];
        for part in self.parts().filter(has) {
            match part.content {
                Content::Whole => return true,
                Content::Block(i) => blocks[usize::from(i)] = true,
                Content::Parity(j) => blocks[usize::from(self.class.data()) + usize::from(j)] = true,
            }
        }
        blocks.iter().filter(|there| **there).count() >= usize::from(self.class.data())
    }

    fn part(self, group: Group, number: u8) -> Part {
        let (content, position) = match (self.class, group) {
            (Class::Rep { .. }, _) => (Content::Whole, self.after(number)),
            (_, Group::Data) => (Content::Block(number), self.after(number)),
            (Class::Ec { data, parity }, Group::Other) => {
                let in_memory = parity - self.logged;
                let position = match number.checked_sub(in_memory) {
                    Some(n) => self.positions + n,
                    None => self.after(data + number),
                };
                (Content::Parity(number), position)
            }
            (Class::Eor { data, .. }, Group::Other) => match number.checked_sub(1) {
                None => (Content::Whole, self.after(data)),
                Some(n) => {
                    let (replica, block) = (1 + n / data, n % data);
                    // Each replica is rotated by one more position, so that no position has a block twice (§4.2).
                    let at = (u16::from(block) + u16::from(replica)) % u16::from(data);
                    (Content::Block(block), self.after(at as u8))
                }
            },
        };
        Part {
            group,
            number,
            content,
            position,
        }
    }

    fn after(self, steps: u8) -> u8 {
        ((u16::from(self.first) + u16::from(steps)) % u16::from(self.positions)) as u8
    }
}

/// Why a class cannot be placed on a stripe list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlacementError {
    /// The class itself is impossible.
    Class(ClassError),
    /// The list has too few positions.
    TooFew {
        /// The class.
        class: Class,
        /// Positions needed.
        needed: u16,
        /// Positions that the list has in memory.
        positions: u8,
    },
    /// A record names a position that the list does not have.
    NoSuchPosition {
        /// The position of data block 0.
        first: u8,
        /// The number of logged parities.
        logged: u8,
    },
}

impl From<ClassError> for PlacementError {
    fn from(error: ClassError) -> Self {
        Self::Class(error)
    }
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(error) => error.fmt(f),
            Self::TooFew {
                class,
                needed,
                positions,
            } => write!(
                f,
                "{class} needs {needed} nodes, and a stripe list of this cluster has {positions}"
            ),
            Self::NoSuchPosition { first, logged } => {
                write!(
                    f,
                    "no stripe list of this cluster has position {first} or {logged} log nodes"
                )
            }
        }
    }
}

impl core::error::Error for PlacementError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placed(class: Class, x: u8, positions: u8) -> Vec<Part> {
        Placement::new(class, x, positions, 0)
            .expect("it fits")
            .parts()
            .collect()
    }

    /// Calls `f` with every set of at most `size` of `n` positions, as a mask.
    fn sets(n: u8, size: u8, mut f: impl FnMut(u32)) {
        for mask in 0..1u32 << n {
            if mask.count_ones() <= u32::from(size) {
                f(mask);
            }
        }
    }

    #[test]
    fn eor_is_laid_out_as_in_figure_6_of_the_paper() {
        // EOR(3,3), main node 1: blocks of the first replica on nodes 1, 2, 3, of the second on 2, 3, 1, and the whole
        // copy on node 4.
        let class = Class::Eor { copies: 3, data: 3 };
        let parts: Vec<_> = Placement::at(class, 1, 8, 0).expect("it fits").parts().collect();
        let at: Vec<_> = parts.iter().map(|p| (p.content, p.position)).collect();
        let (b, whole) = (Content::Block, Content::Whole);
        assert_eq!(
            at,
            [
                (b(0), 1),
                (b(1), 2),
                (b(2), 3),
                (whole, 4),
                (b(0), 2),
                (b(1), 3),
                (b(2), 1)
            ]
        );
    }

    #[test]
    fn the_whole_copy_of_eor_and_the_first_parity_of_its_ec_are_at_the_owner() {
        for x in 0..6 {
            let eor = Placement::new(Class::Eor { copies: 3, data: 4 }, x, 6, 0).expect("it fits");
            let whole = eor.parts().find(|p| p.content == Content::Whole).expect("a whole copy");
            assert_eq!(whole.position, x);
            let ec = Placement::at(Class::Ec { data: 4, parity: 2 }, eor.first(), 6, 0).expect("it fits");
            let parity = ec.parts().find(|p| p.content == Content::Parity(0)).expect("a parity");
            assert_eq!(parity.position, x);
        }
    }

    #[test]
    fn all_logged_parities_but_the_first_are_on_log_nodes() {
        let class = Class::Ec { data: 3, parity: 3 };
        let placement = Placement::new(class, 2, 4, 2).expect("it fits");
        let at: Vec<_> = placement.parts().map(|p| (p.content, p.position)).collect();
        let (b, p) = (Content::Block, Content::Parity);
        assert_eq!(at, [(b(0), 2), (b(1), 3), (b(2), 0), (p(0), 1), (p(1), 4), (p(2), 5)]);
        let few = Placement::new(Class::Ec { data: 4, parity: 2 }, 0, 5, 1).expect("it fits");
        assert_eq!(few.logged(), 1);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let says = |class, positions| {
            Placement::new(class, 0, positions, 0)
                .expect_err("it does not fit")
                .to_string()
        };
        assert_eq!(
            says(Class::Ec { data: 6, parity: 3 }, 6),
            "ec:6,3 needs 9 nodes, and a stripe list of this cluster has 6"
        );
        assert_eq!(
            says(Class::Eor { copies: 2, data: 6 }, 6),
            "eor:2,6 needs 7 nodes, and a stripe list of this cluster has 6"
        );
        assert!(says(Class::Rep { copies: 0 }, 6).contains("at least one copy"));
        assert!(Placement::at(Class::Rep { copies: 2 }, 6, 6, 0).is_err());
    }

    proptest! {
        #[test]
        fn any_loss_that_the_class_covers_leaves_all_bytes(
            kind in 0..3, data in 1u8..7, extra in 1u8..4, spare in 0u8..3, x in 0u8..10,
        ) {
            let class = match kind {
                0 => Class::Rep { copies: extra + 1 },
                1 => Class::Ec { data, parity: extra },
                _ => Class::Eor { copies: extra.min(data) + 1, data },
            };
            let needed = match class {
                Class::Rep { copies } => copies,
                Class::Ec { data, parity } => data + parity,
                Class::Eor { data, .. } => data + 1,
            };
            let positions = needed + spare;
            let placement = Placement::new(class, x % positions, positions, 0).expect("it fits");
            sets(positions, class.tolerance(), |lost| {
                let is_left = |part: &Part| lost >> part.position & 1 == 0;
                assert!(placement.is_readable(is_left), "{class} without {lost:b}");
            });
        }

        #[test]
        fn no_position_has_the_same_content_twice(copies in 2u8..6, data in 1u8..9, x in 0u8..10) {
            prop_assume!(copies - 1 <= data);
            let parts = placed(Class::Eor { copies, data }, x % (data + 1), data + 1);
            let mut held: Vec<_> = parts.iter().map(|p| (p.position, p.content)).collect();
            held.sort();
            let all = held.len();
            held.dedup();
            prop_assert_eq!(held.len(), all);
            // As many bytes as `copies` whole values.
            let blocks = parts.iter().filter(|p| p.content != Content::Whole).count();
            prop_assert_eq!(blocks, usize::from(copies - 1) * usize::from(data));
        }
    }
}
