//! The parts that are specific to Redis: its commands, its texts, and the form of partial commands between nodes.

pub(crate) mod authentication;
mod client_list;
pub(crate) mod clients;
mod cluster;
pub(crate) mod commands;
mod config;
pub(crate) mod connection;
pub(crate) mod functions;
mod hello;
pub(crate) mod info;
pub(crate) mod pairs;
pub(crate) mod parts;
pub(crate) mod refusals;
pub(crate) mod scripts;
pub(crate) mod transactions;
mod units;
mod wait;
