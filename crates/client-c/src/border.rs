//! The functions of `include/paritas.h`, and all `unsafe` of this crate.
//!
//! Each checks what it is given as far as it can: NULL, alignment, lengths. That a pointer has as many bytes behind it
//! as its caller says cannot be checked; the header asks for it. Every other `unsafe` here rests on that sentence, and
//! on this: pointers to a client or a reply come from here, and are given back once.

// The one module of this crate with `unsafe`: C has nothing else.
#![allow(unsafe_code)]

use crate::reply::{Phases, Reply, Type};
use crate::status::{Problem, Status};
use crate::{command, settings, status};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use paritas_client_io::{Client, Command, Outcome, SubmitError, Ticket, Value, Waited};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The most settings, and the longest address or setting.
const SETTINGS_MAX: usize = 256;
/// The most operations that one call waits for.
const OPS_MAX: usize = 1 << 20;
/// The longest structure that a header of any version may have.
const STRUCTURE_BYTES_MAX: usize = 4096;

/// A client of C. Its thread lives in the process that opened it.
struct Handle {
    client: Client,
    process: u32,
}

/// `paritas_counts` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
struct Counts {
    decoded_here: u64,
    unit_bytes: u64,
    replaced: u64,
    replaced_bytes: u64,
    wrong: u64,
    located_again: u64,
    by_node: u64,
    encoded_here: u64,
    put_bytes: u64,
    encoded_by_node: u64,
}

/// Runs a function of the header: no panic leaves it, and the text of its problem stays with the thread.
fn call(run: impl FnOnce() -> Result<Status, Problem>) -> c_int {
    // What a panic leaves half done is behind the locks of the client, which go on with it.
    let ended = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let text = "a bug of this library: it has printed where. Close the client, and report it";
        Err(Problem::new(Status::Internal, text))
    });
    match ended {
        Ok(status) => status as c_int,
        Err(problem) => {
            status::remember(&problem.text);
            problem.status as c_int
        }
    }
}

/// Whether a typed pointer can be followed.
fn check<T>(pointer: *const T, name: &str) -> Result<(), Problem> {
    match (pointer.is_null(), pointer.is_aligned()) {
        (true, _) => Err(Problem::bad(format!("{name} is NULL"))),
        (_, false) => Err(Problem::bad(format!("{name} is not aligned"))),
        _ => Ok(()),
    }
}

/// Bytes of the caller. The caller's word for it that they are there, and stay during the call.
unsafe fn bytes<'a>(pointer: *const c_void, length: usize, name: &str) -> Result<&'a [u8], Problem> {
    if length == 0 {
        return Ok(&[]);
    }
    check(pointer.cast::<u8>(), name)?;
    if length > command::WORD_BYTES_MAX {
        let most = command::WORD_BYTES_MAX;
        return Err(Problem::bad(format!("{name} has {length} bytes, {most} are allowed")));
    }
    // SAFETY: it is not NULL, and `length` bytes are there by the caller's word.
    Ok(unsafe { core::slice::from_raw_parts(pointer.cast(), length) })
}

/// Items of the caller, as `bytes`.
unsafe fn items<'a, T>(pointer: *const T, count: usize, most: usize, name: &str) -> Result<&'a [T], Problem> {
    check(pointer, name)?;
    if count > most {
        return Err(Problem::bad(format!("{name} has {count} items, {most} are allowed")));
    }
    // SAFETY: it is aligned and not NULL, `count` is small, and so many are there by the caller's word.
    Ok(unsafe { core::slice::from_raw_parts(pointer, count) })
}

/// Text of the caller that ends with a NUL, as `bytes`.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Problem> {
    check(pointer, name)?;
    // SAFETY: it is not NULL, and a NUL ends it by the caller's word.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Problem::bad(format!("{name} is not UTF-8")))
}

/// Writes a result to where the caller wants it.
unsafe fn give<T>(place: *mut T, value: T) {
    // SAFETY: `check` was called with it before, and room for a `T` is there by the caller's word.
    unsafe { place.write(value) };
}

/// Writes a structure whose length is that of the caller's header, not of this library.
unsafe fn give_structure<T: Copy>(place: *mut T, bytes: usize, value: T) -> Result<Status, Problem> {
    check(place, "the structure")?;
    if bytes == 0 || bytes > STRUCTURE_BYTES_MAX {
        return Err(Problem::bad("bytes is not the sizeof of the structure"));
    }
    let shared = bytes.min(size_of::<T>());
    // SAFETY: `bytes` bytes are there by the caller's word; `shared` is at most that and the size of `value`, which is
    // not the caller's. All structures are of integers without gaps.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(&value).cast::<u8>(), place.cast::<u8>(), shared);
        ptr::write_bytes(place.cast::<u8>().add(shared), 0, bytes - shared);
    }
    Ok(Status::Ok)
}

