//! Random numbers from the operating system, for identities and seeds. Never used for single operations.

use std::io;

/// 64 random bits.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: the pointer and length describe `bytes`, which outlives the call.
    #[allow(unsafe_code)]
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if count != 8 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from_le_bytes(bytes))
}
