//! `MULTI` is refused, and no command up to its `EXEC` is executed.

use crate::support::{Client, Cluster};
use paritas_protocol::Port;

const UNSUPPORTED: &str = "-ERR unknown command 'MULTI'";

/// Sends all lines at once, as a pipelining client does, and returns the replies.
fn pipeline(cluster: &mut Cluster, client: Client, lines: &[&str]) -> Vec<String> {
    let bytes: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    cluster.feed(client, bytes.as_bytes());
    cluster.pump();
    let replies = String::from_utf8(cluster.take(client)).unwrap();
    replies.split_terminator("\r\n").map(str::to_owned).collect()
}

#[test]
fn nothing_between_a_refused_multi_and_its_exec_is_done() {
    for port in [Port::Any, Port::Cluster] {
        let mut cluster = Cluster::new(1);
        let client = cluster.connect(0, port);
        let replies = pipeline(
            &mut cluster,
            client,
            &["SET n 5", "MULTI", "INCR n", "NO SUCH", "DEL n", "EXEC", "INCR n"],
        );
        assert_eq!(replies.len(), 7, "{replies:?}");
        assert!(replies[1].starts_with(UNSUPPORTED), "{replies:?}");
        for refused in &replies[2..5] {
            assert!(refused.starts_with("-ERR not executed"), "{replies:?}");
        }
        assert!(replies[5].starts_with("-EXECABORT "), "{replies:?}");
        assert_eq!(replies[6], ":6", "after EXEC commands are done again");
    }
}

#[test]
fn discard_and_reset_end_it_and_another_connection_has_no_part_in_it() {
    let mut cluster = Cluster::new(1);
    let (client, other) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Any));
    assert!(cluster.ask(client, "multi").starts_with(UNSUPPORTED));
    assert_eq!(cluster.ask(other, "INCR n"), ":1\r\n");
    assert!(cluster.ask(client, "INCR n").starts_with("-ERR not executed"));
    assert_eq!(cluster.ask(client, "DISCARD"), "+OK\r\n");
    assert_eq!(cluster.ask(client, "INCR n"), ":2\r\n");
    assert!(cluster.ask(client, "MULTI").starts_with(UNSUPPORTED));
    assert_eq!(cluster.ask(client, "RESET"), "+RESET\r\n");
    assert_eq!(cluster.ask(client, "INCR n"), ":3\r\n");
}

#[test]
fn exec_and_discard_need_a_multi_and_a_multi_is_not_nested() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    assert_eq!(cluster.ask(client, "EXEC"), "-ERR EXEC without MULTI\r\n");
    assert_eq!(cluster.ask(client, "DISCARD"), "-ERR DISCARD without MULTI\r\n");
    assert_eq!(
        cluster.ask(client, "MULTI now"),
        "-ERR wrong number of arguments for 'multi' command\r\n"
    );
    assert_eq!(
        cluster.ask(client, "INCR n"),
        ":1\r\n",
        "a MULTI with arguments begins nothing"
    );
    assert!(cluster.ask(client, "MULTI").starts_with(UNSUPPORTED));
    assert_eq!(cluster.ask(client, "MULTI"), "-ERR MULTI calls can not be nested\r\n");
    assert!(cluster.ask(client, "INCR n").starts_with("-ERR not executed"));
    assert!(cluster.ask(client, "EXEC").starts_with("-EXECABORT "));
}
