//! A log directory: created, or opened and read (`docs/formats/paritylog.md`, "The directory").

use super::header::{HEADER_BYTES, Header, Owner};
use super::problem::{LogDirectoryError, LogDirectoryProblem as Problem};
use super::recover;
use super::segments::{Scratch, Segments, plan, preallocate};
use crate::entropy;
use paritas_paritylog::{Layout, Recovery, Settings, Space};
use rustix::io::Errno;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Smallest size of a file in bytes. Any file system and any tool can work with files of this size.
const SEGMENT_BYTES_MIN: u64 = 1 << 30;
/// Most files of a space, because each is held open. With a larger space the files are larger.
const SEGMENTS_MAX: u64 = 256;
/// Largest block in bytes. Direct I/O moves several blocks at once.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Suffix of all files of a log, so that no other file is taken for one.
const ENDING: &str = ".paritas";
const HEADER: &str = "header.paritas";
const HEADER_NEW: &str = "header-new.paritas";
const SLOTS: &str = "slots";
const LOG: &str = "log";

/// The files of a log. This process has exclusive use of them while the value exists.
#[derive(Debug)]
pub struct LogDirectory {
    /// Holds the lock on the directory.
    _lock: File,
    log: u32,
    slots: Segments,
    area: Segments,
}

impl LogDirectory {
    /// Opens the log in a directory and reads what an earlier process left, or creates a log if there is none. Calls
    /// `progress` with the number of bytes read so far and the total.
    pub fn open(
        directory: &Path,
        owner: Owner,
        settings: &Settings,
        direct: bool,
        progress: impl FnMut(u64, u64),
    ) -> Result<(Self, Recovery), LogDirectoryError> {
        Self::open_in_segments(directory, owner, settings, direct, None, progress)
    }

    /// As `open`. A new log may have smaller files, for tests.
    pub(super) fn open_in_segments(
        directory: &Path,
        owner: Owner,
        settings: &Settings,
        direct: bool,
        segment_bytes: Option<u64>,
        progress: impl FnMut(u64, u64),
    ) -> Result<(Self, Recovery), LogDirectoryError> {
        Opening {
            directory,
            owner,
            settings,
            direct,
        }
        .open(segment_bytes, progress)
        .map_err(|problem| LogDirectoryError {
            directory: directory.to_owned(),
            problem,
        })
    }

    /// Reads who owns the log in a directory, and the sizes it was made with. `None` if there is no readable log.
    /// Settings that are not sizes are 0.
    pub fn look(directory: &Path) -> Option<(Owner, Settings)> {
        let bytes = fs::read(directory.join(HEADER)).ok()?;
        let others = Settings {
            layout: Layout::Plm,
            chunk_bytes: 0,
            data_max: 0,
            block_bytes: 0,
            reserve_bytes: 0,
            slots_max: 0,
            log_bytes: 0,
            flush_bytes: 0,
            buffer_max_bytes: 0,
        };
        let header = Header::parse(&bytes, &others).ok()?;
        Some((header.owner, header.settings))
    }

    /// A random number drawn when the directory was made.
    pub fn log_number(&self) -> u32 {
        self.log
    }

    pub(super) fn space(&self, space: Space) -> &Segments {
        match space {
            Space::Slots => &self.slots,
            Space::Log => &self.area,
        }
    }

    #[cfg(test)]
    pub(super) fn with_slots(self, slots: Segments) -> Self {
        Self { slots, ..self }
    }
}

fn slots_bytes(settings: &Settings) -> u64 {
    if settings.layout.has_slots() {
        u64::from(settings.slots_max).saturating_mul(settings.slot_bytes() as u64)
    } else {
        0
    }
}

/// Bytes of each file of a new log.
fn segment_bytes_of(settings: &Settings) -> u64 {
    let largest = slots_bytes(settings).max(settings.log_bytes);
    let wanted = largest.div_ceil(SEGMENTS_MAX);
    wanted
        .max(1)
        .checked_next_multiple_of(SEGMENT_BYTES_MIN)
        .unwrap_or(wanted)
}

