use super::*;
use crate::geometry::Layout;

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn settings(blocks: u64) -> Settings {
    Settings {
        blocks,
        block_bytes: 16 * MIB,
        sub_bytes: MIB,
        admission: Admission::OnAccess,
        eviction: Eviction::Lru,
        estimator: Estimator::Mad,
        period: Span::from_ms(1500),
        prefetch_percent: 40,
        prediction: Prediction::Recency,
    }
}

/// What the machine asked for, in order.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Asked {
    Reply(Asker, Reply),
    Store(u64, File, Record),
    Erase(u64, File, Geometry, bool),
    Refresh(u64, File, Geometry),
}

impl Out for Vec<Asked> {
    fn reply(&mut self, asker: Asker, reply: Reply) {
        self.push(Asked::Reply(asker, reply));
    }
    fn store(&mut self, token: u64, file: File, record: &Record) {
        self.push(Asked::Store(token, file, *record));
    }
    fn erase(&mut self, token: u64, file: File, geometry: &Geometry, record: bool) {
        self.push(Asked::Erase(token, file, *geometry, record));
    }
    fn refresh(&mut self, token: u64, file: File, geometry: &Geometry) {
        self.push(Asked::Refresh(token, file, *geometry));
    }
}

/// A steward whose store does everything at once, and remembers it.
pub(super) struct World {
    pub(super) steward: Steward,
    pub(super) now: Time,
    pub(super) erased: Vec<u64>,
    pub(super) refreshed: Vec<u64>,
    pub(super) records: std::collections::BTreeMap<File, Record>,
}

impl World {
    fn new(blocks: u64) -> Self {
        let now = Time(1_000_000_000_000);
        Self {
            steward: Steward::new(now, settings(blocks), Prng::new(1), [], &mut Vec::new()),
            now,
            erased: Vec::new(),
            refreshed: Vec::new(),
            records: std::collections::BTreeMap::new(),
        }
    }

    fn on(&mut self, event: Event<'_>) -> Option<Reply> {
        let mut asked = Vec::new();
        self.steward.on(self.now, event, &mut asked);
        let mut reply = None;
        while !asked.is_empty() {
            for what in std::mem::take(&mut asked) {
                let event = match what {
                    Asked::Reply(_, answer) => {
                        assert!(reply.replace(answer).is_none(), "two replies");
                        continue;
                    }
                    Asked::Store(token, file, record) => {
                        self.records.insert(file, record);
                        Event::Stored(token, true)
                    }
                    Asked::Erase(token, file, _, record) => {
                        self.erased.push(token);
                        if record {
                            self.records.remove(&file);
                        }
                        Event::Erased(token, true)
                    }
                    Asked::Refresh(token, ..) => {
                        self.refreshed.push(token);
                        Event::Refreshed(token, Refreshed::Whole)
                    }
                };
                self.steward.on(self.now, event, &mut asked);
            }
        }
        reply
    }

    fn ask(&mut self, request: Request<'_>) -> Reply {
        self.on(Event::Request(Asker(1), request)).unwrap()
    }

