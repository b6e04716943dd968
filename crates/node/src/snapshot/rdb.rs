//! The RDB format of Redis, for strings and libraries of functions only (docs/formats/snapshot.md). Files written by
//! `redis-server` and `valkey-server` can be read here, and they read files written here.

use crc::{Digest, Table};
use paritas_base::DATABASES;
use paritas_wire::rdb::{LIBRARY, OLD_LIBRARY, STRING, SUM, name_of, push_length, unpack};
use std::fmt;
use std::io::{self, BufRead, Write};

/// The version that is written. Redis since 5.0 and every Valkey read it.
const MAGIC: &[u8; 9] = b"REDIS0009";
/// The same with libraries of functions. Redis since 7.0 and every Valkey since 8.0 read it.
const MAGIC_WITH_LIBRARIES: &[u8; 9] = b"REDIS0010";
/// Files since this version end with a checksum.
const SUM_SINCE: u32 = 5;

const SLOT_INFO: u8 = 0xF4;
const MODULE: u8 = 0xF7;
const IDLE: u8 = 0xF8;
const FREQUENCY: u8 = 0xF9;
const FIELD: u8 = 0xFA;
const SIZES: u8 = 0xFB;
const EXPIRY_MS: u8 = 0xFC;
const EXPIRY_S: u8 = 0xFD;
const DATABASE: u8 = 0xFE;
const END: u8 = 0xFF;

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The database of the key, 0 to 15.
    pub database: u8,
    /// The key: any bytes.
    pub key: Vec<u8>,
    /// The value: any bytes.
    pub value: Vec<u8>,
    /// Expiry in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
}

/// Longest key and value that are accepted.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a key.
    pub key_bytes_max: usize,
    /// Most bytes of a value.
    pub value_bytes_max: usize,
    /// Most bytes of the source of a library.
    pub library_bytes_max: usize,
}

/// Why a file cannot be read.
#[derive(Debug)]
pub struct RdbError {
    /// Offset in the file.
    pub offset: u64,
    /// What is wrong.
    pub what: Wrong,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum Wrong {
    /// The system reports an error.
    Io(io::Error),
    /// The file ends too early.
    Short,
    /// The file is of another kind.
    Magic,
    /// The checksum is wrong: the file was changed.
    Sum,
    /// The file contains something that cannot be read.
    Unknown(String),
    /// The file contains something that cannot be stored here, and that [`Reader::skipping`] passes over.
    Unsupported(String),
    /// A key or a value is too long.
    Long {
        /// Which key, or the value of which key.
        what: String,
        /// Its length in bytes.
        bytes: u64,
        /// The largest length in bytes.
        bytes_max: usize,
    },
}

const DATABASES_HERE: &str = "databases 0 to 15 exist here";

const SKIP_HINT: &str = ". `restore --skip` lists what cannot be stored here, and restores the rest";

impl fmt::Display for RdbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Wrong::Io(error) => write!(f, "{error}"),
            Wrong::Short => write!(
                f,
                "it is incomplete, it ends at byte {}: take the snapshot again",
                self.offset
            ),
            Wrong::Magic => f.write_str("it is not a snapshot: RDB files begin with REDIS or VALKEY and a version"),
            Wrong::Sum => write!(
                f,
                "its checksum at byte {} is wrong: the file was changed or damaged",
                self.offset
            ),
            Wrong::Unknown(what) => write!(f, "at byte {}: {what}", self.offset),
            Wrong::Unsupported(what) => write!(f, "at byte {}: {what}{SKIP_HINT}", self.offset),
            Wrong::Long { what, bytes, bytes_max } => write!(
                f,
                "at byte {}: {what} has {bytes} bytes, at most {bytes_max} are allowed{SKIP_HINT}",
                self.offset
            ),
        }
    }
}

impl std::error::Error for RdbError {}

/// Writes a file of keys.
pub struct Writer<W> {
    out: W,
    sum: Digest<'static, u64, Table<16>>,
    /// That of the last key.
    database: u8,
}

