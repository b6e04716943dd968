//! The index of a stream: pages of entries, each page in a chunk of its own. Bytes: `docs/formats/index.md`.

pub(crate) mod page;
pub(crate) mod shape;
pub(crate) mod spill;
