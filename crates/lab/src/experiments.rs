//! The experiments: one file for each figure or table.

pub mod basic;
pub mod disk_accesses;
mod duty;
pub mod elasticmem_access;
pub mod elasticmem_cold;
pub mod elasticmem_concurrent;
pub mod elasticmem_io;
pub mod elasticmem_nodes;
pub mod elasticmem_transitions;
pub mod log_sizes;
pub mod memec_coding;
pub mod memec_degraded;
pub mod memec_lists;
pub mod memec_memory;
pub mod memec_moves;
pub mod memec_shards;
pub mod memec_sizes;
pub mod memec_systems;
pub mod memory;
pub mod mttdl;
pub mod node_repair;
pub mod paritas_updates;
pub mod paritas_wide;
mod pocache;
pub mod pocache_ahead;
pub mod pocache_hit_ratio;
pub mod pocache_probability;
pub mod pocache_strategies;
pub mod redundancy;
pub mod tradeoff;
pub mod two_losses;
pub mod update_latency;
pub mod update_schemes;
pub mod updated_stripes;
pub mod wide;
mod ycsb;

/// Numbers of data and parity chunks in LogECMem's experiments (§6.1).
pub(crate) const CODES: [(u8, u8); 4] = [(6, 3), (10, 4), (12, 4), (15, 3)];

/// A code's name without a comma, for CSV.
pub(crate) fn code_name((k, r): (u8, u8)) -> String {
    format!("({k};{r})")
}
