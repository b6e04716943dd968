//! Sums of the tables that the lab writes, so that a table which was changed later can be told from what was measured.
//!
//! `SHA256SUMS` lies beside the tables and has the form of `sha256sum --check`. `cargo xtask tidy` compares it.

use sha2::{Digest, Sha256};
use std::io;
use std::path::Path;

const SUMS: &str = "SHA256SUMS";

/// Writes a table, and its line into the sums of the directory.
pub fn write(directory: &Path, name: &str, csv: &str) -> io::Result<()> {
    std::fs::write(directory.join(name), csv)?;
    let sums = directory.join(SUMS);
    let old = match std::fs::read_to_string(&sums) {
        Ok(old) => old,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    std::fs::write(sums, with(&old, name, csv))
}

/// The sums with the line of one table as the last. The others stay.
fn with(sums: &str, name: &str, csv: &str) -> String {
    let is_other = |line: &&str| line.split_once("  ").is_none_or(|(_, of)| of != name);
    let others: String = sums.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
    let sum: String = Sha256::digest(csv).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{others}{sum}  {name}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_line_is_replaced_and_the_others_stay() {
        let old = "# a note\n1234  one.csv\n5678  two.csv\n";
        let now = with(old, "one.csv", "abc");
        assert_eq!(now, format!("# a note\n5678  two.csv\n{SUM_OF_ABC}  one.csv\n"));
        assert_eq!(with(&now, "one.csv", "abc"), now);
        assert_eq!(with("", "one.csv", "abc"), format!("{SUM_OF_ABC}  one.csv\n"));
    }
}
