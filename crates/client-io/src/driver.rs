//! `Client`: submits operations, and waits for them. One thread drives the engine.

use crate::links::{Links, READ_BYTES};
use mio::{Events, Poll, Token, Waker};
use paritas_base::Time;
use paritas_client::{Command, Engine, Event, Failure, OpId, Outcome, Settings, Stats, SubmitError, Value};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// The token of the waker: no link has it.
const WAKER: Token = Token(usize::MAX);
/// The longest sleep, so that an arithmetic error in a deadline cannot stop the client for ever.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// An operation that was submitted. Each is to be waited for, or given up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(u64);

impl From<Ticket> for u64 {
    fn from(ticket: Ticket) -> Self {
        ticket.0
    }
}

/// For callers that keep a ticket as a number.
impl From<u64> for Ticket {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// What a wait with a limit has found.
#[derive(Clone, PartialEq, Debug)]
pub enum Waited {
    /// This operation has ended so.
    Ended(Ticket, Outcome),
    /// None has ended in this time.
    NotYet,
    /// There is none to wait for: all outcomes were taken or given up.
    Nothing,
}

/// A client of a cluster. It may be shared by threads.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Something has ended.
    ended: Condvar,
    waker: Waker,
    ops_max: usize,
}

#[derive(Default)]
struct State {
    submitted: VecDeque<(Ticket, Command)>,
    /// `None` until it has ended.
    ops: BTreeMap<Ticket, Option<Outcome>>,
    /// Those whose outcome nobody wants.
    unwanted: Vec<Ticket>,
    under_way: usize,
    next: u64,
    stats: Stats,
    is_closing: bool,
    /// The thread has gone.
    has_ended: bool,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has ended, or until this time.
    fn wait<'s>(&'s self, state: MutexGuard<'s, State>, until: Option<Instant>) -> MutexGuard<'s, State> {
        match until {
            None => self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let waited = self.ended.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

/// Whether the time of a wait has come.
fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

impl Client {
    /// A client of the cluster whose nodes have these addresses (`host:port` of the port for any key). Connections are
    /// made when they are needed.
    ///
    /// # Errors
    /// If there is no address, or the machine gives no poll or thread.
    pub fn connect(addresses: Vec<String>, mut settings: Settings) -> io::Result<Self> {
        if addresses.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a client needs the address of at least one node, as host:port",
            ));
        }
        if settings.seed == 0 {
            // Clients that start together differ by their process, or by the time.
            let since = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            settings.seed = since.as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
        }
        let poll = Poll::new()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            ended: Condvar::new(),
            waker: Waker::new(poll.registry(), WAKER)?,
            ops_max: settings.ops_max.max(1),
        });
        let links = Links::new(poll.registry().try_clone()?);
        let driver = Driver {
            engine: Engine::new(addresses, settings),
            links,
            shared: shared.clone(),
            tickets: BTreeMap::new(),
            buffer: vec![0; READ_BYTES],
        };
        let thread = std::thread::Builder::new().name("paritas-client".to_owned());
        let ending = Ending(shared.clone());
        let thread = thread.spawn(move || {
            let _ending = ending;
            driver.run(poll);
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Begins an operation; waits while as many are under way as [`Settings::ops_max`].
    pub fn submit(&self, command: Command) -> Ticket {
        let mut state = self.shared.lock();
        while state.under_way >= self.shared.ops_max {
            state = self.shared.wait(state, None);
        }
        self.begin(state, command)
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] if as many are under way as [`Settings::ops_max`].
    pub fn try_submit(&self, command: Command) -> Result<Ticket, SubmitError> {
        let state = self.shared.lock();
        match state.under_way >= self.shared.ops_max {
            true => Err(SubmitError::Busy),
            false => Ok(self.begin(state, command)),
        }
    }

    fn begin(&self, mut state: MutexGuard<'_, State>, command: Command) -> Ticket {
        let ticket = Ticket(state.next);
        state.next += 1;
        if state.has_ended {
            state.ops.insert(ticket, Some(Outcome::failed(Failure::Unreachable)));
            return ticket;
        }
        state.under_way += 1;
        state.ops.insert(ticket, None);
        state.submitted.push_back((ticket, command));
        drop(state);
        // If it fails, the operation begins after the longest sleep.
        let _ = self.shared.waker.wake();
        ticket
    }

    /// Waits until an operation may be begun, at most this long. Whether one may; another thread may be faster.
    pub fn wait_room(&self, limit: Option<Duration>) -> bool {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = self.shared.lock();
        while state.under_way >= self.shared.ops_max {
            if is_over(until) {
                return false;
            }
            state = self.shared.wait(state, until);
        }
        true
    }

    /// The outcome of an operation, if it has ended. It is given once.
    pub fn test(&self, ticket: Ticket) -> Option<Outcome> {
        take(&mut self.shared.lock(), ticket)
    }

    /// Waits for an operation. Its outcome is given once.
    ///
    /// # Panics
    /// If its outcome was taken or given up.
    pub fn wait(&self, ticket: Ticket) -> Outcome {
        self.wait_any(&[ticket]).1
    }

    /// Waits until one of these operations has ended, and tells which.
    ///
    /// # Panics
    /// If there is none of which the outcome was not taken.
    pub fn wait_any(&self, tickets: &[Ticket]) -> (Ticket, Outcome) {
        match self.wait_limit(tickets, None) {
            Waited::Ended(ticket, outcome) => (ticket, outcome),
            Waited::NotYet | Waited::Nothing => panic!("no operation is waited for: all outcomes were taken already"),
        }
    }

    /// Waits until one of these operations has ended, at most this long.
    pub fn wait_limit(&self, tickets: &[Ticket], limit: Option<Duration>) -> Waited {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = self.shared.lock();
        loop {
            let ended = tickets
                .iter()
                .find_map(|ticket| Some((*ticket, take(&mut state, *ticket)?)));
            if let Some((ticket, outcome)) = ended {
                return Waited::Ended(ticket, outcome);
            }
            let is_wanted = |ticket: &Ticket| state.ops.contains_key(ticket) && !state.unwanted.contains(ticket);
            if !tickets.iter().any(is_wanted) {
                return Waited::Nothing;
            }
            if is_over(until) {
                return Waited::NotYet;
            }
            state = self.shared.wait(state, until);
        }
    }

    /// Nobody wants the outcome of an operation. It may happen all the same.
    pub fn give_up(&self, ticket: Ticket) {
        let mut state = self.shared.lock();
        match state.ops.get(&ticket) {
            Some(Some(_)) => drop(state.ops.remove(&ticket)),
            Some(None) if !state.unwanted.contains(&ticket) => state.unwanted.push(ticket),
            Some(None) | None => {}
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If a node refuses the command, or none answers.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        match self.run(Command::get(key))? {
            Value::Bulk(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            other => Err(Failure::Refused(format!("the reply of GET is no string: {other:?}"))),
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// If a node refuses the command, none answers, or it is not known whether it has happened.
    pub fn set(&self, key: &[u8], value: Vec<u8>) -> Result<(), Failure> {
        self.run(Command::set(key, value)).map(drop)
    }

    /// Any command, and its reply.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub fn run(&self, command: Command) -> Result<Value, Failure> {
        self.wait(self.submit(command)).result
    }

    /// Counts since the beginning.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats
    }
}

impl Drop for Client {
    /// What is under way ends without an outcome.
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        let _ = self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported there.
            let _ = thread.join();
        }
    }
}

fn take(state: &mut State, ticket: Ticket) -> Option<Outcome> {
    match state.ops.get_mut(&ticket)? {
        Some(_) => state.ops.remove(&ticket).flatten(),
        None => None,
    }
}

/// Dropped when the thread ends, also by a panic: nobody waits for it in vain.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        state.under_way = 0;
        for outcome in state.ops.values_mut().filter(|outcome| outcome.is_none()) {
            *outcome = Some(Outcome::failed(Failure::Uncertain));
        }
        for ticket in core::mem::take(&mut state.unwanted) {
            state.ops.remove(&ticket);
        }
        drop(state);
        self.0.ended.notify_all();
    }
}

