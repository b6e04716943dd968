//! What is Redis' own: its commands, its texts, and how parts of a command travel between nodes.

mod cluster;
pub(crate) mod commands;
mod config;
pub(crate) mod connection;
pub(crate) mod info;
pub(crate) mod parts;
pub(crate) mod refusals;
mod transactions;
mod wait;
