//! Libraries of functions: all of them together are one value, which this reads, writes and changes
//! (docs/formats/functions.md, docs/scripts.md).

use paritas_base::{Reader, varint};
use paritas_script::{
    FUNCTION_FLAGS, FUNCTIONS_MAX, Function, SOURCE_BYTES_MAX, Sha, digest_of, is_library_name, sha_of,
};
use paritas_wire::resp::errors;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of the value with all libraries.
pub(crate) const LIBRARIES_BYTES_MAX: usize = 1 << 20;
/// The most libraries.
const LIBRARIES_MAX: usize = 4096;

/// Steps of work for a byte of them that is read, or written: about a nanosecond each.
const BYTE_STEPS: u64 = 4;
/// Steps for a library or function.
const NAME_STEPS: u64 = 500;
/// Bytes of memory for a name, beside its own.
const NAME_BYTES: usize = 128;

/// The layout of the value, its first byte.
const LAYOUT: u8 = 1;
/// The bytes at its front that are another value's if anything in it is: the layout and the sum of the rest.
const VERSION_BYTES: usize = 21;

/// What FUNCTION HELP answers.
pub(crate) const FUNCTION_HELP: [&str; 19] = [
    "FUNCTION <subcommand> [<argument> ...]. Subcommands are:",
    "LOAD [REPLACE] <source>",
    "    Keep a library of functions, whose first line is `#!lua name=<name>`.",
    "DELETE <name>",
    "    Delete a library.",
    "LIST [LIBRARYNAME <pattern>] [WITHCODE]",
    "    List libraries and their functions.",
    "STATS",
    "    Count libraries and functions. No function ever runs meanwhile.",
    "KILL",
    "    Answer that no function runs.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all libraries. Both modes do the same.",
    "DUMP",
    "    Tell all libraries in one value.",
    "RESTORE <value> [FLUSH|APPEND|REPLACE]",
    "    Keep the libraries of such a value beside the others, or in place of all, or of those of their names.",
    "HELP",
    "    Tell this.",
];

/// A library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Library {
    pub(crate) name: Vec<u8>,
    pub(crate) source: Arc<[u8]>,
    /// The name of its source.
    pub(crate) sha: Sha,
    pub(crate) functions: Vec<Function>,
}

impl Library {
    pub(crate) fn new(name: Vec<u8>, source: &[u8], functions: Vec<Function>) -> Self {
        Self {
            name,
            source: source.into(),
            sha: sha_of(source),
            functions,
        }
    }

    /// Bytes that it has in the value.
    fn encoded_bytes(&self) -> usize {
        let with_length = |length: usize| varint::bytes(length as u64) + length;
        let functions = self.functions.iter().map(|function| {
            let description = function.description.as_ref().map_or(0, Vec::len);
            with_length(function.name.len()) + 1 + varint::bytes(description as u64 + 1) + description
        });
        let count_bytes = varint::bytes(self.functions.len() as u64);
        with_length(self.name.len()) + with_length(self.source.len()) + count_bytes + functions.sum::<usize>()
    }
}

/// All libraries.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Libraries {
    by_name: BTreeMap<Vec<u8>, Library>,
    /// The library of each function, by its name in lower case.
    of_function: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes of all of them in the value.
    encoded_bytes: usize,
}

/// What becomes of libraries that are there, when others come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// None may have the name of another.
    Append {
        /// It is for FUNCTION LOAD, whose error puts the name between quotation marks.
        is_load: bool,
        /// One that is there with this source already stays. It is for clients that load a library at every node of a
        /// cluster.
        keeps_same: bool,
    },
    /// They take the places of those of their names.
    Replace,
    /// All others go.
    Flush,
}

/// A change of the libraries.
#[derive(Debug)]
pub(crate) enum Change {
    Put(Policy, Libraries),
    /// Whether it is an error if there is none of this name.
    Delete(Vec<u8>, bool),
}

/// The error for a library whose name another one has.
pub(crate) fn taken(name: &[u8], is_load: bool) -> String {
    let quote = if is_load { "'" } else { "" };
    let name = String::from_utf8_lossy(name);
    format!("ERR Library {quote}{name}{quote} already exists")
}

/// The version of the libraries, which is another one for each value: the record in the object of a long value, else
/// the first bytes.
pub(crate) fn version_of<'v>(record: Option<&'v [u8]>, bytes: &'v [u8]) -> &'v [u8] {
    record.unwrap_or_else(|| bytes.get(..VERSION_BYTES).unwrap_or(bytes))
}

impl Change {
    /// All libraries go.
    pub(crate) fn flush() -> Self {
        Self::Put(Policy::Flush, Libraries::default())
    }

    /// Whether nothing of what is there stays.
    pub(crate) const fn replaces_all(&self) -> bool {
        matches!(self, Self::Put(Policy::Flush, _))
    }

