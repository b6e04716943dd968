//! All events of a run, and the queue that orders them by time.

use crate::faults::Fault;
use crate::governed::Control;
use crate::world::World;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ConnId, Incarnation, ListId, NodeId, Position, Span};
use paritas_client::LinkId as GuestLinkId;
use paritas_protocol::paritylog::Io;
use paritas_protocol::{Channel, Event, LinkId, Proposal};

#[derive(Debug)]
pub(crate) enum SimEvent {
    Timer(usize, Incarnation),
    TurnEnd(usize, Incarnation),
    Flush(usize, Incarnation),
    LinkUp {
        link: LinkId,
        at: usize,
        incarnation: Incarnation,
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
        incarnation: Incarnation,
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
    GuestWakes(usize),
    GuestUp {
        guest: usize,
        link: GuestLinkId,
    },
    GuestSends {
        guest: usize,
        link: GuestLinkId,
        bytes: Vec<u8>,
    },
    GuestReads {
        guest: usize,
        link: GuestLinkId,
        bytes: Vec<u8>,
    },
    GuestLost {
        guest: usize,
        link: GuestLinkId,
    },
    Restart(usize),
    Detect {
        at: usize,
        incarnation: Incarnation,
        certified: bool,
    },
    Fault(Fault),
    Replace(ListId, Position),
    /// No frames reach this node for a time.
    Deafen(usize, Span),
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
/// does not do the work when it is called. Such a process never rests. One that hands over large values to itself, a
/// piece in each turn, rests after some hundred turns.
const SPIN: Span = Span::from_ms(10);
const SPINS_MAX: u32 = 5_000;

impl World {
    pub(crate) fn happen(&mut self, what: SimEvent) {
        let process = self.governed.is_some().then(|| self.process_of_event(&what)).flatten();
        let forward = process.and_then(|(at, incarnation)| Some((at, self.fleet.bring_forward(at, incarnation)?)));
        self.happen_here(what);
        if let Some((at, n)) = forward {
            self.fleet.put_back(at, n);
        }
    }

    /// The process that an event is for, if it is for one.
    fn process_of_event(&self, what: &SimEvent) -> Option<(usize, Incarnation)> {
        match what {
            SimEvent::Timer(at, incarnation)
            | SimEvent::TurnEnd(at, incarnation)
            | SimEvent::Flush(at, incarnation)
            | SimEvent::DialFailed { at, incarnation, .. }
            | SimEvent::LinkUp { at, incarnation, .. }
            | SimEvent::LinkDown { at, incarnation, .. } => Some((*at, *incarnation)),
            SimEvent::Frame { link, at, .. } => Some((*at, self.network.end_of(*link, *at)?)),
            SimEvent::ClientUp { client, conn } | SimEvent::ClientSends { client, conn, .. } => {
                let (node, incarnation, current) = self.workload.clients[*client].conn?;
                (current == *conn).then_some((usize::from(node.0), incarnation))
            }
            SimEvent::GuestUp { guest, link } | SimEvent::GuestSends { guest, link, .. } => {
                self.end_of_guest(*guest, *link)
            }
            SimEvent::Control(what) => {
                let (at, incarnation) = what.agent()?;
                Some((usize::from(self.node_at(at).0), incarnation))
            }
            _ => None,
        }
    }

    fn happen_here(&mut self, what: SimEvent) {
        match what {
            SimEvent::Timer(at, incarnation) => {
                let now = self.schedule.now;
                let Some(process) = self.fleet.alive(at, incarnation).filter(|p| p.timer_at == Some(now)) else {
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
                let Some(process) = self.fleet.alive(at, incarnation) else {
                    return;
                };
                if process.paused_until > now {
                    let until = process.resumes_at();
                    process.timer_at = Some(until);
                    self.schedule.push_at(until, SimEvent::Timer(at, incarnation));
                    return;
                }
                self.turn(at, incarnation, Event::Timer, || SimEvent::Timer(at, incarnation));
            }
            SimEvent::TurnEnd(at, incarnation) => {
                if self.fleet.alive(at, incarnation).is_some_and(|p| p.turn_open) {
                    if self.fleet.is_paused(at, self.schedule.now) {
                        let until = self.fleet.resumes_at(at, self.schedule.now);
                        self.schedule.push_at(until, SimEvent::TurnEnd(at, incarnation));
                    } else {
                        self.end_turn(at, incarnation);
                    }
                }
            }
            SimEvent::Flush(at, incarnation) => {
                if self.fleet.alive(at, incarnation).is_some() {
                    self.flush(at);
                }
            }
            SimEvent::LinkUp {
                link,
                at,
                incarnation,
                dialed,
            } => {
                if self.network.end_of(link, at).is_none() {
                    // It broke before this end had it. For the dialer that is a failed dial.
                    if let (Some((node, channel)), Some(_)) = (dialed, self.fleet.alive(at, incarnation)) {
                        self.schedule.push(
                            Span(1),
                            SimEvent::DialFailed {
                                at,
                                incarnation,
                                node,
                                channel,
                            },
                        );
                    }
                    return;
                }
                if let Some(process) = self.fleet.alive(at, incarnation) {
                    process.out.open(link);
                    let Some((other, run)) = self.network.other_end(link, at) else {
                        return;
                    };
                    let from = (NodeId(other as u16), run);
                    self.turn(at, incarnation, Event::LinkUp { link, from, dialed }, || {
                        SimEvent::LinkUp {
                            link,
                            at,
                            incarnation,
                            dialed,
                        }
                    });
                }
            }
            SimEvent::DialFailed {
                at,
                incarnation,
                node,
                channel,
            } => {
                if self.fleet.alive(at, incarnation).is_some() {
                    let again = || SimEvent::DialFailed {
                        at,
                        incarnation,
                        node,
                        channel,
                    };
                    self.turn(at, incarnation, Event::DialFailed { node, channel }, again);
                }
            }
            SimEvent::LinkDown { link, at, incarnation } => {
                let Some(process) = self.fleet.alive(at, incarnation) else {
                    return;
                };
                process.out.forget(link);
                self.turn(at, incarnation, Event::LinkDown { link }, || SimEvent::LinkDown {
                    link,
                    at,
                    incarnation,
                });
            }
            SimEvent::Frame { link, at, bytes } => {
                let Some(incarnation) = self.network.end_of(link, at) else {
                    return self.network.spare_frame(bytes);
                };
                if self.fleet.alive(at, incarnation).is_some_and(|p| p.out.is_open(link)) {
                    self.note_frame(link, at);
                    let copy = if self.fleet.is_paused(at, self.schedule.now) {
                        bytes.clone()
                    } else {
                        Vec::new()
                    };
                    let again = || SimEvent::Frame { link, at, bytes: copy };
                    self.turn(at, incarnation, Event::Frame { link, bytes: &bytes }, again);
                    self.cut_at_reply(at, &bytes);
                }
                self.network.spare_frame(bytes);
            }
            SimEvent::Disk { at, incarnation, io } => {
                if self.fleet.alive(at, incarnation).is_some() && self.fleet.is_paused(at, self.schedule.now) {
                    let until = self.fleet.resumes_at(at, self.schedule.now);
                    self.schedule.push_at(until, SimEvent::Disk { at, incarnation, io });
                } else if let Some(bytes) = self.fleet.do_disk_work(at, incarnation, &io) {
                    let (id, outcome) = (io.id, Ok(bytes));
                    // The process is not stopped here.
                    self.turn(at, incarnation, Event::Disk { id, outcome }, || SimEvent::Nodes { at });
                }
            }
            SimEvent::Push { at, .. } | SimEvent::Nodes { at } if self.network.is_cut_off(self.schedule.now, at) => {}
            SimEvent::Push { at, configuration } => {
                let Some(incarnation) = self.fleet.processes[at].as_ref().map(|p| p.incarnation) else {
                    return;
                };
                let copy = configuration.clone();
                let again = || SimEvent::Push {
                    at,
                    configuration: copy,
                };
                self.turn(at, incarnation, Event::Configuration(&configuration), again);
            }
            SimEvent::Nodes { at } => {
                let Some(incarnation) = self.fleet.processes[at].as_ref().map(|p| p.incarnation) else {
                    return;
                };
                let records = self.fleet.records.clone();
                self.turn(at, incarnation, Event::Nodes(&records), || SimEvent::Nodes { at });
            }
            SimEvent::ClientWakes(client) => self.client_wakes(client),
            SimEvent::ClientUp { client, conn } => self.client_up(client, conn),
            SimEvent::ClientSends { client, conn, bytes } => self.client_sends(client, conn, bytes),
            SimEvent::ClientReads { client, conn, bytes } => self.client_reads(client, conn, &bytes),
            SimEvent::ClientLost { client, conn } => self.client_lost(client, conn),
            SimEvent::GuestWakes(guest) => self.guest_wakes(guest),
            SimEvent::GuestUp { guest, link } => self.guest_up(guest, link),
            SimEvent::GuestSends { guest, link, bytes } => self.guest_sends(guest, link, bytes),
            SimEvent::GuestReads { guest, link, bytes } => self.guest_reads(guest, link, &bytes),
            SimEvent::GuestLost { guest, link } => self.guest_lost(guest, link),
            SimEvent::Restart(at) => self.start(at),
            SimEvent::Detect {
                at,
                incarnation,
                certified,
            } => self.detect(at, incarnation, certified),
            SimEvent::Fault(fault) => {
                if !self.schedule.healing {
                    self.strike(fault);
                    self.schedule.plan(&self.swarm, fault);
                }
            }
            SimEvent::Control(what) => self.happen_control(what),
            SimEvent::Deafen(at, lasts) => self.deafen(at, lasts),
            SimEvent::Replace(list, position) => {
                if !self.schedule.healing && self.governed.is_none() {
                    self.replace_again(list, position);
                }
            }
            SimEvent::Drain { list, position, tenure } => self.ask_to_drain(list, position, tenure),
            SimEvent::Drained { list, position, tenure } => self.on_drained(list, position, tenure),
            SimEvent::Proposed(proposal) => self.take_proposal(&proposal, true),
            SimEvent::PushAll => {
                // While faults go on, pushed configurations are delayed and lost like other messages: nodes must inform
                // each other.
                for at in 0..self.fleet.processes.len() {
                    if self.schedule.healing || !self.schedule.random.chance(500_000 + self.swarm.push_drop) {
                        for list in self.committed.lists() {
                            let configuration = Box::new(self.committed.configuration(list).clone());
                            self.schedule.push(Span(0), SimEvent::Push { at, configuration });
                        }
                        self.schedule.push(Span(0), SimEvent::Nodes { at });
                    }
                }
                for list in self.committed.lists() {
                    self.fill_vacancies(list);
                }
                let wait = if self.schedule.healing {
                    50
                } else {
                    self.schedule.random.between(20, 300)
                };
                self.schedule.push(Span::from_ms(wait), SimEvent::PushAll);
            }
        }
    }
}
