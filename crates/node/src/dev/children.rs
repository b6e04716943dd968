//! Child processes of `dev`: starts them, waits for their ends, ends them.

use crate::Failure;
use paritas_io::signals;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

/// A process of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Coordinator,
    Node(u16),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.write_str("coordinator"),
            Self::Node(node) => write!(f, "node-{node}"),
        }
    }
}

/// A running process. Dropping it closes the process's standard input, and the process then ends by itself.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) who: Who,
    pub(crate) pid: u32,
    pub(crate) started: Instant,
    _lifeline: ChildStdin,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) pid: u32,
    pub(crate) status: ExitStatus,
}

impl Exit {
    pub(crate) fn reason(&self) -> String {
        match (self.status.signal(), self.status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => "unknown reason".into(),
        }
    }
}

/// Starts a process of the running program. `tell` is called once, after the process has ended.
pub(crate) fn start(
    who: Who,
    arguments: &[String],
    dir: &Path,
    tell: impl FnOnce(Exit) + Send + 'static,
) -> Result<Child, Failure> {
    let failed = |error| not_started(who, error);
    // The waiting thread starts before the process: the end of every process must be noticed.
    let (started, starts) = channel::<std::process::Child>();
    thread::Builder::new()
        .name(format!("wait-{who}"))
        .spawn(move || {
            if let Ok(mut child) = starts.recv()
                && let Ok(status) = child.wait()
            {
                let pid = child.id();
                tell(Exit { pid, status });
            }
        })
        .map_err(failed)?;
    let mut command = command(who, arguments, dir)?;
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
    let pid = child.id();
    // `Stdio::piped()` above makes sure that there is one.
    let lifeline = child
        .stdin
        .take()
        .ok_or_else(|| Failure(format!("{who} has no standard input")))?;
    // The thread waits for exactly this message, so sending cannot fail.
    let _ = started.send(child);
    Ok(Child {
        who,
        pid,
        started: Instant::now(),
        _lifeline: lifeline,
    })
}

/// Runs a process of the running program until it ends.
pub(crate) fn complete(who: Who, arguments: &[String], dir: &Path) -> Result<(), Failure> {
    let mut command = command(who, arguments, dir)?;
    let status = command.stdin(Stdio::null()).status();
    if status.map_err(|error| not_started(who, error))?.success() {
        return Ok(());
    }
    Err(Failure(format!("{who}: {}", log_tail(dir, who))))
}

fn command(who: Who, arguments: &[String], dir: &Path) -> Result<Command, Failure> {
    let log = open_log(dir, who).map_err(|error| not_started(who, error))?;
    let program = own_program().map_err(|error| not_started(who, error))?;
    let mut command = Command::new(program);
    // In a process group of its own, so that Ctrl-C reaches only the supervisor, which then ends all processes.
    command
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0);
    Ok(command)
}

fn not_started(who: Who, error: std::io::Error) -> Failure {
    Failure(format!("{who} cannot be started: {error}"))
}

/// The running program, by its path if that still leads to the same file. The file may have been rebuilt or deleted
/// since, and all processes of a cluster must have the same version.
fn own_program() -> std::io::Result<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let own = Path::new("/proc/self/exe");
        let file = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        if let Some(running) = file(own)
            && !std::env::current_exe().is_ok_and(|path| file(&path) == Some(running))
        {
            return Ok(own.to_path_buf());
        }
    }
    std::env::current_exe()
}

/// Kills processes. Their ends were not collected yet, so the system has not given their pids to other processes.
pub(crate) fn kill_all<'a>(pids: impl Iterator<Item = &'a u32>) {
    for pid in pids {
        signals::kill(*pid);
    }
}

pub(crate) fn log_path(dir: &Path, who: Who) -> PathBuf {
    dir.join(format!("{who}.log"))
}

fn open_log(dir: &Path, who: Who) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(log_path(dir, who))
}

/// The last lines of the log of a process that could not be started.
pub(crate) fn log_tail(dir: &Path, who: Who) -> String {
    const LINES: usize = 5;
    last_lines(dir, who, LINES)
}

/// The last line of the log of a process.
pub(crate) fn last_log_line(dir: &Path, who: Who) -> String {
    last_lines(dir, who, 1)
}

fn last_lines(dir: &Path, who: Who, count: usize) -> String {
    let text = std::fs::read(log_path(dir, who)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
