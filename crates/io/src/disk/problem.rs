//! Why a directory cannot be used for a log, and what the operator can do.

use paritas_base::{ClusterId, NodeId};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A directory that cannot be used. Nothing in it was changed.
#[derive(Debug)]
pub struct LogDirectoryError {
    /// The directory.
    pub directory: PathBuf,
    /// Why it cannot be used.
    pub problem: LogDirectoryProblem,
}

/// A size that differs from the one with which the directory was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The name of the setting.
    pub name: &'static str,
    /// Its value in the directory.
    pub there: String,
    /// Its value in the settings.
    pub here: String,
}

/// Why a log directory cannot be used.
#[derive(Debug)]
pub enum LogDirectoryProblem {
    /// The sizes in the settings are impossible; the text says why.
    Settings(String),
    /// A file has this name.
    NotADirectory,
    /// Another process uses it.
    InUse,
    /// Creating or opening files in it is refused.
    NotWritable(io::Error),
    /// The disk has too little space.
    TooSmall {
        /// Bytes that the log needs.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// The error of the system, if one occurred.
        error: Option<io::Error>,
    },
    /// The file system cannot reserve space.
    CannotPreallocate(io::Error),
    /// The file system has no direct I/O, or not with blocks of this size.
    NoDirectIo {
        /// The size of a block.
        block_bytes: usize,
        /// The error of the system.
        error: io::Error,
    },
    /// It belongs to another cluster.
    OtherCluster {
        /// The cluster in the directory.
        there: ClusterId,
        /// The cluster of this node.
        here: ClusterId,
    },
    /// It belongs to another node of the cluster.
    OtherNode {
        /// The node in the directory.
        there: NodeId,
        /// This node.
        here: NodeId,
    },
    /// It was written in another format.
    OtherFormat {
        /// The format in the directory.
        format: u32,
        /// The format of this version.
        known: u32,
    },
    /// It was made with other sizes.
    OtherSizes(Vec<Difference>),
    /// Its files were changed since they were written; the text says how.
    Damaged(String),
    /// Another operation failed: which one, and the error of the system.
    Failed(String, io::Error),
}

const EMPTY_IT: &str = "empty the directory: its data is fetched from the other nodes";

impl fmt::Display for LogDirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log directory {} ", self.directory.display())?;
        match &self.problem {
            LogDirectoryProblem::Settings(what) => write!(f, "cannot be made: {what}"),
            LogDirectoryProblem::NotADirectory => {
                write!(f, "is not a directory: give the log a directory of its own")
            }
            LogDirectoryProblem::InUse => write!(
                f,
                "is used by another process: end that one, or give each log node a directory of its own"
            ),
            LogDirectoryProblem::NotWritable(error) => write!(
                f,
                "cannot be written ({error}): give the user of this process write permission in it, and \
                 mount its file system for writing"
            ),
            LogDirectoryProblem::TooSmall { needed, free, error } => {
                write!(
                    f,
                    "is on a disk that is too small: the log needs {needed} bytes, {free} are free"
                )?;
                if let Some(error) = error {
                    write!(f, " ({error})")?;
                }
                write!(f, ". Free some space, or lower log_size (--log-size)")
            }
            LogDirectoryProblem::CannotPreallocate(error) => write!(
                f,
                "is on a file system that cannot reserve space ({error}): use one that can, such as ext4, xfs or btrfs"
            ),
            LogDirectoryProblem::NoDirectIo { block_bytes, error } => write!(
                f,
                "cannot be used with direct I/O in blocks of {block_bytes} bytes ({error}): use another file \
                 system, or leave log_direct (--log-direct) out"
            ),
            LogDirectoryProblem::OtherCluster { there, here } => write!(
                f,
                "belongs to another cluster ({:016x}; this one is {:016x}): give this node another directory, or, if \
                 that cluster no longer exists, {EMPTY_IT}",
                there.0, here.0
            ),
            LogDirectoryProblem::OtherNode { there, here } => write!(
                f,
                "belongs to node {there}, and this node is {here}: give this node another directory, or {EMPTY_IT}"
            ),
            LogDirectoryProblem::OtherFormat { format, known } => write!(
                f,
                "has format {format}, and this version uses {known}: start the version that wrote it, or {EMPTY_IT}"
            ),
            LogDirectoryProblem::OtherSizes(differences) => {
                write!(f, "was made with other sizes: ")?;
                for (n, Difference { name, there, here }) in differences.iter().enumerate() {
                    let comma = if n > 0 { ", " } else { "" };
                    write!(
                        f,
                        "{comma}{name} is {there} in the directory and {here} in the settings"
                    )?;
                }
                write!(f, ". Restore the settings, or {EMPTY_IT}")
            }
            LogDirectoryProblem::Damaged(what) => write!(f, "is damaged: {what}. To go on, {EMPTY_IT}"),
            LogDirectoryProblem::Failed(what, error) => write!(f, "cannot be used: {what}: {error}"),
        }
    }
}

impl std::error::Error for LogDirectoryError {}
