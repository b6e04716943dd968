//! Settings files.

use paritas_node::settings::{CoordinatorSettings, NodeSettings};

/// Parses a text as settings. It must be valid, or give an error with its position.
pub(crate) fn files(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    let lines = text.split('\n').count();
    match NodeSettings::parse(text) {
        Ok(settings) => {
            let _ = (settings.listen(), settings.announced_host());
        }
        Err((line, why)) => assert!(
            (1..=lines).contains(&line) && !why.is_empty(),
            "{line} of {lines}: {why}"
        ),
    }
    match CoordinatorSettings::parse(text) {
        Ok(settings) => {
            if let Ok(plan) = paritas_node::coordinator::plan(&settings) {
                assert!(plan.record().slots_are_whole());
            }
        }
        Err((line, why)) => assert!(
            (1..=lines).contains(&line) && !why.is_empty(),
            "{line} of {lines}: {why}"
        ),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [
        "id = 3\nport = 7000\nmemory = \"256mb\"\nrebuild_rate = \"50mb\"\ncoordinator = [\"a:1\", \"b:2\"]\n",
        "bind = \"0.0.0.0\"\nhost = \"h\"\ncluster_port = 1\npeer_port = 65535\nspare = true\nlog = \"debug\"\n",
        "domain = \"rack\"\nclients_max = 3\nquery_max = 64\nreply_max = \"1gb\"\n",
        "listen = \"127.0.0.1:6300\"\nstore = \"s\"\nscheme = \"4+2\"\nnodes = 6\nspares = 1\nchunk = \"16kb\"\n",
        "scheme = \"6+3\"\nchunk = 4096\nmemory = \"2gb\"\nlease_ms = 1\nsuspicion_ms = 1\nrestart_wait_ms = 0\n",
        "min_redundancy = 1\nlog = \"info\"\n# comment\n",
        "id = 1\nport\n",
        "memory = \"999999999999gb\"\nport = 70000\n",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect()
}
