//! Coverage marks (docs/reliability.md): names of rare situations. A long run of the simulator shows which it has met.

/// A rare situation. A role reports it by [`Out::mark`](crate::Out::mark), which does nothing outside the simulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // `ALL` says what each is.
pub enum Mark {
    MembersDiffer,
    OneSurvivor,
    FillingMemberNewest,
    CutThroughGrowth,
    SealedAgain,
    PushedAgain,
    LeaseRanOut,
    CertificateCleared,
    YieldedCleared,
    SyncToNewcomer,
    VoidTailUndone,
    TwoUnknowns,
    Undone,
    Held,
    MaterialiseRetried,
    StripesLearnt,
    BornWhileFilling,
    BufferFolded,
    BufferSkipped,
    FetchGivenUp,
    EpochJump,
    CreditRefused,
    WindowFull,
    ExpiredOnAccess,
    ExpiredInTime,
    SetAside,
    SetAsideUnacked,
    ParityReplaced,
    Drained,
    StashUsed,
    DonorUsed,
    ParityReused,
    ChunkDropped,
    ReadConfirmed,
    SlotsHandedOff,
    HandOffResumed,
    SlotsThawed,
    LargeValueImported,
    BodySentFrozen,
    /// A long value was stored that came ahead of its command.
    ValueStaged,
    /// A value was stored that a command made of one that came ahead of it.
    MadeOfStaged,
    /// A command was refused whose value came ahead of it, and not whole.
    ValueNotStaged,
    /// A large value was stored by a command of several pairs.
    SeveralLargeValues,
    /// A value got the class of hot values.
    BecameHot,
    /// A value lost the class of hot values.
    BecameCold,
    /// Another write came before a value had its other class.
    ChangeOvertaken,
    /// A reply that is a large value was read to its end by the node of the client.
    LongReplyRead,
    /// Bytes of it were read when another owner had come.
    ReadUnderAnotherOwner,
    /// Its value could not be read, and the command was sent again.
    ReadBegunAgain,
    /// A long reply could not be completed.
    LongReplyCut,
    /// All values of an MGET were read one by one.
    ReadOneByOne,
    BodiesChanged,
    ImportRefused,
    ImportWithoutMemory,
    AckHeldBack,
    ParityReadFromDisk,
    UnitReadFromDisk,
    UnitLostByDisk,
    UnitAnswerHeld,
    LoggedParityReused,
    LoggedParityMended,
    ParitiesAtOnce,
    LogAssisted,
    RefillAssisted,
}