    /// Its words between nodes.
    ///
    /// # Errors
    /// The text of an error for the client if libraries are too large or too many.
    pub(crate) fn to_words(&self) -> Result<(&'static [u8], Vec<u8>), String> {
        Ok(match self {
            Self::Delete(name, true) => (b"delete", name.clone()),
            Self::Delete(name, false) => (b"delete-any", name.clone()),
            Self::Put(policy, libraries) => {
                let word: &[u8] = match policy {
                    Policy::Append {
                        is_load: true,
                        keeps_same: true,
                    } => b"load-same",
                    Policy::Append {
                        is_load: true,
                        keeps_same: false,
                    } => b"load",
                    Policy::Append {
                        is_load: false,
                        keeps_same: true,
                    } => b"append-same",
                    Policy::Append {
                        is_load: false,
                        keeps_same: false,
                    } => b"append",
                    Policy::Replace => b"replace",
                    Policy::Flush => b"flush",
                };
                (word, libraries.encode()?)
            }
        })
    }

    /// That of these words.
    pub(crate) fn of_words(word: &[u8], what: &[u8]) -> Option<Self> {
        let policy = match word {
            b"delete" | b"delete-any" => return Some(Self::Delete(what.to_vec(), word == b"delete")),
            b"load" | b"load-same" | b"append" | b"append-same" => Policy::Append {
                is_load: word.starts_with(b"load"),
                keeps_same: word.ends_with(b"same"),
            },
            b"replace" => Policy::Replace,
            b"flush" => Policy::Flush,
            _ => return None,
        };
        Some(Self::Put(policy, Libraries::decode(what)?))
    }
}

impl Libraries {
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Library> {
        self.by_name.values()
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Library> {
        self.by_name.get(name)
    }

    pub(crate) fn function_count(&self) -> usize {
        self.of_function.len()
    }

    /// Steps of reading or writing the value.
    pub(crate) fn steps(&self) -> u64 {
        let names = self.by_name.len() + self.of_function.len();
        self.encoded_bytes as u64 * BYTE_STEPS + names as u64 * NAME_STEPS
    }

    /// Bytes of memory that they hold, about.
    pub(crate) fn held_bytes(&self) -> usize {
        2 * self.encoded_bytes + (self.by_name.len() + self.of_function.len()) * NAME_BYTES
    }

    /// Checks that they are not too large and not too many.
    ///
    /// # Errors
    /// The text of an error for the client.
    pub(crate) fn check_limits(&self) -> Result<(), String> {
        let (count, function_count) = (self.by_name.len(), self.of_function.len());
        let bytes = VERSION_BYTES + self.encoded_bytes;
        if bytes <= LIBRARIES_BYTES_MAX && count <= LIBRARIES_MAX && function_count <= FUNCTIONS_MAX {
            return Ok(());
        }
        Err(format!(
            "ERR all libraries together may have {LIBRARIES_BYTES_MAX} bytes, be {LIBRARIES_MAX}, and have \
             {FUNCTIONS_MAX} functions; with this they have {bytes} bytes, are {count}, and have {function_count} \
             functions: delete some, or make them shorter. Nothing was done"
        ))
    }

    /// The library that has a function, and the function. Case does not matter, as in Redis.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(&Library, &Function)> {
        let library = self.by_name.get(self.of_function.get(&name.to_ascii_lowercase())?)?;
        let is_it = |function: &&Function| function.name.eq_ignore_ascii_case(name);
        Some((library, library.functions.iter().find(is_it)?))
    }

    /// Adds a library.
    ///
    /// # Errors
    /// The text of an error for the client if another one has the name of one of its functions.
    pub(crate) fn insert(&mut self, library: Library) -> Result<(), String> {
        self.remove(&library.name);
        for function in &library.functions {
            if self.of_function.contains_key(&function.name.to_ascii_lowercase()) {
                let name = String::from_utf8_lossy(&function.name);
                return Err(format!("ERR Function {name} already exists"));
            }
        }
        for function in &library.functions {
            let name = function.name.to_ascii_lowercase();
            self.of_function.insert(name, library.name.clone());
        }
        self.encoded_bytes += library.encoded_bytes();
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let removed = self.by_name.remove(name);
        for function in removed.iter().flat_map(|library| &library.functions) {
            self.of_function.remove(&function.name.to_ascii_lowercase());
        }
        self.encoded_bytes -= removed.as_ref().map_or(0, Library::encoded_bytes);
        removed.is_some()
    }

