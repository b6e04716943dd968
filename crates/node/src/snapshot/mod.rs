//! Snapshots: every key of a cluster in a file, and back (P16: a restore point, for losses that redundancy does
//! not cover). The snapshot is taken through client commands while the cluster continues, so each key has its value of
//! some moment during that time.

mod cluster;
pub mod rdb;

use crate::connection::Login;
use crate::{ByteCount, Failure};
use cluster::{Cluster, Slots};
use paritas_base::DATABASES;
use paritas_frontend::LIBRARY_BYTES_MAX;
use paritas_protocol::LARGE_VALUE_BYTES_MAX;
use paritas_store::KEY_BYTES_MAX;
use paritas_wire::rdb as rdb_format;
use paritas_wire::resp::Value;
use rdb::{Entry, Item, Limits, RdbError, Reader, Writer, shown};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, BufWriter, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Number of keys that SCAN is asked for at a time, and that are read together.
const SCAN_COUNT: &str = "256";
const KEYS_MAX: usize = 64;
/// Most bytes of the commands that read these keys.
const READ_BYTES_MAX: usize = 64 << 10;
/// Bytes of such a command beside the key.
const COMMAND_BYTES: usize = 48;
/// Most bytes of commands that are sent before their replies are read.
const SENT_BYTES_MAX: usize = 256 << 10;
const SENT_MAX: usize = 256;
/// Interval of progress messages.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Number of times that a key whose expiry changes is read.
const READS_MAX: usize = 8;

/// The latest expiry of a key: 48 bits.
const EXPIRY_MS_MAX: u64 = (1 << 48) - 1;

/// The limits of a snapshot file.
pub const LIMITS: Limits = Limits {
    key_bytes_max: KEY_BYTES_MAX,
    value_bytes_max: LARGE_VALUE_BYTES_MAX,
    library_bytes_max: LIBRARY_BYTES_MAX,
};

/// The progress of a snapshot or a restore.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Number of keys written or set.
    pub keys: u64,
    /// Bytes of keys and values of these.
    pub bytes: u64,
    /// Number of libraries of functions written or restored.
    pub libraries: u64,
    /// Number of keys left out because they have expired.
    pub expired: u64,
    /// Number of existing keys and libraries that were kept.
    pub kept: u64,
    /// Number of records of modules that were left out.
    pub modules: u64,
    /// Number of keys, and of other things, that cannot be stored here.
    pub passed_over: u64,
    /// The coordinator did not say whether slots moved meanwhile. If they did, some of their keys may be missing.
    pub unwatched: bool,
}

impl Count {
    fn add(&mut self, entry: &Entry) {
        self.keys += 1;
        self.bytes += (entry.key.len() + entry.value.len()) as u64;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys, {}", self.keys, ByteCount(self.bytes))?;
        if self.libraries > 0 {
            write!(f, "; libraries of functions: {}", self.libraries)?;
        }
        if self.expired > 0 {
            write!(f, "; {} left out: expired", self.expired)?;
        }
        if self.kept > 0 {
            write!(f, "; {} left as they were", self.kept)?;
        }
        if self.modules > 0 {
            f.write_str("; data of modules left out")?;
        }
        if self.passed_over > 0 {
            write!(
                f,
                "; {} passed over, as listed: cannot be stored here",
                self.passed_over
            )?;
        }
        if self.unwatched {
            f.write_str(
                "; the coordinator did not answer: if slots moved meanwhile, some of their keys may be missing",
            )?;
        }
        Ok(())
    }
}

/// Reports progress at intervals.
struct Teller<'a> {
    next_at: Instant,
    tell: &'a mut dyn FnMut(&Count),
}

impl<'a> Teller<'a> {
    fn new(tell: &'a mut dyn FnMut(&Count)) -> Self {
        let next_at = Instant::now() + TELL_EVERY;
        Self { next_at, tell }
    }

    fn tell(&mut self, count: &Count) {
        if Instant::now() >= self.next_at {
            (self.tell)(count);
            self.next_at = Instant::now() + TELL_EVERY;
        }
    }
}

/// A file that gets its name when it is complete. Until then an existing file of that name stays.
struct Fresh {
    partial: PathBuf,
    path: PathBuf,
}

impl Fresh {
    fn new(path: &Path) -> Self {
        let mut name = OsString::from(path);
        name.push(format!(
            ".{:016x}.partial",
            RandomState::new().hash_one(std::process::id())
        ));
        Self {
            partial: name.into(),
            path: path.to_owned(),
        }
    }

