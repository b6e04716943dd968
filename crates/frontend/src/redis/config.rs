//! CONFIG: the settings of a node. Some of them can change while the node runs.

use super::connection::is_word;
use crate::router::client::Client;
use paritas_base::DATABASES;
use paritas_protocol::{
    ClassRules, ClientCoding, Context, HotnessSetting, Lists, LogAssist, Out, Port, Shared, check_class_rules,
    check_hotness, check_large_from,
};
use paritas_store::Policy;
use paritas_wire::command::glob::{Case, NAME_PATTERNS_BYTES_MAX, Pattern};
use paritas_wire::resp::{ArgList, encode, errors};

/// The least memory of a node in bytes. Less would leave no space for objects beside the rings and buffers.
const MEMORY_MIN: u64 = 32 << 20;
/// The least limit for clients' buffers in bytes. With less, the longest value of a client would not fit.
const CLIENT_BYTES_MIN: u64 = 1 << 20;
const CLIENTS_MAX: u64 = 1 << 20;

/// A setting that CONFIG SET can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    Policy,
    Memory,
    RebuildRate,
    LogAssist,
    LargeFrom,
    ClassRules,
    Hotness,
    ScrubRate,
    ClientCoding,
    Clients,
    ClientsMemory,
    Query,
    Reply,
}

impl Setting {
    const ALL: [(&'static str, &'static str, Self); 13] = [
        ("client-coding", "client_coding", Self::ClientCoding),
        ("client-query-buffer-limit", "query_max", Self::Query),
        ("large-from", "large_from", Self::LargeFrom),
        ("log-assist", "log_assist", Self::LogAssist),
        ("maxclients", "clients_max", Self::Clients),
        ("maxmemory", "memory", Self::Memory),
        ("maxmemory-clients", "clients_memory", Self::ClientsMemory),
        ("maxmemory-policy", "maxmemory_policy", Self::Policy),
        ("rebuild-rate", "rebuild_rate", Self::RebuildRate),
        ("redundancy-hotness", "redundancy_hotness", Self::Hotness),
        ("redundancy-rules", "redundancy_rules", Self::ClassRules),
        ("reply-max", "reply_max", Self::Reply),
        ("scrub-rate", "scrub_rate", Self::ScrubRate),
    ];

    /// Its value as CONFIG GET shows it.
    fn value(self, shared: &Shared) -> String {
        let clients = &shared.parameters.client_limits;
        match self {
            Self::Policy => shared.parameters.policy.to_string(),
            Self::Memory => shared.maxmemory_bytes.to_string(),
            Self::LogAssist => shared.parameters.log_assist.to_string(),
            Self::ClientCoding => shared.parameters.client_coding.to_string(),
            Self::LargeFrom => shared.small_bytes_max().to_string(),
            Self::ClassRules => shared.parameters.class_rules.to_string(),
            Self::Hotness => HotnessSetting(shared.parameters.hotness).to_string(),
            Self::RebuildRate => shared.parameters.rebuild_rate.unwrap_or(0).to_string(),
            Self::ScrubRate => shared.parameters.scrub_rate.unwrap_or(0).to_string(),
            Self::Clients => clients.clients_max.to_string(),
            Self::ClientsMemory => match clients.bytes_max {
                usize::MAX => "0".to_owned(),
                bytes_max => bytes_max.to_string(),
            },
            Self::Query => clients.query_bytes_max.to_string(),
            Self::Reply => clients.reply_bytes_max.to_string(),
        }
    }

    /// Parses and checks a new value. Returns the reason if the text is not valid for this setting.
    fn read(self, shared: &Shared, lists: &Lists, text: &[u8]) -> Result<Change, String> {
        let text = core::str::from_utf8(text).unwrap_or_default();
        if self == Self::Policy {
            let names = || one_of(&Policy::ALL.map(Policy::name));
            return text.parse().map(Change::Policy).map_err(|_| names());
        }
        if self == Self::LogAssist {
            let names = || one_of(&LogAssist::ALL.map(LogAssist::name));
            return text.parse().map(Change::LogAssist).map_err(|_| names());
        }
        if self == Self::ClientCoding {
            let names = || one_of(&ClientCoding::ALL.map(ClientCoding::name));
            return text.parse().map(Change::ClientCoding).map_err(|_| names());
        }
        if self == Self::ClassRules {
            let rules: ClassRules = text.parse()?;
            check_class_rules(shared.code.scheme(), &rules)?;
            return Ok(Change::ClassRules(rules));
        }
        if self == Self::Hotness {
            let hotness: HotnessSetting = text.parse()?;
            check_hotness(shared.code.scheme(), hotness)?;
            return Ok(Change::Hotness(hotness));
        }
        let number = match self {
            Self::Clients => text.parse().ok(),
            Self::ClientsMemory if text.ends_with('%') => part(text, shared.maxmemory_bytes),
            _ => bytes(text),
        };
        let number = number.ok_or_else(|| match self {
            Self::Clients => "argument couldn't be parsed into an integer".to_owned(),
            _ => "argument must be a memory value".to_owned(),
        })?;
        if self == Self::LargeFrom {
            check_large_from(shared.code.scheme(), shared.cluster.chunk_bytes, number)?;
        }
        // Eviction here cannot free the parity of other nodes' keys. With a smaller limit, all keys of this node would
        // be evicted, and none could be written.
        let parity_bytes = match self {
            Self::Memory if shared.parameters.policy.evicts() => lists.parity_bytes(&shared.arena),
            _ => 0,
        };
        let (least, most) = match self {
            Self::Memory => {
                let most = shared.maxmemory_bytes_max;
                (MEMORY_MIN.max(parity_bytes / 2 * 3).min(most), most)
            }
            Self::Clients => (1, CLIENTS_MAX),
            Self::ClientsMemory if number == 0 => (0, 0),
            Self::Query | Self::Reply | Self::ClientsMemory => (CLIENT_BYTES_MIN, i64::MAX as u64),
            Self::RebuildRate
            | Self::ScrubRate
            | Self::Policy
            | Self::LogAssist
            | Self::ClientCoding
            | Self::LargeFrom
            | Self::ClassRules
            | Self::Hotness => (0, i64::MAX as u64),
        };
        if !(least..=most).contains(&number) {
            let why = match self {
                Self::Memory if number > most => ": a node cannot get more memory than at its start".to_owned(),
                Self::Memory if parity_bytes > 0 => format!(": parity takes {parity_bytes} bytes and is not evicted"),
                _ => String::new(),
            };
            return Err(format!("argument must be between {least} and {most} inclusive{why}"));
        }
        Ok(Change::Number(number))
    }

