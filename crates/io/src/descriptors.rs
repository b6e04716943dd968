//! The number of files and sockets that the system lets this process open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open descriptors to the hard limit. The usual soft limit, 1024, is meant for programs that
/// use `select`. Returns the new limit; `None` if there is none.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    // If the system refuses, the soft limit stays.
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// Number of open descriptors. If the system does not say, a guess that is high enough.
pub fn open_count() -> usize {
    const GUESS: usize = 64;
    std::fs::read_dir("/proc/self/fd").map_or(GUESS, Iterator::count)
}
