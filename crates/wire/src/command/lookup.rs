//! Finds a command by name in a few nanoseconds, with a perfect hash computed at compile time.

use super::table::COMMANDS;
use super::{Command, CommandSpec, flag, reply};
use crate::resp::{ArgList, errors};

const SLOT_BITS: u32 = 11;
/// Marks a slot of the hash table without a command.
const NONE: u8 = u8::MAX;
/// Longest name in bytes that two words hold. Longer ones are looked up without the table.
const NAME_BYTES_MAX: usize = 16;

const _: () = assert!(COMMANDS.len() < NONE as usize);

/// In each byte, the bit that distinguishes lower case from upper case.
const LOWER: u64 = 0x2020_2020_2020_2020;

/// The bytes of a name of 2 to 16 bytes in two words. The reads overlap, so that no length needs a loop.
#[inline(always)]
const fn words(name: &[u8]) -> [u64; 2] {
    if let (Some(a), Some(b)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        [u64::from_le_bytes(*a), u64::from_le_bytes(*b)]
    } else if let (Some(a), Some(b)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        [u32::from_le_bytes(*a) as u64, u32::from_le_bytes(*b) as u64]
    } else if let (Some(a), Some(b)) = (name.first_chunk::<2>(), name.last_chunk::<2>()) {
        [u16::from_le_bytes(*a) as u64, u16::from_le_bytes(*b) as u64]
    } else {
        [0, 0]
    }
}

#[inline(always)]
const fn hash([a, b]: [u64; 2], bytes: usize, seed: u64) -> usize {
    let mixed = (a | LOWER) ^ (b | LOWER).rotate_left(23) ^ bytes as u64;
    (mixed.wrapping_mul(seed) >> (64 - SLOT_BITS)) as usize
}

/// A name in the form in which it is compared: in two words, with the case bit of each letter set.
struct Folded {
    bytes: usize,
    words: [u64; 2],
    /// The case bits of its letters. Setting the bit in other bytes would make 0x0e equal to a full stop.
    messages: [u64; 2],
}

#[expect(clippy::indexing_slicing, reason = "at compile time")]
const fn fold(name: &[u8]) -> Folded {
    let mut messages = [0u8; NAME_BYTES_MAX];
    let mut at = 0;
    while at < name.len() {
        messages[at] = if name[at].is_ascii_lowercase() { 0x20 } else { 0 };
        at += 1;
    }
    let messages = words(messages.split_at(name.len()).0);
    Folded {
        bytes: name.len(),
        words: words(name),
        messages,
    }
}

#[expect(clippy::indexing_slicing, reason = "at compile time")]
static FOLDED: [Folded; COMMANDS.len()] = {
    let mut folded = [const { fold(b"") }; COMMANDS.len()];
    let mut index = 0;
    while index < COMMANDS.len() {
        let name = COMMANDS[index].name.as_bytes();
        if name.len() <= NAME_BYTES_MAX {
            folded[index] = fold(name);
        }
        index += 1;
    }
    folded
};

type Slots = [u8; 1 << SLOT_BITS];

/// The hash table for this seed; `None` if two names collide.
#[expect(clippy::indexing_slicing, reason = "at compile time")]
const fn fill(seed: u64) -> Option<Slots> {
    let mut slots = [NONE; 1 << SLOT_BITS];
    let mut index = 0;
    while index < COMMANDS.len() {
        let name = COMMANDS[index].name.as_bytes();
        assert!(name.len() >= 2);
        if name.len() > NAME_BYTES_MAX {
            index += 1;
            continue;
        }
        let slot = hash(words(name), name.len(), seed);
        if slots[slot] != NONE {
            return None;
        }
        slots[slot] = index as u8;
        index += 1;
    }
    Some(slots)
}

const PERFECT: (u64, Slots) = {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        if let Some(slots) = fill(seed) {
            break (seed, slots);
        }
        seed = seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(2);
    }
};
const SEED: u64 = PERFECT.0;
static SLOTS: Slots = PERFECT.1;

/// A command by its name, in upper or lower case. For subcommands see [`find`] and [`resolve`].
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    if name.len() > NAME_BYTES_MAX {
        return lookup_long(name);
    }
    let words = words(name);
    let index = usize::from(*SLOTS.get(hash(words, name.len(), SEED))?);
    let known = FOLDED.get(index)?;
    let [a, b] = words;
    let [messages_a, messages_b] = known.messages;
    let same = name.len() == known.bytes && [a | messages_a, b | messages_b] == known.words;
    if same { COMMANDS.get(index) } else { None }
}

