//! Replies of COMMAND and its subcommands, made from the table in the format of Redis 7.

use super::glob::{Case, NAME_PATTERNS_BYTES_MAX, Pattern};
use super::{CommandSpec, find, flag, keys_of, public};
use crate::resp::encode::{array_header, bulk, error, integer, map_header, null, set_header, simple};
use crate::resp::{ArgList, Proto, errors};

/// The most names that COMMAND INFO and DOCS take: each may make kilobytes of reply. There are fewer commands.
const NAMES_MAX: usize = 1024;

/// Reply of COMMAND: that of COMMAND INFO for every command.
pub fn all(out: &mut Vec<u8>, proto: Proto) {
    array_header(out, public().count());
    for spec in public() {
        one(out, proto, spec);
    }
}

/// Reply of COMMAND COUNT.
pub fn count(out: &mut Vec<u8>) {
    integer(out, public().count() as i64);
}

/// Reply of COMMAND INFO \[name …\]. `args` is the whole command.
pub fn info(out: &mut Vec<u8>, proto: Proto, args: ArgList<'_>) {
    if args.len() <= 2 {
        return all(out, proto);
    }
    if args.len() > NAMES_MAX + 2 {
        return error(out, errors::TOO_MANY_NAMES);
    }
    array_header(out, args.len() - 2);
    for name in args.iter().skip(2) {
        match find(name) {
            Some(spec) => one(out, proto, spec),
            None => null(out, proto),
        }
    }
}

/// Reply of COMMAND DOCS \[name …\]. `args` is the whole command. Unknown names are left out, as in Redis.
pub fn docs(out: &mut Vec<u8>, proto: Proto, args: ArgList<'_>) {
    if args.len() <= 2 {
        return docs_of(out, proto, public());
    }
    if args.len() > NAMES_MAX + 2 {
        return error(out, errors::TOO_MANY_NAMES);
    }
    docs_of(out, proto, args.iter().skip(2).filter_map(find));
}

/// Reply of COMMAND LIST \[FILTERBY MODULE name | ACLCAT category | PATTERN pattern\]. `args` is the whole command.
pub fn list(out: &mut Vec<u8>, args: ArgList<'_>) {
    let nested = || public().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    if args.len() == 2 {
        return names(out, public());
    }
    let (by, what) = (args.arg(3), args.arg(4));
    if args.len() != 5 || !args.arg(2).eq_ignore_ascii_case(b"filterby") {
        error(out, errors::SYNTAX);
    } else if by.eq_ignore_ascii_case(b"module") {
        array_header(out, 0);
    } else if by.eq_ignore_ascii_case(b"aclcat") {
        let has = |s: &&CommandSpec| categories(s).any(|c| c.as_bytes().eq_ignore_ascii_case(what));
        names(out, nested().filter(has));
    } else if by.eq_ignore_ascii_case(b"pattern") {
        // So little that its steps need not be counted.
        let steps = &mut 0;
        let pattern = Pattern::new(what, Case::Ignored, steps).filter(|_| what.len() <= NAME_PATTERNS_BYTES_MAX);
        let Some(mut pattern) = pattern else {
            return error(out, errors::NAME_PATTERNS_TOO_LONG);
        };
        let found: Vec<&CommandSpec> = nested().filter(|s| pattern.matches(s.name.as_bytes(), steps)).collect();
        names(out, found.into_iter());
    } else {
        error(out, errors::SYNTAX);
    }
}

/// Reply of COMMAND GETKEYS command \[argument …\]. `args` is the whole command.
pub fn getkeys(out: &mut Vec<u8>, args: ArgList<'_>) {
    let inner = args.skip(2);
    match keyed(inner) {
        Err(text) => error(out, text),
        Ok(spec) => {
            let indexes = keys_of(spec, inner);
            array_header(out, indexes.len());
            for index in indexes {
                bulk(out, inner.arg(index));
            }
        }
    }
}

/// Reply of COMMAND GETKEYSANDFLAGS command \[argument …\]. `args` is the whole command.
pub fn getkeysandflags(out: &mut Vec<u8>, proto: Proto, args: ArgList<'_>) {
    let inner = args.skip(2);
    match keyed(inner) {
        Err(text) => error(out, text),
        Ok(spec) => {
            let indexes = keys_of(spec, inner);
            array_header(out, indexes.len());
            for (nth, index) in indexes.enumerate() {
                // The last of the table's lists stands for all further keys.
                let access = spec
                    .access
                    .get(nth)
                    .or_else(|| spec.access.last())
                    .copied()
                    .unwrap_or_default();
                array_header(out, 2);
                bulk(out, inner.arg(index));
                words(out, proto, access.split_ascii_whitespace(), "");
            }
        }
    }
}

/// The table's row of a command with keys; else the error.
fn keyed(inner: ArgList<'_>) -> Result<&'static CommandSpec, &'static str> {
    let name = inner.arg(0);
    let spec = match find(name) {
        Some(spec) if !spec.subcommands.is_empty() => inner.get(1).and_then(|sub| find(&[name, b"|", sub].concat())),
        Some(spec) if spec.name.contains('|') => None,
        other => other,
    };
    let spec = spec.ok_or(errors::INVALID_COMMAND)?;
    if !spec.has_keys() && !spec.is(flag::SCRIPT) {
        return Err(errors::NO_KEY_ARGUMENTS);
    }
    match spec.arity_allows(inner.len()) {
        true => Ok(spec),
        false => Err(errors::INVALID_ARGUMENT_COUNT),
    }
}