/// Refuses impossible settings before anything is created from them.
fn check(settings: &Settings) -> Result<(), Problem> {
    let refuse = |what: &str| Err(Problem::Settings(what.to_owned()));
    let block = settings.block_bytes;
    if !block.is_power_of_two() || block > BLOCK_BYTES_MAX {
        return refuse("block_bytes must be a power of two up to 1048576");
    }
    let in_field = |bytes: usize| u32::try_from(bytes).is_ok();
    if settings.chunk_bytes == 0 || !in_field(settings.chunk_bytes) || !in_field(settings.reserve_bytes) {
        return refuse("chunk_bytes must not be 0, and it and reserve_bytes must be less than 4 GiB");
    }
    if settings.data_max == 0 || settings.data_max > usize::from(u8::MAX) {
        return refuse("data_max must be from 1 to 255");
    }
    if settings.layout.appends() && (settings.log_bytes == 0 || !settings.log_bytes.is_multiple_of(block as u64)) {
        return refuse("log_bytes must be a multiple of block_bytes, and not 0");
    }
    if settings.layout.has_slots() && settings.slots_max == 0 {
        return refuse("slots_max must not be 0");
    }
    Ok(())
}

fn refused(error: io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Problem::NotWritable(error),
        io::ErrorKind::NotADirectory => Problem::NotADirectory,
        _ => Problem::Failed("opening it".to_owned(), error),
    }
}

struct Opening<'a> {
    directory: &'a Path,
    owner: Owner,
    settings: &'a Settings,
    direct: bool,
}

