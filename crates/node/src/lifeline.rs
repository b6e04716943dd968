//! A supervised process ends when the pipe from its supervisor closes, so that even `kill -9` of the supervisor
//! leaves nothing behind (SEAMS §5).

use std::io::{ErrorKind, Read};

/// Watches standard input on a thread of its own; at its end the process exits.
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
        // Nothing to tidy up: all of a node is in memory, and the coordinator's commits are durable when made.
        std::process::exit(0);
    });
}
