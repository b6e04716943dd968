//! A mount's two threads to its cache store, and its queue to the main thread.
//!
//! *work* carries out what the machine asks, in order. *lease* has a connection of its own, so that a long deletion
//! cannot cost the lease. While the store is away everything fails at once; it is tried again every half second.

use crate::poll;
use crate::settings::MountSettings;
use mio::Waker;
use paritas_base::{Span, Time};
use paritas_files::File;
use paritas_files::geometry::Geometry;
use paritas_files::lease::{ASK_EVERY, LEASE};
use paritas_files::record::Record;
use paritas_files::steward::{Polled, Refreshed};
use paritas_io::clock;
use paritas_node::password;
use paritas_node::{Connection, Failure};
use paritas_wire::resp::Value;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most that the machine may ask before the store has done it. What is beyond fails at once.
const QUEUE_MAX: usize = 1 << 14;
/// Longest wait for the store.
const TIMEOUT: Duration = Duration::from_secs(2);
const LEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// Wait between two attempts to connect.
const RECONNECT: Span = Span::from_ms(500);
/// Commands in one write.
const PIPELINE: usize = 256;
/// Most records that are read.
const RECORDS_MAX: usize = 1 << 21;
/// Seconds until records and parity expire.
const EXPIRY_S: &[u8] = b"86400";

/// What is asked of the store.
#[derive(Debug)]
pub(crate) enum Work {
    /// All records.
    Load,
    Store(u64, File, Record),
    Erase(u64, File, Geometry, bool),
    Refresh(u64, File, Geometry),
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum Done {
    Loaded(Result<Vec<(File, Record)>, String>),
    Stored(u64, bool),
    Erased(u64, bool),
    Refreshed(u64, Refreshed),
    /// The time of a request for the lease, and the owner of the lease, if any.
    Lease(Time, Result<Option<String>, String>),
    /// The store's nodes were asked for their counters.
    Polled(Polled),
}

/// Something done for the mount with this number, in this tenure; 0 for what belongs to none.
pub(crate) type Message = (usize, u64, Done);

/// The threads of one mount.
#[derive(Debug)]
pub(crate) struct Link {
    work: SyncSender<(u64, Work)>,
    /// Whether the steward leads: then the lease is put off instead of asked for.
    leads: Arc<AtomicBool>,
    ending: Option<Sender<()>>,
    lease: Option<JoinHandle<()>>,
    /// The thread that asks the store's nodes ends when this is gone.
    _polling: Option<Sender<()>>,
}

/// To the main thread.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    mount: usize,
    messages: Sender<Message>,
    waker: Arc<Waker>,
}

impl Home {
    pub(crate) fn new(mount: usize, messages: Sender<Message>, waker: Arc<Waker>) -> Self {
        Self { mount, messages, waker }
    }

    pub(crate) fn send(&self, tenure: u64, done: Done) {
        // The main thread is gone only when the process ends.
        if self.messages.send((self.mount, tenure, done)).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

impl Link {
    /// Starts the threads. `me` is the steward's name for the lease.
    pub(crate) fn start(name: &str, settings: &MountSettings, me: &str, home: Home) -> Result<Self, Failure> {
        if let Some(file) = &settings.cache_password_file {
            let found = password::read_first(file);
            found.map_err(|why| Failure(format!("cache_password_file of mount {name}: {why}")))?;
        }
        let (work, asked) = sync_channel(QUEUE_MAX);
        let (ending, ended) = channel();
        let leads = Arc::new(AtomicBool::new(false));
        let failed = |error: std::io::Error| Failure(format!("no thread for mount {name}: {error}"));
        let store = Store::new(name, settings, TIMEOUT);
        let to = home.clone();
        std::thread::Builder::new()
            .name(format!("work-{name}"))
            .spawn(move || run_work(store, &asked, &to))
            .map_err(failed)?;
        let polling = poll::start(name, settings, Arc::clone(&leads), home.clone()).map_err(failed)?;
        let store = Store::new(name, settings, LEASE_TIMEOUT);
        let (me, flag) = (me.to_owned(), Arc::clone(&leads));
        let lease = std::thread::Builder::new()
            .name(format!("lease-{name}"))
            .spawn(move || run_lease(store, &me, &flag, &ended, &home))
            .map_err(failed)?;
        Ok(Self {
            work,
            leads,
            ending: Some(ending),
            lease: Some(lease),
            _polling: polling,
        })
    }

    /// Asks for something. Returns false if too much is waiting.
    pub(crate) fn ask(&self, tenure: u64, work: Work) -> bool {
        self.work.try_send((tenure, work)).is_ok()
    }

    pub(crate) fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::SeqCst);
    }

