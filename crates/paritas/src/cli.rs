//! The command line.

use clap::{Args, Parser, Subcommand};
use paritas_node::dev::DevSettings;
use paritas_node::settings::{CoordinatorSettings, DEFAULT_PORT, NodeSettings};
use paritas_node::{Failure, Supervision, coordinator, dev, process, status};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

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
    /// End when standard input closes
    #[arg(long)]
    supervised: bool,
    #[command(flatten)]
    settings: CoordinatorSettings,
}

#[derive(Args, Debug)]
struct StatusTask {
    /// Port of any node
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Address of that node
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

const STATUS_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    match cli.task {
        Task::Dev(settings) => dev::run(&settings),
        Task::Node(task) => process::run(task.settings, task.config, task.supervision),
        Task::Coordinator(task) => coordinator::run(task.settings.with_file(task.config.as_deref())?, task.supervised),
        Task::Status(task) => {
            let node = SocketAddr::new(task.host, task.port);
            if task.json {
                println!("{}", status::ask_json(node, STATUS_PATIENCE)?);
            } else {
                println!("{}", status::describe(&status::ask(node, STATUS_PATIENCE)?));
            }
            Ok(())
        }
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
