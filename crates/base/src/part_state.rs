//! What a holder says of a part of a large value (P14.2).

/// How far a part is at its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartState {
    /// It is open and has this many units: its writer may send units, from this one on.
    Open(u32),
    /// It has taken one more unit, and has this many.
    Taken(u32),
    /// It is whole. This is its check.
    Kept(u32),
    /// It is being made. [`Self::Kept`] follows.
    Making,
    /// The holder gave it up: there was no memory for a unit.
    Broken,
    /// There is no memory for it.
    NoRoom,
    /// There is no memory for it, and the holder is not Live yet: the value does without it for now. The holder makes
    /// the part before it asks to become Live.
    Declined,
    /// The record is not one that this list can have, or gives the holder's position no such part.
    Unknown,
}
