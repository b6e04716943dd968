//! The index of a stream: pages of entries that lie in chunks of their own. Bytes: `docs/formats/index.md`.

pub(crate) mod page;
pub(crate) mod shape;
pub(crate) mod spill;
