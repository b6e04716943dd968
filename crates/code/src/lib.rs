//! Crate `code`: the erasure code and the linear chunk sum, as functions over bytes.
//!
//! [`Scheme`] is the number of data and parity positions of a stripe. [`Code`] encodes and decodes for one scheme.
//! [`mul_add`] folds a delta into a parity chunk; writes use no other part of the code. [`sum`] is the 32-bit sum of a
//! chunk, which deltas can update (P9.1). The format, with an example: `docs/formats/code.md`.
//!
//! Arithmetic is in GF(2⁸) modulo x⁸+x⁴+x³+x²+1. Each kernel has a scalar reference. The fastest kernel that the
//! machine can run is chosen once, at run time. All `unsafe` code of the crate is in `kernel` and `sum`.

mod code;
mod decode;
mod field;
mod kernel;
mod rdp;
mod scheme;
pub mod sum;

pub use code::Code;
pub use decode::DecodeError;
#[doc(hidden)]
pub use kernel::use_kernel;
pub use kernel::{combine, kernel_name, mul_add, xor};
pub use rdp::{Rdp, RdpError};
pub use scheme::{DATA_MAX, Scheme, SchemeError, WIDTH_MAX};
pub use sum::{crc32c, crc32c_append};