    fn set(self, shared: &mut Shared, lists: &mut Lists, change: Change) {
        let clients = &mut shared.parameters.client_limits;
        match change {
            Change::Policy(policy) => {
                shared.parameters.policy = policy;
                for (_, owner) in lists.owners_mut() {
                    owner.set_policy(policy);
                }
            }
            Change::LogAssist(assist) => shared.parameters.log_assist = assist,
            Change::ClientCoding(coding) => shared.parameters.client_coding = coding,
            Change::ClassRules(rules) => shared.parameters.class_rules = rules,
            Change::Hotness(hotness) => shared.parameters.hotness = hotness.0,
            Change::Number(number) => match self {
                Self::Memory => shared.maxmemory_bytes = number,
                Self::LargeFrom => shared.parameters.large_from = number as usize,
                Self::RebuildRate => shared.set_rebuild_rate(Some(number).filter(|rate| *rate > 0)),
                Self::ScrubRate => shared.set_scrub_rate(Some(number).filter(|rate| *rate > 0)),
                Self::Clients => clients.clients_max = number as usize,
                Self::ClientsMemory => clients.bytes_max = if number == 0 { usize::MAX } else { number as usize },
                Self::Query => clients.query_bytes_max = number as usize,
                Self::Reply => clients.reply_bytes_max = number as usize,
                Self::Policy | Self::LogAssist | Self::ClientCoding | Self::ClassRules | Self::Hotness => {}
            },
        }
    }
}

/// A checked value.
#[derive(Clone, Debug)]
enum Change {
    Policy(Policy),
    LogAssist(LogAssist),
    ClientCoding(ClientCoding),
    ClassRules(ClassRules),
    Hotness(HotnessSetting),
    Number(u64),
}

impl Change {
    /// The value in the form of the node's file.
    fn in_file(&self) -> String {
        match self {
            Self::Policy(policy) => format!("\"{policy}\""),
            Self::LogAssist(assist) => format!("\"{assist}\""),
            Self::ClientCoding(coding) => format!("\"{coding}\""),
            // Escaped as in TOML, which takes the escapes of Rust.
            Self::ClassRules(rules) => format!("{:?}", rules.to_string()),
            Self::Hotness(hotness) => format!("\"{hotness}\""),
            Self::Number(number) => number.to_string(),
        }
    }
}

/// The settings that cannot change while the node runs, as CONFIG GET shows them.
fn fixed<O: Out>(cx: &Context<'_, O>, client: &Client) -> [(&'static str, String); 11] {
    let cluster = if client.port == Port::Cluster { "yes" } else { "no" };
    [
        ("ack-quorum", cx.shared.cluster.ack_quorum.to_string()),
        ("appendonly", "no".to_owned()),
        ("chunk-bytes", cx.shared.cluster.chunk_bytes.to_string()),
        ("cluster-enabled", cluster.to_owned()),
        ("databases", DATABASES.to_string()),
        ("min-redundancy", cx.shared.cluster.min_redundancy.to_string()),
        ("notify-keyspace-events", String::new()),
        ("requirepass", String::new()),
        ("save", String::new()),
        ("scheme", cx.shared.code.scheme().to_string()),
        ("timeout", "0".to_owned()),
    ]
}

