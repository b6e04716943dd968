//! Crate `client-c`: the client for C, `include/paritas.h`. The package for Python (`python/`) stands on it too.
//!
//! `border` has the functions that C calls, and all `unsafe`. What it calls is safe code: `settings` reads names and
//! values, `reply` is what C sees of a reply, `status` is how a call has ended.

mod border;
mod command;
mod reply;
mod settings;
mod status;

#[cfg(test)]
mod tests;
