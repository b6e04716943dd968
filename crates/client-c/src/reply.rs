//! `Reply`: what C sees of a reply.

use paritas_client_io::{Outcome, Value};

/// The type of a reply: `paritas_type` of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Type {
    Null = 0,
    String = 1,
    Text = 2,
    Integer = 3,
    Array = 4,
    Error = 5,
}

/// `paritas_phases` of the header.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Phases {
    pub(crate) request_ns: u64,
    pub(crate) coding_ns: u64,
    pub(crate) wait_ns: u64,
    pub(crate) decoded_here: u64,
    pub(crate) encoded_here: u64,
}

/// A reply, or an element of one.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) kind: Type,
    pub(crate) bytes: Vec<u8>,
    pub(crate) integer: i64,
    pub(crate) elements: Vec<Self>,
    pub(crate) phases: Phases,
}

impl Reply {
    /// The reply of an operation that has not failed.
    pub(crate) fn of(value: Value, outcome: &Outcome) -> Self {
        Self {
            phases: Phases {
                request_ns: outcome.phases.request.0,
                coding_ns: outcome.phases.coding.0,
                wait_ns: outcome.phases.wait.0,
                decoded_here: u64::from(outcome.is_decoded_here),
                encoded_here: u64::from(outcome.is_encoded_here),
            },
            ..Self::from(value)
        }
    }

    fn empty(kind: Type) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
            integer: 0,
            elements: Vec::new(),
            phases: Phases::default(),
        }
    }

    fn with_bytes(kind: Type, bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            ..Self::empty(kind)
        }
    }

    fn with_integer(integer: i64) -> Self {
        Self {
            integer,
            ..Self::empty(Type::Integer)
        }
    }

    fn with_elements(values: impl IntoIterator<Item = Value>) -> Self {
        Self {
            elements: values.into_iter().map(Self::from).collect(),
            ..Self::empty(Type::Array)
        }
    }
}

/// A client speaks RESP2. What only RESP3 has comes as RESP2 has it.
impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::empty(Type::Null),
            Value::Bulk(bytes) => Self::with_bytes(Type::String, bytes),
            Value::Simple(text) => Self::with_bytes(Type::Text, text.into_bytes()),
            Value::Error(text) => Self::with_bytes(Type::Error, text.into_bytes()),
            Value::Integer(integer) => Self::with_integer(integer),
            Value::Boolean(is_true) => Self::with_integer(i64::from(is_true)),
            Value::Double(number) => Self::with_bytes(Type::String, number.to_string().into_bytes()),
            Value::Array(values) | Value::Push(values) => Self::with_elements(values),
            Value::Map(pairs) => Self::with_elements(pairs.into_iter().flat_map(|(key, value)| [key, value])),
        }
    }
}
