//! A machine with one-line commands. Each command exercises one rule of the interface.

use paritas_base::{Clock, ConnId, Incarnation, NodeId, Span, Time};
use paritas_io::door::{Door, SharedSecrets};
use paritas_io::{Limits, Listeners, Machine, Mailbox, Progress, Proposals, Shard, Stop, clock};
use paritas_protocol::{Answer, Channel, Event, HaltReason, LinkId, Out, Proposal};
use paritas_wire::greeting::{Caller, Greeting, Process, Reason, Role, Secrets, split};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Events that the machine received, for the tests to check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    ClientUp(ConnId),
    ClientDown(ConnId),
    LinkUp(LinkId, bool),
    LinkDown(LinkId),
    DialFailed(NodeId),
    Frame(LinkId, Vec<u8>),
    Timer,
}

pub(crate) struct Lines {
    seen: Sender<Seen>,
    stalled: Vec<ConnId>,
    held: Vec<ConnId>,
    at_turn_end: Vec<ConnId>,
    /// For each waiting segment in a client's buffer, its length when it was written.
    segments: VecDeque<(ConnId, usize)>,
    timer: Option<Time>,
    /// Bytes of input that were scanned; bytes scanned twice count twice.
    pub(crate) looked_at: u64,
}

impl Lines {
    fn command(&mut self, now: Clock, conn: ConnId, line: &str, out: &mut impl Out) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match words[0] {
            "PING" => say(out, conn, b"PONG\n"),
            "ECHO" => say(out, conn, format!("{line}\n").as_bytes()),
            "BIG" => say(out, conn, &vec![b'x'; number(1) as usize]),
            "BYE" => {
                say(out, conn, b"bye\n");
                say(out, conn, &vec![b'x'; number(1) as usize]);
                out.client(conn).unwrap().close = true;
            }
            // Writes a reply that waits until somebody sends FREE.
            "HOLD" => {
                out.client(conn).unwrap().bytes.extend_from_slice(b"held\n");
                self.held.push(conn);
            }
            "FREE" => {
                for conn in self.held.drain(..) {
                    if let Some(reply) = out.client(conn) {
                        reply.released = reply.bytes.len();
                    }
                }
                say(out, conn, b"freed\n");
            }
            // Writes a long reply that may leave, and two segments after it that wait.
            "SEGMENTS" => {
                say(out, conn, &vec![b'x'; number(1) as usize]);
                for segment in ["first\n", "second\n"] {
                    out.client(conn).unwrap().bytes.extend_from_slice(segment.as_bytes());
                    self.segments.push_back((conn, segment.len()));
                }
            }
            // Releases the next segment by its original length, whatever has happened to the buffer.
            "RELEASE" => {
                if let Some((conn, length)) = self.segments.pop_front()
                    && let Some(reply) = out.client(conn)
                {
                    reply.released += length;
                    reply.deadline = (words.get(1) == Some(&"late")).then_some(now.mono);
                }
                say(out, conn, b"released\n");
            }
            // Writes a reply that may leave at the end of the turn.
            "WRITE" => {
                out.client(conn).unwrap().bytes.extend_from_slice(b"written\n");
                self.at_turn_end.push(conn);
            }
            // The next command cannot start until somebody sends GO.
            "STALL" => {
                say(out, conn, b"stalled\n");
                out.client(conn).unwrap().stalled = true;
                self.stalled.push(conn);
            }
            "GO" => {
                for conn in self.stalled.drain(..) {
                    if let Some(reply) = out.client(conn) {
                        reply.stalled = false;
                    }
                }
                say(out, conn, b"gone\n");
            }
            "LATE" => {
                say(out, conn, b"too late\n");
                out.client(conn).unwrap().deadline = Some(now.mono);
            }
            "SOON" => {
                say(out, conn, b"in time\n");
                out.client(conn).unwrap().deadline = Some(now.mono + Span::from_secs(3600));
            }
            "TIMER" => {
                self.timer = Some(now.mono + Span::from_ms(number(1)));
                say(out, conn, b"set\n");
            }
            "DIAL" => {
                out.dial(NodeId(number(1) as u16), Channel::Main);
                say(out, conn, b"dialing\n");
            }
            "CLOSE" => {
                out.close(LinkId(number(1)));
                say(out, conn, b"closing\n");
            }
            "SEND" => {
                let frames = out.peer(NodeId(number(1) as u16), Channel::Main);
                let answer: &[u8] = match frames {
                    Some(frames) => {
                        for n in 0..number(2) {
                            crate::peers::forward(&mut frames.bytes, n, &[7; 1000]);
                        }
                        if words.get(3) == Some(&"late") {
                            frames.deadline = Some(now.mono);
                        }
                        b"sent\n"
                    }
                    None => b"nobody\n",
                };
                say(out, conn, answer);
            }
            "ASK" => out.propose(Proposal::Ask { conn, n: number(1) }),
            "HALT" => out.halt(HaltReason("as asked".into())),
            "LOOKED" => say(out, conn, format!("{}\n", self.looked_at).as_bytes()),
            _ => say(out, conn, b"what?\n"),
        }
    }
}

fn say(out: &mut impl Out, conn: ConnId, text: &[u8]) {
    let reply = out.client(conn).unwrap();
    reply.bytes.extend_from_slice(text);
    reply.released = reply.bytes.len();
}

