//! `tidy`: the rules of STYLE.md that neither rustc nor clippy can check.
//!
//! Each check is a function from text to problems, so that its tests need no files.

mod contract;
mod documents;
mod licences;
mod pages;
mod sources;
mod tables;
mod walls;

use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A problem in a file, and how to resolve it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    file: String,
    /// Line number, from 1.
    line: usize,
    what: String,
}

impl Problem {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Checks the whole repository.
pub(crate) fn run() -> Result<(), String> {
    let ours = metadata(&["--no-deps"])?;
    let root = PathBuf::from(
        ours["workspace_root"]
            .as_str()
            .ok_or("cargo metadata names no workspace_root")?,
    );
    let files = Files::list(&root)?;

    let mut problems = walls::check(&ours, &|path| files.read(path));
    problems.extend(walls::check_clippy_files(&|path| files.read(path)));

    // Only the crates that this platform builds: others would be downloaded for their manifests alone.
    let all = metadata(&["--filter-platform", &host()?])?;
    problems.extend(licences::check(&all, &files.read("deny.toml").unwrap_or_default()));

    let page = |path| files.read(path).unwrap_or_default();
    let defining = contract::DEFINING.map(|path| (path, page(path)));
    let (ids, twice) = contract::Ids::read(defining.iter().map(|(path, text)| (*path, text.as_str())));
    problems.extend(twice);
    let mut code = Vec::new();
    for path in &files.paths {
        problems.extend(sources::check_name(path));
        problems.extend(sources::check_is_run(path, &|path| files.read(path)));
        let Some(text) = files.read(path) else {
            continue;
        };
        let ending = Path::new(path).extension().and_then(|extension| extension.to_str());
        // The tests of the check itself cite rules that do not exist.
        if matches!(ending, Some("rs" | "md" | "py")) && !path.starts_with("xtask/") {
            problems.extend(contract::check_citations(path, &text, &ids));
        }
        match ending {
            Some("rs") => problems.extend(sources::check_rust(path, &text)),
            Some("md") => problems.extend(documents::check(path, &text, &|path| files.exists(path))),
            _ => {}
        }
        if matches!(ending, Some("rs" | "py")) {
            code.push(text);
        }
    }
    let (lab, wrong) = files.lab();
    problems.extend(wrong);
    problems.extend(files.check_tables());
    let papers = files.papers();
    for (path, text) in &papers {
        problems.extend(pages::check(path, text, &lab));
    }
    problems.extend(pages::check_all_said(&papers, &lab));
    let read = |path: &str| files.read(path).or_else(|| files.read(&documents::in_crate(path)?));
    problems.extend(contract::check_trace(&page(contract::TRACE), &ids, &read, &code));

    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = problems.iter().map(|problem| format!("tidy: {problem}")).collect();
    Err(format!("{}\ntidy: {} problems", lines.join("\n"), problems.len()))
}

/// Writes the verdicts of the tables in `docs/lab` into the papers' pages.
pub(crate) fn write_pages() -> Result<(), String> {
    let ours = metadata(&["--no-deps"])?;
    let root = ours["workspace_root"]
        .as_str()
        .ok_or("cargo metadata names no workspace_root")?;
    let files = Files::list(Path::new(root))?;
    let (lab, wrong) = files.lab();
    let said = |problem: &Problem| format!("pages: {problem}");
    if let Some(problem) = wrong.first() {
        return Err(said(problem));
    }
    for (path, text) in files.papers() {
        let now = pages::written(&path, &text, &lab).map_err(|problem| said(&problem))?;
        if now != text {
            std::fs::write(files.root.join(&path), now).map_err(|error| format!("{path}: {error}"))?;
            eprintln!("pages: {path}");
        }
    }
    Ok(())
}

/// The files that git tracks or would add.
struct Files {
    root: PathBuf,
    paths: Vec<String>,
}

impl Files {
    fn list(root: &Path) -> Result<Self, String> {
        let listed = output(Command::new("git").current_dir(root).args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))?;
        let paths = listed
            .lines()
            .map(str::to_owned)
            .filter(|path| root.join(path).is_file())
            .collect();
        Ok(Self {
            root: root.to_owned(),
            paths,
        })
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    /// The verdicts of all tables, and what is wrong with them.
    fn lab(&self) -> (pages::Lab, Vec<Problem>) {
        let (mut lab, mut wrong) = (pages::Lab::default(), Vec::new());
        for path in self.paths.iter().filter(|path| path.starts_with(pages::TABLES)) {
            if let Some(csv) = path.ends_with(".csv").then(|| self.read(path)).flatten() {
                wrong.extend(lab.add(path, &csv));
            }
        }
        (lab, wrong)
    }

    /// What is wrong with the tables themselves.
    fn check_tables(&self) -> Vec<Problem> {
        let is_table = |path: &&String| path.starts_with(pages::TABLES) && path.ends_with(".csv");
        let tables: Vec<(&str, Vec<u8>)> = self
            .paths
            .iter()
            .filter(is_table)
            .filter_map(|path| Some((path.as_str(), std::fs::read(self.root.join(path)).ok()?)))
            .collect();
        let bytes: Vec<(&str, &[u8])> = tables.iter().map(|(path, bytes)| (*path, bytes.as_slice())).collect();
        let mut problems = tables::check_sums(&self.read(tables::SUMS).unwrap_or_default(), &bytes);
        for (path, bytes) in bytes {
            problems.extend(tables::check_bands(path, &String::from_utf8_lossy(bytes)));
        }
        problems
    }

    /// The papers' pages and their overview.
    fn papers(&self) -> Vec<(String, String)> {
        let are = |path: &&String| *path == pages::OVERVIEW || path.starts_with(pages::PAGES) && path.ends_with(".md");
        let paths = self.paths.iter().filter(are);
        paths
            .filter_map(|path| Some((path.clone(), self.read(path)?)))
            .collect()
    }

    /// Whether there is such a file, or a directory with a file. Files that git ignores do not count.
    fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.paths.iter().any(|file| {
            file.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

fn metadata(arguments: &[&str]) -> Result<Value, String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let text = output(
        Command::new(program)
            .args(["metadata", "--format-version", "1"])
            .args(arguments),
    )?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata printed no JSON: {error}"))
}

fn host() -> Result<String, String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

fn output(command: &mut Command) -> Result<String, String> {
    let result = command
        .output()
        .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    if !result.status.success() {
        return Err(format!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&result.stderr)
        ));
    }
    String::from_utf8(result.stdout).map_err(|_| format!("{command:?} printed no UTF-8"))
}
