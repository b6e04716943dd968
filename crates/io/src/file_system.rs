//! Files that belong to one process: opened without a detour, checked, and locked for as long as the process lives.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, fstatfs, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

/// Types of file systems, as `statfs` has them, whose locks are known to hold on one machine and nowhere else. NFS,
/// FUSE and overlay are none: there a lock may be another one than it seems.
const LOCAL: [u64; 11] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
    0x5265_4973, // reiserfs
    0x3153_464A, // jfs
    0x3434,      // nilfs2
];

/// Why a private file is not used.
#[derive(Debug)]
pub enum NotPrivate {
    /// It cannot be opened or looked at.
    Io(io::Error),
    /// It is a link, or no ordinary file.
    NoFile,
    /// Another user owns it, or may open it.
    Others,
    /// It is on a file system whose locks may not hold, of this type.
    FileSystem(u64),
}

impl fmt::Display for NotPrivate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NoFile => f.write_str("it is a link, or no ordinary file; remove it"),
            Self::Others => f.write_str("another user owns it or may open it; remove it, or chmod 600 and chown it"),
            Self::FileSystem(kind) => write!(
                f,
                "its file system (type {kind:#x}) is not known to have locks that hold: use a directory on a disk of \
                 this machine or in /run, none on NFS, FUSE or an overlay"
            ),
        }
    }
}

impl From<Errno> for NotPrivate {
    fn from(error: Errno) -> Self {
        match error {
            // What O_NOFOLLOW says of a link.
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => Self::NoFile,
            error => Self::Io(error.into()),
        }
    }
}

/// A private file, and what names it on this machine.
#[derive(Debug)]
pub struct Private {
    /// The file, open for reading and writing. No child of this process inherits it.
    pub file: File,
    /// The number of its device.
    pub device: u64,
    /// Its number on the device.
    pub inode: u64,
}

/// Opens or creates a file that only this user may open, on a file system whose locks hold. No link is followed.
///
/// # Errors
/// Why it must not be used.
pub fn open_private(path: &Path) -> Result<Private, NotPrivate> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR)?;
    let found = fstat(&file)?;
    if found.st_mode & 0o170_000 != 0o100_000 {
        return Err(NotPrivate::NoFile);
    }
    if found.st_uid != geteuid().as_raw() || found.st_mode & 0o077 != 0 {
        return Err(NotPrivate::Others);
    }
    #[allow(clippy::unnecessary_cast)] // Its type differs between machines.
    let kind = fstatfs(&file)?.f_type as u64 & 0xFFFF_FFFF;
    if !LOCAL.contains(&kind) {
        return Err(NotPrivate::FileSystem(kind));
    }
    Ok(Private {
        file: file.into(),
        device: found.st_dev,
        inode: found.st_ino,
    })
}

/// Takes the lock of a file. It is held until the file is closed, at the latest when the process ends. False: another
/// process has it.
///
/// # Errors
/// If the system fails.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A directory on a file system whose locks hold.
    fn directory() -> tempfile::TempDir {
        let shm = Path::new("/dev/shm");
        match tempfile::tempdir_in(shm) {
            Ok(directory) => directory,
            Err(_) => tempfile::tempdir().unwrap(),
        }
    }

    #[test]
    fn a_file_is_made_that_nobody_else_may_open() {
        let directory = directory();
        let path = directory.path().join("own");
        let made = open_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = open_private(&path).unwrap();
        assert_eq!((made.device, made.inode), (again.device, again.inode));
    }

    #[test]
    fn one_process_at_a_time_has_the_lock() {
        let directory = directory();
        let path = directory.path().join("own");
        let (first, second) = (open_private(&path).unwrap(), open_private(&path).unwrap());
        assert!(try_lock(&first.file).unwrap());
        assert!(!try_lock(&second.file).unwrap());
        drop(first);
        assert!(try_lock(&second.file).unwrap());
    }

    #[test]
    fn no_link_is_followed_and_no_other_kind_of_file_is_taken() {
        let directory = directory();
        let target = directory.path().join("target");
        open_private(&target).unwrap();
        let link = directory.path().join("link");
        symlink(&target, &link).unwrap();
        for path in [link.as_path(), directory.path()] {
            assert!(matches!(open_private(path), Err(NotPrivate::NoFile)), "{path:?}");
        }
    }

    #[test]
    fn a_file_that_others_may_open_is_refused() {
        let directory = directory();
        let path = directory.path().join("own");
        open_private(&path).unwrap();
        for mode in [0o604, 0o640, 0o660, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(open_private(&path), Err(NotPrivate::Others)), "{mode:o}");
        }
    }

    #[test]
    fn a_file_system_that_is_not_of_a_disk_or_of_memory_is_named() {
        // An ordinary file there has the type of proc. It can be opened for writing by its owner alone.
        let why = NotPrivate::FileSystem(0x9FA0).to_string();
        assert!(why.contains("0x9fa0") && why.contains("NFS"), "{why}");
        let missing = open_private(Path::new("/no/such/directory/own")).unwrap_err();
        assert!(matches!(missing, NotPrivate::Io(_)));
    }
}
