use super::*;

const CSV: &str = "claim,paper,ours,verdict,reason,load\n\
                   load: speed,4.2,3.7,trend only,busy,3.1 to 4.0\n\
                   A: speed,1.08,1.1,reproduced,,3.1 to 4.0\n\
                   why,no claim,holds,our explanation,,3.1 to 4.0\n\
                   B: speed,0.97,0.5,not reproduced,,3.1 to 4.0\n";
const PLAIN: &str = "layout,k,paper,verdict\nflat,4,\"81 to 85, or more\",beaten: much\nflat,6,81 to 85,reproduced\n";

fn lab() -> Lab {
    let mut lab = Lab::default();
    assert!(lab.add("docs/lab/one-verdicts.csv", CSV).is_empty());
    assert!(lab.add("docs/lab/two.csv", PLAIN).is_empty());
    assert!(lab.add("docs/lab/rows.csv", "a,b\n1,2\n").is_empty());
    lab
}

fn found(text: &str) -> Vec<String> {
    check("docs/papers/p.md", text, &lab())
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_region_says_what_the_rows_say() {
    let of = |selection| lab().text(selection).unwrap();
    assert_eq!(of("one"), "1 reproduced, 1 trend only, 1 not reproduced (load 3 to 4)");
    assert_eq!(of("one: A: speed"), "reproduced (load 3 to 4)");
    assert_eq!(of("one: load: speed"), "trend only (load 3 to 4)");
    assert_eq!(of("two: k=4"), "beaten");
    assert_eq!(of("two: layout=flat & k=6"), "reproduced");
    assert_eq!(of("two, one: k=6"), "reproduced");
    assert_eq!(of("*"), "2 reproduced, 1 beaten, 1 trend only, 1 not reproduced");
    assert!(lab().text("two: k=5").is_err() && lab().text("three").is_err() && lab().text("rows").is_err());
}

#[test]
fn what_is_written_passes_and_a_changed_table_does_not() {
    let page = "| row | verdict |\n| --- | --- |\n| R1 | all: <!-- verdicts one -->old<!-- end --> |\n";
    assert_eq!(found(page).len(), 1);
    let now = written("docs/papers/p.md", page, &lab()).unwrap();
    assert!(check("docs/papers/p.md", &now, &lab()).is_empty(), "{now}");
    assert_eq!(written("docs/papers/p.md", &now, &lab()).unwrap(), now);
    let mut other = Lab::default();
    other.add("docs/lab/one-verdicts.csv", &CSV.replace("trend only", "reproduced"));
    assert_eq!(check("docs/papers/p.md", &now, &other).len(), 1);
}

#[test]
fn a_verdict_by_hand_is_refused() {
    for text in [
        "It is reproduced.",
        "**Beaten**: by far",
        "| row | ours |\n| --- | --- |\n| M1 | trend only |",
        "| row | verdict |\n| --- | --- |\n| R1 | works |",
        "| row | verdict |\n| --- | --- |\n| R1 | works: <!-- verdicts two: k=6 -->reproduced<!-- end --> well |",
        "| row | ours |\n| --- | --- |\n| R1 | as in the paper |",
        "<!-- verdicts three --><!-- end -->",
    ] {
        assert_eq!(found(text).len(), 1, "{text}: {:?}", found(text));
    }
    for text in [
        "- *reproduced*: the figure is in the band.",
        "`what_is_arithmetic_is_reproduced` reproduces it",
        "| row | verdict |\n| --- | --- |\n| R1 | no verdict |",
        "| row | verdict |\n| --- | --- |\n\
         | R1 | times: <!-- verdicts two: k=6 -->reproduced<!-- end -->; p95: no verdict |",
    ] {
        assert!(found(text).is_empty(), "{text}: {:?}", found(text));
    }
}

#[test]
fn a_table_says_only_known_verdicts_and_all_of_them_are_on_pages() {
    let problems = Lab::default().add("docs/lab/x-verdicts.csv", "claim,verdict\nfast,excellent\n");
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0]
            .to_string()
            .starts_with("docs/lab/x-verdicts.csv:2: `excellent`")
    );
    let page = |text: &str| [("docs/papers/p.md".to_owned(), text.to_owned())];
    let left = |text| check_all_said(&page(text), &lab()).len();
    assert_eq!(left(""), 2);
    assert_eq!(left("<!-- verdicts one --><!-- end -->"), 1);
    assert_eq!(
        left("<!-- verdicts one: speed --><!-- end --><!-- verdicts two --><!-- end -->"),
        0
    );
    let overview = [(
        "docs/papers.md".to_owned(),
        "<!-- verdicts * --><!-- end -->".to_owned(),
    )];
    assert_eq!(check_all_said(&overview, &lab()).len(), 2);
}