/// Reply of HELP of a command with subcommands: one line for each.
pub fn help(out: &mut Vec<u8>, container: &CommandSpec) {
    let name = container.name.to_ascii_uppercase();
    array_header(out, container.subcommands.len() + 2);
    simple(out, &format!("{name} <subcommand> [argument ...]. Subcommands:"));
    for sub in container.subcommands {
        simple(
            out,
            &format!("{}: {}", sub.last_name().to_ascii_uppercase(), sub.summary),
        );
    }
    simple(out, "HELP: Prints this text");
}

fn names<'a>(out: &mut Vec<u8>, specs: impl Iterator<Item = &'a CommandSpec> + Clone) {
    array_header(out, specs.clone().count());
    for spec in specs {
        bulk(out, spec.name.as_bytes());
    }
}

fn categories(spec: &CommandSpec) -> impl Iterator<Item = &'static str> + Clone {
    let by_flag = [
        (flag::WRITE, "write"),
        (flag::READONLY, "read"),
        (flag::ADMIN, "admin"),
        (flag::ADMIN, "dangerous"),
    ];
    let flags = spec.flags;
    let speed = if spec.is(flag::FAST) { "fast" } else { "slow" };
    by_flag
        .into_iter()
        .filter_map(move |(flag, name)| (flags & flag != 0).then_some(name))
        .chain([speed])
        .chain(spec.categories.split_ascii_whitespace())
}

/// A set of status words, each with the prefix.
fn words<'a>(out: &mut Vec<u8>, proto: Proto, words: impl Iterator<Item = &'a str> + Clone, prefix: &str) {
    set_header(out, proto, words.clone().count());
    for word in words {
        if prefix.is_empty() {
            simple(out, word);
        } else {
            simple(out, &format!("{prefix}{word}"));
        }
    }
}

fn one(out: &mut Vec<u8>, proto: Proto, spec: &CommandSpec) {
    array_header(out, 10);
    bulk(out, spec.name.as_bytes());
    integer(out, i64::from(spec.arity));
    let flags = flag::NAMES
        .iter()
        .filter(|(flag, _)| spec.is(*flag))
        .map(|(_, name)| *name);
    words(out, proto, flags, "");
    let range = match spec.is(flag::KEY_COUNT) {
        true => [0; 3],
        false => [spec.first_key, spec.last_key, spec.step],
    };
    range.into_iter().for_each(|number| integer(out, i64::from(number)));
    words(out, proto, categories(spec), "@");
    let tips = spec.tips.split_ascii_whitespace();
    set_header(out, proto, tips.clone().count());
    for tip in tips {
        bulk(out, tip.as_bytes());
    }
    set_header(out, proto, spec.access.len());
    for (index, access) in spec.access.iter().enumerate() {
        key_spec(out, proto, spec, index, access);
    }
    array_header(out, spec.subcommands.len());
    for sub in spec.subcommands {
        one(out, proto, sub);
    }
}

/// One key specification. Commands with several have one key in each, next to each other, and in the last one all
/// others if their number is open.
fn key_spec(out: &mut Vec<u8>, proto: Proto, spec: &CommandSpec, index: usize, access: &str) {
    let is_single = spec.access.len() > 1 && (spec.last_key > 0 || index + 1 < spec.access.len());
    let (last, step) = match (is_single, spec.last_key) {
        (true, _) => (0, 1),
        (false, last @ ..0) => (last, spec.step),
        (false, last) => (last - spec.first_key, spec.step),
    };
    map_header(out, proto, 3);
    bulk(out, b"flags");
    words(out, proto, access.split_ascii_whitespace(), "");
    bulk(out, b"begin_search");
    map_header(out, proto, 2);
    bulk(out, b"type");
    bulk(out, b"index");
    bulk(out, b"spec");
    map_header(out, proto, 1);
    pair(out, "index", i64::from(spec.first_key) + index as i64);
    bulk(out, b"find_keys");
    map_header(out, proto, 2);
    bulk(out, b"type");
    if spec.is(flag::KEY_COUNT) {
        bulk(out, b"keynum");
        bulk(out, b"spec");
        map_header(out, proto, 3);
        pair(out, "keynumidx", 0);
        pair(out, "firstkey", 1);
        return pair(out, "keystep", i64::from(step));
    }
    bulk(out, b"range");
    bulk(out, b"spec");
    map_header(out, proto, 3);
    pair(out, "lastkey", i64::from(last));
    pair(out, "keystep", i64::from(step));
    pair(out, "limit", 0);
}

fn pair(out: &mut Vec<u8>, name: &str, value: i64) {
    bulk(out, name.as_bytes());
    integer(out, value);
}

fn docs_of(out: &mut Vec<u8>, proto: Proto, specs: impl Iterator<Item = &'static CommandSpec> + Clone) {
    map_header(out, proto, specs.clone().count());
    for spec in specs {
        bulk(out, spec.name.as_bytes());
        let nested = !spec.subcommands.is_empty();
        map_header(out, proto, 3 + usize::from(nested));
        for (name, value) in [("summary", spec.summary), ("since", spec.since), ("group", spec.group)] {
            bulk(out, name.as_bytes());
            bulk(out, value.as_bytes());
        }
        if nested {
            bulk(out, b"subcommands");
            docs_of(out, proto, spec.subcommands.iter());
        }
    }
}