    /// Gives the lease back, so that a spare need not wait for its end.
    pub(crate) fn end(mut self) {
        self.ending.take();
        if let Some(lease) = self.lease.take() {
            // A thread that panicked has reported that itself.
            let _ = lease.join();
        }
    }
}

/// The store, connected or not.
struct Store {
    name: String,
    address: String,
    password_file: Option<PathBuf>,
    timeout: Duration,
    connection: Option<Connection>,
    /// When the last attempt to connect failed, and why.
    failed: Option<(Time, String)>,
}

impl Store {
    fn new(name: &str, settings: &MountSettings, timeout: Duration) -> Self {
        Self {
            name: name.to_owned(),
            address: settings.cache.clone(),
            password_file: settings.cache_password_file.clone(),
            timeout,
            connection: None,
            failed: None,
        }
    }

    /// Sends commands, and returns their replies.
    fn call(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Value>, String> {
        let connection = self.connect()?;
        let mut replies = Vec::with_capacity(commands.len());
        for chunk in commands.chunks(PIPELINE) {
            for command in chunk {
                let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                connection.send(&words);
            }
            for _ in chunk {
                match connection.reply() {
                    Ok(Value::Error(why)) if why.starts_with("NOAUTH") => {
                        self.connection = None;
                        let (name, address) = (&self.name, &self.address);
                        return Err(format!(
                            "{address} needs a password: set cache_password_file in [mount.{name}] to a file with it"
                        ));
                    }
                    Ok(reply) => replies.push(reply),
                    Err(failure) => {
                        // Replies of what was sent could be taken for others.
                        self.connection = None;
                        return Err(failure.0);
                    }
                }
            }
        }
        Ok(replies)
    }

    fn connect(&mut self) -> Result<&mut Connection, String> {
        if self.connection.is_none() {
            let now = clock::mono();
            if let Some((at, why)) = &self.failed
                && now - *at < RECONNECT
            {
                return Err(why.clone());
            }
            match self.open() {
                Ok(connection) => {
                    self.failed = None;
                    self.connection = Some(connection);
                }
                Err(why) => {
                    self.failed = Some((clock::mono(), why.clone()));
                    return Err(why);
                }
            }
        }
        self.connection.as_mut().ok_or_else(|| "no connection".to_owned())
    }

    fn open(&self) -> Result<Connection, String> {
        let address = &self.address;
        let found = address.to_socket_addrs();
        let found: Vec<SocketAddr> = found.map_err(|error| format!("{address}: {error}"))?.collect();
        let mut why = format!("{address} has no address");
        for address in found {
            match Connection::open(&address.into(), self.timeout) {
                Ok(mut connection) => {
                    self.authenticate(&mut connection)?;
                    return Ok(connection);
                }
                Err(failure) => why = failure.0,
            }
        }
        Err(why)
    }

    /// Tells the store the password, if there is one. The file is read each time, so a new password needs no restart.
    fn authenticate(&self, connection: &mut Connection) -> Result<(), String> {
        let Some(file) = &self.password_file else {
            return Ok(());
        };
        let (name, address) = (&self.name, &self.address);
        let password = password::read(file).map_err(|why| format!("cache_password_file of [mount.{name}]: {why}"))?;
        connection.send(&[b"AUTH", password.bytes()]);
        match connection.reply().map_err(|failure| failure.0)? {
            Value::Simple(_) => Ok(()),
            Value::Error(why) if why.contains("without any password configured") => {
                tracing::warn!(
                    mount = name,
                    address,
                    "the cache store has no password and takes everybody"
                );
                Ok(())
            }
            Value::Error(why) if why.starts_with("WRONGPASS") => Err(format!(
                "{address} refuses the password: mend cache_password_file of [mount.{name}], {}",
                file.display()
            )),
            other => Err(format!("{address} answers AUTH with {other:?}")),
        }
    }

    fn record_key(&self, file: File) -> Vec<u8> {
        format!("{{f:{}}}:p:{file}", self.name).into_bytes()
    }

    fn store(&mut self, file: File, record: &Record) -> bool {
        let set = command(&[
            b"SET",
            &self.record_key(file),
            record.to_json().as_bytes(),
            b"EX",
            EXPIRY_S,
        ]);
        matches!(self.call(&[set]).as_deref(), Ok([Value::Simple(_)]))
    }

    /// Runs a command on every parity key, some at a time. `None` if the store is away or answers with errors, else
    /// the sum of the answers.
    fn on_parity(&mut self, file: File, token: u64, geometry: Geometry, name: &[u8], last: &[&[u8]]) -> Option<u64> {
        let name_of_mount = self.name.clone();
        let mut keys = geometry.keys(&name_of_mount, file, token);
        let mut sum = 0;
        loop {
            let commands: Vec<_> = keys
                .by_ref()
                .take(PIPELINE)
                .map(|key| command(&[&[name, key.as_bytes()], last].concat()))
                .collect();
            if commands.is_empty() {
                return Some(sum);
            }
            for reply in self.call(&commands).ok()? {
                let Value::Integer(count) = reply else {
                    return None;
                };
                sum += count as u64;
            }
        }
    }

    fn erase(&mut self, token: u64, file: File, geometry: Geometry, record: bool) -> bool {
        if self.on_parity(file, token, geometry, b"DEL", &[]).is_none() {
            return false;
        }
        let del = command(&[b"DEL", &self.record_key(file)]);
        !record || matches!(self.call(&[del]).as_deref(), Ok([Value::Integer(_)]))
    }

    fn refresh(&mut self, token: u64, file: File, geometry: Geometry) -> Refreshed {
        let expire = command(&[b"EXPIRE", &self.record_key(file), EXPIRY_S]);
        if !matches!(self.call(&[expire]).as_deref(), Ok([Value::Integer(_)])) {
            return Refreshed::Away;
        }
        match self.on_parity(file, token, geometry, b"EXPIRE", &[EXPIRY_S]) {
            None => Refreshed::Away,
            Some(count) if count == geometry.keys_count() => Refreshed::Whole,
            Some(_) => Refreshed::Missing,
        }
    }

    /// Reads all records. They have one hash slot: Paritas scans it alone, other stores scan all keys.
    fn load(&mut self) -> Result<Vec<(File, Record)>, String> {
        let prefix = format!("{{f:{}}}:p:", self.name);
        let pattern = format!("{prefix}*");
        // The store says which: it may have rules for it.
        let asked = self
            .call(&[command(&[b"CLUSTER", b"KEYSLOT", prefix.as_bytes()])])?
            .pop();
        let (slot, mut one_slot) = match asked {
            Some(Value::Integer(slot)) => (slot.to_string(), true),
            _ => (String::new(), false),
        };
        let (mut cursor, mut keys) = (b"0".to_vec(), Vec::new());
        loop {
            let mut scan = command(&[b"SCAN", &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", b"1000"]);
            if one_slot {
                scan.extend(command(&[b"SLOT", slot.as_bytes()]));
            }
            match self.call(&[scan])?.pop() {
                Some(Value::Array(parts)) => {
                    let [Value::Bulk(next), Value::Array(found)] = parts.as_slice() else {
                        return Err("the answer to SCAN is not two parts".to_owned());
                    };
                    cursor.clone_from(next);
                    keys.extend(found.iter().filter_map(|key| match key {
                        Value::Bulk(key) => Some(key.clone()),
                        _ => None,
                    }));
                }
                Some(Value::Error(_)) if one_slot && keys.is_empty() => {
                    one_slot = false;
                    continue;
                }
                other => return Err(format!("the answer to SCAN is {other:?}")),
            }
            if keys.len() > RECORDS_MAX {
                return Err(format!("more than {RECORDS_MAX} records"));
            }
            if cursor == b"0" {
                break;
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let gets: Vec<_> = keys.iter().map(|key| command(&[b"GET", key])).collect();
        let replies = self.call(&gets)?;
        let mut records = Vec::new();
        for (key, reply) in keys.iter().zip(replies) {
            let name = String::from_utf8_lossy(key);
            let file = name.strip_prefix(&prefix).and_then(|id| id.parse().ok());
            match (file, reply) {
                // It expired meanwhile.
                (_, Value::Null) => {}
                (Some(file), Value::Bulk(bytes)) => match Record::from_json(&bytes) {
                    Ok(record) => records.push((file, record)),
                    Err(why) => tracing::warn!(key = %name, %why, "this record is ignored"),
                },
                (None, _) => tracing::warn!(key = %name, "this is not the key of a record"),
                (_, Value::Error(why)) => return Err(why),
                (_, other) => tracing::warn!(key = %name, ?other, "this record is ignored"),
            }
        }
        Ok(records)
    }

    /// Whose the lease is, after asking for it or putting it off.
    fn lease(&mut self, me: &str, leads: bool) -> Result<Option<String>, String> {
        let key = format!("{{f:{}}}:lead", self.name).into_bytes();
        let expiry = LEASE.as_ms().to_string();
        let first = match leads {
            true => command(&[b"PEXPIRE", &key, expiry.as_bytes()]),
            false => command(&[b"SET", &key, me.as_bytes(), b"NX", b"PX", expiry.as_bytes()]),
        };
        let mut replies = self.call(&[first, command(&[b"GET", &key])])?.into_iter();
        if let Some(Value::Error(why)) = replies.next() {
            return Err(why);
        }
        match replies.next() {
            Some(Value::Bulk(name)) => Ok(Some(String::from_utf8_lossy(&name).into_owned())),
            Some(Value::Null) => Ok(None),
            Some(Value::Error(why)) => Err(why),
            other => Err(format!("the answer to GET is {other:?}")),
        }
    }
}

fn command(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

fn run_work(mut store: Store, asked: &Receiver<(u64, Work)>, home: &Home) {
    while let Ok((tenure, work)) = asked.recv() {
        let done = match work {
            Work::Load => Done::Loaded(store.load()),
            Work::Store(token, file, record) => Done::Stored(token, store.store(file, &record)),
            Work::Erase(token, file, geometry, record) => {
                Done::Erased(token, store.erase(token, file, geometry, record))
            }
            Work::Refresh(token, file, geometry) => Done::Refreshed(token, store.refresh(token, file, geometry)),
        };
        home.send(tenure, done);
    }
}

fn run_lease(mut store: Store, me: &str, leads: &AtomicBool, ended: &Receiver<()>, home: &Home) {
    loop {
        let (asked, led) = (clock::mono(), leads.load(Ordering::SeqCst));
        home.send(0, Done::Lease(asked, store.lease(me, led)));
        let every = Duration::from_nanos(ASK_EVERY.0);
        if ended.recv_timeout(every) == Err(RecvTimeoutError::Disconnected) {
            break;
        }
    }
    // Only a leader deletes the key, and while it leads the key is nobody else's.
    if leads.load(Ordering::SeqCst) && store.lease(me, true).is_ok_and(|owner| owner.as_deref() == Some(me)) {
        let key = format!("{{f:{}}}:lead", store.name).into_bytes();
        // A key that remains expires.
        let _ = store.call(&[command(&[b"DEL", &key])]);
    }
}
