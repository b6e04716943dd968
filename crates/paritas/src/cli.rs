//! The command line.

use crate::files::FilesTask;
use crate::lab::LabTask;
use clap::{Args, Parser, Subcommand};
use paritas_node::dev::DevSettings;
use paritas_node::duty::{Duty, NodeNumber, Order};
use paritas_node::move_slots::{Slots, Target};
use paritas_node::settings::{CoordinatorSettings, DEFAULT_PORT, NodeSettings};
use paritas_node::{
    Failure, Login, Supervision, coordinator, dev, move_slots, order, password, print, process, secret, snapshot,
    status,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A key-value store in memory. It survives the loss of machines without whole copies of the data. Any Redis client
/// works.
#[derive(Parser, Debug)]
#[command(name = "paritas", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Run a whole cluster on this machine
    Dev(DevSettings),
    /// Run one node
    Node(Box<NodeTask>),
    /// Run the coordinator of a cluster
    Coordinator(CoordinatorTask),
    /// Show the status of a cluster
    Status(StatusTask),
    /// Move everything away from a node, a few lists at a time, and wait until the node holds nothing
    Drain(DutyTask),
    /// Move everything away from a faulty node at once. Clients may have to repeat a few commands
    Shun(DutyTask),
    /// Move hash slots, with their keys, to another stream or node. Clients can work meanwhile
    MoveSlots(SlotsTask),
    /// Write every key to a file, which Redis and Valkey can read too. Clients can work meanwhile
    Snapshot(SnapshotTask),
    /// Set every key of a snapshot, or of a dump.rdb of Redis or Valkey
    Restore(RestoreTask),
    /// Let lost lists begin again empty. Without --yes, only show what would be lost
    ResetList(ResetTask),
    /// Declare that the machines of nodes are off, so that their processes count as ended. Without --yes, only show
    /// what would be lost
    Fence(FenceTask),
    /// Change settings of a running cluster: suspicion_ms, lost_policy. Without arguments, show them
    Set(SetTask),
    /// Parity of files of a store such as HDFS, against slow nodes
    Files(FilesTask),
    /// Reproduce the figures and tables of the papers
    Lab(LabTask),
}

#[derive(Args, Debug)]
struct NodeTask {
    /// TOML file with settings; flags take precedence
    #[arg(long)]
    config: Option<PathBuf>,
    #[command(flatten)]
    supervision: Supervision,
    #[command(flatten)]
    settings: NodeSettings,
}

#[derive(Args, Debug)]
struct CoordinatorTask {
    /// TOML file with settings; flags take precedence
    #[arg(long)]
    config: Option<PathBuf>,
    /// Create a new cluster in the store, which must be empty or missing, and exit
    #[arg(long)]
    create: bool,
    /// Restore a store that was lost or is an old copy: ask the nodes for its contents, then run
    #[arg(long, conflicts_with = "create")]
    adopt: bool,
    /// Nodes whose machines are off for good or whose former processes have ended, so that --adopt does not wait for
    /// these: 3 or 3,4
    #[arg(long, requires = "adopt", value_delimiter = ',')]
    without: Vec<NodeNumber>,
    /// With --adopt: continue without those nodes. If not given, only show what would be lost
    #[arg(long, requires = "adopt")]
    yes: bool,
    /// Exit when standard input closes
    #[arg(long)]
    supervised: bool,
    #[command(flatten)]
    settings: CoordinatorSettings,
}

impl CoordinatorTask {
    fn run(self) -> Result<(), Failure> {
        let settings = self.settings.with_file(self.config.as_deref())?;
        if self.create {
            if coordinator::create(&settings)?
                && let Some(file) = &settings.secret_file
            {
                let file = file.display();
                print(format_args!(
                    "{file} has a new secret: copy it to every machine of the cluster, for its secret_file"
                ))?;
            }
            return print("the new cluster is created; now start the coordinator without --create");
        }
        let start = match self.adopt {
            true => coordinator::Start::Adopt {
                without: self.without.iter().map(|node| node.0).collect(),
                confirmed: self.yes,
            },
            false => coordinator::Start::Stored,
        };
        coordinator::run(settings, self.supervised, &start)
    }
}

#[derive(Args, Debug)]
struct StatusTask {
    #[command(flatten)]
    whom: Whom,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Ask the coordinator at this address instead of a node
    #[arg(long, conflicts_with_all = ["port", "host"])]
    coordinator: Option<SocketAddr>,
    #[command(flatten)]
    secret: SecretArgument,
}

