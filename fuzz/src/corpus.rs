//! The inputs kept from a search. Each target has one file with `u32 length, bytes` for each input, shortest first.
//! Hundreds of small files would clutter the repository.

use crate::Target;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The kept inputs of a target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Corpus {
    /// The inputs in the order of the file.
    pub inputs: Vec<Vec<u8>>,
}

/// Why a corpus cannot be read or written.
#[derive(Debug)]
pub enum CorpusError {
    /// The system reports an error.
    Io(PathBuf, io::Error),
    /// The file is not a corpus.
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
    /// The path of a target's corpus.
    pub fn path(target: &Target) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
    }

    /// Reads the corpus. It is empty if there is no file yet.
    ///
    /// # Errors
    /// If the file cannot be read or is not a corpus.
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

    /// Writes the corpus.
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

    /// Makes a corpus of the files of a directory.
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

    /// Writes each input to a file of its own in a directory, as libFuzzer needs it.
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
