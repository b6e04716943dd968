//! Coverage marks (PROTOCOL 15.5): rare situations, named, so that a long run of the simulator can show that it met
//! them.

/// A rare situation that a machine is in. It tells its driver so by [`Out::mark`](crate::Out::mark), which does
/// nothing outside the simulator.
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
    SlotsHandedOff,
    HandOffResumed,
    SlotsThawed,
    ImportRefused,
    ImportWithoutRoom,
}

impl Mark {
    /// All of them, in the order of the enumeration, with what they stand for.
    pub const ALL: [(Self, &'static str); 33] = [
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
        (Self::SlotsHandedOff, "10.8 slots handed off"),
        (Self::HandOffResumed, "10.8 slots handed off by the source's successor"),
        (Self::SlotsThawed, "10.8 an attempt given up, its slots served again"),
        (Self::ImportRefused, "10.8 a late import refused"),
        (Self::ImportWithoutRoom, "10.8 an import without room"),
    ];
}
