//! The coordinator's port: connections are lines only once they have proven who they are. Until then each has one
//! thread, and there are few of them.

use crate::Failure;
use crate::line::{answer, why_refused};
use paritas_control::rights::Speaker;
use paritas_io::clock;
use paritas_io::door::{self, Door, Late, Unproven};
use paritas_protocol::LinkId;
use paritas_wire::greeting::{Greeting, Role, SecretId};
use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Wait after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Time between two looks whether there is room for one more.
const ROOM_AGAIN: Duration = Duration::from_millis(10);

/// A connection whose other end has proven who it is.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) link: LinkId,
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) by: Speaker,
}

#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    address: SocketAddr,
    about: Unproven<LinkId>,
}

/// The connections that have not proven anything.
#[derive(Clone, Debug, Default)]
struct Strangers(Arc<Mutex<BTreeMap<LinkId, Stranger>>>);

impl Strangers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<LinkId, Stranger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self) -> bool {
        let unproven: Vec<_> = self.all().values().map(|stranger| stranger.about).collect();
        door::has_room(&unproven, clock::mono())
    }

    /// One more. Returns the one that gives way to it.
    fn add(&self, link: LinkId, stranger: Stranger, is_own_machine: bool) -> Option<Stranger> {
        let mut all = self.all();
        let unproven: Vec<_> = all.values().map(|stranger| stranger.about).collect();
        let leaves = door::gives_way(&unproven, stranger.about.address, is_own_machine);
        all.insert(link, stranger);
        leaves.and_then(|link| all.remove(&link))
    }

    /// Whether it was still there.
    fn remove(&self, link: LinkId) -> bool {
        self.all().remove(&link).is_some()
    }
}

/// Starts the thread that accepts. `tell` returns false once nobody is to be admitted any more.
pub(crate) fn start(
    listener: TcpListener,
    door: Arc<Door>,
    tell: impl Fn(Admitted) -> bool + Clone + Send + 'static,
) -> Result<(), Failure> {
    let started = thread::Builder::new()
        .name("accept".into())
        .spawn(move || accept_all(&listener, &door, &tell));
    started
        .map(drop)
        .map_err(|error| Failure(format!("no thread: {error}")))
}

fn accept_all(listener: &TcpListener, door: &Arc<Door>, tell: &(impl Fn(Admitted) -> bool + Clone + Send + 'static)) {
    let strangers = Strangers::default();
    for link in (1..).map(LinkId) {
        while !strangers.has_room() {
            thread::sleep(ROOM_AGAIN);
        }
        let accepted = listener.accept().and_then(|(stream, address)| {
            let is_own_machine = door::is_own_machine(address, stream.local_addr()?);
            Ok((stream.try_clone()?, stream, address, is_own_machine))
        });
        let (second, stream, address, is_own_machine) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                thread::sleep(ACCEPT_AGAIN);
                continue;
            }
        };
        let about = Unproven {
            key: link,
            address: address.ip(),
            since: clock::mono(),
        };
        let stranger = Stranger {
            stream: second,
            address,
            about,
        };
        if let Some(leaves) = strangers.add(link, stranger, is_own_machine) {
            let _ = leaves.stream.shutdown(Shutdown::Both);
            door.refusals.note(Some(leaves.address), &Late::Crowded);
        }
        let unheard = strangers.clone();
        let (strangers, door, tell) = (strangers.clone(), Arc::clone(door), tell.clone());
        let hear = move || {
            let mut stream = stream;
            let heard = answer(&mut stream, &door, is_own_machine);
            if !strangers.remove(link) {
                // It gave way to another.
                return;
            }
            match heard {
                Ok(greeting) => {
                    let by = speaker(&greeting, is_own_machine);
                    tell(Admitted {
                        link,
                        stream,
                        address,
                        by,
                    });
                }
                Err(unknown) => {
                    if let Some(why) = why_refused(&unknown) {
                        door.refusals.note(Some(address), &why);
                    }
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("greet".into()).spawn(hear) {
            tracing::warn!(%error, "connection refused: no thread");
            unheard.remove(link);
        }
    }
}

fn speaker(greeting: &Greeting, is_own_machine: bool) -> Speaker {
    match greeting.role {
        Role::Node => Speaker::Node(greeting.from.node, greeting.from.incarnation),
        Role::Supervisor => Speaker::Supervisor,
        Role::Operator if is_own_machine || greeting.secret != SecretId::NONE => Speaker::Operator,
        // `answer` takes no coordinator.
        Role::Operator | Role::Coordinator => Speaker::Guest,
    }
}
