//! Bits that flip in live memory are found by one pass of the scrub and put right, while clients go on (P9).

use paritas_base::{ListId, Position, Prng, Stripe, Version};
use paritas_protocol::{Figures, Parameters, Port, Role};
use paritas_testbed::{Client, Cluster};

const LIST: ListId = ListId(0);
const KEYS: usize = 300;

/// `data+parity` with one list, and keys that fill several chunks at each owner. Passes take a moment each.
fn loaded(data: u8, parity: u8) -> (Cluster, Client) {
    let parameters = Parameters {
        scrub_rate: Some(64 << 20),
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded(data, parity, 1, 1, parameters);
    let client = cluster.connect(0, Port::Any);
    for n in 0..KEYS {
        assert_eq!(cluster.ask(client, &format!("SET key{n} {}", value(n))), "+OK\r\n");
    }
    (cluster, client)
}

fn value(n: usize) -> String {
    format!("{n:0>600}")
}

fn figures(cluster: &Cluster, at: usize) -> Figures {
    cluster.processes[at].node.figures()
}

fn sum(cluster: &Cluster, of: fn(&Figures) -> u64) -> u64 {
    cluster.processes.iter().map(|p| of(&p.node.figures())).sum()
}

/// Lets every node go through all its chunks once, from the start to the end; clients write meanwhile, to keys that
/// are not among the others.
fn one_pass(cluster: &mut Cluster, client: Client) {
    let before: Vec<u64> = (0..cluster.processes.len())
        .map(|at| figures(cluster, at).scrub_passes)
        .collect();
    let mut n = 0;
    // The pass under way may have been beyond a flip: the next one is whole.
    while (0..before.len()).any(|at| figures(cluster, at).scrub_passes < before[at] + 2) {
        let reply = cluster.ask(client, &format!("SET other{} {n}", n % 50));
        if reply.is_empty() {
            cluster.advance(100);
            assert_eq!(cluster.take(client), b"+OK\r\n");
        } else {
            assert_eq!(reply, "+OK\r\n");
        }
        cluster.advance(10);
        n += 1;
        assert!(n < 3_000, "no pass ends");
    }
}

fn get(cluster: &mut Cluster, client: Client, key: &str) -> String {
    let mut reply = cluster.ask(client, &format!("GET {key}"));
    for _ in 0..20 {
        if !reply.is_empty() {
            break;
        }
        cluster.advance(50);
        reply = String::from_utf8(cluster.take(client)).unwrap();
    }
    reply
}

fn all_there(cluster: &mut Cluster, client: Client) {
    for n in 0..KEYS {
        let reply = get(cluster, client, &format!("key{n}"));
        assert_eq!(reply, format!("$600\r\n{}\r\n", value(n)), "key{n}");
    }
}

/// A bit of the chunk that a node has of a stripe; its position is its number.
fn flip(cluster: &mut Cluster, at: usize, stripe: Stripe, bit: usize) -> bool {
    let place = (LIST, Position(at as u8));
    cluster.processes[at].node.replica_mut().flip_bit(place, stripe, bit)
}

/// The stripes of which a node holds a chunk, index pages and data.
fn stripes(cluster: &Cluster, at: usize) -> Vec<Stripe> {
    let node = &cluster.processes[at].node;
    match &node.replica().list(LIST).unwrap().roles[0] {
        Role::Owner(owner) => owner.store().chunks().stripes().map(|(stripe, _)| stripe).collect(),
        Role::Member(member) => member.valid_stripes().collect(),
        _ => panic!("node {at} has no role"),
    }
}

fn chunk(cluster: &Cluster, x: usize, stripe: Stripe) -> (Version, Vec<u8>) {
    let node = &cluster.processes[x].node;
    let owner = node.replica().list(LIST).unwrap().owner(Position(x as u8)).unwrap();
    let chunks = owner.store().chunks();
    let bytes = chunks.bytes(node.replica().arena(), stripe).unwrap();
    (
        chunks.version(stripe),
        bytes.map_or_else(|| vec![0; 16 << 10], <[u8]>::to_vec),
    )
}

/// P1.7: each parity chunk is the sum of the data chunks at the versions that it tells.
fn parity_equation_holds(cluster: &Cluster, data: usize, parity: usize) {
    let code = paritas_code::Code::new(paritas_code::Scheme::new(data as u8, parity as u8).unwrap());
    for nth in 0..parity {
        let node = &cluster.processes[data + nth].node;
        let member = node.replica().list(LIST).unwrap().member().unwrap();
        for stripe in member.valid_stripes() {
            let (versions, bytes) = member.chunk(node.replica().arena(), stripe).unwrap();
            let mut expected = vec![0; 16 << 10];
            for (x, version) in versions.iter().enumerate() {
                let (here, chunk) = chunk(cluster, x, stripe);
                assert_eq!(here, *version);
                paritas_code::mul_add(code.coefficient(x as u8, nth as u8), &chunk, &mut expected);
            }
            assert!(bytes.is_none_or(|b| b == expected), "parity {nth} of {stripe}");
        }
    }
}

#[test]
fn every_flip_is_found_and_repaired_in_one_pass_whatever_chunk_it_is_in() {
    let (mut cluster, client) = loaded(2, 2);
    let mut random = Prng::new(41);
    for round in 0..8 {
        let (found, repaired) = (sum(&cluster, |f| f.scrub_bad), sum(&cluster, |f| f.scrub_repaired));
        // One bit in a chunk of each node, and never two in a stripe; in the first rounds one of them in an index page.
        let mut used = Vec::new();
        for at in 0..4 {
            let index = at == round;
            let mut all: Vec<Stripe> = stripes(&cluster, at);
            all.retain(|stripe| stripe.is_index() == index && !used.contains(stripe));
            let stripe = *random.pick(&all);
            used.push(stripe);
            let bit = random.below(8 * (16 << 10)) as usize;
            assert!(flip(&mut cluster, at, stripe, bit), "{at} {stripe}");
        }
        one_pass(&mut cluster, client);
        assert_eq!(sum(&cluster, |f| f.scrub_bad) - found, 4, "round {round}");
        assert_eq!(sum(&cluster, |f| f.scrub_repaired) - repaired, 4, "round {round}");
        all_there(&mut cluster, client);
        cluster.advance(100);
        parity_equation_holds(&cluster, 2, 2);
    }
    assert_eq!(cluster.ask(client, "DBSIZE"), format!(":{}\r\n", KEYS + 50));
}

#[test]
fn a_flipped_index_page_and_a_flipped_parity_of_it_are_repaired_together() {
    let (mut cluster, client) = loaded(2, 2);
    let page = Stripe::index_page(0);
    assert!(flip(&mut cluster, 0, page, 777));
    // The parity that is asked first, so that the chunk is decoded from it and refused.
    assert!(flip(&mut cluster, 2, page, 777));
    one_pass(&mut cluster, client);
    all_there(&mut cluster, client);
    assert_eq!(sum(&cluster, |f| f.scrub_repaired), 2);
    assert!(sum(&cluster, |f| f.scrub_bad) == 2);
    parity_equation_holds(&cluster, 2, 2);
}

#[test]
fn what_a_takeover_decodes_from_scrubbed_chunks_is_right() {
    let (mut cluster, client) = loaded(2, 1);
    for at in [1, 2] {
        let stripe = stripes(&cluster, at)[at];
        assert!(flip(&mut cluster, at, stripe, 4_000));
    }
    one_pass(&mut cluster, client);
    cluster.hand_over(0, 0, 3);
    cluster.advance(200);
    let client = cluster.connect(1, Port::Any);
    all_there(&mut cluster, client);
}

#[test]
fn more_damage_than_redundancy_is_reported_and_not_served() {
    let (mut cluster, _) = loaded(2, 1);
    let stripe = *stripes(&cluster, 0).iter().find(|s| !s.is_index()).unwrap();
    for at in [0, 2] {
        assert!(flip(&mut cluster, at, stripe, 2_000 + at));
    }
    cluster.advance(2_000);
    assert!(figures(&cluster, 0).scrub_bad > 0);
    assert_eq!(figures(&cluster, 0).scrub_repaired, 0);
    let owner = cluster.processes[0]
        .node
        .replica()
        .list(LIST)
        .unwrap()
        .owner(Position(0))
        .unwrap();
    assert!(!owner.is_whole());
    let mut refused = 0;
    for n in 0..KEYS {
        let client = cluster.connect(1, Port::Any);
        let mut reply = cluster.ask(client, &format!("GET key{n}"));
        if reply.is_empty() {
            cluster.advance(7_000);
            reply = String::from_utf8(cluster.take(client)).unwrap();
        }
        if reply.starts_with("-TRYAGAIN") {
            refused += 1;
        } else {
            assert_eq!(reply, format!("$600\r\n{}\r\n", value(n)), "key{n}");
        }
        if refused > 2 {
            break;
        }
    }
    assert!(refused > 2, "the keys of the chunk");
}

/// What P9.3 owns up to: nothing tells this from a flip that came after the write.
#[test]
fn a_flip_that_is_written_over_before_the_pass_comes_out_in_the_new_value() {
    let (mut cluster, client) = loaded(2, 1);
    one_pass(&mut cluster, client);
    let old = value(7);
    let place = (0..2).find_map(|x| {
        let here = stripes(&cluster, x).into_iter().filter(|s| !s.is_index());
        here.map(|stripe| (stripe, chunk(&cluster, x, stripe).1))
            .find_map(|(stripe, bytes)| {
                let at = bytes.windows(old.len()).position(|w| w == old.as_bytes())?;
                Some((x, stripe, at))
            })
    });
    let (x, stripe, at) = place.unwrap();
    // The pause between two passes is longer than this takes.
    assert!(flip(&mut cluster, x, stripe, 8 * (at + 300)));
    let new = "9".repeat(old.len());
    assert_eq!(cluster.ask(client, &format!("SET key7 {new}")), "+OK\r\n");
    assert_eq!(get(&mut cluster, client, "key7"), format!("$600\r\n{new}\r\n"));
    one_pass(&mut cluster, client);
    assert_eq!(sum(&cluster, |f| f.scrub_bad), 1);
    let spread = format!("{}8{}", &new[..300], &new[301..]);
    assert_eq!(get(&mut cluster, client, "key7"), format!("$600\r\n{spread}\r\n"));
    parity_equation_holds(&cluster, 2, 1);
}

#[test]
fn without_a_rate_nothing_is_checked() {
    let mut cluster = Cluster::coded(1, 1, 1, 0, Parameters::default());
    cluster.advance(3_000);
    assert_eq!(sum(&cluster, |f| f.scrub_checked + f.scrub_passes), 0);
}
