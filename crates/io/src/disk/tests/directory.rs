//! Directories that cannot be used. Each is refused with a reason, and stays unchanged.

use super::*;

/// Names and contents of all files.
fn listing(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.display().to_string(), fs::read(&path).unwrap())
        })
        .collect()
}

fn refusal(directory: &Path, owner: Owner, settings: &Settings, direct: bool) -> String {
    let outcome = LogDirectory::open_in_segments(directory, owner, settings, direct, SEGMENT_BYTES, |_, _| {});
    let text = outcome.map(|_| "it was opened").unwrap_err().to_string();
    let named = format!("the log directory {} ", directory.display());
    assert!(text.starts_with(&named), "{text}");
    text[named.len()..].to_owned()
}

/// A log of layout `PLM` with one chunk.
fn made() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Plm);
    let mut world = next_incarnation(directory.path(), &settings, false);
    world.put(&mut Model::new(), 1, 1, vec![1; 1 << 10]);
    world.flush();
    directory
}

#[test]
fn what_does_not_fit_is_refused_and_left_as_it_is() {
    let directory = made();
    let before = listing(directory.path());
    let settings = settings(Layout::Plm);
    let other = |cluster, node| Owner {
        cluster: ClusterId(cluster),
        node: NodeId(node),
    };
    let refused = |owner, settings: &Settings, says: &[&str]| {
        let text = refusal(directory.path(), owner, settings, false);
        for part in says {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            text.contains("empty the directory"),
            "it does not say what to do: {text}"
        );
        assert!(listing(directory.path()) == before, "it was changed: {text}");
    };
    refused(
        other(8, 3),
        &settings,
        &["another cluster", "0000000000000007", "0000000000000008"],
    );
    refused(other(7, 4), &settings, &["belongs to node n3", "this node is n4"]);
    let mut sizes = settings;
    sizes.chunk_bytes = 4096;
    sizes.layout = Layout::Pl;
    refused(
        owner(),
        &sizes,
        &[
            "log_layout is Plm in the directory and Pl in the settings, \
             the cluster's chunk is 1024 in the directory and 4096 in the settings.",
            "Restore the settings",
        ],
    );
    for change in [
        |s: &mut Settings| s.data_max += 1,
        |s: &mut Settings| s.block_bytes *= 2,
        |s: &mut Settings| s.reserve_bytes += 1,
        |s: &mut Settings| s.slots_max -= 1,
        |s: &mut Settings| s.log_bytes *= 2,
    ] {
        let mut sizes = settings;
        change(&mut sizes);
        refused(owner(), &sizes, &["was made with other sizes"]);
    }
    // The limits of memory may change.
    let sizes = Settings {
        flush_bytes: 1 << 20,
        buffer_max_bytes: 2 << 20,
        ..settings
    };
    next_incarnation(directory.path(), &sizes, false).check_all(&Model::from([(1, (1, vec![1; 1 << 10]))]));
    assert!(listing(directory.path()) == before);
}

#[test]
fn a_newer_format_is_refused() {
    let directory = made();
    let path = directory.path().join("header.paritas");
    let mut header = fs::read(&path).unwrap();
    header[12] = 2;
    header.extend_from_slice(b"what came later");
    let crc = crc32c::crc32c(&header[12..]);
    header[8..12].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, header).unwrap();
    let before = listing(directory.path());
    let text = refusal(directory.path(), owner(), &settings(Layout::Plm), false);
    assert!(
        text.contains("has format 2, and this version uses 1: start the version that wrote it"),
        "{text}"
    );
    assert!(listing(directory.path()) == before);
}

#[test]
fn damaged_files_are_refused() {
    let settings = settings(Layout::Plm);
    for harm in [
        |path: &Path| fs::write(path.join("header.paritas"), "no header").unwrap(),
        |path: &Path| fs::remove_file(path.join("slots-00002.paritas")).unwrap(),
        |path: &Path| fs::write(path.join("log-00001.paritas"), "short").unwrap(),
    ] {
        let directory = made();
        harm(directory.path());
        let before = listing(directory.path());
        let text = refusal(directory.path(), owner(), &settings, false);
        assert!(
            text.contains("is damaged") && text.contains("empty the directory"),
            "{text}"
        );
        assert!(listing(directory.path()) == before);
    }
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Plm);
    let first = open(directory.path(), &settings, false, |_, _| {}).unwrap();
    let text = refusal(directory.path(), owner(), &settings, false);
    assert!(text.contains("is used by another process"), "{text}");
    let disk = Disk::start(first.0, || {}).unwrap();
    let text = refusal(directory.path(), owner(), &settings, false);
    assert!(text.contains("is used by another process"), "{text}");
    drop(disk);
    open(directory.path(), &settings, false, |_, _| {}).unwrap();
}

