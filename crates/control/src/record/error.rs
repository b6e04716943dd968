//! Errors of opening a store.

use super::RECORD_FORMAT;
use crate::plan::PlanError;
use crate::store::StoreError;
use core::fmt;
use paritas_base::sections::BadSections;

/// Why a coordinator cannot open a store. The store is unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The store failed.
    Store(StoreError),
    /// A record was written by a newer version.
    NewerFormat {
        /// Which.
        key: String,
        /// Its format.
        found: u16,
        /// The newest that this version knows.
        known: u16,
    },
    /// The store is empty or missing: there is no cluster in it.
    NoCluster,
    /// The store has a cluster already.
    Exists,
    /// A record was written by an older version.
    OlderFormat {
        /// Which.
        key: String,
        /// Its format.
        found: u8,
    },
    /// A later version has made this record.
    UnknownRecord {
        /// Which.
        key: String,
    },
    /// A later version has added to a record what must not be left out.
    Section {
        /// Which record.
        key: String,
        /// What is wrong.
        bad: BadSections,
    },
    /// A record cannot be read, or is missing.
    Damaged {
        /// Which.
        key: String,
    },
    /// The plan is invalid.
    Plan(PlanError),
    /// The store has a cluster of another plan.
    OtherPlan {
        /// The setting that differs first.
        key: &'static str,
        /// What the cluster was made with.
        stored: String,
        /// What the settings say.
        asked: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::NewerFormat { key, found, known } => {
                write!(
                    f,
                    "record {key} has format {found}, this version knows {known}: use a newer paritas"
                )
            }
            Self::NoCluster => f.write_str(
                "there is no cluster in it. If the cluster is new, make it with `paritas coordinator --create`. If the \
                 store was lost, put the newest copy of it back, or start with --adopt, by which the nodes tell what \
                 was in it: they go on answering meanwhile",
            ),
            Self::Exists => f.write_str("there is a cluster in it already: start the coordinator without --create"),
            Self::OlderFormat { key, found } => write!(
                f,
                "record {key} has format {found}, and this version writes {RECORD_FORMAT}: take a snapshot with the \
                 version that made the cluster, make a new cluster, and restore the snapshot"
            ),
            Self::UnknownRecord { key } => write!(
                f,
                "there is a record {key} in it, which this version does not know: use a newer paritas"
            ),
            Self::Section { key, bad } => write!(f, "record {key}: {bad}"),
            Self::Damaged { key } => write!(f, "record {key} is damaged or missing"),
            Self::Plan(error) => error.fmt(f),
            Self::OtherPlan { key, stored, asked } => {
                write!(
                    f,
                    "the cluster in it was made with {key} = {stored}, which is fixed, and the settings or defaults \
                     say {asked}: set {key} to what it was, or make another cluster in another store"
                )
            }
        }
    }
}

impl core::error::Error for OpenError {}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
