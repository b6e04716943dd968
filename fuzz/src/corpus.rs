//! The inputs that a search has kept, of one target in one file: `u32 length, bytes` each, shortest first. Hundreds of
//! files of some bytes each would bury the rest of the repository.

use crate::Target;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The kept inputs of a target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Corpus {
    /// In the order of the file.
    pub inputs: Vec<Vec<u8>>,
}

/// Why a corpus cannot be read or written.
#[derive(Debug)]
pub enum CorpusError {
    /// The system says so.
    Io(PathBuf, io::Error),
    /// A file that is no corpus.
    Damaged(PathBuf),
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Damaged(path) => write!(f, "{}: not a corpus", path.display()),
        }
    }
}

impl std::error::Error for CorpusError {}

impl Corpus {
    /// Where a target's is kept.
    pub fn path(target: &Target) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
    }

    /// Reads what is kept; nothing if there is no file yet.
    ///
    /// # Errors
    /// If the file cannot be read or is no corpus.
    pub fn load(path: &Path) -> Result<Self, CorpusError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(CorpusError::Io(path.to_owned(), error)),
        };
        let mut inputs = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let found = rest
                .split_first_chunk::<4>()
                .and_then(|(length, after)| after.split_at_checked(u32::from_le_bytes(*length) as usize));
            let Some((input, after)) = found else {
                return Err(CorpusError::Damaged(path.to_owned()));
            };
            inputs.push(input.to_vec());
            rest = after;
        }
        Ok(Self { inputs })
    }

    /// Writes it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), CorpusError> {
        let mut inputs: Vec<&Vec<u8>> = self.inputs.iter().collect();
        inputs.sort_by_key(|input| (input.len(), *input));
        inputs.dedup();
        let mut bytes = Vec::new();
        for input in inputs {
            bytes.extend_from_slice(&(input.len() as u32).to_le_bytes());
            bytes.extend_from_slice(input);
        }
        fs::write(path, bytes).map_err(|error| CorpusError::Io(path.to_owned(), error))
    }

    /// The files of a directory.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn gather(directory: &Path) -> Result<Self, CorpusError> {
        let at = |error| CorpusError::Io(directory.to_owned(), error);
        let mut inputs = Vec::new();
        for entry in fs::read_dir(directory).map_err(at)? {
            inputs.push(fs::read(entry.map_err(at)?.path()).map_err(at)?);
        }
        Ok(Self { inputs })
    }

    /// Puts each input into a file of a directory, as libFuzzer wants them.
    ///
    /// # Errors
    /// If one cannot be written.
    pub fn scatter(&self, directory: &Path) -> Result<(), CorpusError> {
        let at = |error| CorpusError::Io(directory.to_owned(), error);
        fs::create_dir_all(directory).map_err(at)?;
        for (number, input) in self.inputs.iter().enumerate() {
            fs::write(directory.join(format!("{number:05}")), input).map_err(at)?;
        }
        Ok(())
    }
}
