//! All events of a run, and the queue that orders them by time.

use crate::faults::Fault;
use crate::governed::Control;
use crate::world::World;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ConnId, Incarnation, ListId, NodeId, Position, Span, Time};
use paritas_protocol::paritylog::Io;
use paritas_protocol::{Channel, Event, LinkId, Proposal};
use std::cmp::Ordering;

#[derive(Debug)]
pub(crate) enum Happening {
    Timer(usize, Incarnation),
    TurnEnd(usize, Incarnation),
    Flush(usize, Incarnation),
    LinkUp {
        link: LinkId,
        at: usize,
        dialed: Option<(NodeId, Channel)>,
    },
    DialFailed {
        at: usize,
        incarnation: Incarnation,
        node: NodeId,
        channel: Channel,
    },
    LinkDown {
        link: LinkId,
        at: usize,
    },
    Frame {
        link: LinkId,
        at: usize,
        bytes: Vec<u8>,
    },
    Disk {
        at: usize,
        incarnation: Incarnation,
        io: Box<Io>,
    },
    Push {
        at: usize,
        configuration: Box<Configuration>,
    },
    Nodes {
        at: usize,
    },
    ClientWakes(usize),
    ClientUp {
        conn: ConnId,
        client: usize,
    },
    ClientSends {
        client: usize,
        conn: ConnId,
        bytes: Vec<u8>,
    },
    ClientReads {
        client: usize,
        conn: ConnId,
        bytes: Vec<u8>,
    },
    ClientLost {
        client: usize,
        conn: ConnId,
    },
    Restart(usize),
    Detect {
        at: usize,
        incarnation: Incarnation,
        certified: bool,
    },
    Fault(Fault),
    Replace(ListId, Position),
    Drain {
        list: ListId,
        position: Position,
        tenure: Tenure,
    },
    Drained {
        list: ListId,
        position: Position,
        tenure: Tenure,
    },
    /// A proposal that was delayed on its way.
    Proposed(Box<Proposal>),
    PushAll,
    Control(Control),
}
/// A process with too many timer events within this time keeps a core busy without progress: it asks to be called, but
/// does not do the work when it is called.
const SPIN: Span = Span::from_ms(1);
const SPINS_MAX: u32 = 500;

/// An event and its time. Of two events at the same time, the one planned first comes first.
pub(crate) struct Queued {
    pub(crate) at: Time,
    pub(crate) n: u64,
    pub(crate) what: Happening,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.n == other.n
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.n).cmp(&(self.at, self.n))
    }
}

