//! What the engine makes of nodes that refuse, are silent, or are gone. Its tests against nodes are in
//! `tests/cluster`.

use super::*;

#[derive(Default)]
struct Links {
    now: Time,
    dialled: Vec<(LinkId, String)>,
    written: Vec<(LinkId, String)>,
    closed: Vec<LinkId>,
    done: Vec<(OpId, Result<Value, Failure>)>,
}

impl Out for Links {
    fn dial(&mut self, link: LinkId, address: &str) {
        self.dialled.push((link, address.to_owned()));
    }
    fn write(&mut self, link: LinkId, bytes: &[u8]) {
        self.written.push((link, text_of(bytes)));
    }
    fn close(&mut self, link: LinkId) {
        self.closed.push(link);
    }
    fn done(&mut self, op: OpId, outcome: Outcome) {
        self.done.push((op, outcome.result));
    }
    fn clock(&mut self) -> Time {
        self.now
    }
}

fn engine(change: impl FnOnce(&mut Settings)) -> (Engine, Links) {
    let mut settings = Settings::default();
    change(&mut settings);
    let seeds = ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec();
    let mut engine = Engine::new(seeds, settings);
    // These tests are about the node that all commands go to: it names no owners.
    engine.owners.rest(Time(0));
    (engine, Links::default())
}

fn at(ms: u64) -> Time {
    Time(0) + Span::from_ms(ms)
}

fn set(engine: &mut Engine, links: &mut Links, key: &str) -> OpId {
    engine
        .submit(at(0), Command::set(key.as_bytes(), b"v".to_vec()), links)
        .expect("there is room")
}

/// Lets time pass until this one.
fn pass(engine: &mut Engine, links: &mut Links, until: Time) {
    let mut rounds = 0;
    while let Some(next) = engine.next_at().filter(|next| *next <= until) {
        rounds = if next > links.now { 0 } else { rounds + 1 };
        assert!(rounds < 10, "its time stands still at {:?}", links.now);
        links.now = links.now.max(next);
        engine.on(links.now, Event::Timer, links);
    }
    links.now = until;
}

#[test]
fn nothing_is_sent_before_the_password_is_accepted() {
    let (mut engine, mut links) = engine(|settings| settings.password = Some((None, "secret".into())));
    let op = set(&mut engine, &mut links, "k");
    let link = links.dialled[0].0;
    engine.on(at(1), Event::Connected(link), &mut links);
    assert_eq!(links.written.len(), 1);
    assert!(links.written[0].1.contains("AUTH") && !links.written[0].1.contains("SET"));
    engine.on(
        at(2),
        Event::Bytes(link, b"-WRONGPASS invalid username-password pair\r\n"),
        &mut links,
    );
    assert_eq!(links.closed, [link]);
    let refused = Err(Failure::Refused("WRONGPASS invalid username-password pair".into()));
    assert_eq!(links.done, [(op, refused)]);
}

#[test]
fn a_node_without_room_for_a_connection_refuses_no_operation() {
    let (mut engine, mut links) = engine(|settings| settings.password = Some((None, "secret".into())));
    let op = set(&mut engine, &mut links, "k");
    let link = links.dialled[0].0;
    engine.on(at(1), Event::Connected(link), &mut links);
    engine.on(
        at(2),
        Event::Bytes(link, b"-ERR max number of clients reached\r\n"),
        &mut links,
    );
    pass(&mut engine, &mut links, at(100));
    let (other, address) = links.dialled[1].clone();
    assert_eq!(address, "b:1");
    engine.on(at(101), Event::Connected(other), &mut links);
    engine.on(at(102), Event::Bytes(other, b"+OK\r\n"), &mut links);
    engine.on(at(103), Event::Bytes(other, b"+OK\r\n"), &mut links);
    assert_eq!(links.done, [(op, Ok(Value::Simple("OK".into())))]);
}

#[test]
fn a_write_goes_to_another_node_if_the_first_takes_no_connection() {
    let (mut engine, mut links) = engine(|_| {});
    let op = set(&mut engine, &mut links, "k");
    pass(&mut engine, &mut links, at(1_100));
    let (first, second) = (links.dialled[0].0, links.dialled[1].0);
    assert_eq!(
        (links.closed.as_slice(), links.dialled[1].1.as_str()),
        (&[first][..], "b:1")
    );
    engine.on(at(1_101), Event::Connected(second), &mut links);
    assert_eq!(links.written.len(), 1, "the first connection had no byte");
    engine.on(at(1_102), Event::Bytes(second, b"+OK\r\n"), &mut links);
    assert_eq!(links.done, [(op, Ok(Value::Simple("OK".into())))]);
}

#[test]
fn a_write_is_uncertain_if_its_node_is_silent_and_later_ones_go_to_another() {
    let (mut engine, mut links) = engine(|_| {});
    let op = set(&mut engine, &mut links, "k");
    let link = links.dialled[0].0;
    engine.on(at(1), Event::Connected(link), &mut links);
    pass(&mut engine, &mut links, at(9_000));
    assert!(links.done.is_empty());
    pass(&mut engine, &mut links, at(10_100));
    assert_eq!(links.done, [(op, Err(Failure::Uncertain))]);
    assert_eq!(links.closed, [link]);
    engine
        .submit(at(10_101), Command::set(b"k", b"w".to_vec()), &mut links)
        .expect("there is room");
    assert_eq!(links.dialled[1].1, "b:1");
}

