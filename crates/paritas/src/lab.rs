//! `paritas lab`: the papers' experiments, by name.

use clap::{Args, Subcommand};
use paritas_lab::experiments::mttdl::{Code, Model};
use paritas_lab::stage::{Extent, Stage};
use paritas_lab::{EXPERIMENTS, Experiment, PLOT, Report, archive, find};
use paritas_node::{ByteCount, Failure, print};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Args, Debug)]
pub(crate) struct LabTask {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List the experiments, each with its figure and the paper's claim
    List,
    /// Run one experiment or all of them, and print which claims are reproduced. Most start memcached processes, and
    /// stop them at the end
    Run(Run),
    /// Compute the mean time to data loss of a stripe by LogECMem's model (Table 2), for a cluster of your choice
    Mttdl(Mttdl),
}

#[derive(Args, Debug)]
struct Run {
    /// Name of an experiment, as in `paritas lab list`, or all
    name: String,
    /// Directory for NAME.csv, NAME-verdicts.csv, further tables, their sums in SHA256SUMS, and NAME.png
    #[arg(long)]
    out: Option<PathBuf>,
    /// Run for seconds instead of minutes, to check that everything works. The measured times mean nothing then
    #[arg(long)]
    quick: bool,
}

#[derive(Args, Debug)]
struct Mttdl {
    /// Data and parity chunks of a stripe
    #[arg(long, default_value = "6+3")]
    scheme: Code,
    /// Mean time until a node fails, in years
    #[arg(long, default_value_t = 4.0)]
    mttf: f64,
    /// Bytes that a node holds
    #[arg(long, default_value = "64gb")]
    node: ByteCount,
    /// Bandwidth for the repair of a single node, in Gb/s
    #[arg(long, default_value_t = 10.0)]
    bandwidth: f64,
    /// Time until several failures are detected and repaired, in seconds
    #[arg(long, default_value_t = 2.0)]
    detection: f64,
}

impl LabTask {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::List => {
                for experiment in EXPERIMENTS {
                    print(format_args!(
                        "{:<15} {:<26} {}",
                        experiment.name, experiment.figure, experiment.claim
                    ))?;
                }
                Ok(())
            }
            What::Run(run) => run.run(),
            What::Mttdl(mttdl) => mttdl.run(),
        }
    }
}

impl Run {
    fn run(&self) -> Result<(), Failure> {
        let chosen: Vec<&Experiment> = match find(&self.name) {
            Some(experiment) => vec![experiment],
            None if self.name == "all" => EXPERIMENTS.iter().collect(),
            None => {
                let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
                let names = names.join(", ");
                return Err(Failure(format!(
                    "{}: no such experiment; choose one of {names}",
                    self.name
                )));
            }
        };
        let stage = Stage {
            extent: if self.quick { Extent::Quick } else { Extent::Full },
            say: |what| eprintln!("{what}"),
        };
        for experiment in chosen {
            print(format_args!(
                "{}, {}: {}\n",
                experiment.name, experiment.figure, experiment.claim
            ))?;
            let before = load();
            let report = (experiment.run)(&stage).map_err(|error| Failure(format!("{}: {error}", experiment.name)))?;
            print(report.text())?;
            if let Some(directory) = &self.out {
                // Other work changes no arithmetic.
                let load = if experiment.exact {
                    String::new()
                } else {
                    format!("{before} to {}", load())
                };
                write(experiment, &report, &load, directory)?;
            }
        }
        Ok(())
    }
}

/// The machine's load average over a minute, if it is known.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .filter(|load| !load.is_empty())
        .unwrap_or("?")
        .to_owned()
}

/// Writes the rows of a report as CSV files, and draws them.
fn write(experiment: &Experiment, report: &Report, load: &str, directory: &Path) -> Result<(), Failure> {
    let failed = |path: &Path, error: std::io::Error| Failure(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let verdicts = report.verdicts(load);
    let further = report.tables.iter().chain(&verdicts);
    let tables = further.map(|table| (format!("{}-{}.csv", experiment.name, table.name), table.csv()));
    for (name, csv) in [(format!("{}.csv", experiment.name), report.csv())]
        .into_iter()
        .chain(tables)
    {
        let path = directory.join(&name);
        archive::write(directory, &name, &csv).map_err(|error| failed(&path, error))?;
        print(path.display())?;
    }
    let png = directory.join(format!("{}.png", experiment.name));
    let (x, y) = report.logarithmic;
    let arguments = [
        experiment.figure.to_owned(),
        png.display().to_string(),
        x.to_string(),
        y.to_string(),
        report.y.to_owned(),
    ];
    let levels = report.levels.iter().map(|(name, figure)| format!("{name}={figure}"));
    let mut python = Command::new("python3")
        .args(["-c", PLOT])
        .args(arguments)
        .args(levels)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| {
            Failure(format!(
                "python3 is needed to draw {}, and cannot be started: {error}",
                png.display()
            ))
        })?;
    if let Some(mut input) = python.stdin.take() {
        // If the process has already ended, its exit code reports the failure.
        let _ = input.write_all(report.plotted().as_bytes());
    }
    match python.wait() {
        Ok(status) if status.success() => print(png.display()),
        Ok(status) => Err(Failure(format!(
            "{} could not be drawn: python3 ended with {status}",
            png.display()
        ))),
        Err(error) => Err(Failure(format!("python3: {error}"))),
    }
}

impl Mttdl {
    fn run(&self) -> Result<(), Failure> {
        for (name, value) in [
            ("--mttf", self.mttf),
            ("--bandwidth", self.bandwidth),
            ("--detection", self.detection),
            ("--node", self.node.0 as f64),
        ] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Failure(format!("{name} {value}: it must be a number above 0")));
            }
        }
        let model = Model {
            data: self.scheme.data,
            parity: self.scheme.parity,
            node_years: self.mttf,
            node_bytes: self.node.0 as f64,
            repair_bits_per_second: self.bandwidth * 1e9,
            repair_cost: f64::from(self.scheme.data),
            detection_seconds: self.detection,
        };
        print(format_args!("{:.3e} years", model.years()))
    }
}
