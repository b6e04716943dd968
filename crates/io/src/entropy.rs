//! Random numbers from the operating system, for identities, seeds and nonces. Never used for single operations.

use std::io;

/// 64 random bits.
pub fn random_u64() -> io::Result<u64> {
    random().map(u64::from_le_bytes)
}

/// Random bytes. At most 256, which the system gives whole.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N <= 256) };
    let mut bytes = [0_u8; N];
    // SAFETY: the pointer and length describe `bytes`, which outlives the call.
    #[allow(unsafe_code)]
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if usize::try_from(count) != Ok(N) {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes)
}
