//! HELLO, and what a client says about itself by CLIENT SETNAME and CLIENT SETINFO.

use crate::dialect::Dialect;
use crate::redis::connection::{REDIS_VERSION, is_word};
use crate::router::client::Client;
use paritas_protocol::Port;
use paritas_wire::resp::{ArgList, Password, encode, errors, parse_integer};

/// HELLO [version [AUTH user password] [SETNAME name]].
pub(super) fn hello(client: &mut Client, out: &mut Vec<u8>, password: Option<&Password>, args: ArgList<'_>) {
    let mut dialect = client.dialect;
    if let Some(version) = args.get(1) {
        dialect = match parse_integer(version) {
            None => return encode::error(out, errors::PROTOCOL_VERSION),
            Some(2) => Dialect::Resp2,
            Some(3) => Dialect::Resp3,
            Some(_) => return encode::error(out, errors::NOPROTO),
        };
    }
    let (mut at, mut name) = (2, None);
    while at < args.len() {
        if is_word(args, at, "auth") && at + 2 < args.len() {
            if !client.authenticate(password, args.arg(at + 1), args.arg(at + 2)) {
                return encode::error(out, errors::WRONGPASS);
            }
            at += 3;
        } else if is_word(args, at, "setname") && at + 1 < args.len() {
            name = args.get(at + 1);
            if !name.is_some_and(is_name) {
                return encode::error(out, errors::CLIENT_NAME);
            }
            at += 2;
        } else {
            let option = errors::echoed(args.arg(at));
            return encode::error(out, &format!("ERR Syntax error in HELLO option '{option}'"));
        }
    }
    if !client.authenticated {
        return encode::error(out, errors::NOAUTH_HELLO);
    }
    if let Some(name) = name {
        client.about.name = name.to_vec();
    }
    client.dialect = dialect;
    let mode = if client.port == Port::Cluster {
        "cluster"
    } else {
        "standalone"
    };
    encode::map_header(out, dialect.proto(), 7);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        encode::bulk(out, field.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
    encode::bulk(out, b"proto");
    encode::integer(out, if dialect == Dialect::Resp3 { 3 } else { 2 });
    encode::bulk(out, b"id");
    encode::integer(out, client.about.id as i64);
    for (field, value) in [("mode", mode), ("role", "master")] {
        encode::bulk(out, field.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
    encode::bulk(out, b"modules");
    encode::array_header(out, 0);
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}

pub(super) fn set_name(client: &mut Client, out: &mut Vec<u8>, name: &[u8]) {
    if is_name(name) {
        client.about.name = name.to_vec();
        encode::ok(out);
    } else {
        encode::error(out, errors::CLIENT_NAME);
    }
}

pub(super) fn set_info(client: &mut Client, out: &mut Vec<u8>, args: ArgList<'_>) {
    let (option, value) = (args.arg(2), args.arg(3));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let place = if is_word(args, 2, "lib-name") {
        &mut client.about.library
    } else if is_word(args, 2, "lib-ver") {
        &mut client.about.library_version
    } else {
        return encode::error(out, &format!("ERR Unrecognized option '{}'", text(option)));
    };
    if !is_name(value) {
        let option = text(option);
        return encode::error(
            out,
            &format!("ERR {option} cannot contain spaces, newlines or special characters."),
        );
    }
    *place = value.to_vec();
    encode::ok(out);
}
