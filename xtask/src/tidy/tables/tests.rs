use super::*;

const RAW: &[u8] = b"k,speed\n4,0.834\n6,0.791\n";

fn sums_of(raw: &[u8]) -> String {
    format!("# made by a test\n{}  speed.csv\n", hex(&Sha256::digest(raw)))
}

#[test]
fn the_sum_is_that_of_sha256sum() {
    let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(hex(&Sha256::digest(b"abc")), known);
}

#[test]
fn a_table_that_differs_from_its_sum_is_refused() {
    let sums = sums_of(RAW);
    assert!(check_sums(&sums, &[("docs/lab/speed.csv", RAW)]).is_empty());
    for changed in [
        &b"k,speed\n4,5.834\n6,0.791\n"[..],
        b"k,speed\n4,0.834\n6,0.7\n",
        b"k,speed\n4,0.834\n",
        b"",
    ] {
        let problems = check_sums(&sums, &[("docs/lab/speed.csv", changed)]);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].to_string().starts_with("docs/lab/speed.csv:1:"),
            "{problems:?}"
        );
    }
}

#[test]
fn each_table_has_a_sum_and_each_sum_its_table() {
    let sums = sums_of(RAW);
    assert_eq!(check_sums("", &[("docs/lab/speed.csv", RAW)]).len(), 1);
    assert_eq!(check_sums(&sums, &[]).len(), 1);
    let twice = format!("{sums}{sums}");
    assert_eq!(check_sums(&twice, &[("docs/lab/speed.csv", RAW)]).len(), 1);
    assert_eq!(check_sums("no sum\n", &[]).len(), 1);
}

#[test]
fn a_verdict_fits_its_figure_and_its_band() {
    let fits = |ours, band, verdict, reason| unfitting(ours, band, verdict, reason).is_none();
    for (ours, band, verdict, reason) in [
        ("0.834", "0.800 to 1.00", "reproduced", ""),
        ("0.834", "at least 0.800", "met", ""),
        ("0.834", "at most 1.00", "trend only", "a spare takes its place"),
        ("5.834", "at most 1.00", "not reproduced", ""),
        ("5.834", "at most 1.00", "our explanation", ""),
        ("5.834", "0.800 to 1.00", "beaten", ""),
        ("1.64e-4", "at most 0.00630", "reproduced", ""),
        ("3072", "3072", "reproduced", ""),
        ("holds", "holds", "reproduced", ""),
        ("does not hold", "holds", "not reproduced", ""),
        (
            "12.7",
            "3.00 to 26.0",
            "not reproduced",
            "not told from noise: few pairs",
        ),
        // Rounded: it may have been 1.084.
        ("1.08", "0.880 to 1.08", "not reproduced", ""),
        ("1.08", "0.880 to 1.08", "reproduced", ""),
    ] {
        assert!(fits(ours, band, verdict, reason), "{ours} in {band}: {verdict}");
    }
    for (ours, band, verdict, reason) in [
        ("5.834", "0.800 to 1.00", "reproduced", ""),
        ("5.834", "at most 1.00", "met", "slow"),
        ("0.834", "at most 1.00", "trend only", ""),
        ("0.834", "at most 1.00", "beaten", ""),
        ("0.834", "at most 1.00", "not met", "slow"),
        ("3073", "3072", "reproduced", ""),
        ("does not hold", "holds", "reproduced", ""),
        ("12.7", "3.00 to 26.0", "not reproduced", "slow"),
        ("fast", "3.00 to 26.0", "not reproduced", ""),
        ("NaN", "3.00 to 26.0", "not reproduced", ""),
        ("12.7", "wide", "not reproduced", ""),
    ] {
        assert!(!fits(ours, band, verdict, reason), "{ours} in {band}: {verdict}");
    }
}

#[test]
fn a_row_is_named_by_its_line_and_a_table_without_bands_is_not_read() {
    let csv = "claim,paper,ours,band,verdict,reason,load\n\
               speed,4.2,0.834,at least 4.2,reproduced,,3.1 to 4.0\n\
               time,4.2,0.834,at most 4.2,reproduced\n";
    let lines: Vec<usize> = check_bands("docs/lab/x-verdicts.csv", csv)
        .iter()
        .map(|problem| problem.line)
        .collect();
    assert_eq!(lines, [2, 3]);
    assert!(check_bands("docs/lab/x.csv", "claim,ours,verdict\nspeed,1\n").is_empty());
}
