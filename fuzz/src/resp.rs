//! The bytes that clients send, and those that servers answer.

use paritas_wire::command::{COMMANDS, keys, resolve, slot};
use paritas_wire::resp::{Args, Decoded, Limits, ReplyDecoder, argument, decode, decode_more};

/// Low limits, so that short inputs exceed them.
const LIMITS: Limits = Limits {
    bulk_bytes_max: 4 << 10,
    whole_bytes_max: 2 << 10,
    args_max: 512,
    inline_bytes_max: 1 << 10,
    request_bytes_max: 16 << 10,
    authenticated: true,
};

/// Pipelined requests. The result must not depend on how the bytes are split into pieces.
pub(crate) fn requests(bytes: &[u8]) {
    let Some((cut, input)) = bytes.split_first() else {
        return;
    };
    let limits = if cut & 1 == 0 { LIMITS } else { Limits::UNAUTHENTICATED };
    let step = usize::from(cut >> 1) + 1;
    let (mut rest, mut whole, mut pieces) = (input, Args::new(), Args::new());
    let mut out = Vec::new();
    while !rest.is_empty() {
        let outcome = decode(rest, &limits, &mut whole);
        // The same bytes in small steps, until there is a result.
        let mut end = step.min(rest.len());
        let mut slow = decode(&rest[..end], &limits, &mut pieces);
        while let Ok(Decoded::Incomplete { needed }) = slow
            && end < rest.len()
        {
            assert!(needed > end, "asks for {needed} bytes, but has {end}");
            end = (end + step).min(rest.len());
            slow = decode_more(&rest[..end], &limits, &mut pieces);
        }
        let consumed = match outcome {
            Ok(Decoded::Complete { consumed }) => consumed,
            Ok(Decoded::Incomplete { .. }) => {
                assert!(matches!(slow, Ok(Decoded::Incomplete { .. })), "{slow:?}");
                return;
            }
            Ok(long @ Decoded::Long { line, start, bytes }) => {
                assert_eq!(slow, Ok(long), "pieces give another result");
                assert!(line < start && start <= rest.len() && bytes > limits.whole_bytes_max);
                return;
            }
            Err(error) => {
                assert_eq!(slow, Err(error), "pieces give another error");
                error.append_to(&mut out);
                assert!(out.starts_with(b"-") && out.ends_with(b"\r\n"));
                return;
            }
        };
        assert_eq!(slow, Ok(Decoded::Complete { consumed }), "pieces give another result");
        assert!(consumed > 0 && consumed <= rest.len());
        let args = whole.list(rest);
        assert_eq!(args.len(), pieces.len());
        assert!(args.len() <= limits.args_max || rest[0] != b'*');
        command(args, &rest[..consumed], &mut out);
        rest = &rest[consumed..];
    }
}

fn command(args: paritas_wire::resp::ArgList<'_>, sent: &[u8], out: &mut Vec<u8>) {
    out.clear();
    if args.is_empty() {
        return;
    }
    match resolve(args) {
        Ok(spec) => {
            for index in keys(spec, args) {
                assert!(slot(args.arg(index)) < 16_384, "argument {index} of {}", args.len());
            }
        }
        Err(refusal) => {
            refusal.append_to(out, args);
            assert!(
                out.starts_with(b"-") && out.ends_with(b"\r\n"),
                "an error must be a reply"
            );
            let inner = &out[..out.len() - 2];
            assert!(
                !inner.contains(&b'\n') && !inner.contains(&b'\r'),
                "an error must be one line"
            );
        }
    }
    for nth in 0..args.len().min(4) {
        let _ = argument(sent, nth);
    }
}

/// Replies, as read by the project's own clients.
pub(crate) fn replies(bytes: &[u8]) {
    let Some((cut, input)) = bytes.split_first() else {
        return;
    };
    let step = usize::from(*cut) + 1;
    let mut slow = ReplyDecoder::new();
    let mut end = step.min(input.len());
    let in_pieces = loop {
        match slow.decode(&input[..end]) {
            Ok(None) if end < input.len() => end = (end + step).min(input.len()),
            other => break other,
        }
    };
    let at_once = ReplyDecoder::new().decode(input);
    match (&at_once, &in_pieces) {
        (Ok(Some((reply, consumed))), Ok(Some((same, also)))) => {
            assert_eq!(consumed, also);
            assert!(*consumed <= input.len());
            // NaN does not equal itself.
            assert_eq!(format!("{reply:?}"), format!("{same:?}"));
            let _ = reply.to_value();
        }
        (Ok(None), Ok(None)) | (Err(_), Err(_)) => {}
        _ => panic!("{at_once:?} at once, {in_pieces:?} in pieces"),
    }
}

pub(crate) fn request_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = [
        "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
        "PING\r\nSET k \"a \\x41\\n\" EX 10\r\nGET 'it\\'s'\r\n\r\n",
        "*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n",
        "*1\r\n$-5\r\n",
        "*1\r\n:4\r\n",
        "*99999999999999999999\r\n",
        "*2\r\n$3\r\nGET\r\n$0000000000000003\r\nkey\r\n",
        "GET \"open\r\n",
        "POST / HTTP/1.1\r\n",
        "*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n",
    ]
    .iter()
    .flat_map(|text| [0, 3, 200].map(|cut| [&[cut], text.as_bytes()].concat()))
    .collect();
    for spec in COMMANDS {
        seeds.push(format!("\0{} {{a}}b 1 x\r\n", spec.name).into_bytes());
        for sub in spec.subcommands {
            seeds.push(format!("\0{} a b\r\n", sub.name.replace('|', " ")).into_bytes());
        }
    }
    seeds
}

pub(crate) fn reply_seeds() -> Vec<Vec<u8>> {
    [
        "+OK\r\n",
        "-ERR no\r\n",
        ":-12\r\n",
        "$5\r\nvalue\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        "%2\r\n+a\r\n:1\r\n+b\r\n_\r\n",
        "~1\r\n#t\r\n",
        ">2\r\n+x\r\n,1.5e3\r\n",
        "(12345678901234567890\r\n",
        "=7\r\ntxt:abc\r\n",
        "!5\r\nERR x\r\n",
        "|1\r\n+k\r\n+v\r\n*1\r\n,inf\r\n",
        "*1000000000\r\n",
    ]
    .iter()
    .map(|text| [&[7], text.as_bytes()].concat())
    .collect()
}