impl World {
    pub(crate) fn happen(&mut self, what: Happening) {
        match what {
            Happening::Timer(at, incarnation) => {
                let now = self.now;
                let Some(process) = self.alive(at, incarnation).filter(|p| p.timer_at == Some(now)) else {
                    return;
                };
                process.timer_at = None;
                let (since, count) = process.spins;
                process.spins = if now - since < SPIN {
                    (since, count + 1)
                } else {
                    (now, 1)
                };
                if process.spins.1 > SPINS_MAX && !self.exhaustive {
                    self.violate(format!("L1: n{at} has timer events without progress"));
                    return;
                }
                let Some(process) = self.alive(at, incarnation) else {
                    return;
                };
                if process.paused_until > now {
                    let until = process.resumes_at();
                    process.timer_at = Some(until);
                    self.push_at(until, Happening::Timer(at, incarnation));
                    return;
                }
                self.turn(at, incarnation, Event::Timer, || Happening::Timer(at, incarnation));
            }
            Happening::TurnEnd(at, incarnation) => {
                if self.alive(at, incarnation).is_some_and(|p| p.turn_open) {
                    if self.is_paused(at) {
                        let until = self.processes[at].as_ref().map_or(self.now, |p| p.resumes_at());
                        self.push_at(until, Happening::TurnEnd(at, incarnation));
                    } else {
                        self.end_turn(at, incarnation);
                    }
                }
            }
            Happening::Flush(at, incarnation) => {
                if self.alive(at, incarnation).is_some() {
                    self.flush(at);
                }
            }
            Happening::LinkUp { link, at, dialed } => {
                let Some(incarnation) = self.end_of(link, at) else {
                    // It broke before this end had it. For the dialer that is a failed dial.
                    if let (Some((node, channel)), Some(process)) = (dialed, self.processes[at].as_ref()) {
                        let incarnation = process.incarnation;
                        self.push(
                            Span(1),
                            Happening::DialFailed {
                                at,
                                incarnation,
                                node,
                                channel,
                            },
                        );
                    }
                    return;
                };
                if let Some(process) = self.alive(at, incarnation) {
                    process.out.links.entry(link).or_default();
                    self.turn(at, incarnation, Event::LinkUp { link, dialed }, || Happening::LinkUp {
                        link,
                        at,
                        dialed,
                    });
                }
            }
            Happening::DialFailed {
                at,
                incarnation,
                node,
                channel,
            } => {
                if self.alive(at, incarnation).is_some() {
                    let again = || Happening::DialFailed {
                        at,
                        incarnation,
                        node,
                        channel,
                    };
                    self.turn(at, incarnation, Event::DialFailed { node, channel }, again);
                }
            }
            Happening::LinkDown { link, at } => {
                let Some(process) = self.processes[at].as_mut() else {
                    return;
                };
                let incarnation = process.incarnation;
                process.out.forget(link);
                self.turn(at, incarnation, Event::LinkDown { link }, || Happening::LinkDown {
                    link,
                    at,
                });
            }
            Happening::Frame { link, at, bytes } => {
                let Some(incarnation) = self.end_of(link, at) else {
                    return;
                };
                if self
                    .alive(at, incarnation)
                    .is_some_and(|p| p.out.links.contains_key(&link))
                {
                    self.note_frame(link, at);
                    let copy = if self.is_paused(at) { bytes.clone() } else { Vec::new() };
                    let again = || Happening::Frame { link, at, bytes: copy };
                    self.turn(at, incarnation, Event::Frame { link, bytes: &bytes }, again);
                }
            }
            Happening::Disk { at, incarnation, io } => {
                if self.alive(at, incarnation).is_some() && self.is_paused(at) {
                    let until = self.processes[at].as_ref().map_or(self.now, |p| p.resumes_at());
                    self.push_at(until, Happening::Disk { at, incarnation, io });
                } else if let Some(bytes) = self.do_disk_work(at, incarnation, &io) {
                    let (id, outcome) = (io.id, Ok(bytes));
                    // The process is not stopped here.
                    self.turn(at, incarnation, Event::Disk { id, outcome }, || Happening::Nodes { at });
                }
            }
            Happening::Push { at, .. } | Happening::Nodes { at } if self.is_cut_off(at) => {}
            Happening::Push { at, configuration } => {
                let Some(incarnation) = self.processes[at].as_ref().map(|p| p.incarnation) else {
                    return;
                };
                let copy = configuration.clone();
                let again = || Happening::Push {
                    at,
                    configuration: copy,
                };
                self.turn(at, incarnation, Event::Configuration(&configuration), again);
            }
            Happening::Nodes { at } => {
                let Some(incarnation) = self.processes[at].as_ref().map(|p| p.incarnation) else {
                    return;
                };
                let records = self.records.clone();
                self.turn(at, incarnation, Event::Nodes(&records), || Happening::Nodes { at });
            }
            Happening::ClientWakes(client) => self.client_wakes(client),
            Happening::ClientUp { client, conn } => self.client_up(client, conn),
            Happening::ClientSends { client, conn, bytes } => self.client_sends(client, conn, bytes),
            Happening::ClientReads { client, conn, bytes } => self.client_reads(client, conn, &bytes),
            Happening::ClientLost { client, conn } => self.client_lost(client, conn),
            Happening::Restart(at) => self.start(at),
            Happening::Detect {
                at,
                incarnation,
                certified,
            } => self.detect(at, incarnation, certified),
            Happening::Fault(fault) => {
                if !self.healing {
                    self.strike(fault);
                    self.plan(fault);
                }
            }
            Happening::Control(what) => self.happen_control(what),
            Happening::Replace(list, position) => {
                if !self.healing && self.governed.is_none() {
                    self.replace_again(list, position);
                }
            }
            Happening::Drain { list, position, tenure } => self.ask_to_drain(list, position, tenure),
            Happening::Drained { list, position, tenure } => self.on_drained(list, position, tenure),
            Happening::Proposed(proposal) => self.take_proposal(&proposal, true),
            Happening::PushAll => {
                // While faults go on, pushed configurations are delayed and lost like other messages: nodes must inform
                // each other.
                for at in 0..self.processes.len() {
                    if self.healing || !self.random.chance(500_000 + self.swarm.push_drop) {
                        for list in self.lists() {
                            let configuration = Box::new(self.configuration(list).clone());
                            self.push(Span(0), Happening::Push { at, configuration });
                        }
                        self.push(Span(0), Happening::Nodes { at });
                    }
                }
                for list in self.lists() {
                    self.fill_vacancies(list);
                }
                let wait = if self.healing { 50 } else { self.random.between(20, 300) };
                self.push(Span::from_ms(wait), Happening::PushAll);
            }
        }
    }
}
