//! One space of a log as files of equal size, with reads and writes through the page cache or with direct I/O.

use rustix::fs::{FallocateFlags, SeekFrom};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most bytes moved at once with direct I/O. This is enough to keep the disk busy, and bounds the memory of a thread.
const PIECE_BYTES: usize = 1 << 20;
/// Direct I/O needs memory aligned to the disk's block size. No disk has larger blocks than this.
const ALIGNMENT: usize = 4096;

/// A failed read or write, and where it failed.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) file: PathBuf,
    pub(super) offset: u64,
    pub(super) error: io::Error,
}

impl Trouble {
    pub(super) fn what(&self) -> String {
        format!("{} at offset {}", self.file.display(), self.offset)
    }
}

/// A buffer for direct I/O, kept by the thread that uses it.
#[derive(Debug, Default)]
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    /// A part of the buffer with `length` bytes, aligned for direct I/O.
    fn aligned(&mut self, length: usize) -> &mut [u8] {
        if self.0.len() < PIECE_BYTES + ALIGNMENT {
            self.0 = vec![0; PIECE_BYTES + ALIGNMENT];
        }
        let from = self.0.as_ptr().align_offset(ALIGNMENT);
        // `from` is less than ALIGNMENT and `length` at most PIECE_BYTES.
        &mut self.0[from..from + length]
    }
}

/// The files of one space.
#[derive(Debug)]
pub(super) struct Segments {
    files: Vec<(PathBuf, File)>,
    segment_bytes: u64,
    /// Bytes of the space. The last file may be shorter than the others.
    bytes: u64,
    /// Block size for direct I/O; `None` for the page cache.
    direct: Option<usize>,
}

/// The paths and sizes of a space's files.
pub(super) fn plan(bytes: u64, segment_bytes: u64, path: impl Fn(u64) -> PathBuf) -> Vec<(PathBuf, u64)> {
    (0..bytes.div_ceil(segment_bytes))
        .map(|n| (path(n), segment_bytes.min(bytes - n * segment_bytes)))
        .collect()
}

