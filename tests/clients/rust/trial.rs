//! What the programs of this folder share: a line for each thing that was tried, and writing and reading while a
//! node dies.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::io::{Read, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest wait for anything, and keys and pause of a client while a node dies.
pub const TIMEOUT: Duration = Duration::from_secs(10);
const KEYS: usize = 40;
const PAUSE: Duration = Duration::from_millis(5);

/// What main.py has given: what to do, and where the cluster is.
pub struct Place {
    pub rides: bool,
    base: u16,
    pub nodes: u16,
    pub victim: u16,
    /// Keys of one run differ from those of all others.
    run: String,
}

static PLACE: OnceLock<Place> = OnceLock::new();
static CHECKS: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);

pub type Failed = Box<dyn Error + Send + Sync>;
pub type Work<T> = Result<T, Failed>;

pub fn begin(words: &[String]) {
    let number = |at: usize| words[at].parse().expect("a number");
    let place = Place {
        rides: words[0] == "ride",
        base: number(1),
        nodes: number(2),
        victim: number(3),
        run: format!("{:x}{:x}", std::process::id(), now_ms() % 1_000_000_000),
    };
    assert!(PLACE.set(place).is_ok());
}

pub fn place() -> &'static Place {
    PLACE.get().expect("begun")
}

pub fn port(kind: &str, node: u16) -> u16 {
    place().base
        + node
        + match kind {
            "cluster" => 1_000,
            "memcached" => 2_000,
            _ => 0,
        }
}

/// The nodes, from this one on.
pub fn nodes_from(first: u16) -> impl Iterator<Item = u16> {
    (0..place().nodes).map(move |n| (first + n) % place().nodes)
}

/// A key that no other check has.
pub fn key(name: impl Display) -> String {
    format!("{}:{}:{name}", place().run, CHECKS.load(Ordering::Relaxed))
}

pub fn equal<A: PartialEq<B> + Debug, B: Debug>(found: A, wanted: B) -> Work<()> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{found:?} instead of {wanted:?}").into())
    }
}

pub fn until(mut condition: impl FnMut() -> Work<bool>) -> Work<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !condition()? {
        if Instant::now() > deadline {
            return Err(format!("not within {TIMEOUT:?}").into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn now_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_millis()
}

fn line(words: &[&str]) {
    let word = |word: &&str| {
        word.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(400)
            .collect::<String>()
    };
    let text = words.iter().map(word).collect::<Vec<_>>().join("\t");
    // One write, so that lines of several threads do not mix.
    std::io::stdout()
        .lock()
        .write_all(format!("{text}\n").as_bytes())
        .expect("someone reads");
}

/// A trial of one client: `check` prints whether something works, `ride` what happens while a node dies.
#[derive(Clone)]
pub struct Trial {
    client: &'static str,
    version: String,
}

impl Trial {
    /// The version is the one that this program was built with.
    pub fn new(client: &'static str, package: &str) -> Self {
        let lock = include_str!("Cargo.lock");
        let after = lock
            .split_once(&format!("name = \"{package}\"\nversion = \""))
            .expect("a dependency")
            .1;
        Self {
            client,
            version: after.split('"').next().expect("a version").to_owned(),
        }
    }

    pub fn check(&self, kind: &str, what: &str, work: impl FnOnce() -> Work<()> + Send + 'static) {
        if place().rides {
            return;
        }
        CHECKS.fetch_add(1, Ordering::Relaxed);
        let (done, ended) = mpsc::channel();
        thread::spawn(move || done.send(work()));
        let (result, why) = match ended.recv_timeout(2 * TIMEOUT) {
            Ok(Ok(())) => ("ok", String::new()),
            Ok(Err(error)) => ("failed", said(&*error)),
            Err(error) => ("failed", format!("no end after {:?}: {error}", 2 * TIMEOUT)),
        };
        line(&["check", self.client, &self.version, kind, what, result, &why]);
    }

    pub fn ride(&self, ways: Vec<Way>) {
        if !place().rides {
            return;
        }
        let mut words = vec!["riders", self.client, &self.version];
        words.extend(ways.iter().map(|way| way.how));
        line(&words);
        let rides: Vec<_> = ways
            .into_iter()
            .map(|way| {
                let trial = self.clone();
                thread::spawn(move || trial.ride_one(way))
            })
            .collect();
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ENDED.store(true, Ordering::Relaxed);
        for ride in rides {
            ride.join().expect("no panic");
        }
    }

    fn ride_one(&self, mut way: Way) {
        // What a key may hold, by its number. A key whose write failed is not used again: the write may still come.
        let (mut holds, mut names) = (HashMap::new(), HashMap::new());
        for count in 0.. {
            if ENDED.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(PAUSE);
            let number = count % KEYS;
            let new = || key(format!("{} {} {count}", self.client, way.how).replace(' ', "-"));
            let name = names.entry(number).or_insert_with(new).clone();
            if let Some(value) = holds.get(&number) {
                let found = self.one(way.how, || (way.get)(&name));
                if let Some(found) = found
                    && found != *value
                {
                    let wrong = format!("wrong: {name} has {found} instead of {value}");
                    line(&["op", self.client, way.how, "0", "0", &wrong]);
                }
            }
            let value = format!("v{count}");
            if self.one(way.how, || (way.put)(&name, &value)).is_some() {
                holds.insert(number, value);
            } else {
                holds.remove(&number);
                names.remove(&number);
            }
        }
    }

    /// Prints what one operation did. Returns its result unless it failed.
    fn one<T>(&self, how: &str, work: impl FnOnce() -> Work<T>) -> Option<T> {
        let start = now_ms();
        let result = work();
        let text = result.as_ref().err().map_or("ok".to_owned(), |error| said(&**error));
        line(&["op", self.client, how, &start.to_string(), &now_ms().to_string(), &text]);
        result.ok()
    }
}

/// How a client is connected, and what it does then.
pub struct Way {
    pub how: &'static str,
    pub put: Box<dyn FnMut(&str, &str) -> Work<()> + Send>,
    pub get: Box<dyn FnMut(&str) -> Work<String> + Send>,
}

/// An error and those that caused it.
fn said(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text = format!("{text}: {one}");
        cause = one.source();
    }
    text
}
