//! A supervised process ends when the pipe from its supervisor closes. So even `kill -9` of the supervisor leaves no
//! process behind (docs/operate.md).

use std::io::{ErrorKind, Read};

/// Watches standard input on its own thread. The process exits when standard input ends.
pub(crate) fn watch() {
    std::thread::spawn(|| {
        let mut input = std::io::stdin().lock();
        let mut ignored = [0; 64];
        loop {
            match input.read(&mut ignored) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        // No cleanup is needed: a node has everything in memory, and the coordinator's commits are durable at once.
        std::process::exit(0);
    });
}
