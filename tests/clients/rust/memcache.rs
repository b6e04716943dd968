//! The crate memcache: its client of the text protocol, and the one of the meta commands that it calls experimental.

use crate::trial::{Trial, Way, Work, equal, key, nodes_from, place, port, until};
use memcache::exp::{Memcache, Ttl};
use memcache::{Client, CommandError, MemcacheError};
use std::convert::Infallible;
use std::time::Duration;

/// A time-out in seconds, or none.
fn connect(nodes: impl Iterator<Item = u16>, timeout: &str) -> Work<Client> {
    let url = |node| {
        format!(
            "memcache://127.0.0.1:{}?protocol=ascii{timeout}",
            port("memcached", node)
        )
    };
    Ok(Client::connect(nodes.map(url).collect::<Vec<_>>())?)
}

fn meta(nodes: impl Iterator<Item = u16>) -> Work<Memcache> {
    let addresses: Vec<_> = nodes
        .map(|node| format!("127.0.0.1:{}", port("memcached", node)))
        .collect();
    Ok(Memcache::connect(addresses.iter().map(String::as_str))?)
}

fn every_command(c: &Client) -> Work<()> {
    c.set(&key("a"), "1", 0)?;
    // It says the same whether the key was there or not.
    c.add(&key("a"), "2", 0)?;
    equal(c.get(&key("a"))?, Some("1".to_owned()))?;
    c.replace(&key("a"), "3", 0)?;
    c.append(&key("a"), "y")?;
    c.prepend(&key("a"), "x")?;
    let (value, _, token): (String, u32, Option<u64>) = c.get(&key("a"))?.ok_or("a miss")?;
    let token = token.ok_or("no cas number")?;
    equal(
        (
            value.as_str(),
            c.cas(&key("a"), "new", 0, token)?,
            c.cas(&key("a"), "newer", 0, token)?,
        ),
        ("x3y", true, false),
    )?;
    c.set(&key("n"), 5, 0)?;
    equal((c.increment(&key("n"), 7)?, c.decrement(&key("n"), 20)?), (12, 0))?;
    let names: Vec<_> = (0..60).map(|n| key(format!("m{n}"))).collect();
    for (n, name) in names.iter().take(50).enumerate() {
        c.set(name, n as u64, 0)?;
    }
    let found = c.gets::<u64>(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
    equal((found.len(), found.get(&names[49])), (50, Some(&49)))?;
    equal(c.touch(&key("a"), 1)?, true)?;
    until(|| Ok(c.get::<String>(&key("a"))?.is_none()))?;
    equal((c.delete(&key("n"))?, c.delete(&key("n"))?), (true, false))?;
    match c.increment(&key("none"), 1) {
        Err(MemcacheError::CommandError(CommandError::KeyNotFound)) => Ok(()),
        other => Err(format!("{other:?} instead of a miss").into()),
    }
}

fn meta_commands(c: &Memcache) -> Work<()> {
    let ttl = Ttl::secs(100);
    c.set(key("a"), "1", ttl)?;
    equal(
        (c.add(key("a"), "2", ttl)?, c.replace(key("a"), "3", ttl)?),
        (false, true),
    )?;
    equal(c.get::<String>(key("a"))?, Some("3".to_owned()))?;
    let changed = c.update(key("a"), ttl, |now: Option<String>| {
        format!("{}!", now.unwrap_or_default())
    })?;
    equal(changed, "3!")?;
    equal(
        (
            c.incr(key("n"), 7, ttl)?,
            c.incr(key("n"), 7, ttl)?,
            c.decr(key("n"), 20, ttl)?,
        ),
        (7, 14, 0),
    )?;
    equal(c.take::<String>(key("a"))?, Some("3!".to_owned()))?;
    c.set_many((0..50_u64).map(|n| (key(format!("m{n}")), n)), ttl)?;
    equal(c.get_many::<u64, _>((0..60).map(|n| key(format!("m{n}"))))?.len(), 50)?;
    c.set(key("a"), "1", ttl)?;
    c.touch(key("a"), Duration::from_secs(1))?;
    until(|| Ok(c.get::<String>(key("a"))?.is_none()))
}

/// With the first of them the item is made.
fn append(c: &Memcache) -> Work<()> {
    c.append(key("b"), b"x;", Ttl::secs(100))?;
    c.append(key("b"), b"y;", Ttl::secs(100))?;
    equal(c.get::<Vec<u8>>(key("b"))?, Some(b"x;y;".to_vec()))
}

fn fetch(c: &Memcache) -> Work<()> {
    let load = || Ok::<_, Infallible>("made".to_owned());
    for _ in 0..2 {
        equal(c.fetch::<String, _, _>(key("f"), Ttl::secs(100), load)?, "made")?;
    }
    // Whoever asks second finds what the first has made.
    equal(c.get::<String>(key("f"))?, Some("made".to_owned()))
}

fn rides(trial: &Trial) -> Work<()> {
    let victim = place().victim;
    let of = |how, client: Client| {
        let reader = client.clone();
        Way {
            how,
            put: Box::new(move |name, value| Ok(client.set(name, value, 0)?)),
            get: Box::new(move |name| reader.get(name)?.ok_or_else(|| "a miss".into())),
        }
    };
    trial.ride(vec![
        of("memcached port, another node dies", connect([0].into_iter(), "")?),
        of(
            "memcached port, its own node dies; `timeout=3`, `connect_timeout=1`",
            connect([victim].into_iter(), "&timeout=3&connect_timeout=1")?,
        ),
        of(
            "memcached ports of all nodes; `timeout=1`, `connect_timeout=1`",
            connect(nodes_from(0), "&timeout=1&connect_timeout=1")?,
        ),
    ]);
    Ok(())
}

pub fn run() -> Work<()> {
    let trial = Trial::new("memcache (Rust)", "memcache");
    if place().rides {
        return rides(&trial);
    }
    trial.check("memcached", "one node: every command", || {
        every_command(&connect([0].into_iter(), "")?)
    });
    trial.check("memcached", "all nodes: every command", || {
        every_command(&connect(nodes_from(0), "")?)
    });
    trial.check("memcached", "meta commands", || meta_commands(&meta(nodes_from(0))?));
    trial.check("memcached", "meta commands: append, prepend", || {
        append(&meta([0].into_iter())?)
    });
    trial.check("memcached", "meta commands: fetch", || fetch(&meta([0].into_iter())?));
    Ok(())
}
