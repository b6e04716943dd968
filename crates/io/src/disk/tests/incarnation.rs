//! Written data is read back, by this process and by the next.

use super::*;

#[test]
fn what_goes_to_the_disk_comes_back_and_is_found_by_the_next_incarnation() {
    for direct in [false, true] {
        for (layout, seed) in LAYOUTS.into_iter().zip(1..) {
            let directory = tempfile::tempdir().unwrap();
            let settings = settings(layout);
            let Some(made) = open(directory.path(), &settings, direct, |_, _| {
                panic!("a new log has nothing to read")
            }) else {
                return;
            };
            println!("{layout:?}, direct: {direct}, seed {seed}");
            let (mut model, mut random) = (Model::new(), Prng::new(seed));
            let mut world = World::new(made, layout);
            for incarnation in 0..3 {
                let versions = 1000 * incarnation..1000 * (incarnation + 1);
                world.work(&mut model, &mut random, versions);
                world.flush();
                world.check_all(&model);
                world.log.drain(&mut world.out);
                world.wait(0);
                let (figures, counters) = (world.disk.figures(), world.log.counters());
                let (reads, writes) = (figures.reads, figures.writes);
                assert_eq!((figures.under_way, figures.under_way_bytes, figures.errors), (0, 0, 0));
                assert_eq!((reads.count, reads.bytes), (counters.reads, counters.read_bytes));
                assert_eq!((writes.count, writes.bytes), (counters.writes, counters.write_bytes));
                assert!(reads.ns > 0 && writes.ns > 0);
                drop(world);
                world = next_incarnation(directory.path(), &settings, direct);
                world.check_all(&model);
            }
        }
    }
}

#[test]
fn only_what_was_written_is_read_at_the_start() {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            slots_max: 2000,
            log_bytes: 24 << 20,
            ..settings(layout)
        };
        let (mut world, mut model) = (next_incarnation(directory.path(), &settings, false), Model::new());
        world.put(&mut model, 5, 1, vec![9; 1 << 10]);
        world.flush();
        drop(world);
        let mut told = Vec::new();
        let tell = |done, total| told.push((done, total));
        let opened = open(directory.path(), &settings, false, tell).unwrap();
        World::new(opened, layout).check_all(&model);
        let (done, total) = *told.last().unwrap();
        assert_eq!(done, total, "{layout:?}: not everything was read");
        assert!(total < 64 << 10, "{layout:?}: {total} bytes were read for one chunk");
    }
}

/// The files as backup tools leave them: without holes, or with holes wherever there were zeros.
#[test]
fn copied_files_are_as_good() {
    for layout in LAYOUTS {
        for sparse in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let settings = Settings {
                chunk_bytes: 24 << 10,
                slots_max: 16,
                ..settings(layout)
            };
            let (mut world, mut model) = (next_incarnation(directory.path(), &settings, false), Model::new());
            for stripe in 0..5 {
                let mut bytes = vec![0; 24 << 10];
                (bytes[0], bytes[20 << 10]) = (stripe as u8 + 1, 1);
                world.put(&mut model, stripe, 1, bytes);
            }
            world.flush();
            drop(world);
            for file in fs::read_dir(directory.path()).unwrap() {
                let path = file.unwrap().path();
                let bytes = fs::read(&path).unwrap();
                fs::remove_file(&path).unwrap();
                if sparse {
                    let file = fs::File::create(&path).unwrap();
                    file.set_len(bytes.len() as u64).unwrap();
                    for (n, block) in bytes.chunks(BLOCK).enumerate() {
                        if block.iter().any(|byte| *byte != 0) {
                            std::os::unix::fs::FileExt::write_all_at(&file, block, (n * BLOCK) as u64).unwrap();
                        }
                    }
                } else {
                    fs::write(&path, bytes).unwrap();
                }
            }
            next_incarnation(directory.path(), &settings, false).check_all(&model);
        }
    }
}

#[test]
fn a_torn_last_write_takes_nothing_else_with_it() {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            chunk_bytes: 16 << 10,
            ..settings(layout)
        };
        let (mut world, mut model) = (next_incarnation(directory.path(), &settings, false), Model::new());
        for stripe in 0..5 {
            world.put(&mut model, stripe, 1, vec![stripe as u8 + 1; 16 << 10]);
            world.flush();
        }
        world.log.put(key(9), Position(3), content(1), vec![9; 16 << 10]);
        world.log.flush(&mut world.out);
        let [
            Io {
                space,
                at,
                work: Work::Write(bytes),
                ..
            },
        ] = &mut world.out[..]
        else {
            // With PLM the pending data is in one write, as with the other layouts here.
            panic!("{layout:?}: not exactly one write")
        };
        bytes.truncate(2 * BLOCK);
        let (space, at) = (*space, *at);
        world.disk.submit(world.out.remove(0));
        world.under_way += 1;
        world.wait(0);
        drop(world);
        println!("{layout:?}: {space:?} at {at}");
        let mut world = next_incarnation(directory.path(), &settings, false);
        world.check_all(&model);
        // The log continues after the torn write.
        world.put(&mut model, 9, 2, vec![8; 16 << 10]);
        world.flush();
        world.check_all(&model);
        drop(world);
        next_incarnation(directory.path(), &settings, false).check_all(&model);
    }
}

/// `cargo test -p paritas-io --lib how_fast -- --ignored --nocapture` measures what two threads achieve on this disk,
/// with accesses of one block and of 1 MiB at random places.
#[test]
#[ignore = "a measurement"]
fn how_fast_the_disk_is() {
    let log_bytes = 1 << 30;
    let settings = Settings {
        log_bytes,
        ..settings(Layout::Pl)
    };
    for direct in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let opened = LogDirectory::open(directory.path(), owner(), &settings, direct, |_, _| {});
        let Ok((files, _)) = opened else { return };
        let loop_thread = std::thread::current();
        let disk = Disk::start(files, move || loop_thread.unpark()).unwrap();
        let mut random = Prng::new(1);
        for (length, count) in [(BLOCK, 20_000), (1 << 20, 1000)] {
            for write in [true, false] {
                let since = Instant::now();
                for n in 0..count {
                    let at = random.below(log_bytes / length as u64) * length as u64;
                    let work = match write {
                        true => Work::Write(vec![n as u8; length]),
                        false => Work::Read(length),
                    };
                    let (id, space) = (IoId(n), Space::Log);
                    disk.submit(Io { id, space, at, work });
                    while disk.figures().under_way > 32 {
                        std::thread::park_timeout(TIMEOUT);
                    }
                }
                while disk.figures().under_way > 0 {
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                let seconds = since.elapsed().as_secs_f64();
                let (a_second, what) = (count as f64 / seconds, if write { "writes" } else { "reads" });
                let mb = a_second * length as f64 / 1e6;
                println!("direct: {direct}, {what} of {length} bytes: {a_second:.0} and {mb:.0} MB a second");
                while disk.next_done().is_some() {}
            }
        }
    }
}
