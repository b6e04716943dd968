//! What clients ask the steward: words of a command to typed requests (`docs/formats/files.md`). The words come from
//! the network: every length and number has a limit, and an error names the word that is wrong.

use crate::File;
use crate::geometry::{BLOCK_BYTES, K_MAX, LENGTH_MAX, Layout, SUB_BYTES};
use crate::rates::Sample;
use crate::record::from_hex;
use paritas_base::Span;
use std::ops::RangeInclusive;

/// Most nodes of one file, most bytes of a node's name and of a path.
pub const NODES_MAX: usize = 1 << 16;
/// Most bytes of a node's name.
pub const NODE_BYTES_MAX: usize = 256;
/// Most bytes of a path.
pub const PATH_BYTES_MAX: usize = 4096;
/// Most samples of a report, and most pins of a renewal.
pub const LIST_MAX: usize = 256;
/// Most bytes of the name of a mount.
pub const MOUNT_BYTES_MAX: usize = 64;

/// A request about one mount.
#[derive(Clone, PartialEq, Debug)]
pub enum Request<'a> {
    /// A file is opened for reading.
    Open(Open<'a>),
    /// A worker asks for a file whose parity is to be made ahead of its readers.
    Prefetch,
    /// A worker asks for a file with parity that may be gone.
    Check,
    /// A worker is about to make the parity of this file.
    Make(Open<'a>),
    /// Parity of a file under construction is wanted.
    Room(Room),
    /// A writer of parity has written all of it.
    Commit {
        /// Of the writer.
        pin: u64,
        /// Number of subblocks that it has written.
        subblocks: u64,
        /// Version and length of a file that was under construction.
        written: Option<(u64, u64)>,
    },
    /// A writer gives up, or a reader found the parity damaged.
    Drop {
        /// Of either.
        pin: u64,
    },
    /// A reader has read enough.
    Close {
        /// Of the reader.
        pin: u64,
    },
    /// These pins are still used.
    Renew(Vec<u64>),
    /// What a client measured at nodes.
    Report(Vec<(&'a str, Sample)>),
    /// Something happened to a file.
    Tell(Told, File),
    /// A client wants to read so many bytes more than its readers ask for, because this node is slow.
    Credit {
        /// What it would read.
        bytes: u64,
        /// Whose bytes come too late.
        node: &'a str,
    },
    /// The state is asked for.
    Status,
}

/// A file that is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open<'a> {
    /// Its id.
    pub file: File,
    /// Its version.
    pub version: u64,
    /// Its bytes.
    pub length: u64,
    /// Its layout.
    pub layout: Layout,
    /// Bytes of a cell, if the client said so.
    pub cell_bytes: Option<u64>,
    /// Data units of a stripe.
    pub k: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// For people.
    pub path: &'a str,
    /// Nodes of its units.
    pub nodes: Vec<&'a str>,
}

/// Parity that is wanted for a file under construction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// The file's id.
    pub file: File,
    /// Most parity blocks that it may get.
    pub blocks: u64,
    /// Data units of a stripe.
    pub k: u32,
    /// Its layout.
    pub layout: Layout,
    /// Bytes of a cell, if the client said so.
    pub cell_bytes: Option<u64>,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// What happened to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Its writer has closed it.
    Closed,
    /// It has another name.
    Moved,
    /// It is gone.
    Deleted,
}

/// Whether this may be the name of a mount.
pub fn is_mount_name(name: &str) -> bool {
    (1..=MOUNT_BYTES_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Reads a command: `words` are all of its words. Returns the mount's name and the request; `None` if it is no command
/// of the steward.
///
/// # Errors
/// The text of the reply, without its `ERR`.
pub fn parse<'a>(words: &[&'a [u8]]) -> Option<Result<(&'a str, Request<'a>), String>> {
    let name = str::from_utf8(words.first()?).ok()?.to_ascii_uppercase();
    let command = name.strip_prefix("FILES.")?;
    let usage = match command {
        "OPEN" => "NS ID VERSION LENGTH LAYOUT K BLOCK PATH NODE...",
        "PREFETCH" | "CHECK" => "NS",
        "MAKE" => "NS ID VERSION LENGTH LAYOUT K BLOCK PATH NODE...",
        "ROOM" => "NS ID BLOCKS K LAYOUT BLOCK",
        "DONE" => "NS PIN COMMIT SUBBLOCKS [VERSION LENGTH] | NS PIN DROP | NS PIN CLOSE",
        "RENEW" => "NS PIN...",
        "REPORT" => "NS NODE BYTES NANOS CANCELLED ...",
        "TELL" => "NS closed|moved|deleted ID",
        "CREDIT" => "NS BYTES NODE",
        "STATUS" => "NS",
        _ => return None,
    };
    let mut words = Words {
        rest: words.get(1..).unwrap_or_default(),
    };
    let parsed = words.mount().and_then(|mount| {
        let request = request(command, &mut words)?;
        words.end()?;
        Ok((mount, request))
    });
    Some(parsed.map_err(|why| format!("FILES.{command}: {why}. Use FILES.{command} {usage}")))
}

fn request<'a>(command: &str, words: &mut Words<'_, 'a>) -> Result<Request<'a>, String> {
    match command {
        "OPEN" => open(words).map(Request::Open),
        "PREFETCH" => Ok(Request::Prefetch),
        "CHECK" => Ok(Request::Check),
        "MAKE" => open(words).map(Request::Make),
        "ROOM" => room(words).map(Request::Room),
        "DONE" => done(words),
        "RENEW" => {
            let mut pins = Vec::new();
            while pins.is_empty() || !words.rest.is_empty() {
                if pins.len() == LIST_MAX {
                    return Err(format!("more than {LIST_MAX} pins"));
                }
                pins.push(words.number("PIN", 0..=u64::MAX)?);
            }
            Ok(Request::Renew(pins))
        }
        "REPORT" => report(words).map(Request::Report),
        "TELL" => {
            let told = match words.text("what happened", 16)? {
                "closed" => Told::Closed,
                "moved" => Told::Moved,
                "deleted" => Told::Deleted,
                other => return Err(format!("`{}` is not closed, moved or deleted", shown(other))),
            };
            Ok(Request::Tell(told, words.file()?))
        }
        "CREDIT" => Ok(Request::Credit {
            bytes: words.number("BYTES", 1..=LENGTH_MAX)?,
            node: words.text("NODE", NODE_BYTES_MAX)?,
        }),
        _ => Ok(Request::Status),
    }
}

fn open<'a>(words: &mut Words<'_, 'a>) -> Result<Open<'a>, String> {
    let file = words.file()?;
    let version = words.hex("VERSION")?;
    let length = words.number("LENGTH", 1..=LENGTH_MAX)?;
    let (layout, cell_bytes) = words.layout()?;
    let k = words.k()?;
    let block_bytes = words.number("BLOCK", BLOCK_BYTES)?;
    let path = words.text("PATH", PATH_BYTES_MAX)?;
    let mut nodes = Vec::new();
    while nodes.is_empty() || !words.rest.is_empty() {
        if nodes.len() == NODES_MAX {
            return Err(format!("more than {NODES_MAX} nodes"));
        }
        nodes.push(words.text("NODE", NODE_BYTES_MAX)?);
    }
    Ok(Open {
        file,
        version,
        length,
        layout,
        cell_bytes,
        k,
        block_bytes,
        path,
        nodes,
    })
}

fn room(words: &mut Words<'_, '_>) -> Result<Room, String> {
    let file = words.file()?;
    let blocks = words.number("BLOCKS", 1..=1 << 20)?;
    let k = words.k()?;
    let (layout, cell_bytes) = words.layout()?;
    let block_bytes = words.number("BLOCK", BLOCK_BYTES)?;
    Ok(Room {
        file,
        blocks,
        k,
        layout,
        cell_bytes,
        block_bytes,
    })
}

fn done<'a>(words: &mut Words<'_, 'a>) -> Result<Request<'a>, String> {
    let pin = words.number("PIN", 0..=u64::MAX)?;
    let how = words.text("COMMIT, DROP or CLOSE", 16)?;
    match how.to_ascii_uppercase().as_str() {
        "DROP" => Ok(Request::Drop { pin }),
        "CLOSE" => Ok(Request::Close { pin }),
        "COMMIT" => {
            let subblocks = words.number("SUBBLOCKS", 0..=u64::MAX)?;
            let written = if words.rest.is_empty() {
                None
            } else {
                Some((words.hex("VERSION")?, words.number("LENGTH", 1..=LENGTH_MAX)?))
            };
            Ok(Request::Commit {
                pin,
                subblocks,
                written,
            })
        }
        _ => Err(format!("`{}` is not COMMIT, DROP or CLOSE", shown(how))),
    }
}

fn report<'a>(words: &mut Words<'_, 'a>) -> Result<Vec<(&'a str, Sample)>, String> {
    let mut samples = Vec::new();
    while samples.is_empty() || !words.rest.is_empty() {
        if samples.len() == LIST_MAX {
            return Err(format!("more than {LIST_MAX} samples"));
        }
        let node = words.text("NODE", NODE_BYTES_MAX)?;
        let bytes = words.number("BYTES", 0..=u64::MAX)?;
        let time = Span(words.number("NANOS", 0..=u64::MAX)?);
        let cancelled = words.number("CANCELLED", 0..=1)? == 1;
        samples.push((node, Sample { bytes, time, cancelled }));
    }
    Ok(samples)
}

