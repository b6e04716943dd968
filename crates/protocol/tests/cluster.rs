//! Clusters in one thread: one program, since each one compiles all of `protocol` and `frontend` anew.

mod at_once;
mod bytes_of_a_set;
mod certified;
mod configuration;
mod corruption;
mod credit;
mod crowd;
mod eviction;
mod halt;
mod history;
mod large_values;
mod log_assist;
mod log_node;
mod log_room;
mod opinions;
mod planned_move;
mod rebuild_rate;
mod scrub;
mod several_failures;
mod several_keys;
mod stand_in;
mod stash;
mod versions;
