//! `paritas files`: the cache of parity in front of a file store.

use clap::{Args, Subcommand};
use paritas_node::Failure;
use paritas_steward::DEFAULT_PORT;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct FilesTask {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Run a steward, which decides which files have parity in the cache. A second one waits to take over
    Steward {
        /// TOML file with settings
        #[arg(long)]
        config: PathBuf,
    },
    /// Show what stewards know: files with parity, slow nodes
    Status {
        /// Address of a steward, host:port
        #[arg(long, default_value_t = format!("127.0.0.1:{DEFAULT_PORT}"))]
        steward: String,
        /// File with the password of the stewards, if they have one
        #[arg(long)]
        password_file: Option<PathBuf>,
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
    },
}

impl FilesTask {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::Steward { config } => paritas_steward::run(config),
            What::Status {
                steward,
                password_file,
                json,
            } => paritas_steward::print_status(steward, password_file.as_deref(), *json),
        }
    }
}
