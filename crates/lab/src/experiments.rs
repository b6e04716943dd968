//! One file for each figure or table.

pub mod mttdl;
pub mod redundancy;
