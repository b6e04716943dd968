use super::*;
use serde_json::json;

fn problems(manifest: &str, dependency: Value) -> Vec<String> {
    let metadata = json!({
        "workspace_root": "/r",
        "packages": [{ "manifest_path": format!("/r/{manifest}"), "dependencies": [dependency] }],
    });
    let read = |_: &str| Some("[dependencies]\nserde = \"1\"\nparitas-io.workspace = true\n".to_owned());
    check(&metadata, &read).iter().map(ToString::to_string).collect()
}

fn ours(name: &str, kind: Value) -> Value {
    json!({ "name": format!("paritas-{name}"), "kind": kind, "path": format!("/r/crates/{name}") })
}

#[test]
fn every_room_imports_only_rooms_below_it() {
    for (rank, (name, allowed)) in CRATES.iter().enumerate() {
        for target in *allowed {
            let (target_rank, _) = find(target).expect("an allowed crate has its own row");
            assert!(target_rank < rank, "{name} imports {target}");
        }
    }
}

#[test]
fn an_edge_that_no_wall_allows_names_file_line_and_mend() {
    let found = problems("crates/protocol/Cargo.toml", ours("io", Value::Null));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("crates/protocol/Cargo.toml:3: paritas-io: crate `protocol` must not"),
        "{found:?}"
    );
    assert!(
        found[0].contains("it may import base, code, wire, store, paritylog"),
        "{found:?}"
    );
}

#[test]
fn a_build_dependency_counts_as_a_normal_one() {
    assert_eq!(
        problems("crates/store/Cargo.toml", ours("code", json!("build"))).len(),
        1
    );
    assert!(problems("crates/protocol/Cargo.toml", ours("store", json!("build"))).is_empty());
}

#[test]
fn a_test_may_use_any_room_below_and_none_above() {
    assert!(problems("crates/store/Cargo.toml", ours("code", json!("dev"))).is_empty());
    assert_eq!(problems("crates/code/Cargo.toml", ours("store", json!("dev"))).len(), 1);
    assert!(problems("crates/protocol/Cargo.toml", ours("testbed", json!("dev"))).is_empty());
    assert_eq!(
        problems("crates/protocol/Cargo.toml", ours("frontend", json!(null))).len(),
        1
    );
    assert_eq!(
        problems("crates/simulator/Cargo.toml", ours("io", json!("dev"))).len(),
        1
    );
}

#[test]
fn all_adapters_are_one_room() {
    assert!(problems("crates/adapters/embedded/Cargo.toml", ours("control", Value::Null)).is_empty());
    let neighbour = json!({ "name": "paritas-etcd", "kind": null, "path": "/r/crates/adapters/etcd" });
    assert_eq!(problems("crates/adapters/embedded/Cargo.toml", neighbour).len(), 1);
}

#[test]
fn a_new_crate_needs_a_row() {
    let serde = json!({ "name": "serde", "kind": null });
    assert_eq!(problems("crates/utilities/Cargo.toml", serde.clone()).len(), 1);
    assert_eq!(problems("elsewhere/Cargo.toml", serde).len(), 1);
}

#[test]
fn clocks_and_async_stay_where_they_belong() {
    let outside = |name: &str| json!({ "name": name, "kind": null });
    assert_eq!(problems("crates/protocol/Cargo.toml", outside("rand")).len(), 1);
    assert_eq!(problems("crates/node/Cargo.toml", outside("tokio")).len(), 1);
    assert!(problems("crates/adapters/etcd/Cargo.toml", outside("tokio")).is_empty());
    assert!(problems("crates/io/Cargo.toml", outside("mio")).is_empty());
    assert!(problems("crates/protocol/Cargo.toml", json!({ "name": "rand", "kind": "dev" })).is_empty());
}

#[test]
fn the_bans_of_pure_rooms_must_not_drift() {
    let read = |path: &str| match path {
        "crates/base/Cargo.toml" | "crates/code/Cargo.toml" | "crates/wire/Cargo.toml" => Some(String::new()),
        "crates/base/clippy.toml" | "crates/code/clippy.toml" => Some("bans".to_owned()),
        _ => None,
    };
    let found = check_clippy_files(&read);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].file, "crates/wire/clippy.toml");
}
