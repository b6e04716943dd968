use super::*;
use core::cell::Cell;

thread_local! {
    /// Each look at the clock takes a millisecond.
    static TIME_NS_NOW: Cell<u64> = const { Cell::new(0) };
}
const LOOK_NS: u64 = 1_000_000;

fn clock() -> u64 {
    TIME_NS_NOW.with(|now| now.replace(now.get() + LOOK_NS))
}

struct NoCommands;

impl Host for NoCommands {
    fn call(&mut self, _: &[u8], _: Proto, _: &mut Vec<u8>) -> Result<(), Ended> {
        Err(Ended::ByHost)
    }
}

/// Runs a script as a transaction of its own. Returns how it has ended, and the time that it took.
fn run(scripts: &mut Scripts, source: &[u8]) -> (Option<Ended>, u64) {
    let began = TIME_NS_NOW.get();
    assert!(scripts.begin());
    let script = Script {
        sha: sha_of(source),
        source,
        function: None,
        keys: Vec::new(),
        args: Vec::new(),
    };
    let ran = scripts.run(&script, Proto::Resp2, (20_000_000, 1), &mut NoCommands, &mut Vec::new());
    (ran.ended, TIME_NS_NOW.get() - began)
}

#[test]
fn each_script_ends_in_its_time_also_the_first_of_a_sandbox() {
    let mut scripts = Scripts {
        clock,
        ..Scripts::default()
    };
    for _ in 0..2 {
        for _ in 0..2 {
            let (ended, took_ns) = run(&mut scripts, b"while true do end");
            assert_eq!(ended, Some(Ended::Work));
            assert!(took_ns <= TIME_NS + 3 * LOOK_NS, "{took_ns} ns");
            // It looks at the clock some times.
            assert_eq!(run(&mut scripts, b"for i = 1, 1000 do end").0, None);
        }
        let mut args = paritas_wire::resp::Args::new();
        let text = b"*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n";
        paritas_wire::resp::decode(text, &paritas_wire::resp::Limits::DEFAULT, &mut args).unwrap();
        scripts.flush(args.list(text), &mut Vec::new());
    }
}

#[test]
fn the_first_script_of_a_new_sandbox_has_all_its_time() {
    let mut scripts = Scripts {
        clock,
        ..Scripts::default()
    };
    assert_eq!(run(&mut scripts, b"return 1").0, None);
    scripts.sandbox = None;
    TIME_NS_NOW.set(TIME_NS_NOW.get() + 10 * TIME_NS);
    assert_eq!(run(&mut scripts, b"for i = 1, 1000 do end").0, None);
}

#[test]
fn a_library_ends_in_its_time_also_in_a_new_sandbox() {
    let mut scripts = Scripts {
        clock,
        ..Scripts::default()
    };
    for _ in 0..2 {
        let began = TIME_NS_NOW.get();
        assert!(scripts.begin());
        let (_, loaded) = scripts.load_library(b"#!lua name=endless\nwhile true do end", 1);
        assert_eq!(loaded.err().as_deref(), Some(errors::LIBRARY_TOO_SLOW));
        let took_ns = TIME_NS_NOW.get() - began;
        assert!(took_ns <= TIME_NS + 3 * LOOK_NS, "{took_ns} ns");
    }
}
