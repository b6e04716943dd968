//! Coverage marks (docs/reliability.md): how often a run reached each rare situation. The machines name their own
//! ([`Mark`]). Situations that concern a whole list, or a client's view of it, are named here.

use crate::report::say;
use paritas_protocol::Mark;

/// Situations that the simulator itself detects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    TwoTakeovers,
    RefillBesideTakeover,
    BornAgain,
    Flushed,
    GroupRead,
    OutOfMemory,
    Moved,
    HistoryUnchecked,
    ReadAgain,
    DataFlipped,
    IndexFlipped,
    ParityFlipped,
    UnitFlipped,
    DiskFlipped,
    StandIn,
    StandInLost,
    Split,
    PlannedMove,
    HandOffVoid,
    SlotsBetweenLists,
    StoppedBeforeReading,
    AskedLiveLate,
    SplitBeside,
    WallClockSet,
    CrowdRead,
    Outgrown,
    Listed,
    CoordinatorAway,
    CoordinatorStopped,
    CommitFailed,
    StoreIsOld,
    StoreFoundOld,
    Forked,
    Adopted,
    FormerAwaited,
    EndAttested,
    SecondProcess,
    TwoCoordinators,
    Deposed,
    StoreWentBack,
    CommitLandedLate,
    OneWayClosed,
    FalselySuspected,
    ClassChanged,
    ClassWritten,
    RefusedAtOnce,
    AdoptedAgain,
    SecondTakenIn,
    SecondServes,
    TwoServe,
    LargeGroupRead,
    DecodedByClient,
    UnitsReplaced,
    LocatedAgain,
    WrongUnits,
    EncodedByClient,
    LieTold,
    TransactionDone,
    WatchHeld,
    WatchStopped,
    ScriptDone,
    LibraryLoaded,
    FunctionCalled,
    FunctionCalledInTransaction,
    OtherDatabaseRead,
    OneSlotRead,
    SelectedInTransaction,
    MayLeave,
    LeaveWaits,
    EndByNext,
    TwoVersions,
    UpgradeTakenBack,
    ActivationRefused,
    Activated,
    BelowActive,
    LargeTaken,
}

const SEEN: [(Seen, &str); 76] = [
    (Seen::TwoTakeovers, "two data positions without their chunks at once"),
    (Seen::RefillBesideTakeover, "a parity refilled beside a takeover"),
    (Seen::BornAgain, "a position without parity begins again empty"),
    (Seen::Flushed, "FLUSHALL acknowledged"),
    (Seen::GroupRead, "keys of one MSET read together"),
    (Seen::OutOfMemory, "a write refused for want of memory"),
    (Seen::Moved, "a client sent to another node"),
    (Seen::HistoryUnchecked, "a history too long to search"),
    (Seen::ReadAgain, "a read refused after the faults, and asked again"),
    (Seen::DataFlipped, "a bit flipped in a data chunk"),
    (Seen::IndexFlipped, "a bit flipped in an index page"),
    (Seen::ParityFlipped, "a bit flipped in a parity chunk"),
    (Seen::UnitFlipped, "a bit flipped in a unit of a large value"),
    (Seen::DiskFlipped, "a bit flipped on the disk of a log node"),
    (Seen::StandIn, "10.5 a node that is named twice in the list"),
    (Seen::StandInLost, "10.5 a crash that takes two positions of the list"),
    (Seen::Split, "an owner cut off with some of its members"),
    (Seen::PlannedMove, "5.12 a drained position goes to another node"),
    (Seen::HandOffVoid, "10.8 a proposal between tenures that are over"),
    (Seen::SlotsBetweenLists, "10.8 slots go from one list to another"),
    (
        Seen::StoppedBeforeReading,
        "4.2 a command read after a stop, by the clock of before",
    ),
    (Seen::AskedLiveLate, "6.5 a position called Live late"),
    (Seen::SplitBeside, "4.2 the world splits as a position is called Live"),
    (Seen::WallClockSet, "8.4 a wall clock set"),
    (
        Seen::CrowdRead,
        "keys of one MSET read together, neighbours in the index",
    ),
    (
        Seen::Outgrown,
        "8.2 a parity with less memory than its streams have grown to",
    ),
    (Seen::Listed, "all keys listed"),
    (Seen::CoordinatorAway, "10.11 the coordinator away"),
    (Seen::CoordinatorStopped, "10.11 the coordinator stopped for a while"),
    (Seen::CommitFailed, "10.1 commits that fail, with effect or without"),
    (Seen::StoreIsOld, "10.16 the store an old copy, or empty"),
    (Seen::StoreFoundOld, "10.16 the coordinator finds that its store is old"),
    (
        Seen::Forked,
        "10.16 an old store goes on, and no process has what it lacks",
    ),
    (Seen::Adopted, "10.18 a store made anew from what the nodes know"),
    (
        Seen::FormerAwaited,
        "10.18 a lost store waits for a process that lives beside another one of its node",
    ),
    (
        Seen::EndAttested,
        "10.18 a lost store made anew after an operator has attested an end",
    ),
    (Seen::SecondProcess, "10.13 a second process of a node that runs"),
    (Seen::TwoCoordinators, "10.1 two coordinators on one store"),
    (Seen::Deposed, "10.1 a coordinator finds that another has its store"),
    (
        Seen::StoreWentBack,
        "10.1 a running coordinator finds that its store went back",
    ),
    (
        Seen::CommitLandedLate,
        "10.1 a commit takes effect after it seemed to fail",
    ),
    (Seen::OneWayClosed, "10.9 a path to the coordinator closed one way"),
    (Seen::FalselySuspected, "10.10 a living node removed for silence"),
    (Seen::ClassChanged, "14.10 a large value given another class"),
    (Seen::ClassWritten, "14.1 a large value written with a class"),
    (
        Seen::RefusedAtOnce,
        "5.13 a command refused at once for a stream that long has not served",
    ),
    (
        Seen::AdoptedAgain,
        "10.18 a process that cannot be compared was stopped: adopted again",
    ),
    (
        Seen::SecondTakenIn,
        "10.13 a second process counts in place of the first, which was not heard",
    ),
    (Seen::SecondServes, "10.13 a second process serves"),
    (Seen::TwoServe, "10.13 a second process serves beside the first one"),
    (
        Seen::LargeGroupRead,
        "14.14 keys of one MSET read together, with large values",
    ),
    (Seen::DecodedByClient, "14.17 a value put together by its client"),
    (Seen::UnitsReplaced, "14.17 late units replaced by a client"),
    (Seen::LocatedAgain, "14.17 a value located again"),
    (Seen::WrongUnits, "14.17 wrong units seen by a client"),
    (Seen::EncodedByClient, "14.18 a value whose parts its client has sent"),
    (Seen::LieTold, "14.18 a client has lied about the parts of its value"),
    (Seen::TransactionDone, "1.9 a transaction done"),
    (Seen::WatchHeld, "1.9 a transaction done after WATCH"),
    (
        Seen::WatchStopped,
        "1.9 a transaction stopped, because a watched key had changed",
    ),
    (Seen::ScriptDone, "1.9 a script done"),
    (Seen::LibraryLoaded, "1.9 a library of functions loaded"),
    (Seen::FunctionCalled, "1.9 a function called"),
    (
        Seen::FunctionCalledInTransaction,
        "1.9 a function called in a transaction",
    ),
    (Seen::OtherDatabaseRead, "1.9 a key of database 1 read"),
    (Seen::OneSlotRead, "1.10 a key of a database read that lies in one slot"),
    (
        Seen::SelectedInTransaction,
        "1.9 a transaction done that has changed its database",
    ),
    (Seen::MayLeave, "10.20 a process that is to end may do so"),
    (Seen::LeaveWaits, "10.20 a process that is to end has to wait"),
    (Seen::EndByNext, "10.4 an end certified by the next process of its node"),
    (Seen::TwoVersions, "10.21 a node gets a program of another version"),
    (Seen::UpgradeTakenBack, "10.21 an upgrade goes back"),
    (Seen::ActivationRefused, "10.21 a version may not become active yet"),
    (Seen::Activated, "10.21 a version becomes active"),
    (Seen::BelowActive, "10.21 a process below the active version is refused"),
    (Seen::LargeTaken, "14.21 a write answers with the large value before it"),
];