/// Creates a file and reserves its space. The space reads as zeros and counts as never written.
pub(super) fn preallocate(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    loop {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

impl Segments {
    /// Opens the files of a plan.
    pub(super) fn open(
        plan: Vec<(PathBuf, u64)>,
        segment_bytes: u64,
        direct: Option<usize>,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let bytes = plan.iter().map(|(_, bytes)| bytes).sum();
        let mut files = Vec::with_capacity(plan.len());
        for (path, _) in plan {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            if direct.is_some() {
                options.custom_flags(libc::O_DIRECT);
            }
            match options.open(&path) {
                Ok(file) => files.push((path, file)),
                Err(error) => return Err((path, error)),
            }
        }
        Ok(Self {
            files,
            segment_bytes,
            bytes,
            direct,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file and offset of an address, and how many of `length` bytes are in this file. All of them must be within
    /// the space.
    fn place(&self, at: u64, length: usize) -> Result<(&(PathBuf, File), u64, usize), Trouble> {
        let (n, offset) = (at / self.segment_bytes, at % self.segment_bytes);
        let file = usize::try_from(n).ok().and_then(|n| self.files.get(n));
        let Some(file) = file.filter(|_| at.saturating_add(length as u64) <= self.bytes) else {
            return Err(Trouble {
                file: PathBuf::from("no file"),
                offset: at,
                error: io::Error::new(io::ErrorKind::InvalidInput, "beyond the end of the space"),
            });
        };
        let rest = self.segment_bytes - offset;
        Ok((
            file,
            offset,
            usize::try_from(rest).map_or(length, |rest| rest.min(length)),
        ))
    }

    /// Fills `into` with the bytes at an address.
    pub(super) fn read(&self, at: u64, into: &mut [u8], scratch: &mut Scratch) -> Result<(), Trouble> {
        let Some(block) = self.direct else {
            return self.read_as_is(at, into);
        };
        self.place(at, into.len())?;
        let end = at + into.len() as u64;
        let mut from = at - at % block as u64;
        while from < end {
            let length = usize::try_from((end - from).next_multiple_of(block as u64)).unwrap_or(usize::MAX);
            let piece = scratch.aligned(length.min(PIECE_BYTES));
            self.read_as_is(from, piece)?;
            let (first, behind) = (from.max(at), (from + piece.len() as u64).min(end));
            // Both ranges have the same length, and the lines above keep them within their slices.
            into[(first - at) as usize..(behind - at) as usize]
                .copy_from_slice(&piece[(first - from) as usize..(behind - from) as usize]);
            from += piece.len() as u64;
        }
        Ok(())
    }

    fn read_as_is(&self, mut at: u64, mut into: &mut [u8]) -> Result<(), Trouble> {
        while !into.is_empty() {
            let ((path, file), offset, length) = self.place(at, into.len())?;
            let (now, later) = into.split_at_mut(length);
            // A file that is too short gives an error.
            file.read_exact_at(now, offset).map_err(|error| Trouble {
                file: path.clone(),
                offset,
                error,
            })?;
            into = later;
            at += length as u64;
        }
        Ok(())
    }

    /// Writes at an address. With direct I/O, address and length must be whole blocks.
    pub(super) fn write(&self, at: u64, bytes: &[u8], scratch: &mut Scratch) -> Result<(), Trouble> {
        if self.direct.is_none() {
            return self.write_as_is(at, bytes);
        }
        self.place(at, bytes.len())?;
        let mut at = at;
        for piece in bytes.chunks(PIECE_BYTES) {
            let aligned = scratch.aligned(piece.len());
            aligned.copy_from_slice(piece);
            self.write_as_is(at, aligned)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_as_is(&self, mut at: u64, mut bytes: &[u8]) -> Result<(), Trouble> {
        while !bytes.is_empty() {
            let ((path, file), offset, length) = self.place(at, bytes.len())?;
            let (now, later) = bytes.split_at(length);
            file.write_all_at(now, offset).map_err(|error| Trouble {
                file: path.clone(),
                offset,
                error,
            })?;
            bytes = later;
            at += length as u64;
        }
        Ok(())
    }

    /// The ranges that were ever written, in order. Each is widened to multiples of `unit`, and by `margin` at its end;
    /// ranges that then meet are merged.
    pub(super) fn written(&self, unit: u64, margin: u64) -> Result<Vec<(u64, u64)>, Trouble> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (n, (path, file)) in self.files.iter().enumerate() {
            let start = n as u64 * self.segment_bytes;
            let length = self.segment_bytes.min(self.bytes - start);
            let mut at = 0;
            while at < length {
                let data = data_from(file, at, length).map_err(|error| Trouble {
                    file: path.clone(),
                    offset: at,
                    error: error.into(),
                })?;
                let Some((from, to)) = data else { break };
                at = to;
                let first = (start + from) / unit * unit;
                let behind = (start + to)
                    .next_multiple_of(unit)
                    .saturating_add(margin)
                    .min(self.bytes);
                match ranges.last_mut() {
                    Some(last) if last.1 >= first => last.1 = last.1.max(behind),
                    _ => ranges.push((first, behind)),
                }
            }
        }
        Ok(ranges)
    }
}

/// The first written part of a file from `at` on. Space that was only reserved counts as a hole. A file system that
/// cannot tell reports everything as data, which is slower but correct.
fn data_from(file: &File, at: u64, length: u64) -> Result<Option<(u64, u64)>, rustix::io::Errno> {
    use rustix::io::Errno;
    let from = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(from) => from,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Some((at, length))),
        Err(error) => return Err(error),
    };
    let to = rustix::fs::seek(file, SeekFrom::Hole(from))?;
    Ok((from < length).then_some((from, to.min(length))))
}