impl StatusTask {
    fn run(&self) -> Result<(), Failure> {
        if let Some(coordinator) = self.coordinator {
            let status = order::ask_status(&self.secret.whom(coordinator)?, STATUS_TIMEOUT)?;
            return order::print_status(&status, self.json);
        }
        let node = &self.whom.login()?;
        match self.json {
            true => print(status::ask_json(node, STATUS_TIMEOUT)?),
            false => print(status::describe(&status::ask(node, STATUS_TIMEOUT)?)),
        }
    }
}

/// What a coordinator on another machine asks for.
#[derive(Args, Debug)]
struct SecretArgument {
    /// File with the cluster's secret. Not needed on the coordinator's own machine
    #[arg(long)]
    secret_file: Option<PathBuf>,
}

impl SecretArgument {
    fn whom(&self, coordinator: SocketAddr) -> Result<order::Whom, Failure> {
        let secrets = self.secret_file.as_deref().map(secret::read).transpose();
        let secrets = secrets.map_err(|why| Failure(format!("--secret-file: {why}")))?;
        Ok(order::Whom {
            coordinator,
            secrets: secrets.unwrap_or_default(),
        })
    }
}

/// The receiver of an order that can lose data.
#[derive(Args, Debug)]
struct ToWhom {
    #[command(flatten)]
    node: Whom,
    /// Address of the coordinator, to be used if no node answers. It accepts such orders with the cluster's secret, or
    /// from its own machine
    #[arg(long, conflicts_with_all = ["port", "host"])]
    coordinator: Option<SocketAddr>,
    #[command(flatten)]
    secret: SecretArgument,
    /// Do it. If not given, only show what would be lost
    #[arg(long)]
    yes: bool,
}

impl ToWhom {
    fn coordinator(&self) -> Result<order::Whom, Failure> {
        let coordinator = match self.coordinator {
            Some(coordinator) => coordinator,
            None => order::find_coordinator(&self.node.login()?, STATUS_TIMEOUT)?,
        };
        self.secret.whom(coordinator)
    }
}

#[derive(Args, Debug)]
struct ResetTask {
    /// Numbers of the lists, as in `paritas status`
    #[arg(required_unless_present = "lost")]
    lists: Vec<u16>,
    /// All lost lists
    #[arg(long, conflicts_with = "lists")]
    lost: bool,
    /// Do not wait until the lists have begun again
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    whom: ToWhom,
}

impl ResetTask {
    fn run(&self) -> Result<(), Failure> {
        let (order, lists) = order::reset_lists(&self.lists);
        let coordinator = self.whom.coordinator()?;
        let done = order::give(&coordinator, order, self.whom.yes)?;
        if !done || self.no_wait {
            return Ok(());
        }
        order::await_reset(&coordinator, &lists, SNAPSHOT_TIMEOUT)
    }
}

#[derive(Args, Debug)]
struct FenceTask {
    /// Numbers of the nodes, as in `paritas status`: 3 or n3
    #[arg(required = true)]
    nodes: Vec<NodeNumber>,
    #[command(flatten)]
    whom: ToWhom,
}

impl FenceTask {
    fn run(&self) -> Result<(), Failure> {
        let order = order::fence(self.nodes.iter().map(|node| node.0));
        order::give(&self.whom.coordinator()?, order, self.whom.yes).map(drop)
    }
}

#[derive(Args, Debug)]
struct SetTask {
    /// NAME=VALUE, such as suspicion_ms=2000
    settings: Vec<order::Assignment>,
    #[command(flatten)]
    whom: ToWhom,
}

impl SetTask {
    fn run(&self) -> Result<(), Failure> {
        let settings = order::settings(&self.settings)?;
        order::give(&self.whom.coordinator()?, order::set(settings), self.whom.yes).map(drop)
    }
}

#[derive(Args, Debug)]
struct Whom {
    /// Port of any node; for a cluster of `paritas dev`, the --port of that command
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Address of that node
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// File with the password of the cluster's nodes, if they have one
    #[arg(long)]
    password_file: Option<PathBuf>,
}

impl Whom {
    fn login(&self) -> Result<Login, Failure> {
        let password = self.password_file.as_deref().map(password::read).transpose();
        Ok(Login {
            node: SocketAddr::new(self.host, self.port),
            password: password.map_err(|why| Failure(format!("--password-file: {why}")))?,
        })
    }
}

