//! Disks that fail, and disks that are slow.

use super::*;

/// A disk whose slots are one file.
fn disk_over(directory: &Path, file: &Path, bytes: u64) -> World {
    let settings = settings(Layout::Plr);
    let (files, recovery) = open(directory, &settings, false, |_, _| {}).unwrap();
    let slots = Segments::open(vec![(file.to_owned(), bytes)], bytes, None).unwrap();
    World::new((files.with_slots(slots), recovery), settings.layout)
}

#[test]
fn a_full_a_broken_and_a_cut_off_disk_fail_the_log_and_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let short = directory.path().join("short");
    fs::write(&short, [0; 100]).unwrap();
    let cases = [
        (
            Path::new("/dev/full"),
            Work::Write(vec![1; BLOCK]),
            "No space left on device",
        ),
        // Nothing is mapped at this offset.
        (Path::new("/proc/self/mem"), Work::Read(BLOCK), "Input/output error"),
        (short.as_path(), Work::Read(BLOCK), "failed to fill whole buffer"),
    ];
    for (file, work, says) in cases {
        let mut world = disk_over(directory.path(), file, 1 << 20);
        let space = Space::Slots;
        let mut io = Io {
            id: IoId(5),
            space,
            at: 0,
            work,
        };
        let (_, trouble) = world.disk.shared.run(io.clone(), &mut Scratch::default()).unwrap_err();
        assert!(trouble.error.to_string().contains(says), "{}", trouble.error);
        assert_eq!(trouble.what(), format!("{} at offset 0", file.display()));

        world.log.put(key(1), Position(3), content(1), vec![1; 1 << 10]);
        world.log.flush(&mut world.out);
        io.id = world.out[0].id;
        world.out[0] = io;
        world.wait(0);
        assert!(world.log.has_failed(), "{}", file.display());
        assert_eq!((world.disk.figures().errors, world.disk.figures().under_way), (1, 0));
    }
}

#[test]
fn what_lies_outside_of_a_space_is_refused_and_nothing_falls_over() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Pl);
    for direct in [false, true] {
        let Some(opened) = open(directory.path(), &settings, direct, |_, _| {}) else {
            return;
        };
        let world = World::new(opened, settings.layout);
        let beyond = [
            (Space::Log, settings.log_bytes - BLOCK as u64),
            (Space::Log, u64::MAX - BLOCK as u64 + 1),
            (Space::Slots, 0),
        ];
        for (space, at) in beyond {
            for work in [Work::Read(2 * BLOCK), Work::Write(vec![1; 2 * BLOCK])] {
                let io = Io {
                    id: IoId(1),
                    space,
                    at,
                    work,
                };
                let outcome = world.disk.shared.run(io, &mut Scratch::default());
                assert!(outcome.is_err(), "{space:?} at {at}");
            }
        }
    }
}

#[test]
fn a_disk_that_stands_still_holds_up_nobody_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Plr);
    let (files, _) = open(directory.path(), &settings, false, |_, _| {}).unwrap();
    let gate = Arc::new(Mutex::new(()));
    let closed = Arc::clone(&gate);
    let held = gate.lock().unwrap();
    let disk = Disk::start(files, move || drop(closed.lock())).unwrap();
    for n in 0..5000 {
        let (space, at, work) = (Space::Slots, n % 40 * BLOCK as u64, Work::Read(100));
        disk.submit(Io {
            id: IoId(n),
            space,
            at,
            work,
        });
    }
    // Both threads are blocked in their first call of `wake` at the latest.
    let figures = disk.figures();
    assert!(
        figures.under_way >= 4998 && figures.under_way_bytes >= 499_800,
        "{figures:?}"
    );
    drop(held);
    let (since, mut seen) = (Instant::now(), vec![0; 5000]);
    while seen.contains(&0) {
        match disk.next_done() {
            Some((id, outcome)) => {
                assert_eq!(outcome.unwrap().len(), 100);
                seen[id.0 as usize] += 1;
            }
            None => {
                assert!(since.elapsed() < TIMEOUT);
                std::thread::yield_now();
            }
        }
    }
    assert!(seen.iter().all(|count| *count == 1) && disk.next_done().is_none());
}

#[test]
fn a_disk_that_is_dropped_gives_its_directory_free() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Plr);
    for _ in 0..20 {
        let (files, _) = open(directory.path(), &settings, false, |_, _| {}).unwrap();
        let disk = Disk::start(files, || {}).unwrap();
        for n in 0..200 {
            let (space, at, work) = (Space::Slots, n % 40 * BLOCK as u64, Work::Write(vec![1; BLOCK]));
            disk.submit(Io {
                id: IoId(n),
                space,
                at,
                work,
            });
        }
    }
}
