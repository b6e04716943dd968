//! The command line.

use crate::lab::LabTask;
use clap::{Args, Parser, Subcommand};
use paritas_node::dev::DevSettings;
use paritas_node::duty::{Duty, NodeNumber, Order};
use paritas_node::move_slots::{Slots, Target};
use paritas_node::settings::{CoordinatorSettings, DEFAULT_PORT, NodeSettings};
use paritas_node::{Failure, Supervision, coordinator, dev, move_slots, order, print, process, snapshot, status};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A key-value store in memory that survives the loss of machines without keeping whole copies. Any Redis client works.
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
    Node(NodeTask),
    /// Run the coordinator of a cluster
    Coordinator(CoordinatorTask),
    /// Say how a cluster is
    Status(StatusTask),
    /// Move everything away from a node, a few lists at a time, and wait until it holds nothing
    Drain(DutyTask),
    /// Move everything away from a node that does harm, at once: a few commands may have to be sent again
    Shun(DutyTask),
    /// Move slots, and their keys, to another stream or node, while clients go on
    MoveSlots(SlotsTask),
    /// Write every key into a file, while clients go on; Redis and Valkey read it too
    Snapshot(SnapshotTask),
    /// Set every key of a snapshot, or of a dump.rdb of Redis or Valkey
    Restore(RestoreTask),
    /// Begin lost lists again, empty; says what would go, and does it with --yes
    ResetList(ResetTask),
    /// Say that the machines of nodes are off: their processes count as ended. Says what would be lost, and does it
    /// with --yes
    Fence(FenceTask),
    /// Change settings of a cluster while it lives: suspicion_ms, lost_policy; without any, show them
    Set(SetTask),
    /// The papers' figures and tables, made again
    Lab(LabTask),
}

#[derive(Args, Debug)]
struct NodeTask {
    /// TOML file with settings; flags are stronger
    #[arg(long)]
    config: Option<PathBuf>,
    #[command(flatten)]
    supervision: Supervision,
    #[command(flatten)]
    settings: NodeSettings,
}

#[derive(Args, Debug)]
struct CoordinatorTask {
    /// TOML file with settings; flags are stronger
    #[arg(long)]
    config: Option<PathBuf>,
    /// Make a new cluster in the store, which must be empty, and end
    #[arg(long)]
    create: bool,
    /// The store was lost, or is an old copy: ask the nodes for what was in it, then run
    #[arg(long, conflicts_with = "create")]
    adopt: bool,
    /// Nodes whose machines are off for good, so that --adopt does not wait for them: 3 or 3,4
    #[arg(long, requires = "adopt", value_delimiter = ',')]
    without: Vec<NodeNumber>,
    /// With --adopt: go on without those nodes; without, only what that would lose is said
    #[arg(long, requires = "adopt")]
    yes: bool,
    /// End when standard input closes
    #[arg(long)]
    supervised: bool,
    #[command(flatten)]
    settings: CoordinatorSettings,
}

