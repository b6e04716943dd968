//! How many files and sockets the system lets this process have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open descriptors to the hard one: the usual soft one, 1024, is for programs that use
/// `select`. How many there may be now; `None` if there is no limit.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    // Where it is refused, the soft limit holds.
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// How many are open; a guess that is high enough where the system does not say.
pub fn open_count() -> usize {
    const GUESS: usize = 64;
    std::fs::read_dir("/proc/self/fd").map_or(GUESS, Iterator::count)
}
