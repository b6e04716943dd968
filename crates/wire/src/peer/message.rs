//! What nodes say to each other: the table of frames (P2.5). `docs/formats/peer.md` describes the same for other
//! readers.

use super::field::*;
use super::parts::{AliveGroups, Deltas, Groups, Leases, Objects};
use super::types::{Behind, ChunkStatus, Hello, ImportStatus, Parity, PartName, StageState};
use super::{BadFrame, FINGERPRINT_BYTES, FORWARD_DATABASE, OPEN_FOR_CLIENT, PART_FINGERPRINT};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ConnId, PartState, Position, Reader, Stripe, Term, Time, Version, formats, sections};

/// Declares the messages from one list: number in the header, name, and the fields in the order of the frame. A field
/// has the form of its type, or the one after `as` ([`Field`]).
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $name:ident = $number:literal $({ $( $(#[$about:meta])* $field:ident: $type:ty $(as $form:ident)?, )* })?,
    )*) => {
        /// A message between nodes.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[allow(missing_docs)] // Fields have the names used in docs/protocol.md.
        pub enum Message<'a> {
            $( $(#[$doc])* $name $({ $( $(#[$about])* $field: $type, )* })?, )*
        }

        /// The kinds of frames, as numbers in the header. A number is never reused for another kind.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[allow(missing_docs)] // Each stands for the `Message` of the same name.
        pub enum Kind {
            $( $name = $number, )*
        }

        impl Kind {
            /// The kind with this number.
            pub fn new(number: u8) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$name), )*
                    _ => None,
                }
            }
        }

        impl<'a> Message<'a> {
            /// The kind in the header.
            pub fn kind(&self) -> Kind {
                match self {
                    $( Self::$name { .. } => Kind::$name, )*
                }
            }

            /// Appends the body of a frame.
            pub(super) fn encode(&self, to: &mut Vec<u8>) {
                match self {
                    $( Self::$name $({ $($field),* })? => {
                        $( $( Field::write(&$($form)?(*$field), to); )* )?
                    } )*
                }
            }

            fn read(kind: Kind, r: &mut Reader<'a>) -> Option<Self> {
                Some(match kind {
                    $( Kind::$name => Self::$name
                        $({ $( $field: Field::read(r)$(.map(|$form(value)| value))? ?, )* })?, )*
                })
            }
        }
    };
}

