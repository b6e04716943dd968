//! One number for all formats: frames and control messages, records, objects and index pages, records of large values,
//! the disk of a log node. The cluster's record says which version is active: all nodes speak its formats, whatever
//! they could (`docs/formats/sections.md`).

/// The lowest version that this build speaks.
pub const LOWEST: u16 = 9;
/// The highest version that this build speaks.
pub const HIGHEST: u16 = 9;

/// Whether this build speaks the version.
pub fn is_known(version: u16) -> bool {
    (LOWEST..=HIGHEST).contains(&version)
}
