//! The head of an HTTP request. Only its first line counts.

/// Longest head, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// The figures, or only the head of the answer.
    Metrics { head_only: bool },
    /// Something else: the answer's status and text.
    Wrong { status: &'static str, why: &'static str },
}

/// Reads a head. `None` until it is whole.
pub(super) fn parse(input: &[u8]) -> Option<Request> {
    let whole = input.windows(4).any(|end| end == b"\r\n\r\n") || input.windows(2).any(|end| end == b"\n\n");
    if !whole && input.len() <= HEAD_BYTES_MAX {
        return None;
    }
    Some(if input.len() > HEAD_BYTES_MAX && !whole {
        Request::Wrong {
            status: "431 Request Header Fields Too Large",
            why: "the head of a request has at most 8 KiB\n",
        }
    } else {
        first_line(input.split(|byte| *byte == b'\n').next().unwrap_or_default())
    })
}

fn first_line(line: &[u8]) -> Request {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words.as_slice() else {
        return bad();
    };
    if !version.starts_with(b"HTTP/1.") {
        return bad();
    }
    let head_only = match *method {
        b"GET" => false,
        b"HEAD" => true,
        _ => {
            return Request::Wrong {
                status: "405 Method Not Allowed",
                why: "use GET\n",
            };
        }
    };
    match target.split(|byte| *byte == b'?').next() {
        Some(b"/metrics") => Request::Metrics { head_only },
        _ => Request::Wrong {
            status: "404 Not Found",
            why: "the figures are at /metrics\n",
        },
    }
}

fn bad() -> Request {
    Request::Wrong {
        status: "400 Bad Request",
        why: "this is not a request of HTTP/1.1: use GET /metrics\n",
    }
}