    fn open(&mut self, file: File, version: u64) -> Opened {
        match self.ask(Request::Open(open(file, version))) {
            Reply::Opened(opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file, and writes its parity. Returns the token.
    fn cache(&mut self, file: File, version: u64) -> u64 {
        let opened = self.open(file, version);
        assert_eq!(opened.answer, Answer::ShouldCache);
        assert_eq!(self.commit(opened.grant.pin, 16, None), Reply::Done);
        opened.grant.token.unwrap()
    }

    /// A reader opens and closes a file with parity.
    fn close(&mut self, file: File) {
        let opened = self.open(file, 1);
        assert_eq!(self.ask(Request::Close { pin: opened.grant.pin }), Reply::Done);
    }

    fn commit(&mut self, pin: u64, subblocks: u64, written: Option<(u64, u64)>) -> Reply {
        self.ask(Request::Commit {
            pin,
            subblocks,
            written,
        })
    }

    fn after(&mut self, seconds: u64) {
        self.now = self.now + Span::from_secs(seconds);
        assert_eq!(self.on(Event::Tick), None);
    }
}

/// A file of four blocks of 16 MiB, so with one parity block of 16 subblocks.
pub(super) fn open(file: File, version: u64) -> Open<'static> {
    Open {
        file,
        version,
        length: 64 * MIB,
        layout: Layout::Contiguous,
        cell_bytes: None,
        k: 4,
        block_bytes: 16 * MIB,
        path: "/data/part-0",
        nodes: vec!["a:9866", "b:9866", "c:9866", "d:9866"],
    }
}

fn room(file: File, blocks: u64) -> Request<'static> {
    Request::Room(Room {
        file,
        blocks,
        k: 4,
        layout: Layout::Contiguous,
        cell_bytes: None,
        block_bytes: 16 * MIB,
    })
}

fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_reader_makes_the_parity_and_the_next_one_uses_it() {
    let mut world = World::new(10);
    let first = world.open(7, 1);
    assert_eq!(
        (first.answer, first.grant.m, first.grant.sub_bytes),
        (Answer::ShouldCache, 1, MIB)
    );
    assert_eq!(world.open(7, 1).answer, Answer::ShouldNotCache, "somebody is making it");
    assert_eq!(world.commit(first.grant.pin, 16, None), Reply::Done);
    let second = world.open(7, 1);
    assert_eq!((second.answer, second.grant.token), (Answer::Cached, first.grant.token));
    assert_ne!(second.grant.pin, first.grant.pin);
    assert_eq!(world.ask(Request::Close { pin: second.grant.pin }), Reply::Done);
    assert!(error(world.ask(Request::Close { pin: second.grant.pin })).contains("unknown"));
    assert_eq!(world.records[&7].stage, Stage::Cached);
}

#[test]
fn nothing_is_granted_before_the_record_is_stored() {
    let now = Time(1_000_000_000);
    let mut asked = Vec::new();
    let mut steward = Steward::new(now, settings(10), Prng::new(1), [], &mut asked);
    steward.on(now, Event::Request(Asker(9), Request::Open(open(7, 1))), &mut asked);
    let [Asked::Store(token, 7, _)] = asked[..] else {
        panic!("{asked:?}")
    };
    asked.clear();
    steward.on(now, Event::Stored(token, false), &mut asked);
    assert!(
        matches!(&asked[0], Asked::Reply(Asker(9), Reply::Opened(o)) if o.answer == Answer::ShouldNotCache),
        "{asked:?}"
    );
    assert!(matches!(asked[1], Asked::Erase(erased, 7, _, true) if erased == token));
    assert_eq!(steward.live_blocks(), 0);
}

#[test]
fn another_version_of_a_file_is_never_served_with_old_parity() {
    let mut world = World::new(10);
    let old = world.cache(7, 1);
    let opened = world.open(7, 2);
    assert_eq!(opened.answer, Answer::ShouldCache);
    assert_ne!(opened.grant.token, Some(old));
    assert_eq!(world.erased, [old]);
}

#[test]
fn a_client_with_another_geometry_gets_no_parity() {
    let mut world = World::new(10);
    world.cache(7, 1);
    let other = Open { k: 2, ..open(7, 1) };
    let Reply::Opened(opened) = world.ask(Request::Open(other)) else {
        panic!()
    };
    assert_eq!(opened.answer, Answer::ShouldNotCache);
    assert_eq!(world.open(7, 1).answer, Answer::Cached);
}

#[test]
fn evicted_parity_that_is_read_is_deleted_after_its_last_reader() {
    let mut world = World::new(1);
    let old = world.cache(1, 1);
    let (one, two) = (world.open(1, 1), world.open(1, 1));
    let new = world.cache(2, 1);
    assert!(world.erased.is_empty());
    assert_eq!(world.open(3, 1).answer, Answer::ShouldNotCache, "too much is doomed");
    assert_eq!(world.records[&1].stage, Stage::Doomed);
    assert_eq!(
        world.ask(Request::Renew(vec![one.grant.pin, 5])),
        Reply::Renewed(vec![true, false])
    );
    world.ask(Request::Close { pin: two.grant.pin });
    world.after(20);
    world.ask(Request::Renew(vec![one.grant.pin]));
    world.after(29);
    assert!(world.erased.is_empty());
    world.after(2);
    assert_eq!(world.erased, [old], "its reader has not renewed");
    assert_eq!(
        world.ask(Request::Renew(vec![one.grant.pin])),
        Reply::Renewed(vec![false])
    );
    assert!(!world.records.contains_key(&1));
    world.cache(3, 1);
    assert_eq!(world.erased, [old, new]);
}

#[test]
fn a_writer_that_falls_silent_loses_its_parity() {
    let mut world = World::new(10);
    let opened = world.open(7, 1);
    for _ in 0..5 {
        world.after(59);
        assert_eq!(
            world.ask(Request::Renew(vec![opened.grant.pin])),
            Reply::Renewed(vec![true])
        );
    }
    world.after(61);
    assert_eq!(world.erased, [opened.grant.token.unwrap()]);
    assert!(error(world.commit(opened.grant.pin, 16, None)).contains("unknown"));
    assert_eq!(world.open(7, 1).answer, Answer::ShouldCache, "another may try");
}

#[test]
fn parity_that_is_being_written_is_not_evicted() {
    let mut world = World::new(1);
    let writer = world.open(1, 1);
    assert_eq!(world.open(2, 1).answer, Answer::ShouldNotCache);
    assert_eq!(world.commit(writer.grant.pin, 16, None), Reply::Done);
    assert_eq!(world.open(2, 1).answer, Answer::ShouldCache, "now it is");
}

#[test]
fn a_commit_must_be_whole() {
    let mut world = World::new(10);
    let opened = world.open(7, 1);
    let why = error(world.commit(opened.grant.pin, 15, None));
    assert!(why.contains("SUBBLOCKS is 15, the parity of the file has 16"), "{why}");
    assert_eq!(world.open(7, 1).answer, Answer::ShouldCache);
}

#[test]
fn a_reader_cannot_commit_and_a_writer_cannot_close() {
    let mut world = World::new(10);
    let writer = world.open(7, 1).grant.pin;
    assert!(error(world.ask(Request::Close { pin: writer })).contains("writer's"));
    assert_eq!(world.commit(writer, 16, Some((1, 64 * MIB))), Reply::Done);
    let reader = world.open(7, 1).grant.pin;
    assert!(error(world.commit(reader, 16, None)).contains("reader's"));
}

#[test]
fn a_reader_that_finds_the_parity_damaged_has_it_deleted() {
    let mut world = World::new(10);
    let token = world.cache(7, 1);
    let (one, two) = (world.open(7, 1), world.open(7, 1));
    assert_eq!(world.ask(Request::Drop { pin: one.grant.pin }), Reply::Done);
    assert!(world.erased.is_empty(), "another still reads");
    world.ask(Request::Close { pin: two.grant.pin });
    assert_eq!(world.erased, [token]);
}

#[test]
fn a_file_under_construction_reserves_and_gives_back_what_it_did_not_need() {
    let mut world = World::new(4);
    let Reply::Room(3, grant) = world.ask(room(7, 3)) else {
        panic!()
    };
    assert!(
        matches!(world.ask(room(8, 2)), Reply::Room(0, _)),
        "only one block is left, and nothing is evicted"
    );
    assert_eq!(world.open(7, 1).answer, Answer::ShouldNotCache);
    let why = error(world.commit(grant.pin, 16, None));
    assert!(why.contains("needs VERSION and LENGTH"), "{why}");
    assert_eq!(world.steward.live_blocks(), 0);

    let Reply::Room(3, grant) = world.ask(room(7, 3)) else {
        panic!()
    };
    assert_eq!(world.commit(grant.pin, 17, Some((5, 64 * MIB + 1))), Reply::Done);
    assert_eq!(world.steward.live_blocks(), 2);
    let Reply::Opened(opened) = world.ask(Request::Open(Open {
        length: 64 * MIB + 1,
        ..open(7, 5)
    })) else {
        panic!()
    };
    assert_eq!((opened.answer, opened.grant.token), (Answer::Cached, grant.token));
}

#[test]
fn a_file_longer_than_its_reservation_is_dropped() {
    let mut world = World::new(4);
    let Reply::Room(1, grant) = world.ask(room(7, 1)) else {
        panic!()
    };
    let why = error(world.commit(grant.pin, 17, Some((5, 64 * MIB + 1))));
    assert!(why.contains("LENGTH is"), "{why}");
}

#[test]
fn a_deleted_file_has_no_parity() {
    let mut world = World::new(4);
    let token = world.cache(7, 1);
    world.ask(Request::Tell(Told::Moved, 7));
    world.ask(Request::Tell(Told::Closed, 7));
    assert_eq!(world.open(7, 1).answer, Answer::Cached);
    world.ask(Request::Tell(Told::Deleted, 7));
    assert!(world.erased.is_empty(), "it is being read");
    world.after(31);
    assert_eq!(world.erased, [token]);
    let writer = world.open(8, 1);
    world.ask(Request::Tell(Told::Deleted, 8));
    assert_eq!(
        world.ask(Request::Renew(vec![writer.grant.pin])),
        Reply::Renewed(vec![false])
    );
}

#[test]
fn files_that_nobody_has_seen_for_long_are_looked_for_one_by_one() {
    let mut world = World::new(5);
    for file in 1..=3 {
        world.cache(file, 1);
        world.after(1);
    }
    assert_eq!(
        world.ask(Request::Check),
        Reply::Next(None),
        "their readers have just seen them"
    );
    world.after(20);
    assert_eq!(world.open(1, 1).answer, Answer::Cached);
    world.after(15);
    assert_eq!(world.ask(Request::Check), Reply::Next(Some(2)), "the oldest one");
    assert_eq!(world.ask(Request::Check), Reply::Next(Some(3)));
    assert_eq!(
        world.ask(Request::Check),
        Reply::Next(None),
        "1 was opened since, the others were named"
    );
    assert_eq!(world.ask(Request::Tell(Told::Deleted, 2)), Reply::Done);
    assert!(!world.steward.csac.contains(2));
    world.after(60);
    let named: Vec<Reply> = (0..3).map(|_| world.ask(Request::Check)).collect();
    assert_eq!(named, [Reply::Next(Some(1)), Reply::Next(Some(3)), Reply::Next(None)]);
}

#[test]
fn parity_that_is_never_read_does_not_stay_for_ever() {
    let mut world = World::new(3);
    world.steward = Steward::new(
        world.now,
        Settings {
            eviction: Eviction::Lfu,
            ..settings(3)
        },
        Prng::new(1),
        [],
        &mut Vec::new(),
    );
    for file in 1..=2 {
        world.cache(file, 1);
        for _ in 0..1000 {
            world.close(file);
        }
    }
    for n in 0..1000 {
        let file = 11 + n % 2;
        let opened = world.open(file, 1);
        match opened.answer {
            Answer::ShouldCache => drop(world.commit(opened.grant.pin, 16, None)),
            _ => drop(world.ask(Request::Close { pin: opened.grant.pin })),
        }
    }
    assert!(world.steward.csac.contains(11) && world.steward.csac.contains(12));
}

#[test]
fn with_a_straggler_only_its_files_are_cached() {
    let mut world = World::new(10);
    assert_eq!(world.open(1, 1).slow, [""; 0]);
    make_slow(&mut world);
    let affected = world.open(2, 1);
    assert_eq!(
        (affected.answer, affected.slow),
        (Answer::ShouldCache, vec!["a:9866".to_owned()])
    );
    let elsewhere = Open {
        nodes: vec!["b:9866", "c:9866"],
        ..open(3, 1)
    };
    let Reply::Opened(opened) = world.ask(Request::Open(elsewhere)) else {
        panic!()
    };
    assert_eq!(opened.answer, Answer::ShouldNotCache);
}

/// Makes a:9866 slow among five nodes.
fn make_slow(world: &mut World) {
    let sample = |bytes| crate::Sample {
        bytes,
        time: Span::from_ms(100),
        cancelled: false,
    };
    for _ in 0..8 {
        let fast = ["b:9866", "c:9866", "d:9866", "e:9866"].map(|node| (node, sample(4 * MIB)));
        world.ask(Request::Report([&fast[..], &[("a:9866", sample(MIB / 2))]].concat()));
    }
    world.after(2);
}

#[test]
fn credit_is_for_slow_nodes_alone_and_bounded_over_all_clients() {
    let mut world = World::new(5);
    let ask = |world: &mut World, node| match world.ask(Request::Credit { bytes: 8 * MIB, node }) {
        Reply::Credit(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(ask(&mut world, "a:9866"), 0, "no node is slow");
    make_slow(&mut world);
    assert_eq!(ask(&mut world, "b:9866"), 0, "this one is not");
    assert_eq!(ask(&mut world, "unknown:1"), 0);
    let granted: u64 = (0..20).map(|_| ask(&mut world, "a:9866")).sum();
    assert_eq!(granted, 64 * MIB, "whoever asks");
    // Four nodes that are not slow send 40 MiB a second each.
    world.after(2);
    let more: u64 = (0..20).map(|_| ask(&mut world, "a:9866")).sum();
    assert_eq!(more, 32 * MIB, "a tenth of 160 MiB a second, for two seconds");
}

#[test]
fn a_store_that_is_slow_as_a_whole_gets_no_credit() {
    let mut world = World::new(5);
    let sample = crate::Sample {
        bytes: MIB / 2,
        time: Span::from_ms(100),
        cancelled: false,
    };
    for _ in 0..8 {
        world.ask(Request::Report(
            ["a:1", "b:1", "c:1", "d:1"].map(|node| (node, sample)).to_vec(),
        ));
    }
    world.after(2);
    let asked = Request::Credit { bytes: 1, node: "a:1" };
    assert_eq!(world.ask(asked), Reply::Credit(0));
}

#[test]
fn files_of_a_new_straggler_are_made_ahead_the_last_accessed_first() {
    let mut world = World::new(5);
    for file in 1..=4 {
        world.cache(file, 1);
    }
    // Files 5 to 7 evict the others; then 1 to 4 are known, but not cached.
    for file in 5..=9 {
        world.cache(file, 1);
    }
    assert_eq!(world.ask(Request::Prefetch), Reply::Next(None), "no node is slow");
    make_slow(&mut world);
    let status = |world: &mut World| match world.ask(Request::Status) {
        Reply::Status(text) => serde_json::from_str::<serde_json::Value>(&text).unwrap(),
        other => panic!("{other:?}"),
    };
    let before = status(&mut world);
    assert_eq!(before["prefetches_waiting"], 2, "40 % of five blocks");
    assert_eq!(world.ask(Request::Prefetch), Reply::Next(Some(4)));
    let Reply::Opened(made) = world.ask(Request::Make(open(4, 1))) else {
        panic!()
    };
    assert_eq!(
        (made.answer, made.slow),
        (Answer::ShouldCache, vec!["a:9866".to_owned()])
    );
    assert_eq!(world.erased.len(), 5, "one more file was evicted for it");
    let Reply::Opened(twice) = world.ask(Request::Make(open(4, 1))) else {
        panic!()
    };
    assert_eq!((twice.answer, twice.grant.pin), (Answer::ShouldNotCache, 0));
    assert_eq!(world.commit(made.grant.pin, 16, None), Reply::Done);
    let after = status(&mut world);
    assert_eq!(after["prefetches"], 1);
    for count in ["opens", "hits", "affected", "affected_misses"] {
        assert_eq!(after[count], before[count], "a worker is no reader: {count}");
    }
    assert_eq!(world.open(4, 1).answer, Answer::Cached);

    // A reader was faster than the worker.
    world.cache(3, 1);
    assert_eq!(world.ask(Request::Prefetch), Reply::Next(None));
}

#[test]
fn parity_in_use_is_not_pulled_by_what_is_made_ahead() {
    let mut world = World::new(5);
    for file in 1..=6 {
        world.cache(file, 1);
    }
    let readers: Vec<Granted> = (2..=6).map(|file| world.open(file, 1).grant).collect();
    make_slow(&mut world);
    assert_eq!(world.ask(Request::Prefetch), Reply::Next(Some(1)));
    let erased = world.erased.len();
    let Reply::Opened(made) = world.ask(Request::Make(open(1, 1))) else {
        panic!()
    };
    assert_eq!(made.answer, Answer::ShouldCache);
    assert_eq!(world.erased.len(), erased, "its reader still has it");
    for reader in readers {
        assert_eq!(world.ask(Request::Close { pin: reader.pin }), Reply::Done);
    }
    assert_eq!(world.erased.len(), erased + 1);
}

#[test]
fn nothing_is_made_ahead_of_a_straggler_that_recovered() {
    let mut world = World::new(5);
    for file in 1..=6 {
        world.cache(file, 1);
    }
    make_slow(&mut world);
    // Its rate is forgotten.
    world.after(200);
    assert_eq!(world.ask(Request::Prefetch), Reply::Next(None));
    let Reply::Opened(late) = world.ask(Request::Make(open(1, 1))) else {
        panic!()
    };
    assert_eq!(late.answer, Answer::ShouldNotCache);
}

#[test]
fn a_steward_that_starts_finds_the_parity_and_checks_its_keys() {
    let mut world = World::new(4);
    let (kept, lost) = (world.cache(1, 1), world.cache(2, 1));
    let filling = world.open(3, 1).grant.token.unwrap();
    let records: Vec<_> = world.records.iter().map(|(file, record)| (*file, *record)).collect();
    world.steward = Steward::new(world.now, settings(4), Prng::new(2), records, &mut Vec::new());

    let mut asked = Vec::new();
    world.steward.on(world.now, Event::Tick, &mut asked);
    let mut refreshed: Vec<u64> = asked
        .iter()
        .filter_map(|what| match what {
            Asked::Refresh(token, ..) => Some(*token),
            _ => None,
        })
        .collect();
    refreshed.sort_unstable();
    let mut expected = [kept, lost];
    expected.sort_unstable();
    assert_eq!(refreshed, expected);
    world.on(Event::Refreshed(kept, Refreshed::Whole));
    world.on(Event::Refreshed(lost, Refreshed::Missing));
    assert_eq!(world.open(1, 1).grant.token, Some(kept));
    assert_eq!(
        world.open(2, 1).answer,
        Answer::ShouldNotCache,
        "doomed are more than a tenth"
    );
    // Clients of the steward before may use pins that this one does not know.
    world.after(29);
    assert!(world.erased.is_empty());
    world.after(32);
    assert_eq!(world.erased.len(), 2);
    assert!(world.erased.contains(&lost) && world.erased.contains(&filling));
    assert_eq!(world.open(3, 1).answer, Answer::ShouldCache);
}

#[test]
fn a_mount_that_became_smaller_keeps_what_fits() {
    let mut world = World::new(4);
    for file in 1..=4 {
        world.cache(file, 1);
    }
    let records: Vec<_> = world.records.iter().map(|(file, record)| (*file, *record)).collect();
    world.steward = Steward::new(world.now, settings(2), Prng::new(2), records, &mut Vec::new());
    assert_eq!(world.steward.live_blocks(), 2);
    world.after(61);
    assert_eq!(world.erased.len(), 2);
}

#[test]
fn keys_are_refreshed_long_before_they_expire() {
    let mut world = World::new(4);
    let token = world.cache(1, 1);
    world.after(5 * 3600);
    assert!(world.refreshed.is_empty());
    world.after(3600);
    assert_eq!(world.refreshed, [token]);
    world.after(6 * 3600);
    assert_eq!(world.refreshed, [token, token]);
}

#[test]
fn what_the_store_did_not_do_is_asked_again() {
    let mut world = World::new(4);
    let token = world.cache(1, 1);
    world.on(Event::Stored(token, false));
    let mut asked = Vec::new();
    world
        .steward
        .on(world.now + Span::from_secs(6), Event::Tick, &mut asked);
    assert!(matches!(asked[..], [Asked::Store(again, 1, record)] if again == token && record.stage == Stage::Cached));
    asked.clear();

    world.steward.on(
        world.now,
        Event::Request(Asker(1), Request::Tell(Told::Deleted, 1)),
        &mut asked,
    );
    assert!(matches!(asked[0], Asked::Erase(..)), "{asked:?}");
    asked.clear();
    world.steward.on(world.now, Event::Erased(token, false), &mut asked);
    world
        .steward
        .on(world.now + Span::from_secs(12), Event::Tick, &mut asked);
    assert!(
        matches!(asked[..], [Asked::Erase(again, 1, _, true)] if again == token),
        "{asked:?}"
    );
}

#[test]
fn the_status_says_what_is_where() {
    let mut world = World::new(4);
    world.cache(1, 1);
    world.open(1, 1);
    world.open(2, 1);
    let Reply::Status(text) = world.ask(Request::Status) else {
        panic!()
    };
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["blocks"]["used"], 2);
    assert_eq!(
        (&status["opens"], &status["hits"], &status["misses"]),
        (&3.into(), &1.into(), &2.into())
    );
    assert_eq!(status["entries"][0]["path"], "/data/part-0");
    assert_eq!(status["entries"][0]["state"], "cached");
    assert_eq!(status["entries"][1]["state"], "filling");
}

#[test]
fn too_many_pins_are_declined() {
    let mut world = World::new(4);
    world.cache(1, 1);
    world.steward.pins = Pins::new(1);
    assert_eq!(world.open(1, 1).answer, Answer::Cached);
    assert_eq!(world.open(1, 1).answer, Answer::ShouldNotCache);
    assert_eq!(world.open(2, 1).answer, Answer::ShouldNotCache);
}