messages! {
    Hello = 1 {
        hello: Hello,
    },
    /// One atomic batch of changes (P1.3). Leases are counted from `sent`, the sender's monotonic clock (P4.3).
    Delta = 10 {
        term: Term as Num,
        seq: u64 as Num,
        sent: Time,
        /// Of `seq`. A delta that is sent again may be stable already: then it is ahead.
        stable: Behind,
        extents: &'a [u8],
    },
    /// Acknowledges all deltas up to a number. `lease_sent` is the `sent` of the newest `Delta` for which a lease was
    /// granted, or 0 (P4.3).
    Ack = 11 {
        term: Term as Num,
        recv: u64 as Num,
        lease_sent: Time,
    },
    /// `stable` of a stream, sent without a delta (P3.8).
    Stable = 12 {
        term: Term as Num,
        stable: u64 as Num,
    },
    /// The deltas `base+1 ..= top`, and the term that they belong to from now on (P3.9).
    Sync = 13 {
        term: Term as Num,
        base: u64 as Num,
        top: u64 as Num,
        deltas: Deltas<'a>,
    },
    SyncAck = 14 {
        term: Term as Num,
        recv: u64 as Num,
    },
    /// All stripes of the stream with a non-zero version at `as_of` (P6.6, P6.7), encoded as in `Directory`.
    Alloc = 15 {
        term: Term,
        as_of: u64,
        entries: &'a [u8] as Entries,
    },
    LeaseRequest = 16 {
        sent: Time,
        streams: Leases<'a>,
    },
    /// Grants leases. `sent` repeats that of the request.
    Lease = 17 {
        sent: Time,
        streams: Leases<'a>,
    },
    Seal = 18,
    /// Answers `Seal` (P5.2). `known` is false if the member knows nothing of the stream.
    SealReply = 19 {
        known: bool,
        term: Term as Num,
        recv: u64 as Num,
        leases: &'a [u8] as LeaseRecords,
        deltas: Deltas<'a>,
    },
    YieldQuery = 20 {
        tenure: Tenure,
    },
    Yielded = 21 {
        tenure: Tenure,
    },
    ReadDirectory = 22 {
        term: Term,
        at_least: u64,
    },
    /// The stripes of a stream, as pairs of stripe and version (P5.5).
    Directory = 23 {
        term: Term,
        complete_for: u64,
        entries: &'a [u8] as Entries,
    },
    ReadParity = 24 {
        id: u64,
        stripe: Stripe,
    },
    /// Answers a request for a parity chunk. `None`: the stripe is not valid at this member.
    ParityValue = 25 {
        id: u64,
        stripe: Stripe,
        parity: Option<Parity<'a>>,
    },
    /// Asks for a data chunk. `want` is its version, or `None` for the latest.
    ReadChunk = 26 {
        id: u64,
        stripe: Stripe,
        want: Option<Version> as OrLatest,
    },
    ChunkValue = 27 {
        id: u64,
        stripe: Stripe,
        status: ChunkStatus,
        version: Version,
        sum: u32,
        as_of: u64,
        term: Term,
        /// The sum of `bytes` as found, if it is known without reading them: their sender has just computed it, and
        /// their receiver derives it from the frame's CRC. `sum` is the one that their owner keeps.
        found: Option<u32> as NotSent,
        bytes: &'a [u8],
    },
    /// Asks the owner to send no new delta on this chunk for a short time (P5.8).
    Hold = 28 {
        stripe: Stripe,
    },
    /// Asks for credit: stripe numbers below these ends (P8.2).
    CreditRequest = 29 {
        term: Term as Num,
        data_end: u32 as End,
        index_end: u32 as End,
    },
    /// The credit granted so far, and the window in bytes.
    Credit = 30 {
        term: Term as Num,
        data_end: u32 as End,
        index_end: u32 as End,
        window_bytes: u64 as Num,
    },
    GetConfiguration = 31 {
        /// Whether the sender may speak the version of tomorrow.
        tomorrow: bool as Tomorrow,
    },
    /// The sender's configuration, which is newer than the receiver's.
    Stale = 32 {
        configuration: Box<Configuration>,
    },
    /// A client's command for a stream that the receiver owns (docs/commands.md).
    Forward = 33 {
        conn: ConnId,
        n: u64 as Num,
        /// One of [`super::dialect`].
        dialect: u8 as Dialect,
        command: &'a [u8] as Counted,
        /// That of the client: 0 to 15.
        database: u8 as Section,
    },
    Reply = 34 {
        conn: ConnId,
        n: u64 as Num,
        bytes: &'a [u8],
    },
    /// Objects of hash slots that the sender hands off to the stream in the header (P10.8). `term` and `round` identify
    /// the attempt and its owner. `n` counts the imports of an attempt from 0; number 0 carries no objects and prepares
    /// the receiver.
    Import = 35 {
        version: u64 as Num,
        term: Term as Num,
        round: u32 as Num,
        n: u32 as Num,
        objects: Objects<'a>,
    },
    /// The result of import `n` of that attempt. It does not depend on the epoch of a list: it stays valid.
    Imported = 36 {
        version: u64 as Num,
        term: Term as Num,
        round: u32 as Num,
        n: u32 as Num,
        status: ImportStatus,
    },
    /// Opens a part of a large value for its writer, or asks how far it is.
    OpenPart = 37 {
        term: Term,
        /// The number of the question, which the answer repeats.
        question: u32,
        name: PartName,
        /// Its record, encoded; without checks.
        record: &'a [u8] as Record,
        /// Its units come from a client (P14.18).
        by_client: bool as ForClient,
    },
    /// Asks the holder to make a part from the others.
    MakePart = 38 {
        name: PartName,
        record: &'a [u8] as Record,
    },
    /// The next unit of an open part.
    PutUnit = 39 {
        name: PartName,
        unit: u32,
        bytes: &'a [u8],
    },
    PartState = 40 {
        name: PartName,
        /// The number of the question that it answers; 0: of none.
        question: u32,
        state: PartState,
        /// That of a part that is kept and was opened for a client (P14.20).
        fingerprint: Option<&'a [u8; FINGERPRINT_BYTES]> as Fingerprint,
    },
    /// Groups of parts that are dead.
    FreeGroups = 41 {
        groups: Groups<'a>,
    },
    /// Asks for the groups of the stream that are alive, those above `after`.
    ReadGroups = 42 {
        position: Position,
        tenure: Tenure,
        after: Option<u64> as OrZero,
    },
    /// A page of them: those above `after`, up to `last`. `term` is the owner's; `tenure` repeats that of the question.
    AliveGroups = 43 {
        term: Term,
        position: Position,
        tenure: Tenure,
        after: Option<u64> as OrZero,
        last: u64,
        is_end: bool,
        groups: AliveGroups<'a>,
    },
    /// Asks for a unit of a part that is kept.
    ReadUnit = 44 {
        id: u64,
        name: PartName,
        unit: u32,
    },
    /// Answers it: sum and bytes of the unit, if the part is kept here.
    UnitValue = 45 {
        id: u64,
        unit: Option<(u32, &'a [u8])>,
    },
    /// Asks whether the receiver has parts of large values of the stream. `position` is that of the sender.
    FindParts = 46 {
        position: Position,
    },
    /// Answers it. `position` repeats that of the question.
    FoundParts = 47 {
        position: Position,
        any: bool,
    },
    /// As import `n` of that attempt, a piece of the body of a large value, which begins at `offset`. `record` is that
    /// of its object at the sender, without the length byte.
    ImportBody = 48 {
        version: u64 as Num,
        term: Term as Num,
        round: u32 as Num,
        n: u32 as Num,
        record: &'a [u8] as Short,
        offset: u64 as Num,
        bytes: &'a [u8],
    },
    /// A client's command comes with a value of `value_bytes` bytes for `key`, which is sent ahead of it. Also asks how
    /// much of it is there. `conn` and `n` are those that the command will have. `taken`: the bytes of which the sender
    /// knows that they were taken. `class`: that which the command gives it, as text; empty if it gives none.
    Stage = 49 {
        conn: ConnId,
        n: u64 as Num,
        value_bytes: u64 as Num,
        taken: u64 as Num,
        key: &'a [u8] as Counted,
        class: &'a [u8] as StageClass,
    },
    /// Bytes of that value, from `at` on.
    StageBytes = 50 {
        conn: ConnId,
        n: u64 as Num,
        at: u64 as Num,
        bytes: &'a [u8],
    },
    /// The first `taken` bytes of that value are taken.
    Staged = 51 {
        conn: ConnId,
        n: u64 as Num,
        taken: u64 as Num,
        state: StageState,
    },
    /// The client of a `Stage` or a `ReplyBody` has gone.
    GiveUp = 55 {
        conn: ConnId,
        n: u64 as Num,
    },
    /// Takes the place of a `Reply` that is the bytes `from..to` of a large value, which the receiver reads. `tail`:
    /// the end of the value that is in no part.
    ReplyBody = 56 {
        conn: ConnId,
        n: u64 as Num,
        from: u64 as Num,
        to: u64 as Num,
        record: &'a [u8] as Record,
        tail: &'a [u8] as Counted,
    },
    /// The value of that reply is still wanted. `is_stuck`: too few of its parts could be read.
    Wanted = 57 {
        conn: ConnId,
        n: u64 as Num,
        is_stuck: bool,
    },
    /// The message that the version of tomorrow adds. It changes nothing.
    Tomorrow = 255,
}

impl Kind {
    /// The first version that has this kind. None may be sent before that version is active.
    pub fn since(self) -> u16 {
        match self {
            Self::Tomorrow => formats::TOMORROW,
            _ => formats::LOWEST,
        }
    }
}

impl<'a> Message<'a> {
    /// Reads the body of a frame. The bytes come from the network: a body that does not fit its kind exactly is
    /// refused.
    pub(super) fn decode(kind: Kind, body: &'a [u8]) -> Result<Self, BadFrame> {
        let mut r = Reader(body);
        let Some(message) = Self::read(kind, &mut r) else {
            return Err(match kind {
                Kind::Import => unknown_object(body).map_or(BadFrame::Body(kind), BadFrame::Object),
                _ => BadFrame::Body(kind),
            });
        };
        // What the fields leave is sections (`docs/formats/sections.md`).
        let known: &[u8] = match kind {
            // The versions that it tells decide whether there may be any.
            Kind::Hello if !r.0.is_empty() => return Err(BadFrame::Body(kind)),
            Kind::Forward => &[FORWARD_DATABASE],
            Kind::OpenPart => &[OPEN_FOR_CLIENT],
            Kind::PartState => &[PART_FINGERPRINT],
            _ => &[],
        };
        let strange = |bad| BadFrame::Section(kind, bad);
        sections::check(r.0, known).map_err(strange)?;
        if let Self::Stale { configuration } = &message {
            configuration.more.check(&[]).map_err(strange)?;
        }
        Ok(message)
    }
}

/// Bits of the first object of an `Import` that this version does not know.
fn unknown_object(body: &[u8]) -> Option<u8> {
    let mut r = Reader(body);
    // Version, term, round, number.
    for _ in 0..4 {
        r.varint()?;
    }
    Objects::unknown_bits(r.0)
}
