//! The disk of a log node: its files, and the threads that do the reads and writes of a `paritylog`.
//!
//! The loop gives an [`Io`] to [`Disk::submit`] and continues. A thread does it, puts the result into a queue and wakes
//! the loop, which takes it with [`Disk::next_done`]. The queues have no limit of their own, because no request may be
//! dropped and the loop may not wait. The log limits what is in them: writes of at most its `buffer_max_bytes`; one
//! part of 8 MiB of its log area that is being drained, with the writes that this causes; chunks being rewritten, of
//! half its `buffer_max_bytes` or four of them; and reads of chunks that another node asked for. [`DiskFigures`] shows
//! how much is in the queues.
//!
//! There are two threads. The system reorders their requests anyway, and so a write of many megabytes does not delay a
//! read. No order has to be kept: a log never begins a request that must come after another one that is under way.

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
/// Buffers of at least this many bytes are mapped separately by the allocator.
#[cfg(target_env = "gnu")]
const LARGE_BUFFER_BYTES: libc::c_int = 1 << 20;

/// The work done of one kind, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskWork {
    /// Number of requests.
    pub count: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Time spent on them in ns, summed over the threads. Time in the queue is not included.
    pub ns: u64,
}

/// The work that a disk has done, and the work still in its queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskFigures {
    /// Reads that are done.
    pub reads: DiskWork,
    /// Writes that are done.
    pub writes: DiskWork,
    /// Number of reads and writes that failed.
    pub errors: u64,
    /// Number of requests that wait or are being done.
    pub under_way: u64,
    /// Bytes of these requests.
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
    /// Whether an error was logged. A disk that fails once fails again, so one line is enough.
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
    /// Starts the threads. A disk thread calls `wake` whenever a request is done; `wake` must not block.
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

    /// Submits a read or a write. Never blocks.
    pub fn submit(&self, io: Io) {
        self.shared.counted.submitted.add(bytes_of(&io.work), 0);
        self.shared.queue().waiting.push_back(io);
        self.shared.more.notify_one();
    }

    /// The result of one request that is done. Each is returned once, in any order. Never blocks.
    pub fn next_done(&self) -> Option<(IoId, Outcome)> {
        self.done.try_recv().ok()
    }

    /// The work so far.
    pub fn figures(&self) -> DiskFigures {
        let counted = &self.shared.counted;
        // Finished work is read first, so that it is never more than submitted work.
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

/// Requests in progress are completed, waiting ones are dropped. A log whose data must be on disk has to be flushed
/// before.
impl Drop for Disk {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.is_closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.more.notify_all();
        for worker in self.workers.drain(..) {
            // If a thread panicked, the panic was already reported.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// No code that holds the lock can panic, so a poisoned lock can be used.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request; `None` once there will be no more.
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
            // The receiver is gone only while the disk is being dropped.
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
                "the log's DISK FAILS: {doing} {}: {}. Check the disk. Its data is fetched from the other nodes once \
                 this node is started with an empty log directory. Further errors are only counted",
                trouble.what(),
                trouble.error
            );
        }
    }
}

/// Makes the allocator return large buffers to the system when they are freed. Otherwise it would keep them in one
/// arena for each thread, which even `malloc_trim` does not shrink: 8 MiB each after reading the log area.
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
