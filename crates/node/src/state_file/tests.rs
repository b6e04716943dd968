use super::*;

const NODE: NodeId = NodeId(3);

/// A directory on a file system whose locks hold.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn begin(directory: &Path, incarnation: u64) -> StateFile {
    StateFile::begin(directory, NODE, Incarnation(incarnation))
        .unwrap()
        .unwrap()
}

fn ends(state: &StateFile) -> Vec<u64> {
    state.ends().iter().map(|end| end.0).collect()
}

#[test]
fn the_next_process_knows_of_each_one_before_until_its_end_is_noted() {
    let directory = directory();
    assert!(ends(&begin(directory.path(), 1)).is_empty());
    assert_eq!(ends(&begin(directory.path(), 2)), [1]);
    let mut third = begin(directory.path(), 3);
    assert_eq!(ends(&third), [1, 2]);
    third.note(Incarnation(1));
    third.set_cluster(ClusterId(7));
    drop(third);
    assert_eq!(ends(&begin(directory.path(), 4)), [2, 3]);
}

#[test]
fn a_process_does_not_certify_its_own_end() {
    let directory = directory();
    drop(begin(directory.path(), 1));
    drop(begin(directory.path(), 2));
    assert_eq!(ends(&begin(directory.path(), 1)), [2]);
}

#[test]
fn of_more_ends_than_fit_the_first_ones_stay() {
    let directory = directory();
    for incarnation in 0..ENDS_MAX as u64 + 10 {
        drop(begin(directory.path(), u64::MAX - incarnation));
    }
    let known = ends(&begin(directory.path(), 1));
    assert_eq!(known.len(), ENDS_MAX);
    assert_eq!(known[0], u64::MAX);
}

#[test]
fn the_file_of_a_process_that_runs_is_refused_in_words() {
    let directory = directory();
    let first = begin(directory.path(), 1);
    let why = StateFile::begin(directory.path(), NODE, Incarnation(2)).unwrap_err();
    assert!(
        why.0.contains("another process of n3 runs") && why.0.contains("node-3.state"),
        "{why}"
    );
    let other = StateFile::begin(directory.path(), NodeId(4), Incarnation(2)).unwrap();
    assert!(
        other.is_some_and(|other| other.ends().is_empty()),
        "another node has a file of its own"
    );
    drop(first);
    assert_eq!(ends(&begin(directory.path(), 2)), [1]);
}

#[test]
fn a_copy_and_the_file_of_another_boot_or_node_prove_nothing() {
    let directory = directory();
    drop(begin(directory.path(), 1));
    let path = directory.path().join("node-3.state");
    let bytes = fs::read(&path).unwrap();
    // A copy is another file.
    fs::remove_file(&path).unwrap();
    let copy = directory.path().join("node-5.state");
    fs::copy(directory.path().join("node-5.state"), &copy).unwrap_err();
    {
        let made = open_private(&copy).unwrap();
        made.file.write_all_at(&bytes, 0).unwrap();
    }
    fs::rename(&copy, &path).unwrap();
    let found = read(&open_private(&path).unwrap()).unwrap().unwrap();
    assert_eq!(found.incarnation, 1, "it can be read");
    assert_eq!(ends(&begin(directory.path(), 2)), [0_u64; 0]);
    // The same file under another node's name.
    fs::rename(&path, directory.path().join("node-4.state")).unwrap();
    let other = StateFile::begin(directory.path(), NodeId(4), Incarnation(3)).unwrap();
    assert!(other.unwrap().ends().is_empty());
    // Another boot.
    let path = directory.path().join("node-4.state");
    let private = open_private(&path).unwrap();
    let mut record = read(&private).unwrap().unwrap();
    record.boot = "of-before".to_owned();
    let mut state = StateFile { private, path, record };
    state.write().unwrap();
    drop(state);
    let next = StateFile::begin(directory.path(), NodeId(4), Incarnation(4)).unwrap();
    assert!(next.unwrap().ends().is_empty());
}

#[test]
fn a_write_that_is_cut_anywhere_leaves_what_was_there_before() {
    let directory = directory();
    drop(begin(directory.path(), 1));
    let path = directory.path().join("node-3.state");
    let before = fs::read(&path).unwrap();
    drop(begin(directory.path(), 2));
    let after = fs::read(&path).unwrap();
    for cut in (0..SLOT_BYTES).step_by(7) {
        // The first write went into the second slot, and so this one into the first.
        let mut torn = before.clone();
        torn[..cut].copy_from_slice(&after[..cut]);
        fs::write(&path, &torn).unwrap();
        let known = ends(&begin(directory.path(), 3));
        assert!(known == [1] || known == [1, 2], "cut at {cut}: {known:?}");
    }
    for garbage in [&b""[..], b"\n", b"00000000 {}\n", &[0xFF; 9000]] {
        fs::write(&path, garbage).unwrap();
        assert!(ends(&begin(directory.path(), 3)).is_empty());
    }
}

#[test]
fn what_another_cluster_has_not_noted_proves_nothing_in_this_one() {
    let directory = directory();
    begin(directory.path(), 1).set_cluster(ClusterId(7));
    let mut next = begin(directory.path(), 2);
    assert_eq!(ends(&next), [1]);
    next.set_cluster(ClusterId(8));
    assert!(ends(&next).is_empty());
    drop(next);
    assert_eq!(ends(&begin(directory.path(), 3)), [2]);
}

#[test]
fn a_place_of_no_use_is_no_reason_not_to_run() {
    let missing = Path::new("/no/such/directory");
    assert!(StateFile::begin(missing, NODE, Incarnation(1)).unwrap().is_none());
}