    fn finish(&self, file: &File) -> std::io::Result<()> {
        file.sync_all()?;
        fs::rename(&self.partial, &self.path)?;
        match self.path.parent() {
            Some(directory) if directory != Path::new("") => File::open(directory)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // If all went well, this file no longer exists.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Writes every key of the cluster that `node` belongs to into a file. The file gets its name when it is complete.
///
/// # Errors
/// If a node or the disk fails; the text says which. No incomplete file is left, and an existing file stays.
pub fn take(node: &Login, path: &Path, timeout: Duration, tell: &mut dyn FnMut(&Count)) -> Result<Count, Failure> {
    let failed = |error: std::io::Error| Failure(format!("{}: {error}", path.display()));
    if path.is_dir() {
        return Err(Failure(format!("{} is a directory: name a file in it", path.display())));
    }
    let mut cluster = Cluster::open(node, timeout)?;
    let before = cluster.slots();
    if before.are_moving() {
        return Err(Failure(
            "slots are being moved, and SCAN may miss their keys: wait until the move has ended".into(),
        ));
    }
    let fresh = Fresh::new(path);
    let file = File::create_new(&fresh.partial).map_err(failed)?;
    let libraries = read_libraries(&mut cluster)?;
    let mut writer = Writer::new(BufWriter::new(file), &libraries).map_err(failed)?;
    let (mut count, mut teller) = (Count::default(), Teller::new(tell));
    count.libraries = libraries.len() as u64;
    // SCAN may return a key twice if it moves, and Redis refuses a file with a key twice. Keys are recognised by two
    // hashes of 64 bits, which takes 20 to 60 bytes a key.
    let (one, other) = (RandomState::new(), RandomState::new());
    let mut seen: HashSet<(u64, u64)> = HashSet::new();
    for database in 0..DATABASES {
        cluster.select(database);
        seen.clear();
        let mut cursor = b"0".to_vec();
        loop {
            let (next, mut keys) = scan(&mut cluster, &cursor)?;
            keys.retain(|key| seen.insert((one.hash_one(key), other.hash_one(key))));
            for keys in batches(&keys) {
                for entry in read(&mut cluster, database, keys)? {
                    writer.push(&entry).map_err(failed)?;
                    count.add(&entry);
                }
                teller.tell(&count);
            }
            if next == b"0" {
                break;
            }
            cursor = next;
        }
    }
    let after = cluster.slots();
    if after.moved_since(&before) {
        let why = "slots were moved meanwhile, and some of their keys may be missing: take the snapshot again";
        return Err(Failure(why.into()));
    }
    count.unwatched = [&before, &after].contains(&&Slots::Unknown);
    let file = writer
        .finish()
        .and_then(|out| out.into_inner().map_err(std::io::IntoInnerError::into_error))
        .map_err(failed)?;
    fresh.finish(&file).map_err(failed)?;
    Ok(count)
}

/// The sources of all libraries of functions.
fn read_libraries(cluster: &mut Cluster) -> Result<Vec<Vec<u8>>, Failure> {
    let replies = cluster.ask(&[vec![vec![b"FUNCTION", b"DUMP"]]])?.concat();
    let sources = match replies.as_slice() {
        [Value::Bulk(payload)] => rdb_format::open(payload).and_then(sources),
        _ => None,
    };
    sources.ok_or_else(|| Failure("FUNCTION DUMP got an unexpected answer: is it a node of Paritas?".into()))
}

/// The sources of the libraries in a payload.
fn sources(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut rest, mut sources) = (paritas_base::Reader(body), Vec::new());
    while !rest.0.is_empty() {
        if rest.u8() != Some(rdb_format::LIBRARY) {
            return None;
        }
        sources.push(rdb_format::take_string(&mut rest, LIBRARY_BYTES_MAX)?);
    }
    Some(sources)
}

/// Restores libraries of functions: all of them together, or one after the other if those that are there stay or what
/// cannot be kept is passed over.
fn restore_libraries(
    cluster: &mut Cluster,
    libraries: &[Vec<u8>],
    Manner { keep, skip }: Manner,
    list: &mut dyn FnMut(&str),
    count: &mut Count,
) -> Result<(), Failure> {
    let policy: &[u8] = if keep { b"APPEND" } else { b"REPLACE" };
    let mut restore = |libraries: &[Vec<u8>]| {
        let mut payload = Vec::new();
        for source in libraries {
            rdb_format::push_library(&mut payload, source);
        }
        let payload = rdb_format::seal(payload);
        let command: Vec<&[u8]> = vec![b"FUNCTION", b"RESTORE", &payload, policy];
        cluster.ask(&[vec![command]]).map(drop)
    };
    if !keep {
        match restore(libraries) {
            Ok(()) => {
                count.libraries += libraries.len() as u64;
                return Ok(());
            }
            Err(_) if skip => {}
            Err(Failure(why)) => return Err(Failure(format!("the libraries of functions: {why}"))),
        }
    }
    for source in libraries {
        match restore(core::slice::from_ref(source)) {
            Ok(()) => count.libraries += 1,
            Err(Failure(why)) if keep && is_kept(&why) => count.kept += 1,
            Err(Failure(why)) if skip => {
                let line = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
                list(&format!(
                    "the library of functions that begins with {}: {why}",
                    shown(line)
                ));
                count.passed_over += 1;
            }
            Err(Failure(why)) => return Err(Failure(format!("a library of functions: {why}"))),
        }
    }
    Ok(())
}

/// Whether this error of FUNCTION RESTORE says that a library of this name is there. Of a function's name it says
/// `Function f already exists`: then the library is not there.
fn is_kept(why: &str) -> bool {
    let name = why
        .split_once("Library ")
        .map(|(_, rest)| rest.strip_suffix(" already exists"));
    name.flatten().is_some_and(|name| !name.contains(' '))
}

/// Groups of keys that are read together, small enough for their commands to be sent before a reply is read.
fn batches(keys: &[Vec<u8>]) -> impl Iterator<Item = &[Vec<u8>]> {
    let mut rest = keys;
    core::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |key: &&Vec<u8>| {
            bytes += 3 * (key.len() + COMMAND_BYTES);
            bytes <= READ_BYTES_MAX
        };
        let count = rest.iter().take(KEYS_MAX).take_while(fits).count().max(1);
        let (now, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(now)
    })
}

/// One step of SCAN. Returns the next cursor, and keys.
fn scan(cluster: &mut Cluster, cursor: &[u8]) -> Result<(Vec<u8>, Vec<Vec<u8>>), Failure> {
    let words: [&[u8]; 4] = [b"SCAN", cursor, b"COUNT", SCAN_COUNT.as_bytes()];
    let replies = cluster.ask(&[vec![words.to_vec()]])?.concat();
    let strange = || Failure("SCAN got an unexpected answer: is it a node of Paritas?".into());
    let Some(Value::Array(parts)) = replies.into_iter().next() else {
        return Err(strange());
    };
    let Ok([Value::Bulk(next), Value::Array(keys)]) = <[Value; 2]>::try_from(parts) else {
        return Err(strange());
    };
    let keys: Result<Vec<Vec<u8>>, Failure> = keys
        .into_iter()
        .map(|key| match key {
            Value::Bulk(key) => Ok(key),
            _ => Err(strange()),
        })
        .collect();
    Ok((next, keys?))
}

/// Reads the keys that still exist. Expiry and value need two commands, so the expiry is read before and after the
/// value, and a key whose expiry has changed is read again.
fn read(cluster: &mut Cluster, database: u8, keys: &[Vec<u8>]) -> Result<Vec<Entry>, Failure> {
    let mut found = Vec::with_capacity(keys.len());
    let mut left: Vec<&Vec<u8>> = keys.iter().collect();
    for reads in 1.. {
        let requests: Vec<Vec<Vec<&[u8]>>> = left
            .iter()
            .map(|key| {
                [&b"PEXPIRETIME"[..], b"GET", b"PEXPIRETIME"]
                    .map(|name| vec![name, key.as_slice()])
                    .into()
            })
            .collect();
        let mut again = Vec::new();
        for (key, replies) in left.into_iter().zip(cluster.ask(&requests)?) {
            let strange = || Failure(format!("reading {} got an unexpected answer", key.escape_ascii()));
            let [before, value, after] = <[Value; 3]>::try_from(replies).map_err(|_| strange())?;
            let value = match value {
                Value::Bulk(value) => value,
                Value::Null => continue,
                _ => return Err(strange()),
            };
            let (Value::Integer(before), Value::Integer(after)) = (before, after) else {
                return Err(strange());
            };
            if before != after && reads < READS_MAX {
                again.push(key);
                continue;
            }
            // A key that still changes gets an expiry if it had one before or after.
            match (before.max(after), after) {
                (_, GONE) => {}
                (at_ms, _) => found.push(Entry {
                    database,
                    key: key.clone(),
                    value,
                    expiry_ms: u64::try_from(at_ms).ok(),
                }),
            }
        }
        if again.is_empty() {
            break;
        }
        left = again;
    }
    Ok(found)
}

/// Reply of PEXPIRETIME for a key that does not exist.
const GONE: i64 = -2;

/// How a file is restored.
#[derive(Clone, Copy, Default, Debug)]
pub struct Manner {
    /// Existing keys are kept; otherwise they are overwritten.
    pub keep: bool,
    /// What cannot be stored here is listed and passed over; otherwise the file is refused.
    pub skip: bool,
}

/// Sets every key of a file in the cluster that `node` belongs to. The whole file is checked before anything is set.
/// `list` gets each thing that is passed over.
///
/// # Errors
/// If the file is not a snapshot, is damaged, or has what cannot be stored here; nothing is changed then. If a node
/// fails; the text says how many keys were set. Restoring again does no harm.
pub fn restore(
    node: &Login,
    path: &Path,
    Manner { keep, skip }: Manner,
    timeout: Duration,
    list: &mut dyn FnMut(&str),
    tell: &mut dyn FnMut(&Count),
) -> Result<Count, Failure> {
    let failed = |error: &dyn fmt::Display| Failure(format!("{}: {error}", path.display()));
    let mut file = File::open(path).map_err(|error| failed(&error))?;
    check(&file, skip, list).map_err(|error| failed(&error))?;
    file.rewind().map_err(|error| failed(&error))?;
    let keys = Reader::new(BufReader::new(&file), LIMITS).map_err(|error| failed(&error))?;
    let mut keys = keys.skipping(skip);
    let mut cluster = Cluster::open(node, timeout)?;
    // Learns the other nodes, in case this one fails.
    cluster.slots();
    let (mut count, mut teller) = (Count::default(), Teller::new(tell));
    // The first key of another database than those before it.
    let mut held = None;
    let mut libraries = Vec::new();
    loop {
        let mut batch: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        while batch.len() < SENT_MAX && bytes < SENT_BYTES_MAX {
            let item = match held.take() {
                Some(entry) => Some(Item::Key(entry)),
                None => next(&mut keys).map_err(|error| failed(&error))?,
            };
            let entry = match item {
                None => break,
                Some(Item::Key(entry)) => entry,
                Some(Item::Library(source)) => {
                    libraries.push(source);
                    continue;
                }
                Some(Item::PassedOver(_)) => {
                    count.passed_over += 1;
                    continue;
                }
            };
            if entry.expiry_ms.is_some_and(|at_ms| at_ms <= now_ms()) {
                count.expired += 1;
                continue;
            }
            if batch.first().is_some_and(|first| first.database != entry.database) {
                held = Some(entry);
                break;
            }
            bytes += entry.key.len() + entry.value.len();
            batch.push(entry);
        }
        // They come before all keys.
        if !libraries.is_empty() {
            let libraries = core::mem::take(&mut libraries);
            restore_libraries(&mut cluster, &libraries, Manner { keep, skip }, list, &mut count)?;
        }
        let Some(first) = batch.first() else {
            count.modules = keys.skipped_modules();
            return Ok(count);
        };
        cluster.select(first.database);
        let expiries: Vec<Option<String>> = batch
            .iter()
            .map(|entry| entry.expiry_ms.map(|at_ms| at_ms.to_string()))
            .collect();
        let requests: Vec<Vec<Vec<&[u8]>>> = batch
            .iter()
            .zip(&expiries)
            .map(|(entry, expiry)| {
                let mut words: Vec<&[u8]> = vec![b"SET", &entry.key, &entry.value];
                if let Some(at_ms) = expiry {
                    words.extend([&b"PXAT"[..], at_ms.as_bytes()]);
                }
                if keep {
                    words.push(b"NX");
                }
                vec![words]
            })
            .collect();
        let replies = cluster.ask(&requests).map_err(|Failure(why)| {
            Failure(format!(
                "{why}\nso far: {count}, or a few more; restoring again does no harm"
            ))
        })?;
        for (entry, reply) in batch.iter().zip(replies.concat()) {
            match reply {
                Value::Null => count.kept += 1,
                _ => count.add(entry),
            }
        }
        teller.tell(&count);
    }
}

/// Checks that a whole file can be read and that everything in it can be set, or lists what cannot.
fn check(file: &File, skip: bool, list: &mut dyn FnMut(&str)) -> Result<(), RdbError> {
    let mut reader = Reader::new(BufReader::new(file), LIMITS)?.skipping(skip);
    while let Some(item) = next(&mut reader)? {
        if let Item::PassedOver(what) = item {
            list(&what);
        }
    }
    Ok(())
}

/// The next key that can be stored, or what was passed over.
fn next<R: BufRead>(reader: &mut Reader<R>) -> Result<Option<Item>, RdbError> {
    match reader.next_item()? {
        Some(Item::Key(Entry {
            key,
            expiry_ms: Some(at_ms),
            ..
        })) if at_ms > EXPIRY_MS_MAX => {
            let what = format!(
                "{} expires {at_ms} ms after 1970, the latest time here is {EXPIRY_MS_MAX}",
                shown(&key)
            );
            reader.unsupported(what).map(Some)
        }
        item => Ok(item),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests;