impl Opening<'_> {
    fn open(
        &self,
        segment_bytes: Option<u64>,
        progress: impl FnMut(u64, u64),
    ) -> Result<(LogDirectory, Recovery), Problem> {
        check(self.settings)?;
        let segment_bytes = segment_bytes.unwrap_or_else(|| segment_bytes_of(self.settings));
        match fs::create_dir(self.directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // The directory exists, but its file system may be read-only. Opening it then decides.
            Err(_) if self.directory.is_dir() => {}
            Err(error) => return Err(refused(error)),
        }
        if !self.directory.is_dir() {
            return Err(Problem::NotADirectory);
        }
        // The lock is on the directory itself: unlike a lock file, it cannot be removed.
        let lock = File::open(self.directory).map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Problem::InUse),
            Err(TryLockError::Error(error)) => return Err(Problem::Failed("locking it".to_owned(), error)),
        }
        let (header, is_new) = match fs::read(self.directory.join(HEADER)) {
            Ok(bytes) => {
                let header = Header::parse(&bytes, self.settings)?;
                header.check(self.owner, self.settings)?;
                (header, false)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (self.make(&lock, segment_bytes)?, true),
            Err(error) => return Err(refused(error)),
        };
        let opened = self.files(lock, &header).inspect_err(|_| {
            if is_new {
                self.remove_files(&[]);
            }
        })?;
        let mut recovery = Recovery::new(*self.settings, header.log);
        if !is_new {
            recover::read(&opened, self.settings, &mut recovery, progress)
                .map_err(|trouble| Problem::Failed(format!("reading {}", trouble.what()), trouble.error))?;
        }
        Ok((opened, recovery))
    }

    fn plans(&self, segment_bytes: u64) -> [Vec<(PathBuf, u64)>; 2] {
        let area = if self.settings.layout.appends() {
            self.settings.log_bytes
        } else {
            0
        };
        [(SLOTS, slots_bytes(self.settings)), (LOG, area)].map(|(name, bytes)| {
            plan(bytes, segment_bytes, |n| {
                self.directory.join(format!("{name}-{n:05}{ENDING}"))
            })
        })
    }

    /// Reserves all space. The header is written last, so that a log with a header is complete.
    fn make(&self, directory: &File, segment_bytes: u64) -> Result<Header, Problem> {
        let header_new = self.directory.join(HEADER_NEW);
        let mut file = File::create(&header_new).map_err(|error| match error.kind() {
            // Virtual file systems of the kernel report this error.
            io::ErrorKind::NotFound => Problem::NotWritable(error),
            _ => refused(error),
        })?;
        let mut make = || {
            self.set_aside(directory, segment_bytes)?;
            let header = Header {
                owner: self.owner,
                log: draw()?,
                settings: *self.settings,
                segment_bytes,
            };
            file.write_all(&header.encode())
                .and_then(|()| file.sync_all())
                .and_then(|()| fs::rename(&header_new, self.directory.join(HEADER)))
                .and_then(|()| directory.sync_all())
                .map_err(|error| Problem::Failed("writing its header".to_owned(), error))?;
            Ok(header)
        };
        make().inspect_err(|_| self.remove_files(&[]))
    }

    fn set_aside(&self, directory: &File, segment_bytes: u64) -> Result<(), Problem> {
        // Without a header, these files are left from a creation that was interrupted.
        self.remove_files(&[HEADER_NEW]);
        let files: Vec<(PathBuf, u64)> = self.plans(segment_bytes).into_iter().flatten().collect();
        let needed = files
            .iter()
            .fold(HEADER_BYTES as u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let free = free_bytes(directory)?;
        if needed > free {
            let error = None;
            return Err(Problem::TooSmall { needed, free, error });
        }
        for (path, bytes) in files {
            // Quotas and limits are detected here.
            preallocate(&path, bytes).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Problem::TooSmall {
                    needed,
                    free,
                    error: Some(error),
                },
                Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Problem::CannotPreallocate(error),
                _ => refused(error),
            })?;
        }
        Ok(())
    }

    /// Removes the files of a log whose creation was interrupted. A file that cannot be removed is reported when it is
    /// created again.
    fn remove_files(&self, kept: &[&str]) {
        for entry in fs::read_dir(self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_ours = name
                .to_str()
                .is_some_and(|name| name.ends_with(ENDING) && !kept.contains(&name));
            if is_ours {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn files(&self, lock: File, header: &Header) -> Result<LogDirectory, Problem> {
        let plans = self.plans(header.segment_bytes);
        for (path, bytes) in plans.iter().flatten() {
            let is = fs::metadata(path).map(|metadata| metadata.len());
            if is.as_ref().ok() != Some(bytes) {
                let is = is.map_or_else(|error| error.to_string(), |is| format!("{is} bytes"));
                return Err(Problem::Damaged(format!(
                    "{} should have {bytes} bytes, but has {is}",
                    path.display()
                )));
            }
        }
        let block_bytes = self.settings.block_bytes;
        let no_direct = |error| Problem::NoDirectIo { block_bytes, error };
        let direct = self.direct.then_some(block_bytes);
        let is_invalid = |error: &io::Error| error.kind() == io::ErrorKind::InvalidInput;
        let [slots, area] = plans.map(|plan| {
            Segments::open(plan, header.segment_bytes, direct).map_err(|(path, error)| match error.kind() {
                io::ErrorKind::InvalidInput if self.direct => no_direct(error),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Problem::NotWritable(error),
                _ => Problem::Failed(format!("opening {}", path.display()), error),
            })
        });
        let (slots, area) = (slots?, area?);
        // Reading one block shows whether direct I/O accepts blocks of this size.
        for space in [&slots, &area].into_iter().filter(|space| space.bytes() > 0) {
            let mut block = vec![0; block_bytes];
            space
                .read(0, &mut block, &mut Scratch::default())
                .map_err(|trouble| match trouble.error {
                    error if self.direct && is_invalid(&error) => no_direct(error),
                    error => Problem::Failed(format!("reading {} at its beginning", trouble.file.display()), error),
                })?;
        }
        Ok(LogDirectory {
            _lock: lock,
            log: header.log,
            slots,
            area,
        })
    }
}

fn free_bytes(directory: &File) -> Result<u64, Problem> {
    let space = rustix::fs::fstatvfs(directory)
        .map_err(|error| Problem::Failed("asking for its free space".to_owned(), error.into()))?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// The number of a new log. Old data on the disk most probably has another number.
fn draw() -> Result<u32, Problem> {
    let random =
        entropy::random_u64().map_err(|error| Problem::Failed("asking for a random number".to_owned(), error))?;
    Ok(random as u32)
}
