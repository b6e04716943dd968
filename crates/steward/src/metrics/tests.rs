use super::*;
use paritas_base::{Prng, Span};
use paritas_files::record::Record;
use paritas_files::request::Request;
use paritas_files::steward::{Asker, Event, Listed, Out, Polled, Reply, Settings, Steward};
use paritas_files::{Admission, Counters, Estimator, Eviction, File, Prediction, Sample, geometry::Geometry};
use std::collections::BTreeSet;

struct Nothing;

impl Out for Nothing {
    fn reply(&mut self, _: Asker, _: Reply) {}
    fn store(&mut self, _: u64, _: File, _: &Record) {}
    fn erase(&mut self, _: u64, _: File, _: &Geometry, _: bool) {}
    fn refresh(&mut self, _: u64, _: File, _: &Geometry) {}
}

/// A machine after eleven samples of each of four nodes, one of them slow.
fn steward(now: Time) -> Steward {
    let settings = Settings {
        blocks: 20,
        block_bytes: 16 << 20,
        sub_bytes: 1 << 20,
        admission: Admission::OnAccess,
        eviction: Eviction::Lru,
        estimator: Estimator::Mad,
        period: Span::from_ms(100),
        prefetch_percent: 40,
        prediction: Prediction::Recency,
    };
    let mut steward = Steward::new(now, settings, Prng::new(1), [], &mut Nothing);
    for at in 0..44 {
        let sample = Sample {
            bytes: 1 << 20,
            time: Span::from_ms(if at % 4 == 2 { 500 } else { 10 }),
            cancelled: false,
        };
        let name = ["n0:1", "n1:1", "slow\"2", "n3:1"][at % 4];
        let report = Request::Report(vec![(name, sample)]);
        steward.on(now, Event::Request(Asker(1), report), &mut Nothing);
    }
    let polled = Polled {
        list: Some(Listed::Nodes(4)),
        counters: vec![("n0:1".to_owned(), Counters::default())],
        failures: 3,
        failure: Some("n1:1: it is away".to_owned()),
    };
    steward.on(now, Event::Polled(&polled), &mut Nothing);
    steward.on(now, Event::Tick, &mut Nothing);
    steward
}

fn figures() -> MountFigures {
    let now = Time(1_000_000_000_000);
    let mut steward = steward(now);
    let later = now + Span::from_ms(2500);
    MountFigures {
        role: "leader",
        cache_is_up: true,
        cache_errors: CacheErrors {
            store: 3,
            ..CacheErrors::default()
        },
        status: steward.figures(later),
        nodes: steward.nodes(later),
    }
}

/// The places of all numbers in a value.
fn numbers(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                numbers(&format!("{at}/{name}"), field, found);
            }
        }
        Value::Number(_) => {
            found.insert(at.to_owned());
        }
        _ => {}
    }
}

#[test]
fn every_number_of_the_status_is_a_figure() {
    let mut expected = BTreeSet::new();
    numbers("", &figures().status, &mut expected);
    // Hits are decisions, and misses are the other opens.
    assert!(expected.remove("/hits") && expected.remove("/misses"));
    let shown = FAMILIES.iter().flat_map(|family| family.samples);
    let shown: BTreeSet<String> = shown.map(|(_, place)| (*place).to_owned()).collect();
    assert_eq!(shown, expected);
}

/// Names of figures in the tables of the page.
fn documented() -> BTreeSet<&'static str> {
    let page = include_str!("../../../../docs/files.md");
    let section = page
        .split("## Metrics\n")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_page_names_every_figure_and_no_other() {
    let now = Time(1_000_000_000_000);
    let text = text(now, &Clients::new(0, 1, None), &BTreeMap::new(), &mut BTreeMap::new());
    let families = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE paritas_files_"));
    let shown: BTreeSet<&str> = families.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(shown, documented());
}

#[test]
fn the_text_has_figures_of_mounts_and_nodes() {
    let mut text = Text::new();
    let spare = MountFigures {
        role: "spare",
        cache_is_up: false,
        cache_errors: CacheErrors::default(),
        status: Value::Null,
        nodes: Vec::new(),
    };
    for_mounts(&mut text, &[("lake", figures()), ("sea", spare)]);
    let text = text.end();
    for line in [
        "# TYPE paritas_files_samples_total counter",
        "paritas_files_role{mount=\"lake\",role=\"leader\"} 1",
        "paritas_files_role{mount=\"sea\",role=\"leader\"} 0",
        "paritas_files_role{mount=\"sea\",role=\"spare\"} 1",
        "paritas_files_cache_up{mount=\"sea\"} 0",
        "paritas_files_cache_errors_total{mount=\"lake\",operation=\"store\"} 3",
        "paritas_files_samples_total{mount=\"lake\"} 44",
        "paritas_files_last_sample_age_seconds{mount=\"lake\"} 2.5",
        "paritas_files_blocks_max{mount=\"lake\"} 20",
        "paritas_files_nodes_by_source{mount=\"lake\",source=\"clients\"} 4",
        "paritas_files_datanode_polls_total{mount=\"lake\",outcome=\"failed\"} 3",
        "paritas_files_last_datanode_answer_age_seconds{mount=\"lake\"} 2.5",
        "paritas_files_nodes_slow{mount=\"lake\"} 1",
        "paritas_files_node_slow{mount=\"lake\",node=\"slow\\\"2\"} 1",
        "paritas_files_node_slow{mount=\"lake\",node=\"n0:1\"} 0",
        "paritas_files_node_rate_bytes_per_second{mount=\"lake\",node=\"n0:1\"} 104857600",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("paritas_files_opens_total{mount=\"sea\"}"));
}