impl CoordinatorTask {
    fn run(self) -> Result<(), Failure> {
        let settings = self.settings.with_file(self.config.as_deref())?;
        if self.create {
            coordinator::create(&settings)?;
            return print("a new cluster is made; now start the coordinator without --create");
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
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Ask the coordinator itself, at this address, in place of a node
    #[arg(long, conflicts_with_all = ["port", "host"])]
    coordinator: Option<SocketAddr>,
}

impl StatusTask {
    fn run(&self) -> Result<(), Failure> {
        let node = self.whom.address();
        if let Some(coordinator) = self.coordinator {
            let status = order::ask_status(coordinator, STATUS_TIMEOUT)?;
            return order::print_status(&status, self.json);
        }
        match self.json {
            true => print(status::ask_json(node, STATUS_TIMEOUT)?),
            false => print(status::describe(&status::ask(node, STATUS_TIMEOUT)?)),
        }
    }
}

/// To whom orders go that can lose data.
#[derive(Args, Debug)]
struct ToWhom {
    #[command(flatten)]
    node: Whom,
    /// Address of the coordinator itself, for when no node answers. Such orders are taken on its own machine only
    #[arg(long, conflicts_with_all = ["port", "host"])]
    coordinator: Option<SocketAddr>,
    /// Do it; without, only what it would lose is said
    #[arg(long)]
    yes: bool,
}

impl ToWhom {
    fn coordinator(&self) -> Result<SocketAddr, Failure> {
        match self.coordinator {
            Some(coordinator) => Ok(coordinator),
            None => order::find_coordinator(self.node.address(), STATUS_TIMEOUT),
        }
    }
}

#[derive(Args, Debug)]
struct ResetTask {
    /// Which lists, by their numbers in `paritas status`
    #[arg(required_unless_present = "lost")]
    lists: Vec<u16>,
    /// All that are lost
    #[arg(long, conflicts_with = "lists")]
    lost: bool,
    /// Don't wait until it is done
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    whom: ToWhom,
}

impl ResetTask {
    fn run(&self) -> Result<(), Failure> {
        let (order, lists) = order::reset_lists(&self.lists);
        let coordinator = self.whom.coordinator()?;
        let done = order::give(coordinator, order, self.whom.yes)?;
        if !done || self.no_wait {
            return Ok(());
        }
        order::await_reset(coordinator, &lists, SNAPSHOT_TIMEOUT)
    }
}

#[derive(Args, Debug)]
struct FenceTask {
    /// The nodes, as `paritas status` numbers them: 3 or n3
    #[arg(required = true)]
    nodes: Vec<NodeNumber>,
    #[command(flatten)]
    whom: ToWhom,
}

impl FenceTask {
    fn run(&self) -> Result<(), Failure> {
        let order = order::fence(self.nodes.iter().map(|node| node.0));
        order::give(self.whom.coordinator()?, order, self.whom.yes).map(drop)
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
        order::give(self.whom.coordinator()?, order::set(settings), self.whom.yes).map(drop)
    }
}

#[derive(Args, Debug)]
struct Whom {
    /// Port of any node; of a cluster of `paritas dev`, its --port
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Address of that node
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
}

impl Whom {
    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }
}

#[derive(Args, Debug)]
struct SlotsTask {
    /// Which slots: FIRST-LAST, or one
    #[arg(required_unless_present = "stop")]
    slots: Option<Slots>,
    /// Where to: LIST/POSITION, or a node, of whose streams the one with the fewest slots gets them
    #[arg(long, required_unless_present = "stop")]
    to: Option<Target>,
    /// Stop what is under way: slots that have moved stay where they are
    #[arg(long, conflicts_with_all = ["slots", "to"])]
    stop: bool,
    /// Don't wait until it is done; to interrupt the wait does not stop it either
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    whom: Whom,
    /// Progress as lines of JSON, for scripts
    #[arg(long)]
    json: bool,
}

impl SlotsTask {
    fn run(self) -> Result<(), Failure> {
        let order = move_slots::Order {
            what: self.slots.zip(self.to),
            json: self.json,
        };
        order.give(self.whom.address(), STATUS_TIMEOUT)?;
        if self.no_wait {
            return Ok(());
        }
        order.watch(self.whom.address(), STATUS_TIMEOUT)
    }
}

#[derive(Args, Debug)]
struct DutyTask {
    /// The node, as `paritas status` numbers it: 3 or n3
    node: NodeNumber,
    /// Let it serve again: what it holds by plan comes back to it
    #[arg(long)]
    undo: bool,
    /// Don't wait until it is done; to interrupt the wait does not stop it either
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    whom: Whom,
    /// Progress as lines of JSON, for scripts
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
        order.give(self.whom.address(), STATUS_TIMEOUT)?;
        if self.no_wait {
            return Ok(());
        }
        order.watch(self.whom.address(), STATUS_TIMEOUT)
    }
}

#[derive(Args, Debug)]
struct SnapshotTask {
    /// Where to: one that is there is replaced once the new one is whole
    file: PathBuf,
    #[command(flatten)]
    whom: Whom,
}

impl SnapshotTask {
    fn run(&self) -> Result<(), Failure> {
        timed(|| snapshot::take(self.whom.address(), &self.file, SNAPSHOT_TIMEOUT, &mut tell))
    }
}

#[derive(Args, Debug)]
struct RestoreTask {
    /// The snapshot
    file: PathBuf,
    /// Leave keys that are there as they are; otherwise they are overwritten
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    whom: Whom,
}

impl RestoreTask {
    fn run(&self) -> Result<(), Failure> {
        let whom = self.whom.address();
        timed(|| snapshot::restore(whom, &self.file, self.keep, SNAPSHOT_TIMEOUT, &mut tell))
    }
}

/// Does it, and says how much it was and how long it took.
fn timed(work: impl FnOnce() -> Result<snapshot::Count, Failure>) -> Result<(), Failure> {
    let began = Instant::now();
    let count = work()?;
    print(format_args!("{count}, in {:.1} s", began.elapsed().as_secs_f32()))
}

/// Progress, beside what scripts read.
fn tell(count: &snapshot::Count) {
    eprintln!("{count} so far");
}

const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// A snapshot or restore fails if a takeover lasts longer.
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
