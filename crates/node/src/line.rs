//! Frames between a process and its coordinator. They are rare and small, so they use blocking TCP on their own
//! threads. Neither a busy shard nor a stuck peer delays a heartbeat (P10.2b). A connection becomes a line when both
//! ends have proven who they are.

use paritas_base::Span;
use paritas_control::message::split;
use paritas_io::door::{Door, Late, PROVE_WITHIN};
use paritas_io::silence::end_when_silent;
use paritas_wire::greeting::{self, Called, Caller, Greeting, Process, Reason, Refused, Role, SecretId, Secrets};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most frames that wait for a slow reader. With more, the line is closed, and its dialer makes a new one.
const WAITING_MAX: usize = 1_024;
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time without an acknowledgement by the other end's system after which the line ends.
const SILENCE: Span = Span::from_secs(5);

/// Why two ends do not know each other.
#[derive(Debug)]
pub(crate) enum Unknown {
    /// The connection failed, or ended.
    Io(io::Error),
    /// One of them has refused the other.
    Refused(Reason),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
                f.write_str("it closed the connection: is it a coordinator, of this version?")
            }
            Self::Io(error) => error.fmt(f),
            Self::Refused(reason) => reason.fmt(f),
        }
    }
}

impl From<io::Error> for Unknown {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Reason> for Unknown {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}

/// Calls the coordinator at the other end of a fresh connection: each proves to the other who it is.
pub(crate) fn call(stream: &mut TcpStream, door: &Door, session: u64, within: Duration) -> Result<Greeting, Unknown> {
    let until = Instant::now() + within;
    stream.set_write_timeout(Some(within))?;
    let (caller, call) = Caller::new(door.greeting(Process::NONE, 0, session)?, &door.secrets.now());
    stream.write_all(&call)?;
    let answer = read_packet(&mut ReadUntil { stream, until })?;
    let (greeting, proof) = caller.on_answer(&answer)?;
    if greeting.role != Role::Coordinator {
        return Err(Reason::Role.into());
    }
    stream.write_all(&proof)?;
    stream.set_read_timeout(None)?;
    Ok(greeting)
}

/// Answers whoever has called the coordinator. An operator without a secret is taken on the own machine.
pub(crate) fn answer(stream: &mut TcpStream, door: &Door, is_own_machine: bool) -> Result<Greeting, Unknown> {
    let until = Instant::now() + Duration::from_nanos(PROVE_WITHIN.0);
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let call = read_packet(&mut ReadUntil { stream, until })?;
    let greeting = Greeting::of_call(&call).map_err(Reason::from)?;
    let is_trusted = is_own_machine && greeting.role == Role::Operator && greeting.secret == SecretId::NONE;
    let secrets = if is_trusted {
        Arc::new(Secrets::default())
    } else {
        door.secrets.now()
    };
    let own = door.greeting(Process::NONE, 0, 0)?;
    let (called, answer) = match Called::on_call(&call, &secrets, own, may_call) {
        Ok(answered) => answered,
        Err(Refused { reason, packet }) => {
            // It is told why, if it still listens.
            let _ = packet.map(|packet| stream.write_all(&packet));
            return Err(reason.into());
        }
    };
    stream.write_all(&answer)?;
    let proof = read_packet(&mut ReadUntil { stream, until })?;
    let greeting = called.on_proof(&proof)?;
    stream.set_read_timeout(None)?;
    Ok(greeting)
}

fn may_call(greeting: &Greeting) -> Result<(), Reason> {
    match greeting.role {
        Role::Node if greeting.from.incarnation.0 == 0 => Err(Reason::Process),
        Role::Node | Role::Supervisor | Role::Operator => Ok(()),
        Role::Coordinator => Err(Reason::Role),
    }
}

/// Why a connection that was answered is refused, for the log. `None`: it has only gone, or never said anything.
pub(crate) fn why_refused(unknown: &Unknown) -> Option<String> {
    match unknown {
        Unknown::Refused(reason) => Some(reason.to_string()),
        Unknown::Io(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
            Some(Late::Overdue.to_string())
        }
        Unknown::Io(_) => None,
    }
}

/// An event of a line's reader.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// A complete frame. Its contents are not checked yet.
    Frame(Vec<u8>),
    /// The line has ended. Reported once, as the last event.
    Down,
}

/// A connection. Dropping it closes it at once.
#[derive(Debug)]
pub(crate) struct Line {
    stream: Option<TcpStream>,
    waiting: SyncSender<Vec<u8>>,
}