/// The client behind a pointer of the caller.
unsafe fn client<'a>(handle: *const Handle) -> Result<&'a Client, Problem> {
    check(handle, "client")?;
    // SAFETY: it comes from `paritas_open` and was not closed, by the caller's word. Calls share it: it is Sync.
    let handle = unsafe { &*handle };
    match handle.process == std::process::id() {
        true => Ok(&handle.client),
        false => Err(Problem::bad(
            "the client was opened by another process: open one after the fork",
        )),
    }
}

/// The reply behind a pointer of the caller, or none.
unsafe fn reply<'a>(reply: *const Reply) -> Option<&'a Reply> {
    // SAFETY: it is NULL, or comes from here and was not freed, by the caller's word. Nobody changes a reply.
    NonNull::new(reply.cast_mut()).map(|reply| unsafe { reply.as_ref() })
}

/// Gives a reply to the caller; frees it if he does not want it.
unsafe fn give_reply(place: *mut *mut Reply, reply: Reply) -> Result<Status, Problem> {
    if !place.is_null() {
        check(place, "reply")?;
        // SAFETY: it was checked.
        unsafe { give(place, Box::into_raw(Box::new(reply))) };
    }
    Ok(Status::Ok)
}

fn reply_of(mut outcome: Outcome) -> Result<Reply, Problem> {
    let value = core::mem::replace(&mut outcome.result, Ok(Value::Null))?;
    Ok(Reply::of(value, &outcome))
}

fn begin(client: &Client, command: Command) -> Result<Ticket, Problem> {
    let ticket = client.try_submit(command);
    ticket.map_err(|busy: SubmitError| Problem::new(Status::Busy, busy.to_string()))
}

fn limit(limit_ms: i64) -> Option<Duration> {
    u64::try_from(limit_ms).ok().map(Duration::from_millis)
}

unsafe fn command_of(
    count: usize,
    words: *const *const c_void,
    words_bytes: *const usize,
    key_index: usize,
) -> Result<Command, Problem> {
    // SAFETY: the caller's word for all three.
    let words = unsafe {
        let words = items(words, count, command::WORDS_MAX, "words")?;
        let lengths = items(words_bytes, count, command::WORDS_MAX, "words_bytes")?;
        let words = words.iter().zip(lengths);
        words
            .map(|(word, length)| bytes(*word, *length, "a word").map(<[u8]>::to_vec))
            .collect::<Result<Vec<_>, _>>()?
    };
    command::of_words(words, key_index)
}

/// A library fits a header of its own major version; before 1.0, of its own minor one.
fn fits(header: u32, library: u32) -> bool {
    let parts = |version: u32| (version / 1_000_000, version / 1_000 % 1_000);
    let ((major, minor), (own_major, own_minor)) = (parts(header), parts(library));
    major == own_major && (minor == own_minor || major > 0 && minor < own_minor)
}

/// This library's version, as the header counts it.
pub(crate) fn version() -> u32 {
    let parts = env!("CARGO_PKG_VERSION").split('.');
    parts.fold(0, |sum, part| sum * 1_000 + part.parse::<u32>().unwrap_or_default())
}

// SAFETY of all names below: they begin with `paritas_`, which nobody else's do.

#[unsafe(no_mangle)]
extern "C" fn paritas_error() -> *const c_char {
    status::last_text()
}