#[derive(Args, Debug)]
struct SlotsTask {
    /// The hash slots: FIRST-LAST, or the number of one slot
    #[arg(required_unless_present = "stop")]
    slots: Option<Slots>,
    /// The destination: LIST/POSITION, or the number of a node. Of the node's streams, the one with the fewest slots
    /// gets them
    #[arg(long, required_unless_present = "stop")]
    to: Option<Target>,
    /// Cancel the current move. Slots that have already moved stay where they are
    #[arg(long, conflicts_with_all = ["slots", "to"])]
    stop: bool,
    /// Do not wait until the move is done. Interrupting the wait does not cancel the move either
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    whom: Whom,
    /// Print the progress as lines of JSON, for scripts
    #[arg(long)]
    json: bool,
}

impl SlotsTask {
    fn run(self) -> Result<(), Failure> {
        let order = move_slots::Order {
            what: self.slots.zip(self.to),
            json: self.json,
        };
        let whom = self.whom.login()?;
        order.give(&whom, STATUS_TIMEOUT)?;
        if self.no_wait {
            return Ok(());
        }
        order.watch(&whom, STATUS_TIMEOUT)
    }
}

#[derive(Args, Debug)]
struct DutyTask {
    /// Number of the node, as in `paritas status`: 3 or n3
    node: NodeNumber,
    /// Let the node serve again: its planned positions move back to it
    #[arg(long)]
    undo: bool,
    /// Do not wait until it is done. Interrupting the wait does not cancel the order either
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    whom: Whom,
    /// Print the progress as lines of JSON, for scripts
    #[arg(long)]
    json: bool,
}

impl DutyTask {
    fn run(&self, duty: Duty) -> Result<(), Failure> {
        let order = Order {
            node: self.node,
            duty: if self.undo { Duty::Returning } else { duty },
            json: self.json,
        };
        let whom = self.whom.login()?;
        order.give(&whom, STATUS_TIMEOUT)?;
        if self.no_wait {
            return Ok(());
        }
        order.watch(&whom, STATUS_TIMEOUT)
    }
}

#[derive(Args, Debug)]
struct SnapshotTask {
    /// File to write. An existing file is replaced only when the new one is complete
    file: PathBuf,
    #[command(flatten)]
    whom: Whom,
}

impl SnapshotTask {
    fn run(&self) -> Result<(), Failure> {
        let whom = self.whom.login()?;
        timed(|| snapshot::take(&whom, &self.file, SNAPSHOT_TIMEOUT, &mut tell))
    }
}

#[derive(Args, Debug)]
struct RestoreTask {
    /// The snapshot
    file: PathBuf,
    /// Keep existing keys; otherwise they are overwritten
    #[arg(long)]
    keep: bool,
    /// List and pass over what cannot be stored here: other types than strings, keys and values that are too long,
    /// databases above 15, functions. Otherwise such a file is refused, and nothing is changed
    #[arg(long)]
    skip: bool,
    #[command(flatten)]
    whom: Whom,
}

impl RestoreTask {
    fn run(&self) -> Result<(), Failure> {
        let whom = self.whom.login()?;
        let manner = snapshot::Manner {
            keep: self.keep,
            skip: self.skip,
        };
        let mut list = |what: &str| eprintln!("passed over: {what}");
        timed(|| snapshot::restore(&whom, &self.file, manner, SNAPSHOT_TIMEOUT, &mut list, &mut tell))
    }
}

/// Runs a snapshot or a restore, and prints the number of keys and the duration.
fn timed(work: impl FnOnce() -> Result<snapshot::Count, Failure>) -> Result<(), Failure> {
    let began = Instant::now();
    let count = work()?;
    print(format_args!("{count}, in {:.1} s", began.elapsed().as_secs_f32()))
}

/// Prints progress to standard error, because scripts read standard output.
fn tell(count: &snapshot::Count) {
    eprintln!("{count} so far");
}

const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// A snapshot, a restore or the wait for a reset fails after this time, for example during a long takeover.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    paritas_node::raise_limits();
    match cli.task {
        Task::Dev(settings) => dev::run(&settings),
        Task::Node(task) => process::run(task.settings, task.config, task.supervision),
        Task::Coordinator(task) => task.run(),
        Task::Status(task) => task.run(),
        Task::ResetList(task) => task.run(),
        Task::Fence(task) => task.run(),
        Task::Set(task) => task.run(),
        Task::Drain(task) => task.run(Duty::Draining),
        Task::Shun(task) => task.run(Duty::Shunned),
        Task::Snapshot(task) => task.run(),
        Task::Restore(task) => task.run(),
        Task::Files(task) => task.run(),
        Task::Lab(task) => task.run(),
        Task::MoveSlots(task) => task.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
