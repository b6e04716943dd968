//! How a call has ended: a number for C, and a text that stays with the thread.

use paritas_client_io::Failure;
use std::cell::RefCell;
use std::ffi::{CStr, CString};

/// How a call has ended: `paritas_status` of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Status {
    Ok = 0,
    NoValue = 1,
    NotYet = 2,
    Refused = 3,
    Uncertain = 4,
    Unreachable = 5,
    Busy = 6,
    TooSmall = 7,
    NoOperation = 8,
    BadArgument = 9,
    System = 10,
    Internal = 11,
}

impl Status {
    /// All of them, with their names in the header.
    pub(crate) const ALL: [(Self, &'static CStr); 12] = [
        (Self::Ok, c"PARITAS_OK"),
        (Self::NoValue, c"PARITAS_NO_VALUE"),
        (Self::NotYet, c"PARITAS_NOT_YET"),
        (Self::Refused, c"PARITAS_REFUSED"),
        (Self::Uncertain, c"PARITAS_UNCERTAIN"),
        (Self::Unreachable, c"PARITAS_UNREACHABLE"),
        (Self::Busy, c"PARITAS_BUSY"),
        (Self::TooSmall, c"PARITAS_TOO_SMALL"),
        (Self::NoOperation, c"PARITAS_NO_OPERATION"),
        (Self::BadArgument, c"PARITAS_BAD_ARGUMENT"),
        (Self::System, c"PARITAS_SYSTEM"),
        (Self::Internal, c"PARITAS_INTERNAL"),
    ];

    /// The name of a number.
    pub(crate) fn name(number: i32) -> &'static CStr {
        let mut all = Self::ALL.iter();
        all.find(|(status, _)| *status as i32 == number)
            .map_or(c"no status of Paritas", |(_, name)| *name)
    }
}

/// Why a call has failed.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    /// The caller has given something that cannot be.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::new(Status::BadArgument, text)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        let status = match failure {
            Failure::Refused(_) => Status::Refused,
            Failure::Uncertain => Status::Uncertain,
            Failure::Unreachable => Status::Unreachable,
        };
        Self { status, text }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of a problem for [`last_text`].
pub(crate) fn remember(text: &str) {
    let bytes = text.bytes().map(|byte| if byte == 0 { b' ' } else { byte });
    let text = CString::new(bytes.collect::<Vec<u8>>()).unwrap_or_default();
    LAST.with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = text;
        }
    });
}

/// The text of the last problem of this thread. The pointer holds until the next one.
pub(crate) fn last_text() -> *const core::ffi::c_char {
    let of_last = LAST.try_with(|last| last.try_borrow().map(|last| last.as_ptr()));
    match of_last {
        Ok(Ok(text)) => text,
        _ => c"".as_ptr(),
    }
}
