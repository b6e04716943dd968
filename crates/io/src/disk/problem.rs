//! Why a directory can't be used for a log, and what to do about it.

use paritas_base::{ClusterId, NodeId};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A directory that can't be used. Nothing in it was changed.
#[derive(Debug)]
pub struct LogDirectoryError {
    /// Which.
    pub directory: PathBuf,
    /// Why.
    pub problem: LogDirectoryProblem,
}

/// A size that is not what it was when the directory was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Of which setting.
    pub name: &'static str,
    /// In the directory.
    pub there: String,
    /// In the settings.
    pub here: String,
}

/// Why a log directory can't be used.
#[derive(Debug)]
pub enum LogDirectoryProblem {
    /// Its sizes can't be: what is wrong with them.
    Settings(String),
    /// There is something else of this name.
    NotADirectory,
    /// Another process has it.
    InUse,
    /// Making or opening files in it is refused.
    NotWritable(io::Error),
    /// There is too little space.
    TooSmall {
        /// Bytes that the log takes.
        needed: u64,
        /// Bytes that there are.
        free: u64,
        /// What the system said, if it was asked.
        error: Option<io::Error>,
    },
    /// The file system can't set space aside.
    CannotPreallocate(io::Error),
    /// The file system has no direct I/O, or not for blocks of this size.
    NoDirectIo {
        /// The size.
        block_bytes: usize,
        /// What the system said.
        error: io::Error,
    },
    /// It is of another cluster.
    OtherCluster {
        /// Whose it is.
        there: ClusterId,
        /// Whose node this is.
        here: ClusterId,
    },
    /// It is of another node of the cluster.
    OtherNode {
        /// Whose it is.
        there: NodeId,
        /// Which node this is.
        here: NodeId,
    },
    /// It was written by another version of this program.
    OtherFormat {
        /// Its format.
        format: u32,
        /// The one that is known here.
        known: u32,
    },
    /// It was made with other sizes.
    OtherSizes(Vec<Difference>),
    /// Its files are not as they were left.
    Damaged(String),
    /// Something else went wrong: what was done, and what the system said.
    Failed(String, io::Error),
}

const EMPTY_IT: &str = "empty the directory: what was in it is fetched from the other nodes";

impl fmt::Display for LogDirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log directory {} ", self.directory.display())?;
        match &self.problem {
            LogDirectoryProblem::Settings(what) => write!(f, "can't be made: {what}"),
            LogDirectoryProblem::NotADirectory => {
                write!(f, "is no directory: give the log a directory of its own")
            }
            LogDirectoryProblem::InUse => write!(
                f,
                "is used by another process: end that one, or give each log node a directory of its own"
            ),
            LogDirectoryProblem::NotWritable(error) => write!(
                f,
                "can't be written ({error}): let the user of this process write in it and in its files, and mount its \
                 file system for writing"
            ),
            LogDirectoryProblem::TooSmall { needed, free, error } => {
                write!(
                    f,
                    "is on too small a disk: the log takes {needed} bytes, free are {free}"
                )?;
                if let Some(error) = error {
                    write!(f, " ({error})")?;
                }
                write!(f, ". Make room, or lower log_size (--log-size)")
            }
            LogDirectoryProblem::CannotPreallocate(error) => write!(
                f,
                "is on a file system that can't set space aside ({error}): use one that can, as ext4, xfs and btrfs do"
            ),
            LogDirectoryProblem::NoDirectIo { block_bytes, error } => write!(
                f,
                "can't be used with direct I/O in blocks of {block_bytes} bytes ({error}): use another file \
                 system, or leave log_direct (--log-direct) out"
            ),
            LogDirectoryProblem::OtherCluster { there, here } => write!(
                f,
                "belongs to another cluster ({:016x}; this one is {:016x}): give this node another directory, or, if \
                 that cluster is no more, {EMPTY_IT}",
                there.0, here.0
            ),
            LogDirectoryProblem::OtherNode { there, here } => write!(
                f,
                "belongs to node {there}, and this is {here}: give this node another directory, or {EMPTY_IT}"
            ),
            LogDirectoryProblem::OtherFormat { format, known } => write!(
                f,
                "has format {format}, and this version knows {known}: start the version that wrote it, or {EMPTY_IT}"
            ),
            LogDirectoryProblem::OtherSizes(differences) => {
                write!(f, "was made with other sizes: ")?;
                for (n, Difference { name, there, here }) in differences.iter().enumerate() {
                    let comma = if n > 0 { ", " } else { "" };
                    write!(f, "{comma}{name} is {there} there and {here} in the settings")?;
                }
                write!(f, ". Set them back, or {EMPTY_IT}")
            }
            LogDirectoryProblem::Damaged(what) => write!(f, "is damaged: {what}. To go on, {EMPTY_IT}"),
            LogDirectoryProblem::Failed(what, error) => write!(f, "can't be used: {what}: {error}"),
        }
    }
}

impl std::error::Error for LogDirectoryError {}