impl Machine for Lines {
    fn on(&mut self, now: Clock, event: Event<'_>, out: &mut impl Out) {
        let seen = match event {
            Event::Client { conn, bytes } => {
                self.looked_at += bytes.len() as u64;
                let mut at = 0;
                while let Some(end) = bytes[at..].iter().position(|byte| *byte == b'\n') {
                    let line = std::str::from_utf8(&bytes[at..at + end]).unwrap();
                    self.command(now, conn, line, out);
                    at += end + 1;
                    let reply = out.client(conn).unwrap();
                    if reply.stalled || reply.bytes.len() > SOFT_MAX {
                        break;
                    }
                }
                out.client(conn).unwrap().consumed = at;
                return;
            }
            Event::Answer { conn, answer, .. } => {
                let Answer::Text(text) = answer else { return };
                say(out, conn, text.as_bytes());
                return;
            }
            Event::Configuration(_)
            | Event::Nodes(_)
            | Event::Drain { .. }
            | Event::Suspicion { .. }
            | Event::ActiveVersion(_)
            | Event::Disk { .. } => {
                return;
            }
            Event::TurnEnd => {
                for conn in self.at_turn_end.drain(..) {
                    if let Some(reply) = out.client(conn) {
                        reply.released = reply.bytes.len();
                    }
                }
                return;
            }
            Event::Timer => {
                // The timer may fire too early.
                if self.timer.is_none_or(|timer| now.mono < timer) {
                    return;
                }
                self.timer = None;
                Seen::Timer
            }
            Event::ClientUp { conn, .. } => Seen::ClientUp(conn),
            Event::ClientDown { conn } => Seen::ClientDown(conn),
            Event::LinkUp { link, dialed, .. } => {
                if let Some((node, channel)) = dialed {
                    out.bind(link, node, channel);
                }
                Seen::LinkUp(link, dialed.is_some())
            }
            Event::LinkDown { link } => Seen::LinkDown(link),
            Event::DialFailed { node, .. } => Seen::DialFailed(node),
            Event::Frame { link, bytes } => Seen::Frame(link, bytes.to_vec()),
        };
        // The test may have ended.
        let _ = self.seen.send(seen);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.timer
    }
}

pub(crate) const SOFT_MAX: usize = 1 << 20;

/// What every process of these tests says of itself: it is node 2.
pub(crate) fn door() -> Door {
    let from = Process {
        node: NodeId(2),
        incarnation: Incarnation(20),
    };
    let secrets = SharedSecrets::default();
    secrets.replace(Secrets::of_file(&[b's'; 64]).unwrap());
    Door::new(Role::Node, from, 1, secrets)
}

/// A shard on its own thread, stopped when dropped.
pub(crate) struct Running {
    pub(crate) any: SocketAddr,
    pub(crate) cluster: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) mailbox: Mailbox,
    pub(crate) proposals: Proposals,
    pub(crate) progress: Progress,
    seen: Receiver<Seen>,
    thread: Option<JoinHandle<Stop>>,
}

impl Running {
    pub(crate) fn start(limits: Limits) -> Self {
        let free = "127.0.0.1:0".parse().unwrap();
        let listeners = Listeners::bind(free, free, free).unwrap();
        let [any, cluster, peer] = listeners.addresses().unwrap();
        let (seen_in, seen) = channel();
        let machine = Lines {
            seen: seen_in,
            stalled: Vec::new(),
            held: Vec::new(),
            at_turn_end: Vec::new(),
            segments: VecDeque::new(),
            timer: None,
            looked_at: 0,
        };
        let (mut shard, mailbox, proposals, progress) = Shard::new(machine, listeners, limits, door()).unwrap();
        let thread = std::thread::spawn(move || shard.run());
        Self {
            any,
            cluster,
            peer,
            mailbox,
            proposals,
            progress,
            seen,
            thread: Some(thread),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.any)
    }

    /// The next event of the machine that `pick` accepts.
    pub(crate) fn seen<T>(&self, pick: impl FnMut(Seen) -> Option<T>) -> T {
        self.seen_within(TIMEOUT, pick)
            .expect("the machine was not told in time")
    }

    /// The same, if there is one within this time.
    pub(crate) fn seen_within<T>(&self, time: Duration, mut pick: impl FnMut(Seen) -> Option<T>) -> Option<T> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let seen = self.seen.recv_timeout(left).ok()?;
            if let Some(found) = pick(seen) {
                return Some(found);
            }
        }
    }

    pub(crate) fn ended(&mut self) -> Stop {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.mailbox.post(paritas_io::Mail::Stop);
            let _ = thread.join();
        }
    }
}

/// A blocking client.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    /// A peer that has proven who it is.
    pub(crate) fn peer(address: SocketAddr) -> Self {
        let mut client = Self::to(address);
        let answer = client.call(&door().greeting(door().from, 0, 1).unwrap(), &door());
        client.0.write_all(&answer.unwrap()).unwrap();
        client
    }

    /// Calls with a greeting. Returns the proof that is to follow, or why there is none.
    pub(crate) fn call(&mut self, greeting: &Greeting, door: &Door) -> Result<Vec<u8>, Reason> {
        let (caller, call) = Caller::new(greeting.clone(), &door.secrets.now());
        self.0.write_all(&call).unwrap();
        let answer = self.packet();
        caller.on_answer(&answer).map(|(_, proof)| proof)
    }

    fn packet(&mut self) -> Vec<u8> {
        let mut packet = vec![0; 6];
        self.0.read_exact(&mut packet).unwrap();
        assert_eq!(split(&packet), Ok(None));
        packet.resize(usize::from(u16::from_le_bytes([packet[4], packet[5]])), 0);
        self.0.read_exact(&mut packet[6..]).unwrap();
        packet
    }

    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn expect(&mut self, text: &str) {
        let mut bytes = vec![0; text.len()];
        self.0.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), text);
    }

    /// Reads until the other side closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is also an end.
        let _ = self.0.read_to_end(&mut bytes);
        bytes
    }
}

#[test]
fn the_clock_goes_forward() {
    let first = clock::mono();
    assert!(clock::mono() >= first);
    assert!(clock::wall_ms() > 1_500_000_000_000);
}
