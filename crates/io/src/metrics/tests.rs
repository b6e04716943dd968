use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A server whose text is `a N`, N the number of texts that were made.
fn start() -> SocketAddr {
    let made = AtomicU64::new(0);
    let source = move || Some(format!("a {}\n", made.fetch_add(1, Ordering::Relaxed) + 1));
    serve(SocketAddr::from(([127, 0, 0, 1], 0)), Box::new(source)).unwrap()
}

fn connect(server: SocketAddr) -> std::net::TcpStream {
    let stream = std::net::TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn ask(server: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(server);
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_scraper_gets_the_text() {
    let server = start();
    let answer = ask(server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
    assert!(answer.contains("\r\nContent-Length: 4\r\n") && answer.ends_with("\r\n\r\na 1\n"));
    let head = ask(server, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn other_requests_are_answered_with_what_to_do() {
    let server = start();
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 20_000]].concat();
    for (request, status, why) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404", "/metrics"),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404", "/metrics"),
        (
            b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405",
            "use GET",
        ),
        (b"PING\r\n\r\n", "400", "not a request"),
        (b"*1\r\n$4\r\nPING\r\n\r\n", "400", "not a request"),
        (b"GET /metrics HTTP/2\r\n\r\n", "400", "not a request"),
        (b"\xff\xff\n\n", "400", "not a request"),
        (&long, "431", "8 KiB"),
    ] {
        let answer = ask(server, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(why),
            "{answer}"
        );
    }
}

#[test]
fn connections_that_say_nothing_do_not_keep_others_out() {
    let server = start();
    let mut silent: Vec<_> = (0..3 * CONNECTIONS_MAX).map(|_| connect(server)).collect();
    silent[0].write_all(b"GET /metr").unwrap();
    assert!(ask(server, b"GET /metrics HTTP/1.1\r\n\r\n").contains(" 200 "));
    // The oldest were closed for the others.
    let mut end = [0];
    assert!(matches!(silent[1].read(&mut end), Ok(0) | Err(_)));
}

#[test]
fn a_text_serves_all_who_ask_within_a_second() {
    let server = start();
    let before = clock::mono();
    let mut made = 0;
    for _ in 0..200 {
        let answer = ask(server, b"GET /metrics HTTP/1.1\r\n\r\n");
        made = answer.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    }
    let seconds = (clock::mono() - before).0 / 1_000_000_000;
    assert!((1..=2 + seconds).contains(&made), "{made} texts in {seconds} s");
}

#[test]
fn a_busy_process_is_said_to_be() {
    let server = serve(SocketAddr::from(([127, 0, 0, 1], 0)), Box::new(|| None)).unwrap();
    assert!(ask(server, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
}
