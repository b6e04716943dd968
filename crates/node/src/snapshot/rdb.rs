//! The RDB format of Redis, for strings only (docs/formats/snapshot.md). Files written by `redis-server` and
//! `valkey-server` can be read here, and they read files written here.

use crc::{CRC_64_REDIS, Crc, Digest, Table};
use std::fmt;
use std::io::{self, BufRead, Write};

static SUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The version that is written. Redis since 5.0 and every Valkey read it.
const MAGIC: &[u8; 9] = b"REDIS0009";
/// Files since this version end with a checksum.
const SUM_SINCE: u32 = 5;

const STRING: u8 = 0;
const SLOT_INFO: u8 = 0xF4;
const FUNCTIONS: u8 = 0xF5;
const OLD_FUNCTIONS: u8 = 0xF6;
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
    /// The file contains something other than keys and strings.
    Unknown(String),
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
            Wrong::Long { what, bytes, bytes_max } => write!(
                f,
                "at byte {}: {what} has {bytes} bytes, at most {bytes_max} are allowed",
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
}

impl<W: Write> Writer<W> {
    /// Writes the beginning of the file.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, sum: SUM.digest() };
        writer.put(MAGIC)?;
        writer.put(&[FIELD])?;
        writer.string(b"paritas-ver")?;
        writer.string(env!("CARGO_PKG_VERSION").as_bytes())?;
        writer.put(&[DATABASE, 0])?;
        Ok(writer)
    }

    /// Writes one key. No key may be written twice: Redis refuses such a file.
    pub fn push(&mut self, entry: &Entry) -> io::Result<()> {
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
        let length = bytes.len();
        match length {
            0..64 => self.put(&[length as u8])?,
            64..16_384 => self.put(&[0x40 | (length >> 8) as u8, length as u8])?,
            _ => {
                let length = u32::try_from(length).map_err(io::Error::other)?;
                self.put(&[0x80])?;
                self.put(&length.to_be_bytes())?;
            }
        }
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
    skipped_modules: u64,
    ended: bool,
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
        Ok(reader)
    }

    /// Number of records of modules that were skipped.
    pub fn skipped_modules(&self) -> u64 {
        self.skipped_modules
    }

    /// The error for something that cannot be stored here.
    pub fn refuse(&self, what: &str) -> RdbError {
        self.wrong(Wrong::Unknown(what.into()))
    }

    /// The next key; `None` after the last.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, RdbError> {
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
                DATABASE => match self.plain_length()? {
                    0 => {}
                    other => {
                        let what = format!("keys of database {other}; only database 0 exists here");
                        return Err(self.wrong(Wrong::Unknown(what)));
                    }
                },
                END => self.end()?,
                STRING => {
                    let key = self.string(self.limits.key_bytes_max, || "a key".into())?;
                    let of_key = || format!("the value of {}", key.escape_ascii());
                    let value = self.string(self.limits.value_bytes_max, of_key)?;
                    return Ok(Some(Entry { key, value, expiry_ms }));
                }
                FUNCTIONS | OLD_FUNCTIONS => {
                    return Err(
                        self.refuse("functions (scripts), which are not supported here: run FUNCTION FLUSH first")
                    );
                }
                MODULE => self.skip_module()?,
                kind @ 240.. => return Err(self.refuse(&format!("operation {kind}, of a later version"))),
                kind => {
                    let key = self.string(self.limits.key_bytes_max, || "a key".into())?;
                    let key = key.escape_ascii();
                    return Err(self.refuse(&format!("{key} is {}; only strings are supported here", name_of(kind))));
                }
            }
        }
        Ok(None)
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

    /// Reads a string of at most `bytes_max` bytes. Memory grows with the bytes read.
    fn string(&mut self, bytes_max: usize, what: impl Fn() -> String) -> Result<Vec<u8>, RdbError> {
        let bounded = |reader: &Self, bytes: u64| match usize::try_from(bytes) {
            Ok(length) if length <= bytes_max => Ok(length),
            _ => Err(reader.wrong(Wrong::Long {
                what: what(),
                bytes,
                bytes_max,
            })),
        };
        match self.length()? {
            Length::Bytes(bytes) => {
                let length = bounded(self, bytes)?;
                self.bytes(length)
            }
            Length::Encoded(0) => Ok(i8::from_le_bytes(self.array()?).to_string().into_bytes()),
            Length::Encoded(1) => Ok(i16::from_le_bytes(self.array()?).to_string().into_bytes()),
            Length::Encoded(2) => Ok(i32::from_le_bytes(self.array()?).to_string().into_bytes()),
            Length::Encoded(3) => {
                let (packed, bytes) = (self.plain_length()?, self.plain_length()?);
                let length = bounded(self, bytes)?;
                // Redis compresses only strings that get shorter.
                let packed = bounded(self, packed)?;
                let input = self.bytes(packed)?;
                unpack(&input, length).ok_or_else(|| self.refuse("a compressed string that cannot be unpacked"))
            }
            Length::Encoded(other) => Err(self.refuse(&format!("a string in an unknown form, {other}"))),
        }
    }

    /// Skips a record of a module, such as the definitions of its indexes: its number, when it is to be loaded, and
    /// values up to an end mark.
    fn skip_module(&mut self) -> Result<(), RdbError> {
        self.plain_length()?;
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
        self.skipped_modules += 1;
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

fn name_of(kind: u8) -> String {
    match kind {
        1 | 10 | 14 | 18 => "a list".into(),
        2 | 11 | 20 => "a set".into(),
        3 | 5 | 12 | 17 => "a sorted set".into(),
        4 | 9 | 13 | 16 | 22..=25 => "a hash".into(),
        15 | 19 | 21 => "a stream".into(),
        _ => format!("of type {kind}"),
    }
}

/// Decompresses LZF, which Redis uses for long strings: literal bytes, and copies of earlier output.
fn unpack(input: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(length.min(PIECE_BYTES));
    let mut rest = input.iter().copied();
    while let Some(control) = rest.next() {
        if control < 32 {
            let run = usize::from(control) + 1;
            out.extend(rest.by_ref().take(run));
        } else {
            let mut copied = usize::from(control >> 5);
            if copied == 7 {
                copied += usize::from(rest.next()?);
            }
            let back = (usize::from(control & 31) << 8 | usize::from(rest.next()?)) + 1;
            let from = out.len().checked_sub(back)?;
            if out.len() + copied + 2 > length {
                return None;
            }
            // The copy may overlap with its own output.
            for at in from..from + copied + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}
