//! `paritas files status`.

use paritas_node::password;
use paritas_node::{ByteCount, Connection, Failure, Login, print};
use paritas_wire::resp::{Password, Value as Answer};
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks a steward about its mounts, and prints that. What another steward leads is asked there.
///
/// # Errors
/// If the steward does not answer, or refuses the password in the file.
pub fn print_status(steward: &str, password_file: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let password = password_file.map(password::read).transpose().map_err(Failure)?;
    let text = ask(steward, password.as_ref(), &[b"FILES.STATUS"])?;
    let mut status: Value =
        serde_json::from_str(&text).map_err(|error| Failure(format!("{steward}: its status is no JSON: {error}")))?;
    if let Some(mounts) = status["mounts"].as_object_mut() {
        for (name, mount) in mounts {
            let leader = mount["leader"].as_str().map(str::to_owned);
            if let Some(leader) = leader {
                match ask(&leader, password.as_ref(), &[b"FILES.STATUS", name.as_bytes()]) {
                    Ok(text) => mount["status"] = serde_json::from_str(&text).unwrap_or(Value::Null),
                    Err(failure) => mount["leader_error"] = json!(failure.0),
                }
            }
        }
    }
    if as_json {
        return print(status);
    }
    print(describe(&status).trim_end())
}

fn ask(steward: &str, password: Option<&Password>, words: &[&[u8]]) -> Result<String, Failure> {
    let wrong = |why: String| Failure(format!("{steward}: {why}"));
    let mut addresses = steward.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    let address: SocketAddr = addresses.next().ok_or_else(|| wrong("it has no address".to_owned()))?;
    let login = Login {
        node: address,
        password: password.cloned(),
    };
    let mut connection = Connection::open(&login, TIMEOUT)?;
    connection.send(words);
    match connection.reply()? {
        Answer::Bulk(text) => String::from_utf8(text).map_err(|_| wrong("its status is not UTF-8".to_owned())),
        Answer::Error(why) => Err(wrong(why)),
        other => Err(wrong(format!("it answers {other:?}: is it a steward?"))),
    }
}

/// The status for people.
fn describe(status: &Value) -> String {
    let mut text = String::new();
    for (name, mount) in status["mounts"].as_object().into_iter().flatten() {
        // Writing to a string cannot fail.
        let _ = describe_mount(&mut text, name, mount);
    }
    text
}

fn describe_mount(text: &mut String, name: &str, mount: &Value) -> std::fmt::Result {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let led = match mount["role"].as_str() {
        Some("leader") => "led by this steward".to_owned(),
        Some("loading") => "led by this steward, which reads its records".to_owned(),
        Some("spare") => format!("led by {}", word(&mount["leader"])),
        _ => "led by nobody".to_owned(),
    };
    writeln!(text, "mount {name}: {led}, cache {}", word(&mount["cache"]))?;
    for (key, what) in [
        ("cache_error", "the cache store cannot be used"),
        ("leader_error", "the leader"),
    ] {
        if let Some(error) = mount[key].as_str() {
            writeln!(text, "  {what}: {error}")?;
        }
    }
    let status = &mount["status"];
    if status.is_null() {
        return Ok(());
    }
    let blocks = &status["blocks"];
    writeln!(
        text,
        "  blocks   {} of {} used, {} doomed, {} each",
        number(&blocks["used"]),
        number(&blocks["total"]),
        number(&blocks["doomed"]),
        ByteCount(number(&blocks["bytes"]))
    )?;
    let entries = &status["entries_count"];
    writeln!(
        text,
        "  files    {} cached, {} being written, {} doomed; {} pins",
        number(&entries["cached"]),
        number(&entries["granted"]) + number(&entries["filling"]),
        number(&entries["doomed"]) + number(&entries["erasing"]),
        number(&status["pins"])
    )?;
    let decisions = &status["decisions"];
    writeln!(
        text,
        "  opens    {}: {} cached, {} should cache, {} should not; {} evictions ({})",
        number(&status["opens"]),
        number(&decisions["cached"]),
        number(&decisions["should_cache"]),
        number(&decisions["should_not_cache"]),
        number(&status["evictions"]),
        word(&status["eviction"])
    )?;
    let slow: Vec<String> = status["stragglers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(word)
        .collect();
    let slow = if slow.is_empty() {
        "none".to_owned()
    } else {
        slow.join(", ")
    };
    let rates = status["rates"].as_object();
    writeln!(
        text,
        "  slow     {slow} ({}; {} of {} nodes have a rate)",
        word(&status["estimator"]),
        rates.map_or(0, serde_json::Map::len),
        number(&status["nodes"])
    )?;
    writeln!(
        text,
        "  affected {} opens of files on stragglers, {} of them without parity",
        number(&status["affected"]),
        number(&status["affected_misses"])
    )?;
    describe_polls(text, &status["datanodes"])?;
    for (node, rate) in rates.into_iter().flatten() {
        let source = match status["rate_sources"][node].as_str() {
            Some("node") => " by its own counters",
            Some("earlier") => " earlier",
            _ => "",
        };
        writeln!(text, "  rate     {node} {}/s{source}", ByteCount(number(rate)))?;
    }
    Ok(())
}

/// The results of asking DataNodes for their counters.
fn describe_polls(text: &mut String, polls: &Value) -> std::fmt::Result {
    if polls.is_null() {
        return Ok(());
    }
    let number = |name: &str| polls[name].as_u64().unwrap_or(0);
    write!(
        text,
        "  nodes    {} DataNodes listed; {} answers with counters, {} failures",
        number("nodes"),
        number("answers"),
        number("failures")
    )?;
    match polls["last_answer_ms"].as_u64() {
        Some(age_ms) => writeln!(text, "; the last answer {} s ago", age_ms / 1000)?,
        None => writeln!(text)?,
    }
    for (key, what) in [("list_error", "the NameNode"), ("failure", "a DataNode")] {
        if let Some(error) = polls[key].as_str() {
            writeln!(text, "  {what}: {error}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_in_words() {
        let status = json!({"mounts": {
            "lake": {"role": "leader", "cache": "c:1", "status": {
                "blocks": {"total": 40, "used": 12, "doomed": 1, "bytes": 134_217_728},
                "stragglers": ["d3:9866"], "rates": {"d3:9866": 3_500_000}, "nodes": 12, "estimator": "mad",
                "rate_sources": {"d3:9866": "node"},
                "datanodes": {"nodes": 12, "answers": 30, "failures": 2, "last_answer_ms": 4000,
                    "list_error": "http://n:1: it answers with status 404"},
            }},
            "sea": {"role": "spare", "cache": "c:1", "leader": "h:2", "leader_error": "h:2 does not answer"},
        }});
        let text = describe(&status);
        for part in [
            "mount lake: led by this steward, cache c:1",
            "12 of 40 used, 1 doomed, 128.0 MB each",
            "slow     d3:9866 (mad; 1 of 12 nodes have a rate)",
            "rate     d3:9866 3.3 MB/s by its own counters",
            "nodes    12 DataNodes listed; 30 answers with counters, 2 failures; the last answer 4 s ago",
            "the NameNode: http://n:1: it answers with status 404",
            "mount sea: led by h:2",
            "the leader: h:2 does not answer",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
