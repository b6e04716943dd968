//! Memory that is full, under each `maxmemory-policy` (P8.1): writes go on, and nothing wrong is ever read.

use paritas_base::{Map, Prng, map};
use paritas_code::{Code, Scheme, mul_add};
use paritas_protocol::{List, Parameters, Policy, Port};
use paritas_testbed::Node;
use paritas_testbed::{Client, Cluster};

const MEMORY_BYTES: u64 = 4 << 20;

fn cluster(policy: Policy) -> Cluster {
    let parameters = Parameters {
        policy,
        credit_batch: 16,
        ..Parameters::for_memory(MEMORY_BYTES, 3)
    };
    Cluster::coded_in(MEMORY_BYTES, 2, 1, 3, 0, parameters)
}

fn field(cluster: &mut Cluster, client: Client, name: &str) -> String {
    let text = cluster.ask(client, "INFO everything");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().to_owned()
}

fn evicted(cluster: &mut Cluster) -> u64 {
    (0..cluster.processes.len())
        .map(|at| {
            let client = cluster.connect(at, Port::Any);
            field(cluster, client, "evicted_keys").parse::<u64>().unwrap()
        })
        .sum()
}

/// The parity equation: every parity chunk is what the owners' chunks make.
fn check_parity(cluster: &Cluster) {
    let code = Code::new(Scheme::new(2, 1).unwrap());
    let mut checked = 0;
    let role = |node: usize, list: usize| -> (&Node, &List) {
        let node = &cluster.processes[node].node;
        (node, node.replica().lists().nth(list).unwrap())
    };
    for list in 0..3 {
        let mut owners = map();
        let mut members = Vec::new();
        for at in 0..3 {
            let (node, list) = role(at, list);
            owners.extend(list.owners().map(|owner| (owner.stream().x, (node, owner))));
            members.extend(list.member().map(|member| (node, member)));
        }
        for (node, member) in members {
            for stripe in member.valid_stripes() {
                let (_, parity) = member.chunk(node.replica().arena(), stripe).unwrap();
                let mut expected = vec![0; node.replica().arena().chunk_bytes()];
                for (x, (owner_node, owner)) in &owners {
                    if let Some(data) = owner
                        .store()
                        .chunks()
                        .bytes(owner_node.replica().arena(), stripe)
                        .unwrap()
                    {
                        mul_add(code.coefficient(x.0, 0), data, &mut expected);
                    }
                }
                assert!(
                    parity.map_or_else(|| expected.iter().all(|b| *b == 0), |p| p == expected),
                    "{stripe}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 150, "{checked}");
}

fn value(key: u64, version: u64) -> String {
    format!("{key}:{version};").repeat(200 + (key % 7) as usize * 150)
}

/// Writes about four times what memory holds, half of the keys with an end, and reads on the way: what is read is
/// what was written last, or nothing. Gives how many writes were refused.
fn churn(cluster: &mut Cluster, seed: u64, writes: u64) -> u64 {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let client = cluster.connect(0, Port::Any);
    let mut model: Map<u64, u64> = map();
    let mut refused = 0;
    let check = |cluster: &mut Cluster, model: &Map<u64, u64>, key: u64| {
        let reply = cluster.ask(client, &format!("GET k{key}"));
        let expected = model.get(&key).map(|version| value(key, *version));
        let gone = reply == "$-1\r\n";
        let right = expected.is_some_and(|v| reply == format!("${}\r\n{v}\r\n", v.len()));
        assert!(gone || right, "key {key}: {reply:.80}");
        gone
    };
    for version in 0..writes {
        let key = prng.below(3000);
        let new = value(key, version);
        let end = if key.is_multiple_of(2) { " PX 100000000" } else { "" };
        let reply = cluster.ask(client, &format!("SET k{key} {new}{end}"));
        if reply == "+OK\r\n" {
            model.insert(key, version);
        } else {
            assert!(reply.starts_with("-OOM"), "{reply}");
            refused += 1;
        }
        if version % 3 == 0 && check(cluster, &model, prng.below(3000)) && prng.chance(100_000) {
            let key = prng.below(3000);
            cluster.ask(client, &format!("DEL k{key}"));
            model.remove(&key);
        }
    }
    for key in 0..3000 {
        check(cluster, &model, key);
    }
    refused
}

#[test]
fn writes_succeed_by_evicting_and_nothing_wrong_is_read() {
    for (seed, policy) in [
        (1, Policy::AllKeysLru),
        (2, Policy::AllKeysLfu),
        (3, Policy::AllKeysRandom),
        (4, Policy::VolatileTtl),
    ] {
        let mut cluster = cluster(policy);
        let refused = churn(&mut cluster, seed, 6000);
        if policy.is_volatile() {
            println!("{policy}: {refused} refused");
        } else {
            assert_eq!(refused, 0, "{policy}");
        }
        assert!(evicted(&mut cluster) > 1000, "{policy}");
        check_parity(&cluster);
    }
}

#[test]
fn without_a_policy_writes_are_refused_and_nothing_goes() {
    let mut cluster = cluster(Policy::NoEviction);
    let client = cluster.connect(0, Port::Any);
    let (mut kept, mut refused) = (Vec::new(), 0);
    for key in 0..3000 {
        match cluster.ask(client, &format!("SET k{key} {}", value(key, 0))).as_str() {
            "+OK\r\n" => kept.push(key),
            other => {
                assert!(other.starts_with("-OOM"), "{other}");
                refused += 1;
            }
        }
    }
    assert!(refused > 500, "{refused}");
    for key in kept {
        let v = value(key, 0);
        assert_eq!(
            cluster.ask(client, &format!("GET k{key}")),
            format!("${}\r\n{v}\r\n", v.len())
        );
    }
    assert_eq!(evicted(&mut cluster), 0);
    check_parity(&cluster);
}

#[test]
fn what_is_read_again_and_again_outlasts_the_rest() {
    for policy in [Policy::AllKeysLru, Policy::AllKeysLfu] {
        let mut cluster = cluster(policy);
        let client = cluster.connect(1, Port::Any);
        for key in 0..5000 {
            assert_eq!(cluster.ask(client, &format!("SET k{key} {}", value(key, 0))), "+OK\r\n");
            let hot = key % 40;
            let v = value(hot, 0);
            if hot <= key {
                let reply = cluster.ask(client, &format!("GET k{hot}"));
                assert_eq!(reply, format!("${}\r\n{v}\r\n", v.len()), "{policy}");
            }
        }
        assert!(evicted(&mut cluster) > 1000);
    }
}

#[test]
fn commands_of_several_keys_evict_too_and_are_never_cut() {
    let mut cluster = cluster(Policy::AllKeysLru);
    let client = cluster.connect(0, Port::Any);
    for n in 0..1500 {
        let pairs: String = (0..4).map(|i| format!(" {{t{n}}}{i} {}", value(n, i))).collect();
        assert_eq!(cluster.ask(client, &format!("MSET{pairs}")), "+OK\r\n", "{n}");
        let reply = cluster.ask(client, &format!("MGET {{t{n}}}0 {{t{n}}}1 {{t{n}}}2 {{t{n}}}3"));
        assert!(!reply.contains("$-1"), "just written");
        assert_eq!(
            cluster.ask(client, &format!("APPEND {{t{n}}}0 more")),
            format!(":{}\r\n", value(n, 0).len() + 4)
        );
        assert_eq!(cluster.ask(client, &format!("RENAME {{t{n}}}1 {{t{n}}}r")), "+OK\r\n");
    }
    assert!(evicted(&mut cluster) > 1000);
    check_parity(&cluster);
}

#[test]
fn the_policy_is_told_and_changed_while_the_node_runs() {
    let mut cluster = cluster(Policy::NoEviction);
    let client = cluster.connect(0, Port::Any);
    let get = |cluster: &mut Cluster| cluster.ask(client, "CONFIG GET maxmemory-policy");
    assert_eq!(
        get(&mut cluster),
        "*2\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n"
    );
    for policy in Policy::ALL {
        let name = policy.name();
        let spoken = name.to_uppercase();
        assert_eq!(
            cluster.ask(client, &format!("CONFIG SET maxmemory-policy {spoken}")),
            "+OK\r\n"
        );
        assert_eq!(
            get(&mut cluster),
            format!("*2\r\n$16\r\nmaxmemory-policy\r\n${}\r\n{name}\r\n", name.len())
        );
        assert_eq!(field(&mut cluster, client, "maxmemory_policy"), name);
    }
    // Redis's own words.
    assert_eq!(
        cluster.ask(client, "CONFIG SET maxmemory-policy allkeys"),
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be one of the \
         following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, \
         allkeys-random, noeviction\r\n"
    );
    let both = cluster.ask(client, "CONFIG SET maxmemory-policy allkeys-lru databases 5");
    assert!(both.contains("immutable"), "{both}");
    let both = cluster.ask(client, "CONFIG SET maxmemory-policy allkeys-lru maxmemory 5gb");
    assert!(
        both.contains("a node cannot get more memory than at its start"),
        "{both}"
    );
    assert!(get(&mut cluster).contains("noeviction"), "all or none");

    let frequency = |cluster: &mut Cluster| cluster.ask(client, "OBJECT FREQ k");
    cluster.ask(client, "SET k v");
    assert!(frequency(&mut cluster).starts_with("-ERR An LFU"));
    for at in 0..3 {
        let client = cluster.connect(at, Port::Any);
        cluster.ask(client, "CONFIG SET maxmemory-policy allkeys-lfu");
    }
    assert_eq!(frequency(&mut cluster), ":0\r\n", "cold");
    for _ in 0..100 {
        cluster.ask(client, "GET k");
    }
    let uses: u64 = frequency(&mut cluster).trim().trim_start_matches(':').parse().unwrap();
    assert!((5..40).contains(&uses), "{uses}");
    assert!(cluster.ask(client, "OBJECT IDLETIME k").starts_with("-ERR An LFU"));
}

/// A word for each stream, in whose slots keys with that tag lie.
fn tags(cluster: &mut Cluster, client: Client, streams: usize) -> Vec<String> {
    let mut tags = vec![String::new(); streams];
    for n in 0..1000 {
        let tag = format!("{{{n}}}");
        let slot = cluster.ask(client, &format!("CLUSTER KEYSLOT {tag}"));
        let slot: usize = slot.trim().trim_start_matches(':').parse().unwrap();
        tags[slot * streams / 16_384] = tag;
    }
    assert!(tags.iter().all(|tag| !tag.is_empty()));
    tags
}

#[test]
fn who_fills_memory_first_leaves_room_for_those_that_come_later() {
    for policy in [
        Policy::AllKeysLru,
        Policy::AllKeysLfu,
        Policy::AllKeysRandom,
        Policy::VolatileTtl,
    ] {
        let mut cluster = cluster(policy);
        let client = cluster.connect(0, Port::Any);
        // Each stream in turn writes more than any node holds.
        for (at, tag) in tags(&mut cluster, client, 6).iter().enumerate() {
            for n in 0..2500 {
                let end = 1_000_000_000 + n;
                let reply = cluster.ask(client, &format!("SET {tag}{n} {} PX {end}", value(n, 0)));
                assert_eq!(reply, "+OK\r\n", "{policy}: stream {at}, key {n}");
            }
            let held = (0..2500).filter(|n| cluster.ask(client, &format!("EXISTS {tag}{n}")) == ":1\r\n");
            let held: usize = held.map(|n| value(n, 0).len()).sum();
            println!("{policy}: stream {at}: {held} bytes held");
            assert!(held as u64 > MEMORY_BYTES / 3 / 3, "a third of an equal part");
        }
        check_parity(&cluster);
    }
}

/// Parity is not evicted. A memory limit that leaves no space beside parity would evict all keys, and is refused.
#[test]
fn memory_is_not_set_below_what_parity_has() {
    let parameters = Parameters {
        policy: Policy::AllKeysLru,
        credit_batch: 16,
        ..Parameters::for_memory(64 << 20, 2)
    };
    let mut cluster = Cluster::coded_in(64 << 20, 1, 1, 2, 0, parameters);
    let client = cluster.connect(0, Port::Any);
    let count = |cluster: &mut Cluster| -> u32 {
        let reply = cluster.ask(client, "DBSIZE");
        reply.trim_matches([':', '\r', '\n']).parse().unwrap()
    };
    let value = "v".repeat(60_000);
    for n in 0..1_300 {
        assert_eq!(cluster.ask(client, &format!("SET k{n} {value}")), "+OK\r\n");
    }
    let before = count(&mut cluster);
    for at in 0..2 {
        let client = cluster.connect(at, Port::Any);
        let refused = cluster.ask(client, "CONFIG SET maxmemory 32mb");
        assert!(
            refused.contains("parity takes") && refused.contains("not evicted"),
            "{refused}"
        );
    }
    cluster.advance(1_000);
    let after = count(&mut cluster);
    assert!(before < 1_200 && after + 20 > before, "{after} of {before}");
    for at in 0..2 {
        let client = cluster.connect(at, Port::Any);
        assert_eq!(cluster.ask(client, "CONFIG SET maxmemory 48mb"), "+OK\r\n");
    }
    cluster.advance(60_000);
    let left = count(&mut cluster);
    assert!((before / 8..before).contains(&left), "{left} of {before}");
    assert_eq!(cluster.ask(client, "SET again 1"), "+OK\r\n");
    assert_eq!(cluster.ask(client, "GET again"), "$1\r\n1\r\n");
}

/// What keys of 1000 B leave is in pieces, and a value of 50 KB takes four whole chunks. Here acks take no time:
/// `tests/test_eviction.py` has how long writes wait.
#[test]
fn values_of_several_chunks_among_small_keys_are_not_refused() {
    const MEMORY_BYTES: u64 = 16 << 20;
    for policy in [Policy::AllKeysLru, Policy::AllKeysRandom] {
        let parameters = Parameters {
            policy,
            credit_batch: 16,
            ..Parameters::for_memory(MEMORY_BYTES, 3)
        };
        let mut cluster = Cluster::coded_in(MEMORY_BYTES, 2, 1, 3, 0, parameters);
        let client = cluster.connect(0, Port::Any);
        let small = "s".repeat(1000);
        for n in 0..40_000 {
            assert_eq!(
                cluster.ask(client, &format!("SET small{n} {small}")),
                "+OK\r\n",
                "{policy}"
            );
        }
        let before = evicted(&mut cluster);
        assert!(before > 0, "{policy}: memory is not full");
        // Fewer large values than memory holds. Otherwise each later one would use exactly the chunks of an evicted
        // one.
        let large = "l".repeat(50_000);
        for batch in 0..10 {
            let lines: String = (0..20).map(|n| format!("SET large{batch}:{n} {large}\r\n")).collect();
            cluster.feed(client, lines.as_bytes());
            let mut replies = String::new();
            for _ in 0..100 {
                cluster.pump();
                replies += &String::from_utf8(cluster.take(client)).unwrap();
                if replies.len() >= 20 * "+OK\r\n".len() {
                    break;
                }
                cluster.advance(1);
            }
            assert_eq!(replies, "+OK\r\n".repeat(20), "{policy}: batch {batch}");
        }
        let gone = evicted(&mut cluster) - before;
        // As many bytes as came in, and some that are still to be compacted.
        assert!(gone < 200 * 50 * 2, "{policy}: {gone} keys gone for 200 values");
        check_parity(&cluster);
    }
}
