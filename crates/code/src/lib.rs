//! Room `code`.
