//! What a node says that its memory is for, against what the allocator says it has taken (P8.3).

#![allow(unsafe_code)] // An allocator that counts.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static HEAP_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Bytes that were ever taken.
static TAKEN_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The heap is one for all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        TAKEN_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HEAP_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sums of all nodes: the heap is one for all of them.
fn check(cluster: &Cluster, heap_before: usize, when: &str) {
    let heap = HEAP_BYTES.load(Ordering::Relaxed) - heap_before - cluster.driver_bytes();
    let mut counted = 0;
    let mut taken = heap as u64;
    for process in &cluster.processes {
        let f = process.node.figures();
        let arena = process.node.replica().arena();
        let chunks = f.data_bytes + f.index_bytes + f.parity_bytes + f.part_bytes;
        assert_eq!(
            chunks,
            u64::from(arena.used()) * arena.chunk_bytes() as u64,
            "{when}: every slot in use is somebody's: {f:?}"
        );
        counted +=
            chunks + f.stash_bytes + f.free_bytes + f.ring_bytes + f.table_bytes + f.bodies_bytes + f.buffer_bytes;
        taken += arena.resident_bytes();
    }
    let off = taken.abs_diff(counted);
    println!("{when}: gauges {counted}, allocators {taken}, of which heap {heap}; {off} apart");
    // What each process has beside what it counts does not grow.
    let fixed_bytes = (8 << 10) * cluster.processes.len() as u64;
    assert!(
        off <= taken / 100 + fixed_bytes,
        "{when}: gauges {counted}, allocators {taken}"
    );
}

fn write(cluster: &mut Cluster, client: Client, count: usize, value_bytes: usize) {
    for n in 0..count {
        cluster.feed(client, format!("SET key:{n} {n:0value_bytes$}\r\n").as_bytes());
        if n % 500 == 499 {
            cluster.pump();
            assert_eq!(cluster.take(client), b"+OK\r\n".repeat(500));
        }
    }
}

#[test]
fn gauges_sum_to_what_the_allocators_say() {
    let _alone = ONE_AT_A_TIME.lock();
    let before = HEAP_BYTES.load(Ordering::Relaxed);
    // The large value below is held whole while it is read.
    let parameters = Parameters {
        streamed_bytes_min: 8 << 20,
        ..Parameters::for_memory(16 << 20, 6)
    };
    let mut cluster = Cluster::coded(2, 1, 3, 0, parameters);
    let client = cluster.connect(0, Port::Any);
    write(&mut cluster, client, 100_000, 100);
    check(&cluster, before, "written");
    write(&mut cluster, client, 100_000, 150);
    check(&cluster, before, "overwritten with longer values");
    cluster.advance(3000);
    check(&cluster, before, "at rest");
    assert_eq!(cluster.ask(client, "FLUSHALL"), "+OK\r\n");
    cluster.advance(3000);
    let tables = |cluster: &Cluster| -> u64 {
        let all = cluster.processes.iter();
        all.map(|process| process.node.figures().table_bytes).sum()
    };
    let tables_before = tables(&cluster);
    let large = "x".repeat(4 << 20);
    assert_eq!(cluster.ask_words(client, &["SET", "large", &large]), "+OK\r\n");
    assert!(cluster.ask(client, "GET large").len() > large.len());
    // The test has the value too.
    check(
        &cluster,
        before + large.capacity(),
        "with a large value that was just read",
    );
    let grown = tables(&cluster) - tables_before;
    assert!(grown < 1 << 20, "a body is no table: {grown} bytes");
    let bodies: u64 = cluster.processes.iter().map(|p| p.node.figures().bodies_bytes).sum();
    assert!(bodies > 4_000_000, "{bodies}");
    assert_eq!(cluster.ask(client, "DEL large"), ":1\r\n");
    drop(large);
    cluster.advance(3000);
    write(&mut cluster, client, 100_000, 50);
    check(&cluster, before, "flushed and written again");

    // Clients that wait for all keys.
    let many: Vec<Client> = (0..6).map(|n| cluster.connect(n % 3, Port::Any)).collect();
    for client in &many {
        cluster.feed(*client, b"KEYS *\r\n");
    }
    for at in (0..3).cycle().take(90) {
        cluster.turn(at);
    }
    check(&cluster, before, "with walks under way");
    cluster.pump();
    assert!(
        many.iter()
            .all(|client| cluster.take(*client).starts_with(b"*100000\r\n"))
    );

    // Clients with a long command that is not whole, and with commands at nodes that do not answer.
    let crowd: Vec<Client> = (0..600).map(|n| cluster.connect(n % 3, Port::Any)).collect();
    let half = format!("*600\r\n$4\r\nMGET\r\n{}", "$3\r\nkey\r\n".repeat(500));
    for client in &crowd[..300] {
        cluster.feed(*client, b"CLIENT SETNAME somebody\r\n");
        cluster.feed(*client, half.repeat(4).as_bytes());
    }
    cluster.cut = true;
    for client in &crowd[300..] {
        cluster.feed(*client, "GET key:1\r\nGET key:2\r\nGET key:3\r\n".repeat(30).as_bytes());
    }
    for at in 0..3 {
        cluster.turn(at);
    }
    check(&cluster, before, "with many clients");
}

/// The commands run once for every few units that the holders take. A copy of the value each time would be gigabytes.
#[test]
fn append_and_setrange_of_a_large_value_take_memory_in_proportion_to_its_length() {
    const BYTES: usize = 8 << 20;
    let _alone = ONE_AT_A_TIME.lock();
    let mut cluster = Cluster::coded_in(128 << 20, 2, 1, 1, 0, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    let mut expected = "x".repeat(BYTES);
    assert_eq!(cluster.ask_words(client, &["SET", "large", &expected]), "+OK\r\n");
    let more = "y".repeat(100_000);
    expected.push_str(&more);
    let offset = BYTES - 50_000;
    expected.replace_range(offset..offset + more.len(), &"z".repeat(more.len()));
    let patch = "z".repeat(more.len());
    let offset_text = offset.to_string();
    for words in [
        &["APPEND", "large", &more][..],
        &["SETRANGE", "large", &offset_text, &patch],
    ] {
        let before = TAKEN_BYTES.load(Ordering::Relaxed);
        let reply = cluster.ask_words(client, words);
        assert_eq!(reply, format!(":{}\r\n", expected.len()));
        let taken = TAKEN_BYTES.load(Ordering::Relaxed) - before;
        println!("{}: {taken} bytes", words[0]);
        // Bodies that were read are given back.
        cluster.advance(1_000);
        assert!(taken < 12 * BYTES, "{}: {taken} bytes", words[0]);
    }
    let reply = cluster.ask_words(client, &["GET", "large"]);
    assert!(
        reply == format!("${}\r\n{expected}\r\n", expected.len()),
        "{} bytes",
        reply.len()
    );
    // Beyond the end, and over the end of the body.
    let far = (BYTES + 300_000).to_string();
    cluster.advance(1_000);
    cluster.ask_words(client, &["SETRANGE", "large", &far, "end"]);
    cluster.advance(1_000);
    expected.push_str(&"\0".repeat(BYTES + 300_000 - expected.len()));
    expected.push_str("end");
    let reply = cluster.ask_words(client, &["GET", "large"]);
    assert!(
        reply == format!("${}\r\n{expected}\r\n", expected.len()),
        "{} bytes",
        reply.len()
    );
}
