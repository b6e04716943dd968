//! LogECMem Figs 1 and 2 (§2.2): chunks that an update reads and writes, and chunks that are kept, for the four schemes
//! that it compares and for its own.

use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "update-schemes",
    figure: "LogECMem Figs 1, 2",
    claim: "(6,3): six updates keep 18 chunks as a full stripe; one takes three parity reads in place, three parities \
            made again as a full stripe, and 13 chunks kept with parity logging",
    exact: true,
    run,
};

/// How parity is updated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// The unchanged data is read, and the parity is encoded again.
    DirectReconstruction,
    /// Old data and old parity are read, and both are written again.
    InPlace,
    /// The new chunks form a stripe of their own. The unchanged chunks of the old stripe are encoded again later.
    FullStripe,
    /// Old data is read, and the delta of each parity is appended to its log.
    ParityLogging,
    /// The XOR parity is updated in place, and the deltas of the others are logged: LogECMem.
    Hybrid,
}

const SCHEMES: [Scheme; 5] = [
    Scheme::DirectReconstruction,
    Scheme::InPlace,
    Scheme::FullStripe,
    Scheme::ParityLogging,
    Scheme::Hybrid,
];

/// The cost in chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Data chunks read.
    pub data_reads: u32,
    /// Parity chunks read.
    pub parity_reads: u32,
    /// Data chunks written.
    pub data_writes: u32,
    /// Parity chunks, or their deltas, written.
    pub parity_writes: u32,
    /// Chunks of all kinds that exist until space is freed, including replaced ones where they are kept.
    pub kept: u32,
}

impl Cost {
    fn moved(&self) -> u32 {
        self.data_reads + self.parity_reads + self.data_writes + self.parity_writes
    }
}

impl Scheme {
    /// The cost of an update of `new` of a stripe's `k` data chunks, with `r` parities.
    pub fn cost(self, (k, r): (u32, u32), new: u32) -> Cost {
        let (stripe, rest) = (k + r, k - new);
        match self {
            Self::DirectReconstruction => Cost {
                data_reads: rest,
                parity_reads: 0,
                data_writes: new,
                parity_writes: r,
                kept: stripe,
            },
            Self::InPlace => Cost {
                data_reads: new,
                parity_reads: r,
                data_writes: new,
                parity_writes: r,
                kept: stripe,
            },
            // A new stripe of k chunks is shared by several updates. The old stripe stays complete until it is
            // collected; then its remaining chunks are read and encoded with others.
            Self::FullStripe => Cost {
                data_reads: rest,
                parity_reads: 0,
                data_writes: new,
                parity_writes: if rest > 0 { r } else { 0 } + new * r / k,
                kept: stripe + new + new * r / k,
            },
            Self::ParityLogging => Cost {
                data_reads: new,
                parity_reads: 0,
                data_writes: new,
                parity_writes: new * r,
                kept: stripe + new + new * r,
            },
            Self::Hybrid => Cost {
                data_reads: new,
                parity_reads: 1,
                data_writes: new,
                parity_writes: 1 + new * (r - 1),
                kept: stripe + new * (r - 1),
            },
        }
    }
}

fn run(_: &Stage) -> io::Result<Report> {
    let code = (6, 3);
    let mut report = Report {
        columns: [
            "new chunks",
            "direct reconstruction",
            "in place",
            "full stripe",
            "parity logging",
            "LogECMem",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Report::default()
    };
    for new in 1..=code.0 {
        let mut row = vec![new.to_string()];
        row.extend(SCHEMES.map(|scheme| scheme.cost(code, new).moved().to_string()));
        report.rows.push(row);
    }
    let of = |scheme: Scheme, new| scheme.cost(code, new);
    let same = |what: &str, paper: u32, ours: u32| Check::same(what, paper.into(), ours.into());
    report.checks = vec![
        same("Fig 1a: parities read in place", 3, of(Scheme::InPlace, 1).parity_reads),
        same(
            "Fig 1b: chunks kept, full stripe, six updates",
            18,
            of(Scheme::FullStripe, 6).kept,
        ),
        same(
            "Fig 1c: parities made again, full stripe",
            3,
            of(Scheme::FullStripe, 1).parity_writes,
        ),
        Check::claim(
            "Fig 1d: parity logging reads no parity",
            of(Scheme::ParityLogging, 1).parity_reads == 0,
        ),
        same(
            "Fig 1d: chunks kept, parity logging",
            13,
            of(Scheme::ParityLogging, 1).kept,
        ),
        same(
            "Fig 2: deltas of two updates at (2;2), parity logging",
            4,
            Scheme::ParityLogging.cost((2, 2), 2).parity_writes,
        ),
        Check::claim(
            "§2.2: for one new chunk direct reconstruction reads the most data",
            SCHEMES
                .iter()
                .all(|other| of(Scheme::DirectReconstruction, 1).data_reads >= of(*other, 1).data_reads),
        ),
        Check::claim(
            "§3: LogECMem reads one parity, whatever the code",
            [(6, 3), (10, 4), (128, 4)]
                .iter()
                .all(|code| Scheme::Hybrid.cost(*code, 1).parity_reads == 1),
        ),
    ];
    report.remarks.push(
        "Chunks read and written, (6;3). Deltas count as chunks, as the paper draws them; those of a stripe that fold \
         in memory (Fig 8) are counted by `disk-accesses`. The systems that do it: `basic`, `update-latency`."
            .to_owned(),
    );
    Ok(report)
}
