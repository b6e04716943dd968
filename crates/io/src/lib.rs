//! Room `io`.
