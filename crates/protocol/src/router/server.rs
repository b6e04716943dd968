//! CONFIG and WAIT.

use super::caller::Client;
use super::connection::is_word;
use crate::context::Context;
use crate::interface::{Out, Port};
use crate::lists::Lists;
use paritas_store::Policy;
use paritas_wire::command::glob;
use paritas_wire::resp::{ArgList, encode, errors, parse_integer};

/// The one setting that can be changed while the node runs.
const POLICY: &str = "maxmemory-policy";

/// The settings that there are, as CONFIG GET tells them.
fn settings<O: Out>(cx: &Context<'_, O>, client: &Client) -> [(&'static str, String); 13] {
    let cluster = if client.port == Port::Cluster { "yes" } else { "no" };
    [
        ("ack-quorum", cx.shared.cluster.ack_quorum.to_string()),
        ("appendonly", "no".to_owned()),
        ("chunk-bytes", cx.shared.cluster.chunk_bytes.to_string()),
        ("cluster-enabled", cluster.to_owned()),
        ("databases", "1".to_owned()),
        ("maxmemory", cx.shared.maxmemory_bytes.to_string()),
        (POLICY, cx.shared.parameters.policy.to_string()),
        ("min-redundancy", cx.shared.cluster.min_redundancy.to_string()),
        ("requirepass", String::new()),
        ("save", String::new()),
        (
            "scheme",
            format!("{}+{}", cx.shared.cluster.data, cx.shared.cluster.parity),
        ),
        (
            "scrub-rate",
            cx.shared.parameters.scrub_rate.unwrap_or_default().to_string(),
        ),
        ("timeout", "0".to_owned()),
    ]
}

/// CONFIG GET pattern [pattern …].
pub(super) fn config_get<O: Out>(cx: &Context<'_, O>, client: &Client, out: &mut Vec<u8>, args: ArgList<'_>) {
    let settings = settings(cx, client);
    let patterns: Vec<Vec<u8>> = args.iter().skip(2).map(<[u8]>::to_ascii_lowercase).collect();
    let wanted = |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
    let found = || settings.iter().filter(|(name, _)| wanted(name));
    encode::map_header(out, client.proto, found().count());
    for (name, value) in found() {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
}

/// CONFIG SET name value [name value …], of this node: all or none. What is so already is fine.
pub(super) fn config_set<O: Out>(
    cx: &mut Context<'_, O>,
    lists: &mut Lists,
    client: &Client,
    out: &mut Vec<u8>,
    args: ArgList<'_>,
) {
    #[cfg(feature = "mutants")]
    if is_word(args, 2, "flip-bit") {
        return flip_bit(cx, lists, out, args.arg(3));
    }
    if !args.len().is_multiple_of(2) {
        return errors::wrong_arity(out, "config|set");
    }
    let settings = settings(cx, client);
    let mut policy = None;
    for at in (2..args.len()).step_by(2) {
        let Some((name, value)) = settings.iter().find(|(name, _)| is_word(args, at, name)) else {
            return errors::unknown_option(out, args.arg(at));
        };
        let reason = if *name == POLICY {
            policy = core::str::from_utf8(args.arg(at + 1))
                .ok()
                .and_then(|text| text.parse::<Policy>().ok());
            policy.is_none().then(policy_names)
        } else {
            (value.as_bytes() != args.arg(at + 1)).then(|| "can't set immutable config".to_owned())
        };
        if let Some(reason) = reason {
            let text = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
            return encode::error(out, &text);
        }
    }
    if let Some(policy) = policy {
        cx.shared.parameters.policy = policy;
        for (_, owner) in lists.owners_mut() {
            owner.store.set_policy(policy);
            owner.progress = true;
        }
    }
    encode::ok(out);
}

/// CONFIG SET flip-bit "LIST POSITION KIND NUMBER BIT", KIND data or index, in builds for tests: memory goes bad.
#[cfg(feature = "mutants")]
fn flip_bit<O: Out>(cx: &mut Context<'_, O>, lists: &Lists, out: &mut Vec<u8>, what: &[u8]) {
    use paritas_base::{ListId, Position, Stripe};
    let words: Vec<&str> = core::str::from_utf8(what).unwrap_or_default().split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    let (place, chunk) = (number(0).zip(number(1)), number(3).zip(number(4)));
    let flipped = place.zip(chunk).is_some_and(|((list, position), (n, bit))| {
        let list = ListId(u16::try_from(list).unwrap_or(u16::MAX));
        let position = Position(u8::try_from(position).unwrap_or(u8::MAX));
        let n = n & Stripe::NUMBER_MAX;
        let is_index = words.get(2) == Some(&"index");
        let stripe = if is_index {
            Stripe::index_page(n)
        } else {
            Stripe::data(n)
        };
        crate::node::scrub::flip_bit(&mut cx.shared.arena, lists, (list, position), stripe, bit as usize)
    });
    if flipped {
        encode::ok(out);
    } else {
        encode::error(out, "ERR no such chunk here");
    }
}

/// As Redis says it.
fn policy_names() -> String {
    let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
    format!("argument(s) must be one of the following: {}", names.join(", "))
}

/// WAIT: a write is answered when every parity member of its list has it, so that nothing is left to wait for. Tells
/// the fewest members that any list has Live.
pub(super) fn wait(lists: &Lists, out: &mut Vec<u8>, args: ArgList<'_>) {
    if parse_integer(args.arg(1)).is_none() {
        return encode::error(out, errors::NOT_AN_INTEGER);
    }
    match parse_integer(args.arg(2)) {
        None => return encode::error(out, errors::TIMEOUT_NOT_AN_INTEGER),
        Some(..0) => return encode::error(out, errors::TIMEOUT_NEGATIVE),
        Some(_) => {}
    }
    let live = lists.iter().map(|list| {
        let live = |state| state == paritas_base::configuration::PositionState::Live;
        list.configuration.members().filter(|(_, a)| live(a.state)).count()
    });
    encode::integer(out, live.min().unwrap_or(0) as i64);
}