    /// Makes a change.
    ///
    /// # Errors
    /// The text of an error for the client. Then the libraries must not be used any more.
    pub(crate) fn apply(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Delete(name, must_exist) => {
                if !self.remove(&name) && must_exist {
                    return Err(errors::NO_LIBRARY.to_owned());
                }
            }
            Change::Put(policy, libraries) => {
                if policy == Policy::Flush {
                    *self = Self::default();
                }
                let replaces = policy == Policy::Replace;
                let names = libraries.by_name.keys();
                let names: Vec<Vec<u8>> = names.filter(|name| self.by_name.contains_key(*name)).cloned().collect();
                let mut libraries = libraries.by_name;
                for name in names {
                    let is_same =
                        self.by_name.get(&name).map(|old| &old.sha) == libraries.get(&name).map(|new| &new.sha);
                    if replaces {
                        // Before any other comes: it may have had that one's functions.
                        self.remove(&name);
                    } else if is_same && matches!(policy, Policy::Append { keeps_same: true, .. }) {
                        libraries.remove(&name);
                    } else {
                        return Err(taken(&name, matches!(policy, Policy::Append { is_load: true, .. })));
                    }
                }
                libraries.into_values().try_for_each(|library| self.insert(library))?;
            }
        }
        Ok(())
    }

    /// The value with these libraries; empty if there are none.
    ///
    /// # Errors
    /// The text of an error for the client if they are too large or too many.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        self.encode_in(0)
    }

    /// The same, with zeros behind the last one up to this length.
    ///
    /// # Errors
    /// Those of [`Self::encode`].
    pub(crate) fn encode_in(&self, bytes_min: usize) -> Result<Vec<u8>, String> {
        self.check_limits()?;
        if self.by_name.is_empty() {
            return Ok(Vec::new());
        }
        let mut value = Vec::with_capacity(VERSION_BYTES + self.encoded_bytes);
        value.resize(VERSION_BYTES, 0);
        let push = |value: &mut Vec<u8>, bytes: &[u8]| {
            varint::push(value, bytes.len() as u64);
            value.extend_from_slice(bytes);
        };
        for library in self.by_name.values() {
            push(&mut value, &library.name);
            push(&mut value, &library.source);
            varint::push(&mut value, library.functions.len() as u64);
            for function in &library.functions {
                push(&mut value, &function.name);
                value.push(function.flags);
                match &function.description {
                    None => value.push(0),
                    Some(text) => {
                        varint::push(&mut value, text.len() as u64 + 1);
                        value.extend_from_slice(text);
                    }
                }
            }
        }
        value.resize(value.len().max(bytes_min), 0);
        let sum = digest_of(value.get(VERSION_BYTES..).unwrap_or_default());
        let front = [&[LAYOUT][..], &sum].concat();
        value.splice(..VERSION_BYTES, front);
        Ok(value)
    }

    /// Reads such a value. `None`: it is of another layout, or damaged.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut libraries = Self::default();
        if value.is_empty() {
            return Some(libraries);
        }
        let mut rest = Reader(value);
        let (layout, sum) = (rest.u8()?, rest.array::<20>()?);
        if layout != LAYOUT || value.len() > LIBRARIES_BYTES_MAX || digest_of(rest.0) != sum {
            return None;
        }
        fn text<'v>(rest: &mut Reader<'v>) -> Option<&'v [u8]> {
            let length = rest.varint_u32()?;
            rest.bytes(length as usize)
        }
        // Behind the last one are zeros, or nothing: no library has a name of no bytes.
        while rest.0.iter().any(|byte| *byte != 0) {
            let (name, source) = (text(&mut rest)?, text(&mut rest)?);
            let count = rest.varint_u32()? as usize;
            if !is_library_name(name) || source.len() > SOURCE_BYTES_MAX || count > FUNCTIONS_MAX {
                return None;
            }
            let mut functions = Vec::with_capacity(count);
            for _ in 0..count {
                let (name, flags) = (text(&mut rest)?.to_vec(), rest.u8()?);
                if !is_library_name(&name) || flags >> FUNCTION_FLAGS.len() != 0 {
                    return None;
                }
                let description = match rest.varint_u32()?.checked_sub(1) {
                    None => None,
                    Some(length) => Some(rest.bytes(length as usize)?.to_vec()),
                };
                functions.push(Function {
                    name,
                    description,
                    flags,
                });
            }
            let is_last = libraries
                .by_name
                .last_key_value()
                .is_none_or(|(last, _)| last.as_slice() < name);
            if !is_last {
                return None;
            }
            libraries.insert(Library::new(name.to_vec(), source, functions)).ok()?;
        }
        libraries.check_limits().ok()?;
        Some(libraries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPEND: Policy = Policy::Append {
        is_load: false,
        keeps_same: false,
    };
    const SAME: Policy = Policy::Append {
        is_load: true,
        keeps_same: true,
    };

    fn library(name: &str, source: &str, functions: &[(&str, u8, Option<&str>)]) -> Library {
        let functions = functions.iter().map(|(name, flags, description)| Function {
            name: name.as_bytes().to_vec(),
            description: description.map(|text| text.as_bytes().to_vec()),
            flags: *flags,
        });
        Library::new(name.as_bytes().to_vec(), source.as_bytes(), functions.collect())
    }

    fn of(all: &[Library]) -> Libraries {
        let mut libraries = Libraries::default();
        all.iter().for_each(|one| libraries.insert(one.clone()).unwrap());
        libraries
    }

    /// The bytes of docs/formats/functions.md.
    #[test]
    fn golden_bytes_of_the_value() {
        let libraries = of(&[
            library("b", "two", &[]),
            library("a", "one", &[("f", 1, None), ("G", 0, Some("x"))]),
        ]);
        let value = libraries.encode().unwrap();
        let shown: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            shown,
            "01c32b78418fb01843fca0656e4f72f1d415052959\
             0161036f6e6502016601000147000278\
             01620374776f00"
        );
        assert_eq!(Libraries::decode(&value), Some(libraries));
        assert_eq!(Libraries::default().encode().unwrap(), b"");
        assert_eq!(Libraries::decode(b""), Some(Libraries::default()));
    }

    #[test]
    fn damaged_bytes_are_no_libraries() {
        let value = of(&[library("a", "one", &[("f", 1, Some("x"))])]).encode().unwrap();
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert_eq!(Libraries::decode(&changed), None, "byte {at}");
            if at > 0 {
                assert_eq!(Libraries::decode(&value[..at]), None, "{at} bytes");
            }
        }
    }

    #[test]
    fn names_of_functions_are_found_in_any_case_and_are_of_one_library() {
        let mut libraries = of(&[
            library("a", "1", &[("f", 0, None)]),
            library("A", "2", &[("g", 0, None)]),
        ]);
        assert_eq!(libraries.find(b"F").unwrap().0.name, b"a");
        assert_eq!(libraries.find(b"h"), None);
        let other = library("c", "3", &[("G", 0, None)]);
        let put = |policy, library: &Library| Change::Put(policy, of(std::slice::from_ref(library)));
        assert_eq!(
            libraries.clone().apply(put(APPEND, &other)),
            Err("ERR Function G already exists".to_owned())
        );
        assert_eq!(
            libraries.clone().apply(put(APPEND, &library("a", "4", &[]))),
            Err("ERR Library a already exists".to_owned())
        );
        let same = library("a", "1", &[("f", 0, None)]);
        assert_eq!(libraries.clone().apply(put(SAME, &same)), Ok(()));
        assert!(libraries.clone().apply(put(SAME, &library("a", "4", &[]))).is_err());
        // A name may go from one library to another in one change.
        let swapped = of(&[
            library("a", "5", &[("g", 0, None)]),
            library("A", "6", &[("f", 0, None)]),
        ]);
        libraries.apply(Change::Put(Policy::Replace, swapped)).unwrap();
        assert_eq!(libraries.find(b"f").unwrap().0.name, b"A");
        libraries.apply(Change::Delete(b"A".to_vec(), true)).unwrap();
        assert_eq!((libraries.find(b"f"), libraries.function_count()), (None, 1));
        assert!(libraries.clone().apply(Change::Delete(b"A".to_vec(), true)).is_err());
        assert_eq!(libraries.clone().apply(Change::Delete(b"A".to_vec(), false)), Ok(()));
        libraries
            .apply(Change::Put(Policy::Flush, Libraries::default()))
            .unwrap();
        assert_eq!(libraries, Libraries::default());
    }

    #[test]
    fn libraries_have_a_limit() {
        let mut libraries = Libraries::default();
        for n in 0..8 {
            let source = "x".repeat(SOURCE_BYTES_MAX);
            libraries.insert(library(&format!("l{n}"), &source, &[])).unwrap();
        }
        let error = libraries.encode().unwrap_err();
        assert!(error.contains("1048576 bytes"), "{error}");
        let names: Vec<String> = (0..=FUNCTIONS_MAX).map(|n| format!("f{n}")).collect();
        let functions: Vec<_> = names.iter().map(|name| (name.as_str(), 0, None)).collect();
        let (most, one) = functions.split_at(FUNCTIONS_MAX);
        let mut libraries = of(&[library("a", "1", most)]);
        let value = libraries.encode().unwrap();
        assert_eq!(Libraries::decode(&value).as_ref(), Some(&libraries));
        libraries.insert(library("b", "2", one)).unwrap();
        let error = libraries.encode().unwrap_err();
        assert!(error.contains("have 4097 functions"), "{error}");
        libraries.remove(b"b");
        assert_eq!(libraries.encode().unwrap(), value);
    }
}
