//! `stats`: figures of this node, under the names that memcached gives them.

use crate::redis::connection::VERSION_OF_MEMCACHED;
use crate::router::Dispatcher;
use core::fmt::{Display, Write};
use paritas_protocol::{Context, Lists, Out, Role};

/// Keys that this node owns.
fn own_keys(lists: &Lists) -> u64 {
    let owner = |role: &Role| match role {
        Role::Owner(owner) => owner.key_count(),
        _ => None,
    };
    lists.roles().filter_map(owner).sum()
}

/// The reply to `stats`, of everything or of one subject.
pub(crate) fn text<O: Out>(router: &Dispatcher, cx: &Context<'_, O>, lists: &Lists, what: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn Display| {
        // Writing to a String cannot fail.
        let _ = write!(text, "STAT {name} {value}\r\n");
    };
    match what {
        b"" => {
            let shared = &cx.shared;
            line("uptime", &(cx.now.mono.0 / 1_000_000_000));
            line("time", &(cx.now.wall_ms / 1000));
            line("version", &VERSION_OF_MEMCACHED.trim_start_matches("VERSION "));
            line("pointer_size", &usize::BITS);
            line("curr_connections", &router.client_count);
            line("total_connections", &router.counters.connections);
            line("get_hits", &shared.keyspace_hits);
            line("get_misses", &shared.keyspace_misses);
            line("curr_items", &own_keys(lists));
            line("limit_maxbytes", &shared.maxmemory_bytes);
            line("threads", &1);
            line("noreply_errors", &router.silenced);
        }
        b"settings" => {
            line("maxbytes", &cx.shared.maxmemory_bytes);
            line("maxconns", &cx.shared.parameters.client_limits.clients_max);
            line("item_size_max", &cx.shared.parameters.item_bytes_max);
            line("cas_enabled", &"yes");
            line("flush_enabled", &"yes");
            line(
                "auth_enabled_ascii",
                &if router.password.is_some() { "yes" } else { "no" },
            );
            line(
                "evictions",
                &if cx.shared.parameters.policy.evicts() {
                    "on"
                } else {
                    "off"
                },
            );
        }
        b"items" => {
            line("items:1:number", &own_keys(lists));
        }
        b"slabs" | b"sizes" | b"conns" => {}
        b"reset" => return b"RESET\r\n".to_vec(),
        _ => return b"ERROR\r\n".to_vec(),
    }
    text.push_str("END\r\n");
    text.into_bytes()
}
