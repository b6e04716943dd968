//! Commands from words.

use crate::status::Problem;
use paritas_client_io::Command;

/// The longest value or word, as a node takes it.
pub(crate) const WORD_BYTES_MAX: usize = 512 << 20;
/// The most words of a command.
pub(crate) const WORDS_MAX: usize = 1 << 20;

/// A command of these words, in the order of the key at this place; 0 is none.
pub(crate) fn of_words(words: Vec<Vec<u8>>, key_index: usize) -> Result<Command, Problem> {
    let Some(name) = words.first().filter(|name| !name.is_empty()) else {
        return Err(Problem::bad("a command needs a word, its name"));
    };
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let key = match key_index {
        0 => None,
        at => Some(words.get(at).cloned().ok_or_else(|| {
            Problem::bad(format!(
                "key_index is {at}, but the command has {} words: count them from 0, its name",
                words.len()
            ))
        })?),
    };
    if let (b"GET", 2, Some(key)) = (name.as_bytes(), words.len(), &key) {
        return Ok(Command::get(key));
    }
    Command::other(words, key).map_err(|error| Problem::bad(error.to_string()))
}