#[test]
fn no_directory_and_one_that_cannot_be_written_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "mine").unwrap();
    let settings = settings(Layout::Plm);
    let text = refusal(&file, owner(), &settings, false);
    assert!(text.contains("is not a directory"), "{text}");
    let text = refusal(&file.join("below"), owner(), &settings, false);
    assert!(text.contains("is not a directory"), "{text}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    // Not even root can create files there.
    let text = refusal(Path::new("/proc/self/fdinfo"), owner(), &settings, false);
    assert!(text.contains("cannot be written"), "{text}");
}

#[test]
fn a_directory_that_is_not_there_is_made_but_not_those_above_it() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Plm);
    open(&directory.path().join("log"), &settings, false, |_, _| {}).unwrap();
    let text = refusal(&directory.path().join("no/log"), owner(), &settings, false);
    assert!(text.contains("No such file or directory"), "{text}");
}

#[test]
fn a_start_that_was_cut_off_is_begun_anew_and_other_files_stay() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "slots-00000.paritas",
        "log-00099.paritas",
        "header-new.paritas",
        "slots-00000",
    ] {
        fs::write(directory.path().join(name), "left over").unwrap();
    }
    open(directory.path(), &settings(Layout::Plm), false, |_, _| {}).unwrap();
    let names = listing(directory.path());
    let is_there = |name: &str| names.keys().any(|path| path.ends_with(&format!("/{name}")));
    assert!(is_there("slots-00000") && is_there("slots-00000.paritas") && is_there("header.paritas"));
    assert!(!is_there("log-00099.paritas") && !is_there("header-new.paritas"));
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for change in [
        |s: &mut Settings| s.block_bytes = 0,
        |s: &mut Settings| s.block_bytes = 3000,
        |s: &mut Settings| s.block_bytes = 2 << 20,
        |s: &mut Settings| s.chunk_bytes = 0,
        |s: &mut Settings| s.chunk_bytes = 1 << 40,
        |s: &mut Settings| s.data_max = 0,
        |s: &mut Settings| s.data_max = 256,
        |s: &mut Settings| s.log_bytes = 5000,
        |s: &mut Settings| s.log_bytes = 0,
        |s: &mut Settings| s.slots_max = 0,
    ] {
        let mut sizes = settings(Layout::Plm);
        change(&mut sizes);
        let text = LogDirectory::open(directory.path(), owner(), &sizes, false, |_, _| {}).unwrap_err();
        assert!(matches!(text.problem, LogDirectoryProblem::Settings(_)), "{text}");
    }
    assert!(listing(directory.path()).is_empty());
}

#[test]
fn a_disk_that_is_too_small_is_found_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    for (slots_max, log_bytes) in [(u32::MAX, 1 << 20), (8, 1 << 60), (u32::MAX, u64::MAX - 4095)] {
        let sizes = Settings {
            reserve_bytes: 1 << 30,
            slots_max,
            log_bytes,
            ..settings(Layout::Plm)
        };
        let text = LogDirectory::open(directory.path(), owner(), &sizes, false, |_, _| {}).unwrap_err();
        assert!(matches!(text.problem, LogDirectoryProblem::TooSmall { .. }), "{text}");
        assert!(text.to_string().contains("lower log_size (--log-size)"), "{text}");
        assert!(listing(directory.path()).is_empty());
    }
}

#[test]
fn direct_io_in_blocks_that_are_too_small_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut sizes = settings(Layout::Plm);
    if open(directory.path(), &sizes, true, |_, _| {}).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    sizes.block_bytes = 1;
    // Some file systems accept such blocks.
    let outcome = LogDirectory::open_in_segments(directory.path(), owner(), &sizes, true, SEGMENT_BYTES, |_, _| {});
    if let Err(error) = outcome {
        let text = error.to_string();
        assert!(
            text.contains("direct I/O in blocks of 1 bytes") && text.contains("leave log_direct (--log-direct) out"),
            "{text}"
        );
        assert!(listing(directory.path()).is_empty());
    }
}
