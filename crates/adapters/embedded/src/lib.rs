//! The embedded configuration store.