impl<W: Write> Writer<W> {
    /// Writes the beginning of the file, and all libraries of functions.
    pub fn new(out: W, libraries: &[Vec<u8>]) -> io::Result<Self> {
        let mut writer = Self {
            out,
            sum: SUM.digest(),
            database: 0,
        };
        writer.put(if libraries.is_empty() {
            MAGIC
        } else {
            MAGIC_WITH_LIBRARIES
        })?;
        writer.put(&[FIELD])?;
        writer.string(b"paritas-ver")?;
        writer.string(env!("CARGO_PKG_VERSION").as_bytes())?;
        for source in libraries {
            writer.put(&[LIBRARY])?;
            writer.string(source)?;
        }
        writer.put(&[DATABASE, 0])?;
        Ok(writer)
    }

    /// Writes one key. The keys of a database come together, and none may be written twice: Redis refuses such a file.
    pub fn push(&mut self, entry: &Entry) -> io::Result<()> {
        if entry.database != self.database {
            self.database = entry.database;
            self.put(&[DATABASE, entry.database])?;
        }
        if let Some(at_ms) = entry.expiry_ms {
            self.put(&[EXPIRY_MS])?;
            self.put(&at_ms.to_le_bytes())?;
        }
        self.put(&[STRING])?;
        self.string(&entry.key)?;
        self.string(&entry.value)
    }

    /// Writes the end of the file. Returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.put(&[END])?;
        let sum = self.sum.finalize();
        self.out.write_all(&sum.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn string(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut length = Vec::new();
        push_length(&mut length, bytes.len());
        self.put(&length)?;
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }
}

/// Bytes of a string that are read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A length, or the number of a special encoding of a string.
enum Length {
    Bytes(u64),
    Encoded(u8),
}

/// Reads a file, key by key.
pub struct Reader<R> {
    input: R,
    limits: Limits,
    offset: u64,
    sum: Digest<'static, u64, Table<16>>,
    version: u32,
    is_valkey: bool,
    /// What cannot be stored here is passed over; otherwise it is an error.
    skips: bool,
    database: u64,
    skipped_modules: u64,
    ended: bool,
}

/// What a file contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A key that can be stored here.
    Key(Entry),
    /// The source of a library of functions.
    Library(Vec<u8>),
    /// Something that cannot, and was passed over: what it is, and why.
    PassedOver(String),
}

impl<R: BufRead> Reader<R> {
    /// Reads the beginning of the file.
    pub fn new(input: R, limits: Limits) -> Result<Self, RdbError> {
        let mut reader = Self {
            input,
            limits,
            offset: 0,
            sum: SUM.digest(),
            version: 0,
            is_valkey: false,
            skips: false,
            database: 0,
            skipped_modules: 0,
            ended: false,
        };
        let magic: [u8; 9] = reader.array().map_err(|error| match error.what {
            Wrong::Short => RdbError {
                offset: 0,
                what: Wrong::Magic,
            },
            _ => error,
        })?;
        let digits = magic.strip_prefix(b"REDIS").or_else(|| magic.strip_prefix(b"VALKEY"));
        let number = digits
            .filter(|digits| digits.iter().all(u8::is_ascii_digit))
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        reader.version = number.ok_or_else(|| reader.wrong(Wrong::Magic))?;
        reader.is_valkey = magic.starts_with(b"VALKEY");
        Ok(reader)
    }

    /// The same, and what cannot be stored here is passed over if `skips`.
    pub fn skipping(self, skips: bool) -> Self {
        Self { skips, ..self }
    }

    /// Number of records of modules that were skipped.
    pub fn skipped_modules(&self) -> u64 {
        self.skipped_modules
    }

    fn refuse(&self, what: &str) -> RdbError {
        self.wrong(Wrong::Unknown(what.into()))
    }

    /// The error for something that cannot be stored here, or that it was passed over if this reader skips. It has been
    /// read already.
    pub fn unsupported(&self, what: String) -> Result<Item, RdbError> {
        match self.skips {
            true => Ok(Item::PassedOver(what)),
            false => Err(self.wrong(Wrong::Unsupported(what))),
        }
    }

