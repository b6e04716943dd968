//! A log directory under a quota. The test uses a limit on file size instead, which applies to a process, so it starts
//! one. The test has its own file, because a child holds the locks of other tests' directories until it runs its
//! program.

use paritas_base::{ClusterId, NodeId};
use paritas_io::{LogDirectory, Owner};
use paritas_paritylog::{Layout, Settings};
use std::path::Path;
use std::process::Command;

fn refusal(directory: &Path) -> String {
    let owner = Owner {
        cluster: ClusterId(7),
        node: NodeId(3),
    };
    let settings = Settings {
        layout: Layout::Plm,
        chunk_bytes: 1 << 10,
        data_max: 2,
        block_bytes: 4096,
        reserve_bytes: 2 * 4096,
        slots_max: 48,
        log_bytes: 512 << 10,
        flush_bytes: 8 << 10,
        buffer_max_bytes: 64 << 10,
    };
    let outcome = LogDirectory::open(directory, owner, &settings, false, |_, _| {});
    outcome.map(|_| "it was opened").unwrap_err().to_string()
}

/// The limit is detected only when space is reserved.
#[test]
fn a_quota_is_found_at_the_start_and_nothing_is_left_over() {
    const NAME: &str = "a_quota_is_found_at_the_start_and_nothing_is_left_over";
    const DIRECTORY: &str = "PARITAS_TEST_LIMITED_DIRECTORY";
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        println!("refused: {}", refusal(Path::new(&directory)));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        // In units of 512 bytes: less than a file of the log.
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("is on a disk that is too small") && text.contains("File too large"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
