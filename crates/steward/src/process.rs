//! The process: reads settings, starts threads, and runs the loop that connects clients, mounts and links.

use crate::clients::Clients;
use crate::link::{Home, Link, Message};
use crate::metrics::{self, Asked};
use crate::mount::{Mount, Told};
use crate::replies;
use crate::settings::StewardSettings;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use paritas_base::{Prng, Time};
use paritas_files::lease::Lease;
use paritas_files::request;
use paritas_files::steward::{Asker, Reply};
use paritas_io::{clock, entropy, signals};
use paritas_node::password;
use paritas_node::{Failure, print, start_logging};
use paritas_wire::resp::encode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CLIENT: usize = 2;
/// Longest wait without looking for a signal to stop.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// Runs a steward until it is asked to stop.
///
/// # Errors
/// If the settings are wrong or the address is taken.
pub fn run(config: &Path) -> Result<(), Failure> {
    let settings = StewardSettings::read(config)?;
    start_logging(settings.log.map(|log| log.0));
    signals::watch_stop();
    let mut process = Process::start(&settings)?;
    print(format_args!("steward listens on {}", process.address))?;
    let outcome = process.serve();
    for (_, mount) in process.mounts {
        mount.link().end();
    }
    outcome
}

struct Process {
    poll: Poll,
    listener: TcpListener,
    /// By which clients reach this steward.
    address: String,
    clients: Clients,
    names: BTreeMap<String, usize>,
    mounts: BTreeMap<usize, Mount>,
    messages: Receiver<Message>,
    /// Where figures are to go; nothing ever comes if they are not served.
    metrics: Receiver<Asked>,
}

impl Process {
    fn start(settings: &StewardSettings) -> Result<Self, Failure> {
        let password = settings.password_file.as_deref().map(password::read_first).transpose();
        let password = password.map_err(|why| Failure(format!("password_file: {why}")))?;
        let listen = settings.listen();
        let failed = |error: std::io::Error| Failure(format!("{listen}: {error}"));
        let poll = Poll::new().map_err(failed)?;
        let mut listener = TcpListener::bind(listen).map_err(|error| {
            Failure(format!(
                "cannot listen on {listen}: {error}. Set listen to another address or port"
            ))
        })?;
        let bound = listener.local_addr().map_err(failed)?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(failed)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(failed)?);
        let address = settings.advertise.clone().unwrap_or_else(|| bound.to_string());
        let metrics = serve_metrics(settings.metrics_listen, &waker)?;
        let (sender, messages) = channel();
        let (mut names, mut mounts) = (BTreeMap::new(), BTreeMap::new());
        for (number, (name, mount)) in settings.mount.iter().enumerate() {
            let seed = entropy::random_u64().map_err(failed)?;
            let me = format!("{address} {:016x}", entropy::random_u64().map_err(failed)?);
            let home = Home::new(number, sender.clone(), Arc::clone(&waker));
            let link = Link::start(name, mount, &me, home)?;
            names.insert(name.clone(), number);
            mounts.insert(
                number,
                Mount::new(name, mount.clone(), link, Lease::new(me), Prng::new(seed)),
            );
        }
        Ok(Self {
            poll,
            listener,
            address,
            clients: Clients::new(FIRST_CLIENT, settings.clients_max(), password),
            names,
            mounts,
            messages,
            metrics,
        })
    }

    fn serve(&mut self) -> Result<(), Failure> {
        let mut events = Events::with_capacity(1024);
        let mut more_to_accept = false;
        while !signals::stop_requested() {
            let at_once = more_to_accept || self.clients.has_more();
            let wait = if at_once { Duration::ZERO } else { self.wait() };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(Failure(format!("poll: {error}"))),
                _ => {}
            }
            let now = clock::mono();
            let mut told = Vec::new();
            for event in &events {
                match event.token() {
                    LISTENER => more_to_accept = true,
                    WAKER => {}
                    _ => {
                        let mut run = runner(now, &self.names, &mut self.mounts, &mut told, &self.address);
                        self.clients.on_event(now, event, &mut run);
                    }
                }
            }
            let mut run = runner(now, &self.names, &mut self.mounts, &mut told, &self.address);
            self.clients.resume(now, &mut run);
            drop(run);
            if more_to_accept {
                more_to_accept = self.clients.accept(now, &self.listener, self.poll.registry());
            }
            while let Ok((mount, tenure, done)) = self.messages.try_recv() {
                if let Some(mount) = self.mounts.get_mut(&mount) {
                    mount.on_done(clock::mono(), tenure, done, &mut told);
                }
            }
            for mount in self.mounts.values_mut() {
                mount.on_time(now, &mut told);
            }
            self.answer(now, told);
            while let Ok(asked) = self.metrics.try_recv() {
                let text = metrics::text(now, &self.clients, &self.names, &mut self.mounts);
                // Who has waited too long is gone.
                let _ = asked.try_send(text);
            }
            self.clients.sweep(now);
        }
        Ok(())
    }

    /// Sends answers. A client that gets one may have sent its next command already.
    fn answer(&mut self, now: Time, mut told: Vec<(Asker, Told)>) {
        while !told.is_empty() {
            let mut more = Vec::new();
            for (asker, answer) in told {
                let mut run = runner(now, &self.names, &mut self.mounts, &mut more, &self.address);
                let append = |out: &mut Vec<u8>| append(out, &answer);
                self.clients.answer(now, asker.0 as usize, append, &mut run);
            }
            told = more;
        }
    }

    fn wait(&self) -> Duration {
        let now = clock::mono();
        let next = self.mounts.values().filter_map(Mount::next_deadline).min();
        next.map_or(WAIT_MAX, |next| Duration::from_nanos((next - now).0).min(WAIT_MAX))
    }
}