struct Driver {
    engine: Engine,
    links: Links,
    shared: Arc<Shared>,
    tickets: BTreeMap<OpId, Ticket>,
    buffer: Vec<u8>,
}

impl Driver {
    fn run(mut self, mut poll: Poll) {
        let mut events = Events::with_capacity(256);
        loop {
            if !self.submit() {
                return;
            }
            if self.pump() {
                // There may be room for what was submitted.
                continue;
            }
            let now = self.links.now();
            let at = self.engine.next_at().unwrap_or(Time(u64::MAX));
            let sleep = Duration::from_nanos((at - now).0).min(SLEEP_MAX);
            if poll.poll(&mut events, Some(sleep)).is_err() {
                // A signal: what is due is looked at again.
                continue;
            }
            for event in events.iter().filter(|event| event.token() != WAKER) {
                let (link, is_new) = self.links.on_ready(event);
                if is_new {
                    let now = self.links.now();
                    self.engine.on(now, Event::Connected(link), &mut self.links);
                }
                self.read(link);
            }
            let now = self.links.now();
            self.engine.on(now, Event::Timer, &mut self.links);
        }
    }

    fn read(&mut self, link: paritas_client::LinkId) {
        while let Some(bytes) = self.links.read(link, &mut self.buffer) {
            let now = self.links.now();
            self.engine.on(now, Event::Bytes(link, bytes), &mut self.links);
        }
    }

