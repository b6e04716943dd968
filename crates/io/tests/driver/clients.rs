use crate::machine::{Client, Running, Seen, TIMEOUT};
use paritas_base::Span;
use paritas_io::{Limits, Mail, Stop};
use paritas_protocol::{Answer, ClientLimits, Proposal};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

#[test]
fn pipelined_commands_are_answered_in_order_on_both_ports() {
    let shard = Running::start(Limits::default());
    for address in [shard.any, shard.cluster] {
        let mut clients: Vec<Client> = (0..20).map(|_| Client::to(address)).collect();
        for (who, client) in clients.iter_mut().enumerate() {
            let all: String = (0..1000).map(|n| format!("ECHO {who} {n}\n")).collect();
            client.send(&all);
        }
        for (who, client) in clients.iter_mut().enumerate() {
            let all: String = (0..1000).map(|n| format!("ECHO {who} {n}\n")).collect();
            client.expect(&all);
        }
    }
}

#[test]
fn a_command_may_come_in_pieces() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    for piece in ["E", "CH", "O one\nECHO t", "wo", "\nPING\n"] {
        client.send(piece);
        // A reply to another client shows that the first piece was read.
        let mut other = shard.client();
        other.send("PING\n");
        other.expect("PONG\n");
    }
    client.expect("ECHO one\nECHO two\nPONG\n");
}

#[test]
fn a_long_command_is_not_looked_at_too_often() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    let long = "a".repeat(8 << 20);
    let mut sender = Client(client.0.try_clone().unwrap());
    std::thread::spawn(move || sender.send(&format!("ECHO {long}\nPING\nLOOKED\n")));
    client.expect(&format!("ECHO {}\nPONG\n", "a".repeat(8 << 20)));
    let mut text = String::new();
    while !text.ends_with('\n') {
        let mut byte = [0];
        client.0.read_exact(&mut byte).unwrap();
        text.push(byte[0] as char);
    }
    let looked_at: u64 = text.trim().parse().unwrap();
    // Reads of 64 KiB each would scan 512 MiB for a command of 8 MiB.
    assert!(looked_at < 400 << 20, "{looked_at}");
}

#[test]
fn a_command_without_end_closes_the_connection() {
    let limits = Limits {
        clients: ClientLimits {
            query_bytes_max: 100_000,
            ..ClientLimits::default()
        },
        ..Limits::default()
    };
    let shard = Running::start(limits);
    let mut client = shard.client();
    client.send("PING\n");
    client.expect("PONG\n");
    // The connection may be closed before everything is sent.
    let _ = client.0.write_all(&[b'a'; 300_000]);
    assert_eq!(client.rest(), b"");
    shard.seen(|seen| matches!(seen, Seen::ClientDown(_)).then_some(()));
    let mut other = shard.client();
    other.send("PING\n");
    other.expect("PONG\n");
}

#[test]
fn replies_wait_until_they_are_released() {
    let shard = Running::start(Limits::default());
    let (mut first, mut second) = (shard.client(), shard.client());
    first.send("PING\nHOLD\n");
    first.expect("PONG\n");
    first.0.set_nonblocking(true).unwrap();
    second.send("PING\n");
    second.expect("PONG\n");
    let held = Read::read(&mut first.0, &mut [0; 10]).unwrap_err();
    assert_eq!(held.kind(), std::io::ErrorKind::WouldBlock);
    first.0.set_nonblocking(false).unwrap();
    second.send("FREE\n");
    second.expect("freed\n");
    first.expect("held\n");
}

#[test]
fn what_is_released_at_the_end_of_a_turn_leaves_in_it() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    client.send("PING\nWRITE\nWRITE\n");
    client.expect("PONG\nwritten\nwritten\n");
}

