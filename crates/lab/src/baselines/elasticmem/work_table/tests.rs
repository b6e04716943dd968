//! Requests that meet in the work table. The nodes answer only while a gate is open.

use super::*;
use crate::baselines::network::{Ask, Network, Peer, Way};
use crate::baselines::tests::Shelf;
use std::thread::scope;
use std::time::{Duration, Instant};

const OBJECT: u32 = 7;
const REP: Class = Class::Rep { copies: 2 };
const EC: Class = Class::Ec { data: 4, parity: 1 };

/// Whether nodes answer.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        *lock(&self.is_closed) = is_closed;
        self.opens.notify_all();
    }

    fn pass(&self) {
        let mut is_closed = lock(&self.is_closed);
        while *is_closed {
            is_closed = self.opens.wait(is_closed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[derive(Debug)]
struct Gated(Shelf, Arc<Gate>);

impl Peer for Gated {
    fn send(&mut self, ask: &Ask) -> io::Result<()> {
        self.1.pass();
        self.0.send(ask)
    }

    fn receive(&mut self, ask: &Ask) -> io::Result<Option<Vec<u8>>> {
        self.0.receive(ask)
    }
}

fn value(byte: u8) -> Value {
    Arc::new(vec![byte; 1000])
}

/// A table with the object in it, and the gate of its nodes.
fn table() -> (WorkTable, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let peer = |_| -> Box<dyn Peer> { Box::new(Gated(Shelf::default(), gate.clone())) };
    let network = Network::new((0..6).map(peer).collect(), 6, Way::AtOnce);
    let table = WorkTable::new(ElasticMem::new(network));
    table.set(OBJECT, REP, value(1)).expect("it is written");
    (table, gate)
}

/// Waits until this number of requests have had their rows.
fn await_begun(table: &WorkTable, count: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while table.begun() < count {
        assert!(Instant::now() < deadline, "a request has not begun");
        std::thread::yield_now();
    }
}

#[test]
fn during_a_write_a_read_gets_its_value_and_other_writes_fail() {
    let (table, gate) = table();
    let begun = table.begun();
    gate.set_closed(true);
    scope(|scope| {
        let write = scope.spawn(|| table.set(OBJECT, REP, value(2)));
        await_begun(&table, begun + 1);
        assert_eq!(table.get(OBJECT).expect("no message is needed"), value(2));
        assert!(table.set(OBJECT, REP, value(3)).is_err());
        assert!(table.change(OBJECT, EC).is_err());
        gate.set_closed(false);
        assert!(write.join().expect("no panic").is_ok());
    });
    assert_eq!(table.get(OBJECT).expect("it is there"), value(2));
}

#[test]
fn reads_at_the_same_time_send_the_messages_of_one() {
    let (mut table, gate) = table();
    let (begun, before) = (table.begun(), table.store().network().counts());
    drop(table.get(OBJECT));
    let one = table.store().network().counts().since(before);
    let before = table.store().network().counts();
    gate.set_closed(true);
    scope(|scope| {
        let reads = [(); 3].map(|()| scope.spawn(|| table.get(OBJECT)));
        await_begun(&table, begun + 4);
        gate.set_closed(false);
        for read in reads {
            assert_eq!(read.join().expect("no panic").expect("it is there"), value(1));
        }
    });
    assert_eq!(table.store().network().counts().since(before), one);
}

#[test]
fn a_write_waits_for_a_read_and_later_reads_get_its_value() {
    let (table, gate) = table();
    let begun = table.begun();
    gate.set_closed(true);
    scope(|scope| {
        let read = scope.spawn(|| table.get(OBJECT));
        await_begun(&table, begun + 1);
        let write = scope.spawn(|| table.set(OBJECT, REP, value(2)));
        await_begun(&table, begun + 2);
        assert_eq!(table.get(OBJECT).expect("no message is needed"), value(2));
        gate.set_closed(false);
        assert_eq!(read.join().expect("no panic").expect("it is there"), value(1));
        assert!(write.join().expect("no panic").is_ok());
    });
    assert_eq!(table.get(OBJECT).expect("it is there"), value(2));
}

#[test]
fn during_a_change_of_redundancy_reads_wait_for_its_value_and_writes_fail() {
    let (mut table, gate) = table();
    let begun = table.begun();
    gate.set_closed(true);
    scope(|scope| {
        let change = scope.spawn(|| table.change(OBJECT, EC));
        await_begun(&table, begun + 1);
        let read = scope.spawn(|| table.get(OBJECT));
        await_begun(&table, begun + 2);
        assert!(table.set(OBJECT, REP, value(2)).is_err());
        gate.set_closed(false);
        assert_eq!(read.join().expect("no panic").expect("it is there"), value(1));
        assert!(change.join().expect("no panic").is_ok());
    });
    // A coded value is read as four data blocks, a copy by one message.
    let before = table.store().network().counts();
    assert_eq!(table.get(OBJECT).expect("it is there"), value(1));
    assert_eq!(table.store().network().counts().since(before).messages, 4);
}