    /// Begins what was submitted. False if the client closes.
    fn submit(&mut self) -> bool {
        let now = self.links.now();
        loop {
            let shared = self.shared.clone();
            let mut state = shared.lock();
            if state.is_closing {
                return false;
            }
            let Some((ticket, command)) = state.submitted.pop_front() else {
                return true;
            };
            drop(state);
            match self.engine.submit(now, command, &mut self.links) {
                Ok(op) => {
                    self.tickets.insert(op, ticket);
                }
                Err((SubmitError::Busy, command)) => {
                    shared.lock().submitted.push_front((ticket, command));
                    return true;
                }
            }
        }
    }

    /// Tells the engine what has failed, the waiting threads what has ended, and sends what is to be sent.
    /// True if something has ended.
    fn pump(&mut self) -> bool {
        self.links.flush();
        for link in core::mem::take(&mut self.links.taken) {
            let now = self.links.now();
            self.engine.on(now, Event::Sent(link), &mut self.links);
        }
        while let Some(link) = self.links.failed.pop() {
            let now = self.links.now();
            self.engine.on(now, Event::Closed(link), &mut self.links);
            self.links.flush();
        }
        let done = core::mem::take(&mut self.links.done);
        if done.is_empty() {
            return false;
        }
        let mut state = self.shared.lock();
        state.stats = self.engine.stats();
        for (op, outcome) in done {
            let Some(ticket) = self.tickets.remove(&op) else {
                continue;
            };
            state.under_way -= 1;
            let unwanted = state.unwanted.iter().position(|unwanted| *unwanted == ticket);
            match unwanted {
                Some(at) => {
                    state.unwanted.swap_remove(at);
                    state.ops.remove(&ticket);
                }
                None => {
                    state.ops.insert(ticket, Some(outcome));
                }
            }
        }
        drop(state);
        self.shared.ended.notify_all();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_in_vain_for_a_thread_that_has_gone() {
        let client = Client::connect(vec!["127.0.0.1:1".to_owned()], Settings::default()).unwrap();
        let ticket = client.submit(Command::get(b"key"));
        assert_eq!(client.wait_limit(&[ticket], Some(Duration::ZERO)), Waited::NotYet);
        drop(Ending(client.shared.clone()));
        let result = client.wait(ticket).result;
        assert!(
            matches!(result, Err(Failure::Uncertain | Failure::Unreachable)),
            "{result:?}"
        );
        assert_eq!(client.run(Command::get(b"key")), Err(Failure::Unreachable));
        assert_eq!(client.wait_limit(&[ticket], None), Waited::Nothing);
    }

    #[test]
    fn what_was_given_up_is_not_waited_for() {
        let client = Client::connect(vec!["127.0.0.1:1".to_owned()], Settings::default()).unwrap();
        let ticket = client.submit(Command::get(b"key"));
        client.give_up(ticket);
        client.give_up(ticket);
        assert_eq!(client.wait_limit(&[ticket], None), Waited::Nothing);
    }
}
