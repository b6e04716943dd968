//! The disk of a log node: threads that do what a `paritylog` asks for, and its files.
//!
//! The loop gives an [`Io`] to [`Disk::submit`] and goes on. A thread does it, puts what came of it into a queue and
//! wakes the loop, which takes it out with [`Disk::next_done`]. Neither queue has an end of its own: nothing that was
//! asked for may be dropped, and the loop may not wait. What is in them is bounded by who asks. A log has writes of at
//! most its `buffer_max_bytes` under way, one part of its log area of 8 MiB that is drained with the writes that come
//! of it, chunks that are written anew of half its `buffer_max_bytes` or four of them, and those that somebody has
//! asked for; and [`DiskFigures`] says how much it is.
//!
//! Two threads: the system reorders what they do, and a write of many megabytes does not hold up a reader. There is no
//! order to keep: a log begins nothing that must come after something that is under way.

mod directory;
mod header;
mod problem;
mod recover;
mod segments;
#[cfg(test)]
mod tests;

pub use directory::LogDirectory;
pub use header::Owner;
pub use problem::{Difference, LogDirectoryError, LogDirectoryProblem};

use paritas_paritylog::{Bad, Io, IoId, Outcome, Work};
use segments::{Scratch, Trouble};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

const WORKERS: usize = 2;
/// Buffers of so many bytes are mapped on their own.
#[cfg(target_env = "gnu")]
const LARGE_BUFFER_BYTES: libc::c_int = 1 << 20;

/// What was done of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskWork {
    /// How often.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time in it, of all threads together; waiting for a thread does not count.
    pub ns: u64,
}

/// What a disk did and has before it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskFigures {
    /// Reads.
    pub reads: DiskWork,
    /// Writes.
    pub writes: DiskWork,
    /// Those of both that failed.
    pub errors: u64,
    /// Those that wait or are being done.
    pub under_way: u64,
    /// Bytes in them.
    pub under_way_bytes: u64,
}

/// The disk of one log.
#[derive(Debug)]
pub struct Disk {
    shared: Arc<Shared>,
    done: Receiver<(IoId, Outcome)>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    directory: LogDirectory,
    queue: Mutex<Queue>,
    more: Condvar,
    counted: Counted,
    /// Once a disk fails it fails again and again: one line in the log is enough.
    has_complained: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

#[derive(Default, Debug)]
struct Queue {
    waiting: VecDeque<Io>,
    is_closed: bool,
}

#[derive(Default, Debug)]
struct Counted {
    reads: CountedWork,
    writes: CountedWork,
    errors: AtomicU64,
    submitted: CountedWork,
}

#[derive(Default, Debug)]
struct CountedWork {
    count: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
}

impl CountedWork {
    fn add(&self, bytes: u64, ns: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn now(&self) -> DiskWork {
        DiskWork {
            count: self.count.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            ns: self.ns.load(Ordering::Relaxed),
        }
    }
}

impl Disk {
    /// Starts the threads. `wake` is called whenever something is done, on a thread of the disk's: it must not wait.
    pub fn start(directory: LogDirectory, wake: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            directory,
            queue: Mutex::default(),
            more: Condvar::new(),
            counted: Counted::default(),
            has_complained: AtomicBool::new(false),
            wake: Box::new(wake),
        });
        return_large_buffers();
        let (sender, done) = channel();
        let mut disk = Self {
            shared,
            done,
            workers: Vec::with_capacity(WORKERS),
        };
        for n in 0..WORKERS {
            let (shared, sender) = (Arc::clone(&disk.shared), sender.clone());
            let worker = std::thread::Builder::new()
                .name(format!("disk-{n}"))
                .spawn(move || shared.work(&sender))?;
            disk.workers.push(worker);
        }
        Ok(disk)
    }

    /// Begins a read or a write. Never waits.
    pub fn submit(&self, io: Io) {
        self.shared.counted.submitted.add(bytes_of(&io.work), 0);
        self.shared.queue().waiting.push_back(io);
        self.shared.more.notify_one();
    }

    /// What came of one of those that are done, each once, in any order. Never waits.
    pub fn next_done(&self) -> Option<(IoId, Outcome)> {
        self.done.try_recv().ok()
    }

    /// What it did so far.
    pub fn figures(&self) -> DiskFigures {
        let counted = &self.shared.counted;
        // What is done is read first, so that it is never more than was begun.
        let (reads, writes) = (counted.reads.now(), counted.writes.now());
        let begun = counted.submitted.now();
        DiskFigures {
            reads,
            writes,
            errors: counted.errors.load(Ordering::Relaxed),
            under_way: begun.count.saturating_sub(reads.count + writes.count),
            under_way_bytes: begun.bytes.saturating_sub(reads.bytes + writes.bytes),
        }
    }
}

/// What is being done is done to its end; what waits is not begun. A log that should be on the disk is flushed before.
impl Drop for Disk {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.is_closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.more.notify_all();
        for worker in self.workers.drain(..) {
            // A thread that has panicked said so itself.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Nothing can panic that has the lock, so that a poisoned one is as good as another.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next to be done; nothing once there will be no more.
    fn next(&self) -> Option<Io> {
        let mut queue = self.queue();
        loop {
            if let Some(io) = queue.waiting.pop_front() {
                return Some(io);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, done: &Sender<(IoId, Outcome)>) {
        let mut scratch = Scratch::default();
        while let Some(io) = self.next() {
            let id = io.id;
            let (kind, bytes) = match &io.work {
                Work::Read(_) => (&self.counted.reads, bytes_of(&io.work)),
                Work::Write(_) => (&self.counted.writes, bytes_of(&io.work)),
            };
            let since = Instant::now();
            let outcome = self.run(io, &mut scratch);
            kind.add(bytes, since.elapsed().as_nanos() as u64);
            let outcome = outcome.map_err(|(doing, trouble)| {
                self.counted.errors.fetch_add(1, Ordering::Relaxed);
                self.complain(doing, &trouble);
                Bad
            });
            // Nobody is there to be told only while the disk is being dropped.
            let _ = done.send((id, outcome));
            (self.wake)();
        }
    }

    fn run(&self, io: Io, scratch: &mut Scratch) -> Result<Vec<u8>, (&'static str, Trouble)> {
        let space = self.directory.space(io.space);
        match io.work {
            Work::Read(length) => {
                let mut bytes = vec![0; length];
                space
                    .read(io.at, &mut bytes, scratch)
                    .map_err(|trouble| ("reading", trouble))?;
                Ok(bytes)
            }
            Work::Write(bytes) => {
                space
                    .write(io.at, &bytes, scratch)
                    .map_err(|trouble| ("writing", trouble))?;
                Ok(Vec::new())
            }
        }
    }

    fn complain(&self, doing: &str, trouble: &Trouble) {
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "the log's DISK FAILS: {doing} {}: {}. Look at the disk; what was on it is fetched from the other \
                 nodes once this one is started with an empty log directory. Further errors are only counted",
                trouble.what(),
                trouble.error
            );
        }
    }
}

/// What large reads and writes take goes back to the system when they are done. Else the allocator keeps it, in an
/// arena of each worker whose end not even `malloc_trim` gives back: 8 MiB each for reading the log area back.
fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a setting of the allocator, which may be changed at any time.
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES);
    }
}

fn bytes_of(work: &Work) -> u64 {
    match work {
        Work::Read(length) => *length as u64,
        Work::Write(bytes) => bytes.len() as u64,
    }
}