#[test]
fn only_what_has_not_happened_is_sent_again() {
    let (mut engine, mut links) = engine(|_| {});
    let op = set(&mut engine, &mut links, "k");
    let words = ["RENAME", "a", "b"].map(|word| word.as_bytes().to_vec()).to_vec();
    let rename = Command::other(words, None).expect("it is not about its connection");
    let rename = engine.submit(at(0), rename, &mut links).expect("there is room");
    let link = links.dialled[0].0;
    engine.on(at(1), Event::Connected(link), &mut links);
    engine.on(
        at(2),
        Event::Bytes(link, b"-TRYAGAIN not now\r\n-TRYAGAIN half done\r\n"),
        &mut links,
    );
    assert_eq!(
        links.done,
        [(rename, Err(Failure::Refused("TRYAGAIN half done".into())))]
    );
    pass(&mut engine, &mut links, at(50));
    engine.on(at(51), Event::Bytes(link, b"+OK\r\n"), &mut links);
    assert_eq!(links.done[1], (op, Ok(Value::Simple("OK".into()))));
}

#[test]
fn a_reply_that_is_too_long_ends_its_read_and_no_other() {
    let (mut engine, mut links) =
        engine(|settings| (settings.decode, settings.reply_bytes_max) = (Decode::Server, 100));
    let get = engine
        .submit(at(0), Command::get(b"long"), &mut links)
        .expect("there is room");
    let other = engine
        .submit(at(0), Command::get(b"short"), &mut links)
        .expect("there is room");
    let link = links.dialled[0].0;
    engine.on(at(1), Event::Connected(link), &mut links);
    let mut reply = b"$5000\r\n".to_vec();
    reply.resize(200, b'x');
    engine.on(at(2), Event::Bytes(link, &reply), &mut links);
    let text = "the value is longer than reply_bytes_max, 100 B".to_owned();
    assert_eq!(links.done, [(get, Err(Failure::Refused(text)))]);
    pass(&mut engine, &mut links, at(100));
    let second = links.dialled[1].0;
    engine.on(at(101), Event::Connected(second), &mut links);
    engine.on(at(102), Event::Bytes(second, b"$1\r\nx\r\n"), &mut links);
    assert_eq!(links.done[1], (other, Ok(Value::Bulk(b"x".to_vec()))));
}

#[test]
fn a_command_about_its_connection_is_refused_in_words() {
    let words = ["select", "1"].map(|word| word.as_bytes().to_vec()).to_vec();
    let error = Command::other(words, None).expect_err("all operations share the connections");
    assert!(error.to_string().starts_with("SELECT is about one connection"));
    assert!(Command::other(Vec::new(), None).is_err());
}

#[test]
fn an_address_that_takes_no_connection_is_barred_for_longer_each_time() {
    let (mut engine, _) = engine(|_| {});
    let until = |engine: &Engine| engine.barred.get("a:1").map(|(until, _)| *until);
    engine.bar(at(0), "a:1");
    assert_eq!(until(&engine), Some(at(1_000)));
    engine.bar(at(1_500), "a:1");
    assert_eq!(until(&engine), Some(at(3_500)));
    (2..10).for_each(|n| engine.bar(at(10_000 * n), "a:1"));
    assert!(until(&engine) <= Some(at(90_000) + BARRED.1), "it is bounded");
}

#[test]
fn nodes_that_do_not_tell_where_parts_are_are_not_asked_each_time() {
    let (mut engine, mut links) = engine(|settings| settings.decode = Decode::Client);
    engine
        .submit(at(0), Command::get(b"k"), &mut links)
        .expect("there is room");
    let link = links.dialled[0].0;
    engine.on(at(1), Event::Connected(link), &mut links);
    assert!(links.written[0].1.contains("PARITAS.LOCATE"));
    engine.on(at(2), Event::Bytes(link, b"-ERR unknown command\r\n"), &mut links);
    assert!(links.written[1].1.contains("GET"));
    engine.on(at(3), Event::Bytes(link, b"$1\r\nx\r\n"), &mut links);
    engine
        .submit(at(4), Command::get(b"k"), &mut links)
        .expect("there is room");
    assert!(links.written[2].1.contains("GET"));
    engine
        .submit(at(2_000), Command::get(b"k2"), &mut links)
        .expect("there is room");
    assert!(links.written[3].1.contains("PARITAS.LOCATE"));
}

#[test]
fn what_waits_for_a_connection_until_its_deadline_has_changed_nothing() {
    let (mut engine, mut links) = engine(|settings| settings.deadline = Span::from_ms(300));
    let op = set(&mut engine, &mut links, "k");
    assert_eq!(links.dialled.len(), 1);
    engine.on(at(300), Event::Timer, &mut links);
    assert_eq!(links.done, [(op, Err(Failure::Unreachable))]);
    let (link, _) = links.dialled[0];
    assert_eq!(links.closed, [link]);
    engine.on(at(301), Event::Connected(link), &mut links);
    assert!(links.written.is_empty(), "it is not sent later");
}