    /// The next key, or what was passed over in its place; `None` after the last.
    pub fn next_item(&mut self) -> Result<Option<Item>, RdbError> {
        let mut expiry_ms = None;
        while !self.ended {
            match self.byte()? {
                EXPIRY_MS => expiry_ms = Some(u64::from_le_bytes(self.array()?)),
                EXPIRY_S => expiry_ms = Some(u64::from(u32::from_le_bytes(self.array()?)) * 1_000),
                IDLE => drop(self.plain_length()?),
                FREQUENCY => drop(self.byte()?),
                SIZES => drop((self.plain_length()?, self.plain_length()?)),
                SLOT_INFO => drop((self.plain_length()?, self.plain_length()?, self.plain_length()?)),
                FIELD => {
                    self.skip_string()?;
                    self.skip_string()?;
                }
                DATABASE => {
                    self.database = self.plain_length()?;
                    if self.database >= u64::from(DATABASES) && !self.skips {
                        let what = format!("keys of database {}; {DATABASES_HERE}", self.database);
                        return self.unsupported(what).map(Some);
                    }
                }
                END => self.end()?,
                LIBRARY => {
                    let bytes_max = self.limits.library_bytes_max;
                    return match self.string(bytes_max, || "a library of functions".into())? {
                        Ok(source) => Ok(Some(Item::Library(source))),
                        Err(bytes) => {
                            let what =
                                format!("a library of functions of {bytes} bytes; at most {bytes_max} are allowed");
                            self.unsupported(what).map(Some)
                        }
                    };
                }
                OLD_LIBRARY => {
                    if self.skips {
                        self.skip_old_library()?;
                    }
                    let what = "functions in the form of a preview of Redis 7 (operation 246): give the file to such a \
                                server, and save it with a Redis of 7.0 or later";
                    return self.unsupported(what.into()).map(Some);
                }
                MODULE => {
                    self.plain_length()?;
                    self.skip_module()?;
                    self.skipped_modules += 1;
                }
                kind @ 240.. => return Err(self.refuse(&format!("operation {kind}, of a later version"))),
                kind => return self.key(kind, expiry_ms).map(Some),
            }
        }
        Ok(None)
    }

    /// A key, whose type has been read.
    fn key(&mut self, kind: u8, expiry_ms: Option<u64>) -> Result<Item, RdbError> {
        let key_bytes_max = self.limits.key_bytes_max;
        let key = match self.string(key_bytes_max, || "a key".into())? {
            Ok(key) => key,
            Err(bytes) => {
                self.skip_value(kind)?;
                return self.unsupported(format!("a key of {bytes} bytes; at most {key_bytes_max} are allowed"));
            }
        };
        let name = shown(&key);
        if kind != STRING {
            if self.skips {
                self.skip_value(kind)?;
            }
            return self.unsupported(format!("{name} is {}; only strings are supported here", name_of(kind)));
        }
        let Some(database) = u8::try_from(self.database).ok().filter(|number| *number < DATABASES) else {
            self.skip_string()?;
            return self.unsupported(format!("{name} is in database {}; {DATABASES_HERE}", self.database));
        };
        let value_bytes_max = self.limits.value_bytes_max;
        Ok(match self.string(value_bytes_max, || format!("the value of {name}"))? {
            Ok(value) => Item::Key(Entry {
                database,
                key,
                value,
                expiry_ms,
            }),
            Err(bytes) => self.unsupported(format!(
                "the value of {name} has {bytes} bytes; at most {value_bytes_max} are allowed"
            ))?,
        })
    }

    /// Name, engine, perhaps a description, source.
    fn skip_old_library(&mut self) -> Result<(), RdbError> {
        self.skip_string()?;
        self.skip_string()?;
        if self.plain_length()? > 0 {
            self.skip_string()?;
        }
        self.skip_string()
    }

