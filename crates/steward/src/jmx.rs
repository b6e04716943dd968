//! What an HDFS says of its DataNodes over HTTP (`/jmx`): their addresses, and what each has counted.
//!
//! Everything here comes from other hosts: bodies, lists and times have limits, and what is wrong is an error.

use crate::settings::is_address;
use paritas_files::Counters;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::time::Duration;
use ureq::Agent;

/// Most DataNodes that are asked; as many as the machine tells apart.
pub(crate) const NODES_MAX: usize = 4096;
/// Longest wait for the whole answer of the NameNode, which lists all DataNodes, and of a DataNode.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of these answers. An entry of the list has about 1 KiB, the counters of a DataNode 10 to 50 KiB.
const LIST_BYTES_MAX: u64 = 16 << 20;
const COUNTERS_BYTES_MAX: u64 = 256 << 10;
const BUFFER_BYTES: usize = 16 << 10;
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Only this attribute: with `qry=` the NameNode computes all attributes of the bean.
const LIST: &str = "/jmx?get=Hadoop:service=NameNode,name=NameNodeInfo::LiveNodes";
/// The bean's name ends with the DataNode's host name and port, which only it knows.
const COUNTERS: &str = "/jmx?qry=Hadoop:service=DataNode,name=DataNodeActivity*";

/// A DataNode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DataNode {
    /// The address from which it sends blocks. Clients name it so.
    pub(crate) name: String,
    /// Its HTTP address.
    pub(crate) http: String,
}

/// One request at a time and thread; nothing is kept between them.
pub(crate) fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        .max_response_header_size(HEADER_BYTES_MAX)
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        // A proxy is for what is far away.
        .proxy(None)
        .user_agent(concat!("paritas/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// Asks a NameNode, `http://host:port`, for its DataNodes.
pub(crate) fn list(agent: &Agent, namenode: &str) -> Result<Vec<DataNode>, String> {
    let body = get(agent, &format!("{namenode}{LIST}"), LIST_TIMEOUT, LIST_BYTES_MAX)?;
    parse_list(&body)
}

/// Asks a DataNode, host:port, for its counters.
pub(crate) fn counters(agent: &Agent, http: &str) -> Result<Counters, String> {
    let url = format!("http://{http}{COUNTERS}");
    let body = get(agent, &url, COUNTERS_TIMEOUT, COUNTERS_BYTES_MAX)?;
    parse_counters(&body)
}

fn get(agent: &Agent, url: &str, timeout: Duration, bytes_max: u64) -> Result<Vec<u8>, String> {
    let asked = agent.get(url).config().timeout_global(Some(timeout)).build();
    let mut answer = asked.call().map_err(|error| told(&error, timeout))?;
    match answer.status().as_u16() {
        200 => {}
        401 => return Err("it wants a login (status 401): HTTP with SPNEGO is not supported".to_owned()),
        status => return Err(format!("it answers with status {status}")),
    }
    let body = answer.body_mut().with_config().limit(bytes_max).read_to_vec();
    body.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => format!("its answer has more than {bytes_max} bytes"),
        other => told(&other, timeout),
    })
}

/// The same words for the same fault, so that it is logged once.
fn told(error: &ureq::Error, timeout: Duration) -> String {
    match error {
        ureq::Error::Timeout(_) => format!("it has not answered within {} s", timeout.as_secs()),
        ureq::Error::HostNotFound => "its host has no address".to_owned(),
        ureq::Error::Io(error) => format!("it cannot be asked: {error}"),
        other => format!("its answer is no HTTP: {other}"),
    }
}

/// The answer to [`LIST`]: one bean, whose attribute is JSON in a string.
#[derive(Deserialize)]
struct ListAnswer {
    beans: (ListBean,),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListBean {
    live_nodes: String,
}

#[derive(Deserialize)]
struct LiveNode {
    #[serde(rename = "xferaddr")]
    transfer: String,
    #[serde(rename = "infoAddr")]
    http: String,
}

/// The first [`NODES_MAX`] nodes that have addresses.
struct LiveNodes(Vec<DataNode>);

impl<'de> Deserialize<'de> for LiveNodes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(LiveNodesVisitor)
    }
}

struct LiveNodesVisitor;

impl<'de> Visitor<'de> for LiveNodesVisitor {
    type Value = LiveNodes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of DataNodes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LiveNodes, A::Error> {
        let mut nodes = Vec::new();
        while let Some((_, node)) = map.next_entry::<IgnoredAny, LiveNode>()? {
            if nodes.len() < NODES_MAX && is_address(&node.transfer) && is_address(&node.http) {
                nodes.push(DataNode {
                    name: node.transfer,
                    http: node.http,
                });
            }
        }
        Ok(LiveNodes(nodes))
    }
}

fn parse_list(body: &[u8]) -> Result<Vec<DataNode>, String> {
    let wrong = |error: serde_json::Error| format!("its answer does not list DataNodes: {error}");
    let answer: ListAnswer = serde_json::from_slice(body).map_err(wrong)?;
    let nodes: LiveNodes = serde_json::from_str(&answer.beans.0.live_nodes).map_err(wrong)?;
    Ok(nodes.0)
}