impl Mark {
    /// All marks, in the order of the enumeration, each with its description.
    pub const ALL: [(Self, &'static str); 64] = [
        (Self::MembersDiffer, "5.3 cut where the members' logs differ"),
        (Self::OneSurvivor, "5.3 cut from the only member left"),
        (Self::FillingMemberNewest, "5.3 cut from a Filling member's log"),
        (Self::CutThroughGrowth, "5.3 cut whose log grows the index"),
        (Self::SealedAgain, "5.1 another epoch in phase Seal"),
        (Self::PushedAgain, "5.1 another epoch in Push or Wait"),
        (Self::LeaseRanOut, "5.5 a wait cleared by time"),
        (Self::CertificateCleared, "5.5 a wait cleared by a certificate"),
        (Self::YieldedCleared, "5.5 a wait cleared by Yielded"),
        (Self::SyncToNewcomer, "3.10 raw deltas to a member that knew nothing"),
        (Self::VoidTailUndone, "3.10 a void tail undone"),
        (Self::TwoUnknowns, "5.7d decode of two unknowns or more"),
        (Self::Undone, "5.7b an older version read by undoing"),
        (Self::Held, "5.8 a hold asked for"),
        (Self::MaterialiseRetried, "5.7 a chunk asked for again"),
        (Self::StripesLearnt, "6.6 a newcomer learns which stripes exist"),
        (
            Self::BornWhileFilling,
            "6.6 a stripe born valid while others are filled",
        ),
        (Self::BufferFolded, "6.3 a buffered delta folded in"),
        (Self::BufferSkipped, "6.3 a buffered delta that was in the chunk"),
        (Self::FetchGivenUp, "6.2 a fetch given up for its buffer's size"),
        (Self::EpochJump, "2.3 an epoch jumped over"),
        (Self::CreditRefused, "8.2 stripe credit refused"),
        (Self::WindowFull, "3.8 a write that waits for the window"),
        (Self::ExpiredOnAccess, "8.4 a key met after its time"),
        (Self::ExpiredInTime, "8.4 keys that ended by themselves"),
        (Self::SetAside, "9.3 a wrong chunk set aside"),
        (
            Self::SetAsideUnacked,
            "9.3 a wrong chunk set aside before its last delta is acknowledged",
        ),
        (Self::ParityReplaced, "9.3 a wrong parity chunk replaced"),
        (Self::Drained, "5.12 an owner asked to go has drained"),
        (Self::StashUsed, "5.7f a chunk from the stash"),
        (Self::DonorUsed, "5.12 a chunk from the stash of who yielded"),
        (Self::ParityReused, "6.7 a parity chunk from the stash"),
        (Self::ChunkDropped, "5.10 a chunk dropped for another"),
        (Self::ReadConfirmed, "4.6 a read to be confirmed"),
        (Self::SlotsHandedOff, "10.8 slots handed off"),
        (Self::HandOffResumed, "10.8 slots handed off by the source's successor"),
        (Self::SlotsThawed, "10.8 an attempt given up, its slots served again"),
        (
            Self::LargeValueImported,
            "10.8 a large value taken in with its hash slot",
        ),
        (
            Self::BodySentFrozen,
            "10.8 a large value changed before its slot was frozen, and sent again",
        ),
        (
            Self::ValueStaged,
            "14.13 a long value stored that came ahead of its command",
        ),
        (
            Self::MadeOfStaged,
            "14.13 a value stored that was made of one that came ahead of its command",
        ),
        (
            Self::ValueNotStaged,
            "14.13 a command refused whose value came ahead of it, and not whole",
        ),
        (
            Self::SeveralLargeValues,
            "14.14 a large value stored by a command of several pairs",
        ),
        (
            Self::BecameHot,
            "14.15 a value that is read often given the class of hot ones",
        ),
        (Self::BecameCold, "14.15 a hot value given the class of cold ones"),
        (
            Self::ChangeOvertaken,
            "14.15 a write overtakes the change to another class",
        ),
        (Self::LongReplyRead, "14.21 a reply read by the node of the client"),
        (Self::ReadUnderAnotherOwner, "14.21 a reply read under another owner"),
        (Self::ReadBegunAgain, "14.21 a command whose value is gone sent again"),
        (Self::LongReplyCut, "14.21 a long reply that could not be completed"),
        (Self::ReadOneByOne, "14.16 an MGET whose values are read one by one"),
        (
            Self::BodiesChanged,
            "10.8 large values changed too much before their slots were frozen",
        ),
        (Self::ImportRefused, "10.8 a late import refused"),
        (Self::ImportWithoutMemory, "10.8 an import without memory"),
        (Self::AckHeldBack, "11.2 an ack held back while the disk is behind"),
        (Self::ParityReadFromDisk, "11.1 a parity chunk read from the disk"),
        (
            Self::UnitReadFromDisk,
            "11.5 a unit of a large value read from the disk",
        ),
        (
            Self::UnitLostByDisk,
            "11.5 a unit of a large value that the disk cannot read",
        ),
        (
            Self::UnitAnswerHeld,
            "11.5 the answer to a unit that waits for the disk",
        ),
        (Self::LoggedParityReused, "11.3 a parity chunk on disk used again"),
        (
            Self::LoggedParityMended,
            "11.2 a parity chunk that the disk has lost, made again",
        ),
        (
            Self::ParitiesAtOnce,
            "5.7 a chunk of several parities in one round trip",
        ),
        (
            Self::LogAssisted,
            "5.7 a parity of a log node taken where memory had enough",
        ),
        (
            Self::RefillAssisted,
            "6.3 a parity refilled with one of a log node in place of a chunk",
        ),
    ];
}
