//! The search: libFuzzer on the target that `PARITAS_FUZZ` names. `scripts/fuzz` builds and starts it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use paritas_fuzz::{Target, target};
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("PARITAS_FUZZ").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("PARITAS_FUZZ is not a target: {name:?}"))
});

fuzz_target!(|bytes: &[u8]| {
    TARGET.run(bytes);
});