#[derive(Deserialize)]
struct CountersAnswer {
    beans: Vec<CountersBean>,
}

/// `BlocksRead` is counted where `BytesRead` and `TotalReadTime` are, and for requests that the client has cut off too.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "PascalCase")]
struct CountersBean {
    bytes_read: Option<i64>,
    total_read_time: Option<i64>,
    blocks_read: Option<i64>,
    /// Blocks that another node took over for the Balancer.
    copy_block_op_num_ops: Option<i64>,
}

fn parse_counters(body: &[u8]) -> Result<Counters, String> {
    let answer: CountersAnswer = serde_json::from_slice(body)
        .map_err(|error| format!("its answer does not have the counters of a DataNode: {error}"))?;
    let [bean] = answer.beans.as_slice() else {
        let count = answer.beans.len();
        return Err(format!("its answer has the counters of {count} DataNodes, not of one"));
    };
    let value = |name: &str, value: Option<i64>| {
        let value = value.and_then(|value| u64::try_from(value).ok());
        value.ok_or_else(|| format!("its answer has no {name}, or a negative one"))
    };
    Ok(Counters {
        requests: value("BlocksRead", bean.blocks_read)?,
        bytes: value("BytesRead", bean.bytes_read)?,
        time_ms: value("TotalReadTime", bean.total_read_time)?,
        copies: value("CopyBlockOpNumOps", Some(bean.copy_block_op_num_ops.unwrap_or(0)))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list_of(nodes: &serde_json::Value) -> Vec<u8> {
        let text = nodes.to_string();
        json!({"beans": [{"name": "Hadoop:service=NameNode,name=NameNodeInfo", "LiveNodes": text}]})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn nodes_have_the_names_that_clients_use() {
        let body = list_of(&json!({
            "d1.example:9866": {"infoAddr": "10.0.0.1:9864", "infoSecureAddr": "10.0.0.1:0",
                "xferaddr": "10.0.0.1:9866",
                "lastContact": 1, "usedSpace": 5},
            // Without HTTP it cannot be asked.
            "d2.example:9866": {"infoAddr": "10.0.0.2:0", "xferaddr": "10.0.0.2:9866"},
            // Another part of a URL is no address.
            "d3.example:9866": {"infoAddr": "10.0.0.3/any?x=:80", "xferaddr": "10.0.0.3:9866"},
        }));
        let expected = DataNode {
            name: "10.0.0.1:9866".to_owned(),
            http: "10.0.0.1:9864".to_owned(),
        };
        assert_eq!(parse_list(&body), Ok(vec![expected]));
    }

    #[test]
    fn a_list_that_is_too_long_is_cut() {
        let node = |n: usize| {
            let (name, http) = (format!("h{n}:1"), format!("h{n}:2"));
            (name.clone(), json!({"infoAddr": http, "xferaddr": name}))
        };
        let nodes: serde_json::Map<String, serde_json::Value> = (0..NODES_MAX + 5).map(node).collect();
        assert_eq!(
            parse_list(&list_of(&nodes.into())).map(|nodes| nodes.len()),
            Ok(NODES_MAX)
        );
    }

    #[test]
    fn answers_that_are_wrong_are_errors() {
        for body in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"beans":[]}"#,
            r#"{"beans":[{}]}"#,
            r#"{"beans":[{},{}]}"#,
            r#"{"beans":[{"LiveNodes":7}]}"#,
            r#"{"beans":[{"LiveNodes":"[]"}]}"#,
            r#"{"beans":[{"LiveNodes":"{\"a\":{}}"}]}"#,
            r#"{"beans":[{"BytesRead":1,"TotalReadTime":1}]}"#,
            r#"{"beans":[{"BytesRead":-1,"TotalReadTime":1,"BlocksRead":1}]}"#,
            r#"{"beans":[{"BytesRead":1.5,"TotalReadTime":1,"BlocksRead":1}]}"#,
            r#"{"beans":[{"BytesRead":99999999999999999999,"TotalReadTime":1,"BlocksRead":1}]}"#,
            r#"{"result":"ERROR"}"#,
            &"[".repeat(100_000),
        ] {
            assert!(parse_list(body.as_bytes()).is_err(), "{body}");
            assert!(parse_counters(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn counters_are_those_of_one_datanode() {
        let bean = r#"{"name":"Hadoop:service=DataNode,name=DataNodeActivity-d1-9866","BytesRead":50,"BlocksRead":3,
            "TotalReadTime":7,"CopyBlockOpNumOps":2,"CopyBlockOpAvgTime":0.5,"tag.SessionId":null}"#;
        let expected = Counters {
            requests: 3,
            bytes: 50,
            time_ms: 7,
            copies: 2,
        };
        let one = format!(r#"{{"beans":[{bean}]}}"#);
        assert_eq!(parse_counters(one.as_bytes()), Ok(expected));
        assert!(parse_counters(format!(r#"{{"beans":[{bean},{bean}]}}"#).as_bytes()).is_err());
    }
}