/// The words that are not read yet.
struct Words<'w, 'a> {
    rest: &'w [&'a [u8]],
}

impl<'a> Words<'_, 'a> {
    fn text(&mut self, what: &str, bytes_max: usize) -> Result<&'a str, String> {
        let (word, rest) = self.rest.split_first().ok_or_else(|| format!("{what} is missing"))?;
        self.rest = rest;
        if word.is_empty() || word.len() > bytes_max {
            return Err(format!("{what} has {} bytes, 1 to {bytes_max} are allowed", word.len()));
        }
        str::from_utf8(word).map_err(|_| format!("{what} is not UTF-8"))
    }

    fn number(&mut self, what: &str, allowed: RangeInclusive<u64>) -> Result<u64, String> {
        let text = self.text(what, 32)?;
        let number: Option<u64> = text
            .parse()
            .ok()
            .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let (low, high) = (allowed.start(), allowed.end());
        let number = number.filter(|number| allowed.contains(number));
        number.ok_or_else(|| format!("{what} is `{}`, it must be {low} to {high}", shown(text)))
    }

    fn hex(&mut self, what: &str) -> Result<u64, String> {
        let text = self.text(what, 32)?;
        from_hex(text).ok_or_else(|| format!("{what} is `{}`, it must be 16 hex digits", shown(text)))
    }

    fn mount(&mut self) -> Result<&'a str, String> {
        let name = self.text("NS", MOUNT_BYTES_MAX)?;
        let good = is_mount_name(name).then_some(name);
        good.ok_or_else(|| format!("NS is `{}`, it has letters, digits, `-`, `_` and `.` only", shown(name)))
    }

    fn file(&mut self) -> Result<File, String> {
        self.number("ID", 1..=i64::MAX as u64)
    }

    fn k(&mut self) -> Result<u32, String> {
        Ok(self.number("K", 1..=u64::from(K_MAX))? as u32)
    }

    fn layout(&mut self) -> Result<(Layout, Option<u64>), String> {
        let text = self.text("LAYOUT", 32)?;
        let (name, cell) = match text.split_once(':') {
            Some((name, cell)) => (name, Some(cell)),
            None => (text, None),
        };
        let wrong = || {
            let text = shown(text);
            format!("LAYOUT is `{text}`, it must be contiguous, striped, or striped:CELL with the bytes of a cell")
        };
        let layout: Layout = name.parse().map_err(|()| wrong())?;
        match cell {
            None => Ok((layout, None)),
            Some(cell) if layout == Layout::Striped => {
                let bytes = cell.parse().ok().filter(|bytes| SUB_BYTES.contains(bytes));
                Ok((layout, Some(bytes.ok_or_else(wrong)?)))
            }
            Some(_) => Err(wrong()),
        }
    }

    fn end(&self) -> Result<(), String> {
        match self.rest {
            [] => Ok(()),
            more => Err(format!("{} words too many", more.len())),
        }
    }
}

