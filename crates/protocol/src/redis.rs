//! What is Redis' own: the texts of refusals.

pub(crate) mod parts;
pub(crate) mod refusals;