impl Line {
    /// Starts the two threads of a connection whose ends know each other. `tell` runs on the reader's thread, and
    /// returns false to end the line.
    pub(crate) fn start(
        stream: TcpStream,
        frame_max: usize,
        mut tell: impl FnMut(Arrived) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        if let Err(error) = end_when_silent(&stream, SILENCE) {
            tracing::warn!(%error, "a control line uses the system's timeouts: setting its own failed");
        }
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let (waiting, frames) = sync_channel(WAITING_MAX);
        let mut input = stream.try_clone()?;
        let output = stream.try_clone()?;
        thread::Builder::new()
            .name("line-write".into())
            .spawn(move || write_all(output, &frames))?;
        thread::Builder::new().name("line-read".into()).spawn(move || {
            loop {
                match read_frame(&mut input, frame_max) {
                    Ok(frame) => {
                        if !tell(Arrived::Frame(frame)) {
                            break;
                        }
                    }
                    Err(error) => {
                        // An orderly end of the stream is another kind of error.
                        if error.kind() == ErrorKind::InvalidData {
                            tracing::warn!(%error, "control line closed");
                        }
                        break;
                    }
                }
            }
            let _ = input.shutdown(Shutdown::Both);
            tell(Arrived::Down);
        })?;
        Ok(Self {
            stream: Some(stream),
            waiting,
        })
    }

    /// Sends a frame. If too many frames wait, the line is closed instead, and its reader reports the end.
    pub(crate) fn send(&self, frame: Vec<u8>) {
        if self.waiting.try_send(frame).is_err()
            && let Some(stream) = &self.stream
        {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes the line once all waiting frames are sent.
    pub(crate) fn finish(mut self) {
        // The writer closes the connection at the end of its queue.
        self.stream = None;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn write_all(mut stream: TcpStream, frames: &Receiver<Vec<u8>>) {
    while let Ok(mut bytes) = frames.recv() {
        // Frames that already wait go into the same write.
        while let Ok(frame) = frames.try_recv() {
            bytes.extend_from_slice(&frame);
        }
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn read_packet(stream: &mut impl Read) -> Result<Vec<u8>, Unknown> {
    // Magic and length.
    let mut packet = vec![0; 6];
    stream.read_exact(&mut packet)?;
    greeting::split(&packet).map_err(Reason::from)?;
    // `split` has checked the length: a packet has at most 2 KiB.
    packet.resize(usize::from(u16::from_le_bytes([packet[4], packet[5]])), 0);
    stream.read_exact(&mut packet[6..])?;
    Ok(packet)
}

/// A reader with one deadline for all bytes, however slowly they arrive.
struct ReadUntil<'a> {
    stream: &'a mut TcpStream,
    until: Instant,
}

impl Read for ReadUntil<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(to)
    }
}

fn read_frame(stream: &mut impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame)?;
    split(&frame, bytes_max).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    // The length is followed by a CRC and that many bytes. `split` checks that the length is within bounds.
    let left = 4 + u64::from(u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]));
    // The buffer grows with the bytes received: a length from an unknown sender must not cause an allocation.
    stream.take(left).read_to_end(&mut frame)?;
    if (frame.len() as u64) < 4 + left {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_control::message::encode;
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    const MAX: usize = 64 << 10;
    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn frames_arrive_whole_and_in_order_and_the_end_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (seen, arrived) = channel();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let far = Line::start(far, MAX, move |arrived| seen.send(arrived).is_ok()).unwrap();
        let near = Line::start(near, MAX, |_| true).unwrap();
        let frame = |n: u32| encode(&vec![n; n as usize * 100], MAX).unwrap();
        for n in 0..100 {
            near.send(frame(n));
        }
        near.finish();
        for n in 0..100 {
            let Arrived::Frame(bytes) = arrived.recv_timeout(TIMEOUT).unwrap() else {
                panic!("the line ended at frame {n}");
            };
            assert_eq!(bytes, frame(n));
        }
        assert!(matches!(arrived.recv_timeout(TIMEOUT).unwrap(), Arrived::Down));
        drop(far);
    }

    /// On Linux, the table of connections shows a timer for a connection that probes its other end.
    #[cfg(target_os = "linux")]
    #[test]
    fn both_ends_of_an_idle_line_ask_whether_the_other_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends =
            [listener.local_addr().unwrap(), near.local_addr().unwrap()].map(|end| format!(":{:04X}", end.port()));
        let _far = Line::start(listener.accept().unwrap().0, MAX, |_| true).unwrap();
        let _near = Line::start(near, MAX, |_| true).unwrap();
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let asked = rows
            .filter(|row| (0..2).any(|at| row[1].ends_with(&ends[at]) && row[2].ends_with(&ends[1 - at])))
            .filter(|row| row[5].starts_with("02:"));
        assert_eq!(asked.count(), 2, "{table}");
    }

    #[test]
    fn impossible_lengths_and_broken_frames_are_errors() {
        let read = |bytes: &[u8]| read_frame(&mut &*bytes, 1000).map_err(|error| error.kind());
        let good = encode(&7_u8, 1000).unwrap();
        assert_eq!(read(&good), Ok(good.clone()));
        assert_eq!(read(&good[..good.len() - 1]), Err(ErrorKind::UnexpectedEof));
        assert_eq!(read(&good[..2]), Err(ErrorKind::UnexpectedEof));
        assert_eq!(read(&u32::MAX.to_le_bytes()), Err(ErrorKind::InvalidData));
        assert_eq!(read(&0_u32.to_le_bytes()), Err(ErrorKind::InvalidData));
    }
}