/// Serves figures, if there is an address for them.
fn serve_metrics(listen: Option<SocketAddr>, waker: &Arc<Waker>) -> Result<Receiver<Asked>, Failure> {
    let (source, asked) = metrics::source(Arc::clone(waker));
    if let Some(listen) = listen {
        let bound = paritas_io::metrics::serve(listen, source).map_err(|error| {
            Failure(format!(
                "cannot serve metrics on {listen}: {error}. Set metrics_listen to another address or port, \
                 or leave it out"
            ))
        })?;
        tracing::info!(address = %bound, "serves metrics");
    }
    Ok(asked)
}

/// Runs one command of a client. An answer that is there at once is appended.
fn runner<'a>(
    now: Time,
    names: &'a BTreeMap<String, usize>,
    mounts: &'a mut BTreeMap<usize, Mount>,
    told: &'a mut Vec<(Asker, Told)>,
    address: &'a str,
) -> impl FnMut(usize, &[&[u8]], &mut Vec<u8>) -> bool + 'a {
    move |client, words, out| {
        if replies::common(out, words) {
            return true;
        }
        if words.len() == 1 && words[0].eq_ignore_ascii_case(b"FILES.STATUS") {
            let status: serde_json::Map<String, Value> = names
                .iter()
                .filter_map(|(name, number)| Some((name.clone(), mounts.get_mut(number)?.status(now))))
                .collect();
            let status = json!({"steward": address, "mounts": status});
            encode::bulk(out, status.to_string().as_bytes());
            return true;
        }
        let (name, request) = match request::parse(words) {
            Some(Ok(parsed)) => parsed,
            Some(Err(why)) => {
                replies::append(out, &Reply::Error(why));
                return true;
            }
            None => {
                let name = String::from_utf8_lossy(words.first().unwrap_or(&&b""[..]));
                let name: String = name.chars().take(40).collect();
                let text = format!("unknown command '{name}': a steward has FILES.* and PING");
                replies::append(out, &Reply::Error(text));
                return true;
            }
        };
        let Some(mount) = names.get(name).and_then(|number| mounts.get_mut(number)) else {
            let text = format!("there is no mount {name}: add [mount.{name}] to the steward's settings");
            replies::append(out, &Reply::Error(text));
            return true;
        };
        let mut answers = Vec::new();
        mount.on_request(now, Asker(client as u64), request, &mut answers);
        let mut is_answered = false;
        for (asker, answer) in answers {
            if asker.0 == client as u64 {
                append(out, &answer);
                is_answered = true;
            } else {
                told.push((asker, answer));
            }
        }
        is_answered
    }
}

fn append(out: &mut Vec<u8>, told: &Told) {
    match told {
        Told::Reply(reply) => replies::append(out, reply),
        Told::NotLeader(leader) => encode::error(out, &format!("NOTLEADER {leader}")),
    }
}
