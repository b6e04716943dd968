//! Logs are lines on standard error, written by the thread that logs. Nothing in the path of a request logs.

use crate::settings::LogLevel;

/// Starts logging at `level` and above. A second call changes nothing.
pub fn start(level: Option<LogLevel>) {
    let level = level.map_or(tracing::Level::INFO, |level| level.0);
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}