#[test]
fn a_stalled_client_goes_on_where_it_stopped() {
    let shard = Running::start(Limits::default());
    let (mut first, mut second) = (shard.client(), shard.client());
    first.send("STALL\nECHO a\nSTALL\nECHO b\n");
    first.expect("stalled\n");
    second.send("GO\n");
    second.expect("gone\n");
    first.expect("ECHO a\nstalled\n");
    // Sent while the client is stalled, read later.
    first.send("ECHO c\n");
    second.send("GO\n");
    second.expect("gone\n");
    first.expect("ECHO b\nECHO c\n");
}

#[test]
fn a_reply_past_its_deadline_never_leaves() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    client.send("SOON\n");
    client.expect("in time\n");
    client.send("PING\nLATE\n");
    assert_eq!(client.rest(), b"", "replies released too late must be dropped");
    shard.seen(|seen| matches!(seen, Seen::ClientDown(_)).then_some(()));
}

#[test]
fn a_late_reply_behind_a_backlog_ends_the_client_before_more_is_released() {
    const BYTES: usize = 30_000_000;
    let shard = Running::start(Limits {
        clients: ClientLimits {
            reply_bytes_max: 2 * BYTES,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let mut slow = shard.client();
    let conn = shard.seen(|seen| match seen {
        Seen::ClientUp(conn) => Some(conn),
        _ => None,
    });
    slow.send(&format!("SEGMENTS {BYTES}\n"));
    // Its first byte has arrived, so both segments wait in the buffer and the socket is full.
    slow.expect("x");
    let mut other = shard.client();
    other.send("RELEASE late\n");
    other.expect("released\n");
    other.send("RELEASE\n");
    other.expect("released\n");
    shard.seen(|seen| (seen == Seen::ClientDown(conn)).then_some(()));
    other.send("PING\n");
    other.expect("PONG\n");
    let rest = slow.rest();
    assert!(
        rest.len() < BYTES && rest.iter().all(|byte| *byte == b'x'),
        "{} bytes",
        rest.len()
    );
}

#[test]
fn a_slow_reader_gets_everything_and_does_not_hold_up_others() {
    const BYTES: usize = 200_000;
    let shard = Running::start(Limits {
        clients: ClientLimits {
            reply_bytes_max: 4 << 20,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let mut slow = shard.client();
    // 100 MB of replies to 3 KB of commands. If all started at once, the limit would close the connection.
    slow.send(&format!("BIG {BYTES}\n").repeat(500));
    let mut quick = shard.client();
    for _ in 0..50 {
        quick.send("PING\n");
        quick.expect("PONG\n");
    }
    let mut count = 0;
    let mut chunk = vec![0; 1 << 20];
    while count < 500 * BYTES {
        let got = Read::read(&mut slow.0, &mut chunk).unwrap();
        assert!(got > 0 && chunk[..got].iter().all(|byte| *byte == b'x'));
        count += got;
    }
    slow.send("PING\n");
    slow.expect("PONG\n");
}

/// Most clients send all commands of a pipeline before they read the first reply.
#[test]
fn a_client_that_reads_only_when_it_has_sent_everything_gets_all_replies() {
    const BYTES: usize = 500_000;
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    let (big, echo) = (format!("BIG {BYTES}\n"), format!("ECHO {}\n", "e".repeat(BYTES)));
    // 20 MB of replies, and as much after them to send.
    client.send(&format!("{big}{echo}").repeat(40));
    for _ in 0..40 {
        client.expect(&"x".repeat(BYTES));
        client.expect(&echo);
    }
}

#[test]
fn a_client_that_sends_more_than_may_wait_for_its_reading_is_read_again_when_it_reads() {
    const BYTES: usize = 1 << 20;
    let shard = Running::start(Limits {
        clients: ClientLimits {
            query_bytes_max: 2 * BYTES,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let mut client = shard.client();
    let mut sender = Client(client.0.try_clone().unwrap());
    let all = format!("BIG {BYTES}\nECHO {}\n", "e".repeat(1000)).repeat(40);
    let echos = format!("ECHO {}\n", "f".repeat(BYTES)).repeat(30);
    let sent = std::thread::spawn(move || sender.send(&(all + &echos)));
    // The node holds no more than it may, and serves others.
    let mut other = shard.client();
    other.send("PING\n");
    other.expect("PONG\n");
    for _ in 0..40 {
        client.expect(&"x".repeat(BYTES));
        client.expect(&format!("ECHO {}\n", "e".repeat(1000)));
    }
    for _ in 0..30 {
        client.expect(&format!("ECHO {}\n", "f".repeat(BYTES)));
    }
    sent.join().unwrap();
}

/// P8.3.
#[test]
fn input_read_ahead_of_replies_closes_no_client() {
    const BYTES: usize = 4 << 20;
    let shard = Running::start(Limits {
        clients: ClientLimits {
            bytes_max: 4 * BYTES,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let send = |mut client: Client| {
        std::thread::spawn(move || client.send(&format!("ECHO {}\n", "e".repeat(1000)).repeat(20_000)))
    };
    // Each has more replies than its socket takes, and sends more than all clients may hold.
    let mut clients: Vec<Client> = (0..3).map(|_| shard.client()).collect();
    let senders: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            client.send(&format!("BIG {}\n", BYTES / 4).repeat(30));
            send(Client(client.0.try_clone().unwrap()))
        })
        .collect();
    let mut other = shard.client();
    for _ in 0..100 {
        other.send("PING\n");
        other.expect("PONG\n");
    }
    for client in &mut clients {
        for _ in 0..30 {
            client.expect(&"x".repeat(BYTES / 4));
        }
        for _ in 0..20_000 {
            client.expect(&format!("ECHO {}\n", "e".repeat(1000)));
        }
    }
    for sender in senders {
        sender.join().unwrap();
    }
}

#[test]
fn a_client_that_takes_no_byte_of_its_replies_is_closed_and_a_slow_one_is_not() {
    const BYTES: usize = 30_000_000;
    let shard = Running::start(Limits {
        // This thread is the slow client, and a busy machine may stop it for seconds.
        unread_max: Span::from_secs(6),
        ..Limits::default()
    });
    let is_up = |seen: Seen| match seen {
        Seen::ClientUp(conn) => Some(conn),
        _ => None,
    };
    let (mut idle, mut slow) = (shard.client(), shard.client());
    // Connections may be accepted in any order.
    let _ = (shard.seen(is_up), shard.seen(is_up));
    idle.send(&format!("BIG {BYTES}\n"));
    slow.send(&format!("BIG {BYTES}\n"));
    let began = Instant::now();
    let mut ended = None;
    let mut read_bytes = 0;
    while ended.is_none() {
        assert!(began.elapsed() < TIMEOUT, "nobody was closed");
        // Enough that its socket takes more: a window opens by halves of the buffer.
        slow.expect(&"x".repeat(BYTES / 20));
        read_bytes += BYTES / 20;
        ended = shard.seen_within(Duration::from_secs(1), |seen| match seen {
            Seen::ClientDown(conn) => Some(conn),
            _ => None,
        });
    }
    assert!(
        idle.rest().len() < BYTES,
        "the client that reads nothing has got everything"
    );
    slow.expect(&"x".repeat(BYTES - read_bytes));
    slow.send("PING\n");
    slow.expect("PONG\n");
}

#[test]
fn one_reply_above_the_hard_limit_closes_the_connection() {
    let shard = Running::start(Limits {
        clients: ClientLimits {
            reply_bytes_max: 1 << 20,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let mut client = shard.client();
    client.send("BIG 30000000\n");
    // The client reads only now: a socket that is read meanwhile may accept a whole write.
    shard.seen(|seen| matches!(seen, Seen::ClientDown(_)).then_some(()));
    assert!(client.rest().len() < 30_000_000);
}

/// P8.3.
#[test]
fn of_clients_that_hold_too_much_together_the_heaviest_goes() {
    const MOST: usize = 4 << 20;
    let shard = Running::start(Limits {
        clients: ClientLimits {
            bytes_max: MOST,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    // Each client has sent a part of a command. None alone exceeds a limit.
    let mut clients = Vec::new();
    for part in [MOST / 10, MOST / 9, MOST / 3] {
        let mut client = shard.client();
        let conn = shard.seen(|seen| match seen {
            Seen::ClientUp(conn) => Some(conn),
            _ => None,
        });
        client.send(&"x".repeat(part));
        clients.push((client, conn));
    }
    let mut last = shard.client();
    last.send(&"x".repeat(MOST / 2));
    let ended = shard.seen(|seen| match seen {
        Seen::ClientDown(conn) => Some(conn),
        _ => None,
    });
    // A buffer that grows may have twice what it needs, so either of the two largest may be closed first.
    assert!(
        clients[..2].iter().all(|(_, conn)| *conn != ended),
        "{ended:?} was not the heaviest"
    );
    let mut modest = shard.client();
    modest.send("PING\n");
    modest.expect("PONG\n");
}

/// P8.3.
#[test]
fn one_client_may_hold_more_than_all_may_together_and_a_second_one_goes() {
    const MOST: usize = 1 << 20;
    let shard = Running::start(Limits {
        clients: ClientLimits {
            bytes_max: MOST,
            alone_bytes: 24 * MOST,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let mut first = shard.client();
    let is_up = |seen: Seen| match seen {
        Seen::ClientUp(conn) => Some(conn),
        _ => None,
    };
    shard.seen(is_up);
    // A part of a command stays in the buffer.
    first.send(&format!("PING {}", "x".repeat(8 * MOST)));
    first.send("\n");
    first.expect("PONG\n");
    first.send(&format!("PING {}", "x".repeat(8 * MOST)));
    let mut second = shard.client();
    let second_conn = shard.seen(is_up);
    // It may be closed before everything is sent.
    let _ = second.0.write_all(format!("PING {}", "x".repeat(6 * MOST)).as_bytes());
    let ended = shard.seen(|seen| match seen {
        Seen::ClientDown(conn) => Some(conn),
        _ => None,
    });
    // Whichever held most is closed, and the other goes on.
    if ended == second_conn {
        first.send("\n");
        first.expect("PONG\n");
    } else {
        second.send("\n");
        second.expect("PONG\n");
    }
}

#[test]
fn spare_buffers_are_freed_before_a_client_is_disconnected() {
    let shard = Running::start(Limits {
        clients: ClientLimits {
            bytes_max: 4 << 20,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let mut clients: Vec<_> = (0..16).map(|_| shard.client()).collect();
    // One after the other, within the time between two sweeps.
    for client in &mut clients {
        client.send("BIG 1000000\n");
        client.expect(&"x".repeat(1_000_000));
    }
    for client in &mut clients {
        client.send("PING\n");
        client.expect("PONG\n");
    }
}

#[test]
fn spare_capacity_of_growing_buffers_disconnects_no_client() {
    const BYTES: usize = 600_000;
    const CLIENTS: usize = 8;
    let shard = Running::start(Limits {
        clients: ClientLimits {
            bytes_max: (CLIENTS + 1) * BYTES,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    // A part of each client's command has arrived, in a buffer whose capacity was doubled while it grew.
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| shard.client()).collect();
    for client in &mut clients {
        client.send("ECHO ");
        client.send(&"x".repeat(BYTES));
    }
    for client in &mut clients {
        client.send("\n");
        client.expect(&format!("ECHO {}\n", "x".repeat(BYTES)));
    }
}

#[test]
fn one_client_too_many_is_told_so() {
    let shard = Running::start(Limits {
        clients: ClientLimits {
            clients_max: 2,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let (mut first, second) = (shard.client(), shard.client());
    first.send("PING\n");
    first.expect("PONG\n");
    let mut third = shard.client();
    assert_eq!(third.rest(), b"-ERR max number of clients reached\r\n");
    drop(second);
    shard.seen(|seen| matches!(seen, Seen::ClientDown(_)).then_some(()));
    let mut fourth = shard.client();
    fourth.send("PING\n");
    fourth.expect("PONG\n");
}

#[test]
fn clients_leave_descriptors_for_peers() {
    let (shard, other) = (
        Running::start(Limits {
            sockets_max: 30,
            ..Limits::default()
        }),
        Running::start(Limits::default()),
    );
    let mut taken = Vec::new();
    let refused = loop {
        let mut client = shard.client();
        client.send("PING\n");
        let mut byte = [0];
        client.0.read_exact(&mut byte).unwrap();
        if byte == *b"-" {
            break client.rest();
        }
        client.expect("ONG\n");
        taken.push(client);
    };
    assert_eq!(refused, b"ERR max number of clients reached\r\n");
    assert!((1..30).contains(&taken.len()), "{} clients", taken.len());
    // A peer can still be dialed, and a peer that dials is accepted.
    crate::peers::learn(&shard, &[(2, other.peer)]);
    taken[0].send("DIAL 2\n");
    taken[0].expect("dialing\n");
    shard.seen(|seen| matches!(seen, Seen::LinkUp(_, true)).then_some(()));
    let _peer = Client::peer(shard.peer);
    shard.seen(|seen| matches!(seen, Seen::LinkUp(_, false)).then_some(()));
    // The known peers take their share of the descriptors.
    let before = taken.len();
    drop(taken);
    // All stay connected, or a closed one leaves a descriptor for the next.
    let again: Vec<_> = (0..before)
        .map(|_| shard.client())
        .filter_map(|mut client| {
            client.send("PING\n");
            let mut byte = [0];
            client.0.read_exact(&mut byte).ok()?;
            (byte == *b"P").then_some(client)
        })
        .collect();
    assert!(again.len() < before, "{} of {before}", again.len());
}

#[test]
fn a_client_that_stops_sending_gets_its_last_replies() {
    let shard = Running::start(Limits::default());
    let (mut first, mut second) = (shard.client(), shard.client());
    first.send("PING\nHOLD\n");
    first.0.shutdown(Shutdown::Write).unwrap();
    first.expect("PONG\n");
    second.send("FREE\n");
    second.expect("freed\n");
    assert_eq!(first.rest(), b"held\n");
    let mut third = shard.client();
    third.send("ECHO half");
    third.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(third.rest(), b"");
}

#[test]
fn the_machine_may_close_a_client() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    client.send("BYE\nPING\n");
    assert!(client.rest().starts_with(b"bye\n"));
    shard.seen(|seen| matches!(seen, Seen::ClientDown(_)).then_some(()));
}

/// A socket that is closed while input waits, or comes later, sends a reset. It takes away what was not yet read.
#[test]
fn a_client_that_goes_on_sending_can_read_its_last_reply() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    client.send("BYE 100000\n");
    shard.seen(|seen| matches!(seen, Seen::ClientDown(_)).then_some(()));
    for _ in 0..100 {
        client.send(&"PING\n".repeat(10_000));
    }
    let mut reply = Vec::new();
    client.0.read_to_end(&mut reply).unwrap();
    assert_eq!(reply.len(), "bye\n".len() + 100_000);
    // The machine was told once, and given nothing more.
    shard.client().send("BYE\n");
    shard.seen(|seen| match seen {
        Seen::ClientUp(_) => Some(()),
        other => panic!("{other:?}"),
    });
}

/// The system reports that both sides have closed before all is read.
#[test]
fn a_client_that_has_sent_everything_can_read_its_last_reply() {
    let shard = Running::start(Limits::default());
    for _ in 0..20 {
        let mut client = shard.client();
        client.send(&("BYE 100000\n".to_owned() + &"PING\n".repeat(100_000)));
        client.0.shutdown(Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        client.0.read_to_end(&mut reply).unwrap();
        // The machine of these tests also answers what came with `BYE`.
        assert!(reply.len() >= "bye\n".len() + 100_000);
    }
}

#[test]
fn a_new_client_gets_the_place_of_one_that_leaves() {
    let shard = Running::start(Limits {
        clients: ClientLimits {
            clients_max: 1,
            ..ClientLimits::default()
        },
        ..Limits::default()
    });
    let mut first = shard.client();
    first.send("BYE\n");
    shard.seen(|seen| matches!(seen, Seen::ClientDown(_)).then_some(()));
    let mut second = shard.client();
    second.send("PING\n");
    second.expect("PONG\n");
    let mut third = shard.client();
    assert!(third.rest().starts_with(b"-ERR max number of clients"));
}

#[test]
fn a_client_that_is_closed_and_does_not_close_ends() {
    let shard = Running::start(Limits {
        linger: Span::from_ms(100),
        ..Limits::default()
    });
    let mut client = shard.client();
    client.send("BYE\n");
    client.expect("bye\n");
    let since = Instant::now();
    while client.0.write(b"PING\n").is_ok() {
        assert!(since.elapsed() < TIMEOUT);
        std::thread::yield_now();
    }
}

#[test]
fn a_client_that_is_closed_and_does_not_read_ends() {
    let shard = Running::start(Limits {
        linger: Span::from_ms(100),
        ..Limits::default()
    });
    let mut client = shard.client();
    client.send("BYE 30000000\n");
    shard.seen(|seen| matches!(seen, Seen::ClientDown(_)).then_some(()));
    assert!(client.rest().len() < 30_000_000);
}

/// The system finds a connection whose host has vanished. Its table of connections shows a timer for that.
#[cfg(target_os = "linux")]
#[test]
fn idle_clients_are_asked_whether_they_are_there() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    client.send("PING\n");
    client.expect("PONG\n");
    let ends = [shard.any.port(), client.0.local_addr().unwrap().port()].map(|port| format!(":{port:04X}"));
    let until = Instant::now() + TIMEOUT;
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row[1].ends_with(&ends[0]) && row[2].ends_with(&ends[1]));
        // If sent data is not yet acknowledged, another timer is shown.
        if row.is_some_and(|row| row[5].starts_with("02:")) {
            return;
        }
        assert!(Instant::now() < until, "no timer in {table}");
        std::thread::yield_now();
    }
}

#[test]
fn a_timer_rings_on_an_idle_loop() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    let start = Instant::now();
    client.send("TIMER 30\n");
    client.expect("set\n");
    shard.seen(|seen| (seen == Seen::Timer).then_some(()));
    assert!(start.elapsed().as_millis() >= 30);
    assert!(shard.progress.turns() > 0);
}

#[test]
fn questions_go_out_and_answers_come_in() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    client.send("ASK 9\n");
    let Proposal::Ask { conn, n } = shard.proposals.recv().unwrap() else {
        panic!("another proposal");
    };
    assert_eq!(n, 9);
    shard
        .mailbox
        .post(Mail::Answer {
            conn,
            n,
            answer: Answer::Text("forty-two\n".into()),
        })
        .unwrap();
    client.expect("forty-two\n");
}

#[test]
fn it_stops_when_told() {
    let mut shard = Running::start(Limits::default());
    shard.mailbox.post(Mail::Stop).unwrap();
    assert!(matches!(shard.ended(), Stop::Asked));
}

#[test]
fn a_role_that_halts_does_not_end_the_loop() {
    let shard = Running::start(Limits::default());
    let mut client = shard.client();
    client.send("HALT\nGO\n");
    client.expect("gone\n");
}