/// CONFIG GET pattern [pattern …].
pub(crate) fn config_get<O: Out>(cx: &Context<'_, O>, client: &Client, out: &mut Vec<u8>, args: ArgList<'_>) {
    let mut settings: Vec<(&str, String)> = fixed(cx, client).into();
    settings.extend(Setting::ALL.map(|(name, _, setting)| (name, setting.value(cx.shared))));
    settings.sort();
    // So little that its steps need not be counted.
    let steps = &mut 0;
    // Each name is found once, whatever the number of patterns.
    let mut wanted = vec![false; settings.len()];
    let mut patterns_bytes = 0;
    for text in args.iter().skip(2) {
        // An empty pattern is work too.
        patterns_bytes += text.len().max(1);
        if patterns_bytes > NAME_PATTERNS_BYTES_MAX {
            return encode::error(out, errors::NAME_PATTERNS_TOO_LONG);
        }
        let Some(mut pattern) = Pattern::new(text, Case::Ignored, steps) else {
            return encode::error(out, errors::PATTERN_TOO_LONG);
        };
        for (wanted, (name, _)) in wanted.iter_mut().zip(&settings) {
            *wanted = *wanted || pattern.matches(name.as_bytes(), steps);
        }
    }
    let found = || {
        settings
            .iter()
            .zip(&wanted)
            .filter(|(_, wanted)| **wanted)
            .map(|(setting, _)| setting)
    };
    encode::map_header(out, client.dialect.proto(), found().count());
    for (name, value) in found() {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
}

/// CONFIG SET name value [name value …], for this node. Either all settings are changed or none. A fixed setting may
/// be set to the value that it has. Adds the changed settings to `changed`, in the form of the node's file.
pub(crate) fn config_set<O: Out>(
    cx: &mut Context<'_, O>,
    lists: &mut Lists,
    changed: &mut Vec<(&'static str, String)>,
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
    let fixed = fixed(cx, client);
    let mut changes = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let value = args.arg(at + 1);
        let online = Setting::ALL.iter().find(|(name, ..)| is_word(args, at, name));
        let (name, result) = match (online, fixed.iter().find(|(name, _)| is_word(args, at, name))) {
            (Some((name, key, setting)), _) => {
                let read = setting.read(cx.shared, lists, value);
                (name, read.map(|change| changes.push((*key, *setting, change))))
            }
            (None, Some((name, now))) if now.as_bytes() == value => (name, Ok(())),
            (None, Some((name @ "notify-keyspace-events", _))) => (
                name,
                Err("keyspace notifications are not there yet: only \"\" is taken".to_owned()),
            ),
            (None, Some((name, _))) => (name, Err("can't set immutable config".to_owned())),
            (None, None) => return errors::unknown_option(out, args.arg(at)),
        };
        if let Err(reason) = result {
            let text = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
            return encode::error(out, &text);
        }
    }
    for (key, setting, change) in changes {
        changed.retain(|(changed, _)| *changed != key);
        changed.push((key, change.in_file()));
        setting.set(cx.shared, lists, change);
    }
    encode::ok(out);
}

/// CONFIG SET flip-bit "LIST POSITION KIND NUMBER BIT", where KIND is data, index or unit (of a large value). Only in
/// builds for tests: it simulates a memory error.
#[cfg(feature = "mutants")]
fn flip_bit<O: Out>(cx: &mut Context<'_, O>, lists: &Lists, out: &mut Vec<u8>, what: &[u8]) {
    use paritas_base::{ListId, Position, Stripe};
    let words: Vec<&str> = core::str::from_utf8(what).unwrap_or_default().split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    let (place, chunk) = (number(0).zip(number(1)), number(3).zip(number(4)));
    let flipped = place.zip(chunk).is_some_and(|((list, position), (n, bit))| {
        let list = ListId(u16::try_from(list).unwrap_or(u16::MAX));
        let position = Position(u8::try_from(position).unwrap_or(u8::MAX));
        if words.get(2) == Some(&"unit") {
            let mut parts = lists.get(list).into_iter().flat_map(|list| &list.parts);
            let parts = parts.find(|parts| parts.position() == position);
            let found = parts.and_then(|parts| parts.keeper().kept_units().nth(n as usize));
            return found.is_some_and(|(part, unit)| {
                let arena = &mut cx.shared.arena;
                paritas_protocol::flip_bit_of_unit(arena, lists, (list, position), &part, unit, bit as usize)
            });
        }
        let n = n & Stripe::NUMBER_MAX;
        let is_index = words.get(2) == Some(&"index");
        let stripe = if is_index {
            Stripe::index_page(n)
        } else {
            Stripe::data(n)
        };
        paritas_protocol::flip_bit(&mut cx.shared.arena, lists, (list, position), stripe, bit as usize)
    });
    if flipped {
        encode::ok(out);
    } else {
        encode::error(out, "ERR no such chunk here");
    }
}

/// The error of Redis for a setting with a fixed choice of values.
fn one_of(names: &[&str]) -> String {
    format!("argument(s) must be one of the following: {}", names.join(", "))
}

/// Parses `30%` as a part of `whole`.
fn part(text: &str, whole: u64) -> Option<u64> {
    let percent: u64 = text.strip_suffix('%')?.parse().ok()?;
    (1..=100).contains(&percent).then_some(whole / 100 * percent)
}

/// Parses a size with a binary unit, as in the node's file.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match lower.get(digits.len()..)? {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
