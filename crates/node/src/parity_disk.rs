//! The disk of a log node at its start: the log directory, and the parity that an earlier process left (P11.3).

use crate::log_settings::log_settings;
use crate::settings::NodeSettings;
use crate::{ByteCount, Failure};
use paritas_base::NodeId;
use paritas_base::configuration::ClusterRecord;
use paritas_frontend::Node;
use paritas_io::{LogDirectory, Owner, clock};
use paritas_paritylog::{Recovery, Settings};
use std::path::Path;
use std::time::{Duration, Instant};

/// An open log.
#[derive(Debug)]
pub(crate) struct ParityDisk {
    owner: Owner,
    settings: Settings,
    directory: LogDirectory,
    recovery: Recovery,
}

/// Interval of progress messages while the log is read.
const SAY_EVERY: Duration = Duration::from_secs(2);

impl ParityDisk {
    /// Opens and reads the log in the directory, if there is one.
    pub(crate) fn open_found(settings: &NodeSettings, node: NodeId) -> Result<Option<Self>, Failure> {
        let Some(dir) = &settings.log_dir else { return Ok(None) };
        let Some((owner, made_with)) = LogDirectory::look(dir) else {
            return Ok(None);
        };
        let owner = Owner { node, ..owner };
        // Settings that are not given keep the values of the existing log, because defaults may change.
        let settings = NodeSettings {
            log_reserve: settings.log_reserve.or(Some(ByteCount(made_with.reserve_bytes as u64))),
            ..settings.clone()
        };
        let log = log_settings(&settings, made_with.chunk_bytes, made_with.data_max)?;
        log.map(|log| Self::open(dir, owner, log, &settings)).transpose()
    }

    /// Creates a new log for a log node.
    pub(crate) fn open_new(
        settings: &NodeSettings,
        node: NodeId,
        cluster: &ClusterRecord,
    ) -> Result<Option<Self>, Failure> {
        let Some(dir) = &settings.log_dir else { return Ok(None) };
        let owner = Owner {
            cluster: cluster.id,
            node,
        };
        let log = log_settings(settings, cluster.chunk_bytes as usize, cluster.data.into())?;
        log.map(|log| Self::open(dir, owner, log, settings)).transpose()
    }

    /// Checks that the existing log belongs to the cluster of this node.
    pub(crate) fn of_cluster(self, settings: &NodeSettings, cluster: &ClusterRecord) -> Result<Self, Failure> {
        let same_shape = self.settings.chunk_bytes == cluster.chunk_bytes as usize
            && self.settings.data_max == usize::from(cluster.data);
        if self.owner.cluster == cluster.id && same_shape {
            return Ok(self);
        }
        let (there, dir) = (self.owner.cluster, settings.log_dir.clone().unwrap_or_default());
        Err(Failure(format!(
            "the log directory {} holds the log of cluster {:016x}, and this node is of cluster {:016x}: name another \
             directory, or empty this one",
            dir.display(),
            there.0,
            cluster.id.0
        )))
    }

    fn open(dir: &Path, owner: Owner, log: Settings, settings: &NodeSettings) -> Result<Self, Failure> {
        let mut said = Instant::now();
        let progress = |done: u64, total: u64| {
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                tracing::info!("log_dir: read {} of {}", ByteCount(done), ByteCount(total));
            }
        };
        let direct = settings.log_direct == Some(true);
        let (directory, recovery) =
            LogDirectory::open(dir, owner, &log, direct, progress).map_err(|error| Failure(error.to_string()))?;
        Ok(Self {
            owner,
            settings: log,
            directory,
            recovery,
        })
    }

    /// Gives the node its log. Returns the directory, for the disk.
    pub(crate) fn attach(self, node: &mut Node) -> LogDirectory {
        let log = self.recovery.resume(node.replica().incarnation().0 as u16);
        if log.chunks() > 0 {
            tracing::info!("log_dir: found {} parity chunks of an earlier process", log.chunks());
        }
        node.replica_mut().set_log(log, clock::mono());
        self.directory
    }
}
