//! Child processes: started, waited for, ended.

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

/// Which process of the cluster.
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

/// A process that runs. Dropping it closes its standard input, at which it ends by itself.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) who: Who,
    pub(crate) pid: u32,
    pub(crate) started: Instant,
    _lifeline: ChildStdin,
}

/// A process that was waited for.
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

/// Starts a process of this very program. `tell` is called once, after it has ended.
pub(crate) fn start(
    who: Who,
    arguments: &[String],
    dir: &Path,
    tell: impl FnOnce(Exit) + Send + 'static,
) -> Result<Child, Failure> {
    let failed = |error| not_started(who, error);
    // The one who waits is there first: a process must not run that nobody sees end.
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
    // It was asked for just above.
    let lifeline = child
        .stdin
        .take()
        .ok_or_else(|| Failure(format!("{who} has no standard input")))?;
    // It waits for nothing else.
    let _ = started.send(child);
    Ok(Child {
        who,
        pid,
        started: Instant::now(),
        _lifeline: lifeline,
    })
}

/// Runs a process of this very program until it ends.
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
    // Ctrl-C is for the supervisor, which then ends them all.
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

/// The program that runs here, by its path if that is still the same file: it may have been built anew since, or be
/// gone, and a cluster is of one version.
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

/// Ends processes at once. They are children that nobody has waited for yet, so the numbers are still theirs.
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

/// The end of a log, for a process that did not come up.
pub(crate) fn log_tail(dir: &Path, who: Who) -> String {
    const LINES: usize = 5;
    last_lines(dir, who, LINES)
}

/// What a process said last.
pub(crate) fn last_log_line(dir: &Path, who: Who) -> String {
    last_lines(dir, who, 1)
}

fn last_lines(dir: &Path, who: Who, count: usize) -> String {
    let text = std::fs::read(log_path(dir, who)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
