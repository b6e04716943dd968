//! Commands on nodes in one thread. All tests are one program, because each program links all of `protocol` and
//! `frontend` again.

mod class_with_write;
mod clients;
mod commands;
mod commands_gather;
mod commands_page;
mod databases;
mod dumps;
mod forwarded_waits;
mod functions;
mod hotness;
mod large_pairs;
mod located;
mod long_commands;
mod long_mget;
mod long_values;
mod memcached;
mod moved_back;
mod msetex;
mod one_slot;
mod put;
mod read_elsewhere;
mod rename_slots;
mod scripts;
mod staged;
mod stuck;
mod transactions;
mod turn_limits;