#[unsafe(no_mangle)]
extern "C" fn paritas_status_name(status: c_int) -> *const c_char {
    Status::name(status).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn paritas_version() -> u32 {
    version()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_open(
    header: u32,
    addresses: *const c_char,
    names_and_values: *const *const c_char,
    place: *mut *mut Handle,
) -> c_int {
    call(|| {
        if !fits(header, version()) {
            return Err(Problem::bad(format!(
                "the header has version {header}, the library {}: compile with the header of this library",
                version()
            )));
        }
        check(place, "client")?;
        // SAFETY: the caller's word.
        let addresses = settings::addresses(unsafe { text(addresses, "addresses") }?)?;
        let mut pairs = Vec::new();
        while !names_and_values.is_null() {
            check(names_and_values, "settings")?;
            // SAFETY: the array ends with a NULL by the caller's word, and nothing behind the first one is read.
            let (name, value) = unsafe {
                let name = names_and_values.add(2 * pairs.len());
                if (*name).is_null() {
                    break;
                }
                (
                    text(*name, "the name of a setting")?,
                    text(*name.add(1), "the value of a setting")?,
                )
            };
            pairs.push((name, value));
            if pairs.len() > SETTINGS_MAX {
                return Err(Problem::bad("the settings do not end: put NULL behind the last value"));
            }
        }
        let opened = Client::connect(addresses, settings::read(&pairs)?);
        let client =
            opened.map_err(|error| Problem::new(Status::System, format!("no client can be opened: {error}")))?;
        let process = std::process::id();
        // SAFETY: it was checked.
        unsafe { give(place, Box::into_raw(Box::new(Handle { client, process }))) };
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_close(handle: *mut Handle) {
    call(|| {
        if !handle.is_null() {
            // SAFETY: it comes from `paritas_open`, and is closed once, by the caller's word.
            let handle = unsafe { Box::from_raw(handle) };
            // In the child of a fork its thread is not there, so nobody can wait for it.
            if handle.process != std::process::id() {
                core::mem::forget(handle);
            }
        }
        Ok(Status::Ok)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_stats(handle: *mut Handle, place: *mut Counts, length: usize) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let stats = unsafe { client(handle) }?.stats();
        let counts = Counts {
            decoded_here: stats.decoded_here,
            unit_bytes: stats.unit_bytes,
            replaced: stats.replaced,
            replaced_bytes: stats.replaced_bytes,
            wrong: stats.wrong,
            located_again: stats.located_again,
            by_node: stats.by_node,
            encoded_here: stats.encoded_here,
            put_bytes: stats.put_bytes,
            encoded_by_node: stats.encoded_by_node,
        };
        // SAFETY: the caller's word.
        unsafe { give_structure(place, length, counts) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_get(
    handle: *mut Handle,
    key: *const c_void,
    key_bytes: usize,
    buffer: *mut c_void,
    capacity_bytes: usize,
    value_bytes: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let (client, key) = unsafe { (client(handle)?, bytes(key, key_bytes, "key")?) };
        check(value_bytes, "value_bytes")?;
        if buffer.is_null() && capacity_bytes > 0 {
            return Err(Problem::bad("buffer is NULL, but capacity_bytes is not 0"));
        }
        let Some(value) = client.get(key)? else {
            return Ok(Status::NoValue);
        };
        // SAFETY: it was checked.
        unsafe { give(value_bytes, value.len()) };
        if value.len() > capacity_bytes {
            let text = format!("the value has {} bytes, the buffer {capacity_bytes}", value.len());
            return Err(Problem::new(Status::TooSmall, text));
        }
        if !value.is_empty() {
            // SAFETY: `capacity_bytes` bytes are there by the caller's word, and the value is no longer. It is ours, so
            // it is elsewhere.
            unsafe { ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast::<u8>(), value.len()) };
        }
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_get_reply(
    handle: *mut Handle,
    key: *const c_void,
    key_bytes: usize,
    place: *mut *mut Reply,
) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let (client, key) = unsafe { (client(handle)?, bytes(key, key_bytes, "key")?) };
        check(place, "reply")?;
        let reply = reply_of(client.wait(client.submit(Command::get(key))))?;
        if reply.kind == Type::Null {
            return Ok(Status::NoValue);
        }
        // SAFETY: it was checked.
        unsafe { give_reply(place, reply) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_set(
    handle: *mut Handle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let (client, key, value) = unsafe {
            let key = bytes(key, key_bytes, "key")?;
            (client(handle)?, key, bytes(value, value_bytes, "value")?)
        };
        client.set(key, value.to_vec())?;
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_command(
    handle: *mut Handle,
    count: usize,
    words: *const *const c_void,
    words_bytes: *const usize,
    key_index: usize,
    place: *mut *mut Reply,
) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let (client, command) = unsafe { (client(handle)?, command_of(count, words, words_bytes, key_index)?) };
        check(place, "reply")?;
        let reply = reply_of(client.wait(client.submit(command)))?;
        // SAFETY: it was checked.
        unsafe { give_reply(place, reply) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_iget(handle: *mut Handle, key: *const c_void, key_bytes: usize, op: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let (client, key) = unsafe { (client(handle)?, bytes(key, key_bytes, "key")?) };
        check(op, "op")?;
        let ticket = begin(client, Command::get(key))?;
        // SAFETY: it was checked.
        unsafe { give(op, ticket.into()) };
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_iset(
    handle: *mut Handle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    op: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let (client, key, value) = unsafe {
            let key = bytes(key, key_bytes, "key")?;
            (client(handle)?, key, bytes(value, value_bytes, "value")?)
        };
        check(op, "op")?;
        let ticket = begin(client, Command::set(key, value.to_vec()))?;
        // SAFETY: it was checked.
        unsafe { give(op, ticket.into()) };
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_icommand(
    handle: *mut Handle,
    count: usize,
    words: *const *const c_void,
    words_bytes: *const usize,
    key_index: usize,
    op: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let (client, command) = unsafe { (client(handle)?, command_of(count, words, words_bytes, key_index)?) };
        check(op, "op")?;
        let ticket = begin(client, command)?;
        // SAFETY: it was checked.
        unsafe { give(op, ticket.into()) };
        Ok(Status::Ok)
    })
}

/// Waits for some operations. Which has ended is given to `index`, if that is not NULL.
unsafe fn wait(
    client: &Client,
    ops: &[u64],
    limit_ms: i64,
    index: *mut usize,
    place: *mut *mut Reply,
) -> Result<Status, Problem> {
    let tickets: Vec<Ticket> = ops.iter().copied().map(Ticket::from).collect();
    match client.wait_limit(&tickets, limit(limit_ms)) {
        Waited::Ended(ticket, outcome) => {
            let at = tickets.iter().position(|other| *other == ticket).unwrap_or_default();
            if !index.is_null() {
                // SAFETY: it was checked by who has called.
                unsafe { give(index, at) };
            }
            // SAFETY: the caller's word.
            unsafe { give_reply(place, reply_of(outcome)?) }
        }
        Waited::NotYet => Ok(Status::NotYet),
        Waited::Nothing => {
            let text = "no operation of this number is waited for: its reply was taken, or it was given up";
            Err(Problem::new(Status::NoOperation, text))
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_test(handle: *mut Handle, op: u64, place: *mut *mut Reply) -> c_int {
    // SAFETY: the caller's word.
    call(|| unsafe { wait(client(handle)?, &[op], 0, ptr::null_mut(), place) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_wait(handle: *mut Handle, op: u64, limit_ms: i64, place: *mut *mut Reply) -> c_int {
    // SAFETY: the caller's word.
    call(|| unsafe { wait(client(handle)?, &[op], limit_ms, ptr::null_mut(), place) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_wait_any(
    handle: *mut Handle,
    ops: *const u64,
    count: usize,
    limit_ms: i64,
    index: *mut usize,
    place: *mut *mut Reply,
) -> c_int {
    call(|| {
        check(index, "index")?;
        // SAFETY: the caller's word.
        unsafe {
            wait(
                client(handle)?,
                items(ops, count, OPS_MAX, "ops")?,
                limit_ms,
                index,
                place,
            )
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_wait_room(handle: *mut Handle, limit_ms: i64) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        match unsafe { client(handle) }?.wait_room(limit(limit_ms)) {
            true => Ok(Status::Ok),
            false => Ok(Status::NotYet),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_cancel(handle: *mut Handle, op: u64) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        unsafe { client(handle) }?.give_up(op.into());
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_reply_free(reply: *mut Reply) {
    call(|| {
        if !reply.is_null() {
            // SAFETY: it comes from `give_reply`, and is freed once, by the caller's word.
            drop(unsafe { Box::from_raw(reply) });
        }
        Ok(Status::Ok)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_reply_type(pointer: *const Reply) -> c_int {
    // SAFETY: the caller's word.
    unsafe { reply(pointer) }.map_or(Type::Null, |reply| reply.kind) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_reply_bytes(pointer: *const Reply, length: *mut usize) -> *const c_void {
    // SAFETY: the caller's word.
    let reply = unsafe { reply(pointer) };
    let reply = reply.filter(|reply| matches!(reply.kind, Type::String | Type::Text | Type::Error));
    if check(length, "bytes").is_ok() {
        // SAFETY: it was checked.
        unsafe { give(length, reply.map_or(0, |reply| reply.bytes.len())) };
    }
    reply.map_or(ptr::null(), |reply| reply.bytes.as_ptr().cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_reply_integer(pointer: *const Reply) -> i64 {
    // SAFETY: the caller's word.
    unsafe { reply(pointer) }.map_or(0, |reply| reply.integer)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_reply_count(pointer: *const Reply) -> usize {
    // SAFETY: the caller's word.
    unsafe { reply(pointer) }.map_or(0, |reply| reply.elements.len())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_reply_element(pointer: *const Reply, index: usize) -> *const Reply {
    // SAFETY: the caller's word.
    let element = unsafe { reply(pointer) }.and_then(|reply| reply.elements.get(index));
    element.map_or(ptr::null(), ptr::from_ref)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn paritas_reply_phases(pointer: *const Reply, place: *mut Phases, length: usize) -> c_int {
    call(|| {
        // SAFETY: the caller's word.
        let phases = unsafe { reply(pointer) }.map_or_else(Phases::default, |reply| reply.phases);
        // SAFETY: the caller's word.
        unsafe { give_structure(place, length, phases) }
    })
}