/// Marks that need not be reached in a run of many seeds: they concern the simulator, not the rules.
const OPTIONAL: [Seen; 4] = [
    Seen::HistoryUnchecked,
    Seen::ReadAgain,
    Seen::Outgrown,
    Seen::AdoptedAgain,
];

// Counts are found by the number of a mark.
const _: () = {
    let mut at = 0;
    while at < Mark::ALL.len() {
        assert!(
            Mark::ALL[at].0 as usize == at,
            "Mark::ALL is in the order of the enumeration"
        );
        at += 1;
    }
    at = 0;
    while at < SEEN.len() {
        assert!(SEEN[at].0 as usize == at, "SEEN is in the order of the enumeration");
        at += 1;
    }
};

/// How often each mark was reached.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    machines: [u64; Mark::ALL.len()],
    seen: [u64; SEEN.len()],
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            machines: [0; Mark::ALL.len()],
            seen: [0; SEEN.len()],
        }
    }
}

impl Marks {
    pub(crate) fn reach(&mut self, mark: Mark) {
        self.machines[mark as usize] += 1;
    }

    pub(crate) fn see(&mut self, seen: Seen) {
        self.seen[seen as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mine = self.machines.iter_mut().chain(&mut self.seen);
        for (mine, theirs) in mine.zip(other.machines.iter().chain(&other.seen)) {
            *mine += theirs;
        }
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        let machines = Mark::ALL.iter().map(|(_, name)| *name);
        let names = machines.chain(SEEN.iter().map(|(_, name)| *name));
        for (count, name) in self.machines.iter().chain(&self.seen).zip(names) {
            say(&format!("{count:>12}  {name}"));
        }
    }

    /// Names of required marks that were not reached.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let machines = Mark::ALL
            .iter()
            .map(|(mark, name)| (self.machines[*mark as usize], *name));
        let must = SEEN.iter().filter(|(seen, _)| !OPTIONAL.contains(seen));
        let seen = must.map(|(seen, name)| (self.seen[*seen as usize], *name));
        machines
            .chain(seen)
            .filter(|(count, _)| *count == 0)
            .map(|(_, name)| name)
            .collect()
    }
}
