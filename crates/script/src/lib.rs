//! Scripts of clients: Lua 5.1 in a sandbox, with the libraries of Redis (docs/scripts.md).
//!
//! A [`Sandbox`] runs one script at a time, or one function of a library, within a limit of work and memory. A script
//! that is ended for one of them leaves nothing behind. The commands of a script run at its [`Host`].

mod json;
mod library;
mod msgpack;
mod numbers;
mod packed;
mod pattern;
mod sandbox;
mod source;
mod strings;
mod values;

pub use library::{
    FUNCTION_FLAGS, FUNCTION_NO_CLUSTER, FUNCTION_NO_WRITES, FUNCTIONS_MAX, Function, is_library_name, library_header,
};
pub use sandbox::{Ended, Host, Limits, LoadError, Ran, Run, Sandbox, Weight};
pub use source::{FLAG_NO_WRITES, SHA_BYTES, SOURCE_BYTES_MAX, Sha, digest_of, header, sha_of};