/// A word of a client as part of an error: nothing that could break a line of the protocol.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(line: &str) -> Result<(&str, Request<'_>), String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        parse(&words).unwrap()
    }

    #[test]
    fn every_request_is_read() {
        let (mount, open) = parsed("files.open lake 16387 00000000000000ff 7 contiguous 4 65536 /a a:1 b:1").unwrap();
        let Request::Open(open) = open else { panic!("{open:?}") };
        assert_eq!(
            (mount, open.file, open.version, open.nodes),
            ("lake", 16387, 255, vec!["a:1", "b:1"])
        );
        let (_, room) = parsed("FILES.ROOM lake 5 9 6 striped:65536 134217728").unwrap();
        assert!(matches!(
            room,
            Request::Room(Room {
                blocks: 9,
                k: 6,
                cell_bytes: Some(65536),
                ..
            })
        ));
        for (line, request) in [
            ("FILES.DONE m 7 DROP", Request::Drop { pin: 7 }),
            ("FILES.DONE m 7 close", Request::Close { pin: 7 }),
            ("FILES.RENEW m 7 8", Request::Renew(vec![7, 8])),
            ("FILES.TELL m deleted 3", Request::Tell(Told::Deleted, 3)),
            ("FILES.CHECK m", Request::Check),
            ("FILES.CREDIT m 9 a:1", Request::Credit { bytes: 9, node: "a:1" }),
            ("FILES.STATUS m", Request::Status),
            (
                "FILES.DONE m 7 COMMIT 16",
                Request::Commit {
                    pin: 7,
                    subblocks: 16,
                    written: None,
                },
            ),
            (
                "FILES.DONE m 7 COMMIT 16 0000000000000001 99",
                Request::Commit {
                    pin: 7,
                    subblocks: 16,
                    written: Some((1, 99)),
                },
            ),
        ] {
            assert_eq!(parsed(line), Ok(("m", request)));
        }
        let sample = Sample {
            bytes: 4096,
            time: Span(17),
            cancelled: true,
        };
        assert_eq!(
            parsed("FILES.REPORT m a:1 4096 17 1"),
            Ok(("m", Request::Report(vec![("a:1", sample)])))
        );
    }

    #[test]
    fn an_error_names_the_word_and_says_what_to_write() {
        for (line, what) in [
            ("FILES.OPEN", "NS is missing"),
            ("FILES.OPEN a:b", "NS is `a:b`"),
            ("FILES.OPEN {x}", "NS is `{x}`"),
            ("FILES.OPEN m 0", "ID is `0`"),
            ("FILES.OPEN m -1", "ID is `-1`"),
            ("FILES.OPEN m +1", "ID is `+1`"),
            ("FILES.OPEN m 1 xyz", "VERSION is `xyz`"),
            ("FILES.OPEN m 1 0000000000000001 0", "LENGTH is `0`"),
            ("FILES.OPEN m 1 0000000000000001 1 round", "LAYOUT is `round`"),
            ("FILES.OPEN m 1 0000000000000001 1 contiguous:65536", "LAYOUT is"),
            ("FILES.OPEN m 1 0000000000000001 1 striped:1", "LAYOUT is"),
            ("FILES.OPEN m 1 0000000000000001 1 striped 129", "K is `129`"),
            ("FILES.OPEN m 1 0000000000000001 1 striped 6 9", "BLOCK is `9`"),
            ("FILES.OPEN m 1 0000000000000001 1 striped 6 65536", "PATH is missing"),
            (
                "FILES.OPEN m 1 0000000000000001 1 striped 6 65536 /a",
                "NODE is missing",
            ),
            ("FILES.DONE m 1 MAYBE", "`MAYBE` is not COMMIT"),
            ("FILES.DONE m 1 COMMIT", "SUBBLOCKS is missing"),
            ("FILES.DONE m 1 DROP now", "1 words too many"),
            ("FILES.RENEW m", "PIN is missing"),
            ("FILES.REPORT m a 1 1 2", "CANCELLED is `2`"),
            ("FILES.REPORT m a 1", "NANOS is missing"),
            ("FILES.TELL m burnt 1", "`burnt` is not closed"),
            ("FILES.CREDIT m 0 a:1", "BYTES is `0`"),
            ("FILES.CREDIT m 1", "NODE is missing"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(
                error.contains(what) && error.contains(". Use FILES."),
                "{line}: {error}"
            );
        }
        assert!(parse(&[b"GET", b"x"]).is_none());
        assert!(parse(&[b"FILES.EAT", b"x"]).is_none());
        assert!(parse(&[]).is_none());
    }

    #[test]
    fn lists_have_limits() {
        let mut words: Vec<&[u8]> = vec![b"FILES.RENEW", b"m"];
        words.extend([b"7" as &[u8]; LIST_MAX]);
        assert!(parse(&words).unwrap().is_ok());
        words.push(b"7");
        assert!(parse(&words).unwrap().is_err());
        let long = vec![b'x'; NODE_BYTES_MAX + 1];
        assert!(
            parse(&[b"FILES.REPORT", b"m", &long, b"1", b"1", b"0"])
                .unwrap()
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn no_words_break_it(command in 0usize..8, words in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            "[0-9]{1,20}".prop_map(String::into_bytes),
            Just(b"COMMIT".to_vec()), Just(b"striped".to_vec()), Just(b"0123456789abcdef".to_vec()),
        ], 0..12)) {
            let name = ["OPEN", "ROOM", "DONE", "RENEW", "REPORT", "TELL", "CREDIT", "STATUS"][command];
            let name = format!("FILES.{name}").into_bytes();
            let all: Vec<&[u8]> = [&name[..]].into_iter().chain(words.iter().map(Vec::as_slice)).collect();
            if let Some(Err(text)) = parse(&all) {
                prop_assert!(!text.contains(['\r', '\n']));
            }
        }
    }
}