    fn end(&mut self) -> Result<(), RdbError> {
        self.ended = true;
        if self.version >= SUM_SINCE {
            let found = core::mem::replace(&mut self.sum, SUM.digest()).finalize();
            let told = u64::from_le_bytes(self.array()?);
            // 0: the file was written without a checksum.
            if told != 0 && told != found {
                return Err(self.wrong(Wrong::Sum));
            }
        }
        match self.input.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(self.refuse("bytes after the end: several files in one?")),
            Err(error) => Err(self.wrong(Wrong::Io(error))),
        }
    }

    fn wrong(&self, what: Wrong) -> RdbError {
        RdbError {
            offset: self.offset,
            what,
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RdbError> {
        self.input.read_exact(bytes).map_err(|error| {
            let short = error.kind() == io::ErrorKind::UnexpectedEof;
            self.wrong(if short { Wrong::Short } else { Wrong::Io(error) })
        })?;
        self.sum.update(bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, RdbError> {
        self.array().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<Length, RdbError> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3F);
        Ok(match first {
            0..0x40 => Length::Bytes(low),
            0x40..0x80 => Length::Bytes(low << 8 | u64::from(self.byte()?)),
            0x80 => Length::Bytes(u32::from_be_bytes(self.array()?).into()),
            0x81 => Length::Bytes(u64::from_be_bytes(self.array()?)),
            0x82..0xC0 => return Err(self.refuse(&format!("{first} is not a length"))),
            _ => Length::Encoded(first & 0x3F),
        })
    }

    fn plain_length(&mut self) -> Result<u64, RdbError> {
        match self.length()? {
            Length::Bytes(bytes) => Ok(bytes),
            Length::Encoded(_) => Err(self.refuse("a string instead of a number")),
        }
    }

    /// Reads a string of this length. Memory is taken piece by piece, because the file may be shorter.
    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, RdbError> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let at = bytes.len();
            bytes.resize(length.min(at + PIECE_BYTES), 0);
            self.fill(&mut bytes[at..])?;
        }
        Ok(bytes)
    }

    /// Reads a string of at most `bytes_max` bytes. Memory grows with the bytes read. If this reader skips, it passes
    /// over a longer one and returns its length.
    fn string(&mut self, bytes_max: usize, what: impl Fn() -> String) -> Result<Result<Vec<u8>, u64>, RdbError> {
        let (in_file, bytes, is_packed) = match self.length()? {
            Length::Bytes(bytes) => (bytes, bytes, false),
            Length::Encoded(0) => return Ok(Ok(i8::from_le_bytes(self.array()?).to_string().into_bytes())),
            Length::Encoded(1) => return Ok(Ok(i16::from_le_bytes(self.array()?).to_string().into_bytes())),
            Length::Encoded(2) => return Ok(Ok(i32::from_le_bytes(self.array()?).to_string().into_bytes())),
            Length::Encoded(3) => (self.plain_length()?, self.plain_length()?, true),
            Length::Encoded(other) => return Err(self.refuse(&format!("a string in an unknown form, {other}"))),
        };
        // Redis compresses only strings that get shorter.
        let longest = bytes.max(in_file);
        if longest > bytes_max as u64 {
            if !self.skips {
                return Err(self.wrong(Wrong::Long {
                    what: what(),
                    bytes: longest,
                    bytes_max,
                }));
            }
            self.skip_bytes(in_file)?;
            return Ok(Err(longest));
        }
        let input = self.bytes(in_file as usize)?;
        if !is_packed {
            return Ok(Ok(input));
        }
        let unpacked = unpack(&input, bytes as usize);
        unpacked
            .map(Ok)
            .ok_or_else(|| self.refuse("a compressed string that cannot be unpacked"))
    }

    /// Passes over the value of a key, by its type: those of Redis 8 and Valkey 9, except keys of modules of old
    /// versions, whose length is not in the file.
    fn skip_value(&mut self, kind: u8) -> Result<(), RdbError> {
        match kind {
            STRING | 9..=13 | 16 | 17 | 20 | 23 => self.skip_string(),
            1 | 2 | 14 => self.skip_each(Self::skip_string),
            3 => self.skip_each(|reader| {
                reader.skip_string()?;
                match reader.byte()? {
                    // Infinite, or not a number.
                    253.. => Ok(()),
                    digits => reader.skip_bytes(digits.into()),
                }
            }),
            4 => self.skip_each(Self::skip_pair),
            5 => self.skip_each(|reader| {
                reader.skip_string()?;
                reader.skip_bytes(8)
            }),
            7 => {
                self.plain_length()?;
                self.skip_module()
            }
            18 => self.skip_each(|reader| {
                reader.plain_length()?;
                reader.skip_string()
            }),
            15 | 19 | 21 => self.skip_stream(kind),
            // Valkey: fields with the time at which they expire.
            22 if self.is_valkey => self.skip_each(|reader| {
                reader.skip_pair()?;
                reader.skip_bytes(8)
            }),
            22 | 24 => {
                if kind == 24 {
                    self.skip_bytes(8)?;
                }
                self.skip_each(|reader| {
                    reader.plain_length()?;
                    reader.skip_pair()
                })
            }
            25 => {
                self.skip_bytes(8)?;
                self.skip_string()
            }
            _ => Err(self.refuse(&format!(
                "a value {}, which cannot be passed over: its length is not known",
                name_of(kind)
            ))),
        }
    }

    /// A number, then as many of something.
    fn skip_each(&mut self, mut one: impl FnMut(&mut Self) -> Result<(), RdbError>) -> Result<(), RdbError> {
        (0..self.plain_length()?).try_for_each(|_| one(self))
    }

    fn skip_pair(&mut self) -> Result<(), RdbError> {
        self.skip_string()?;
        self.skip_string()
    }

    fn skip_lengths(&mut self, count: usize) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.plain_length().map(drop))
    }

    fn skip_stream(&mut self, kind: u8) -> Result<(), RdbError> {
        // Bytes of the id of an entry.
        const ID: u64 = 16;
        self.skip_each(Self::skip_pair)?;
        // Length and last id; later also first id, largest deleted id, and the number of entries ever added.
        self.skip_lengths(if kind == 15 { 3 } else { 8 })?;
        self.skip_each(|group| {
            group.skip_string()?;
            // Last id delivered; later also the number of entries read.
            group.skip_lengths(if kind == 15 { 2 } else { 3 })?;
            // Entries that are delivered and not acknowledged: id, time, number of deliveries.
            group.skip_each(|entry| {
                entry.skip_bytes(ID + 8)?;
                entry.skip_lengths(1)
            })?;
            group.skip_each(|consumer| {
                consumer.skip_string()?;
                // When it was seen; later also when it was active.
                consumer.skip_bytes(if kind == 21 { 16 } else { 8 })?;
                consumer.skip_each(|entry| entry.skip_bytes(ID))
            })
        })
    }

    /// Skips what a module has written, such as the definitions of its indexes: values up to an end mark. Its number
    /// has been read.
    fn skip_module(&mut self) -> Result<(), RdbError> {
        loop {
            match self.plain_length()? {
                0 => break,
                1 | 2 => drop(self.plain_length()?),
                3 => drop(self.array::<4>()?),
                4 => drop(self.array::<8>()?),
                5 => self.skip_string()?,
                other => return Err(self.refuse(&format!("data of a module in an unknown form, {other}"))),
            }
        }
        Ok(())
    }

    fn skip_string(&mut self) -> Result<(), RdbError> {
        let bytes = match self.length()? {
            Length::Bytes(bytes) => bytes,
            Length::Encoded(0) => 1,
            Length::Encoded(1) => 2,
            Length::Encoded(2) => 4,
            Length::Encoded(3) => {
                let packed = self.plain_length()?;
                self.plain_length()?;
                packed
            }
            Length::Encoded(other) => return Err(self.refuse(&format!("a string in an unknown form, {other}"))),
        };
        self.skip_bytes(bytes)
    }

    fn skip_bytes(&mut self, bytes: u64) -> Result<(), RdbError> {
        let mut left = bytes;
        let mut piece = [0; 256];
        while left > 0 {
            let now = left.min(piece.len() as u64) as usize;
            self.fill(&mut piece[..now])?;
            left -= now as u64;
        }
        Ok(())
    }
}

/// A key for people: a long one is cut.
pub(super) fn shown(key: &[u8]) -> String {
    const SHOWN_MAX: usize = 100;
    match key.split_at_checked(SHOWN_MAX) {
        Some((start, rest)) if !rest.is_empty() => format!("{}…", start.escape_ascii()),
        _ => key.escape_ascii().to_string(),
    }
}
