//! `paritas dev`: a whole cluster on this machine, supervised.

mod children;
mod plan;
mod ports;
mod supervisor;
mod view;

pub use plan::DevSettings;
pub use supervisor::run;

pub(crate) use plan::Plan;
pub(crate) use ports::Ports;
