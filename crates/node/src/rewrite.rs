//! Writes settings that were changed at run time to the settings file. Each keeps its line; everything else is
//! unchanged.

use crate::Failure;
use crate::settings::{NodeSettings, parse};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes all settings or none: a reader sees the old file or the new one.
pub(crate) fn rewrite(file: Option<&Path>, settings: &[(&str, String)]) -> Result<(), Failure> {
    // The text of Redis.
    let file = file.ok_or_else(|| Failure("The server is running without a config file".into()))?;
    let failed = |error: io::Error| Failure(format!("{}: {error}", file.display()));
    // A symbolic link stays one.
    let file = &fs::canonicalize(file).map_err(failed)?;
    let text = edited(&fs::read_to_string(file).map_err(failed)?, settings);
    // A file that the next start could not read must not be written.
    parse::<NodeSettings>(&text)
        .map_err(|(line, why)| Failure(format!("{}:{line} would be invalid: {why}", file.display())))?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = file.with_file_name(name);
    let written = write(file, &new, &text);
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.map_err(failed)
}

fn write(file: &Path, new: &Path, text: &str) -> io::Result<()> {
    let mut out = File::create(new)?;
    out.set_permissions(fs::metadata(file)?.permissions())?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(new, file)?;
    match file.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// The text with new values in its lines `key = value`. New keys are added at the end.
fn edited(text: &str, settings: &[(&str, String)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (key, value) in settings {
        let of_key = |line: &&mut String| line.split_once('=').is_some_and(|(name, _)| name.trim() == *key);
        match lines.iter_mut().find(of_key) {
            Some(line) => {
                // Values that are written are numbers and plain words, which contain no `#`.
                let comment = line.split_once('#').map(|(_, comment)| format!("  #{comment}"));
                *line = format!("{key} = {value}{}", comment.unwrap_or_default());
            }
            None => lines.push(format!("{key} = {value}")),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_change_in_place_and_all_else_stays() {
        let text = "# mine\nid = 3\nmemory = \"64mb\" # small\n\nport = 7000";
        let changes = [
            ("memory", "50331648".to_owned()),
            ("maxmemory_policy", "\"allkeys-lru\"".to_owned()),
        ];
        let expected =
            "# mine\nid = 3\nmemory = 50331648  # small\n\nport = 7000\nmaxmemory_policy = \"allkeys-lru\"\n";
        assert_eq!(edited(text, &changes), expected);
        assert_eq!(edited(expected, &changes), expected);
    }

    #[test]
    fn a_node_without_a_file_says_so() {
        let failure = rewrite(None, &[]).unwrap_err();
        assert_eq!(failure.0, "The server is running without a config file");
    }
}