#[cold]
fn lookup_long(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS
        .iter()
        .find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

/// A command or subcommand that clients may give, by its full name: `get`, `config|get`.
pub fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    match name.iter().position(|&byte| byte == b'|') {
        None => lookup(name).filter(|spec| !spec.is(flag::INTERNAL)),
        Some(bar) => subcommand(lookup(name.get(..bar)?)?, name.get(bar + 1..)?),
    }
}

fn subcommand(container: &'static CommandSpec, name: &[u8]) -> Option<&'static CommandSpec> {
    container
        .subcommands
        .iter()
        .find(|s| s.last_name().as_bytes().eq_ignore_ascii_case(name))
}

/// The row of each id.
#[expect(clippy::indexing_slicing, reason = "at compile time")]
static BY_ID: [&CommandSpec; Command::COUNT] = {
    let mut specs = [&COMMANDS[0]; Command::COUNT];
    let mut index = 0;
    while index < COMMANDS.len() {
        let (spec, mut nested) = (&COMMANDS[index], 0);
        specs[spec.id as usize] = spec;
        while nested < spec.subcommands.len() {
            specs[spec.subcommands[nested].id as usize] = &spec.subcommands[nested];
            nested += 1;
        }
        index += 1;
    }
    specs
};

#[inline]
#[expect(clippy::indexing_slicing, reason = "ids are below their count")]
pub(super) fn spec(id: Command) -> &'static CommandSpec {
    BY_ID[id as usize]
}

/// Why a command cannot run. Nothing has been done.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// The command is not in the table.
    UnknownCommand,
    /// The container command is in the table, its subcommand is not.
    UnknownSubcommand(&'static CommandSpec),
    /// Too few or too many arguments.
    WrongArity(&'static CommandSpec),
}

impl Refusal {
    /// Appends the whole reply, in the exact words of Redis.
    pub fn append_to(&self, out: &mut Vec<u8>, args: ArgList<'_>) {
        match self {
            Self::UnknownCommand => errors::unknown_command(out, args),
            Self::UnknownSubcommand(container) if is_help(args) => reply::help(out, container),
            Self::UnknownSubcommand(container) => {
                errors::unknown_subcommand(out, container.name, args.arg(1));
            }
            Self::WrongArity(spec) if spec.id == Command::Exec => errors::exec_arity(out),
            Self::WrongArity(spec) => errors::wrong_arity(out, spec.name),
        }
    }
}

/// Whether this is HELP of a command with subcommands. It is no row of the table.
fn is_help(args: ArgList<'_>) -> bool {
    args.len() == 2 && args.arg(1).eq_ignore_ascii_case(b"help")
}

impl Refusal {
    /// Whether it is one: HELP is answered in its place.
    pub fn is_error(&self, args: ArgList<'_>) -> bool {
        !(matches!(self, Self::UnknownSubcommand(_)) && is_help(args))
    }
}

/// The command or subcommand that these arguments name, if it accepts this number of arguments.
#[inline]
pub fn resolve(args: ArgList<'_>) -> Result<&'static CommandSpec, Refusal> {
    let Some(mut spec) = lookup(args.arg(0)) else {
        return Err(Refusal::UnknownCommand);
    };
    if !spec.subcommands.is_empty()
        && let Some(name) = args.get(1)
    {
        spec = subcommand(spec, name).ok_or(Refusal::UnknownSubcommand(spec))?;
    }
    if spec.arity_allows(args.len()) {
        Ok(spec)
    } else {
        Err(Refusal::WrongArity(spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case_and_every_id_has_its_line() {
        for spec in COMMANDS {
            for name in [spec.name.to_owned(), spec.name.to_ascii_uppercase()] {
                assert_eq!(lookup(name.as_bytes()).map(|s| s.id), Some(spec.id), "{name}");
            }
            for sub in spec.subcommands {
                assert!(sub.name.starts_with(&format!("{}|", spec.name)));
                assert_eq!(find(sub.name.to_uppercase().as_bytes()).map(|s| s.id), Some(sub.id));
            }
        }
        for id in Command::ALL {
            assert_eq!(id.spec().id, *id);
        }
    }

    #[test]
    fn other_names_are_not_found() {
        let others: [&[u8]; 9] = [
            b"",
            b"g",
            b"ge",
            b"gett",
            b"lpush",
            b"paritas\x0estatus",
            b"config|get",
            b"\xff\xff\xff",
            b"a name longer than sixteen bytes",
        ];
        for name in others {
            assert!(lookup(name).is_none(), "{name:?}");
        }
        assert!(find(b"config|nope").is_none());
        assert!(find(b"get|get").is_none());
        assert!(find(b"|").is_none());
    }
}
