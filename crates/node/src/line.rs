//! Frames between a process and its coordinator. They are rare and small, so they use blocking TCP on their own
//! threads. Neither a busy shard nor a stuck peer delays a heartbeat (P10.2b).

use paritas_base::Span;
use paritas_control::message::split;
use paritas_io::silence::end_when_silent;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most frames that wait for a slow reader. With more, the line is closed, and its dialer makes a new one.
const WAITING_MAX: usize = 1_024;
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time that a dialer has for its first frame. An unknown dialer that sends nothing must not keep a line.
const FIRST_FRAME: Duration = Duration::from_secs(10);
/// Time without an acknowledgement by the other end's system after which the line ends.
const SILENCE: Span = Span::from_secs(5);

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
    /// Starts the two threads of an accepted connection. `tell` runs on the reader's thread, and returns false to end
    /// the line.
    pub(crate) fn start(
        stream: TcpStream,
        frame_max: usize,
        tell: impl FnMut(Arrived) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_within(stream, frame_max, Some(FIRST_FRAME), tell)
    }

    /// The same for a dialed connection. It has no limit for the first frame, because a coordinator may have nothing to
    /// send for a long time.
    pub(crate) fn start_dialed(
        stream: TcpStream,
        frame_max: usize,
        tell: impl FnMut(Arrived) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_within(stream, frame_max, None, tell)
    }

    fn start_within(
        stream: TcpStream,
        frame_max: usize,
        first: Option<Duration>,
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
            let mut first = first.map(|timeout| Instant::now() + timeout);
            loop {
                let read = match first.take() {
                    Some(until) => read_first_frame(&mut input, frame_max, until),
                    None => read_frame(&mut input, frame_max),
                };
                match read {
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

fn read_first_frame(stream: &mut TcpStream, bytes_max: usize, until: Instant) -> io::Result<Vec<u8>> {
    let frame = read_frame(&mut ReadUntil { stream, until }, bytes_max)?;
    stream.set_read_timeout(None)?;
    Ok(frame)
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
        let near = Line::start_dialed(near, MAX, |_| true).unwrap();
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

    #[test]
    fn a_line_is_ended_without_a_first_frame_in_time_and_not_for_a_later_one() {
        const LIMIT: Duration = Duration::from_millis(100);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let accept = |says: &[u8]| {
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            near.write_all(says).unwrap();
            let (seen, arrived) = channel();
            let tell = move |arrived| seen.send(arrived).is_ok();
            let far = listener.accept().unwrap().0;
            (near, Line::start_within(far, MAX, Some(LIMIT), tell).unwrap(), arrived)
        };
        let frame = encode(&7_u8, MAX).unwrap();
        for says in [&[][..], &frame[..frame.len() - 1]] {
            let (_near, _far, arrived) = accept(says);
            assert!(matches!(arrived.recv_timeout(TIMEOUT).unwrap(), Arrived::Down));
        }
        let (_near, _far, arrived) = accept(&frame);
        assert!(matches!(arrived.recv_timeout(TIMEOUT).unwrap(), Arrived::Frame(_)));
        assert!(
            arrived.recv_timeout(LIMIT * 5).is_err(),
            "the line ended although it had sent a frame"
        );
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
        let _near = Line::start_dialed(near, MAX, |_| true).unwrap();
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
