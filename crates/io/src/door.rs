//! Who gets in at a port of the cluster: what its greeting says, how many connections may be there that have not proven
//! who they are, and what the log says of those that are refused. One for the port of peers and for the coordinator's.

use crate::{clock, entropy};
use paritas_base::{ClusterId, Span, Time};
use paritas_wire::greeting::{Greeting, Process, Role, SecretId, Secrets};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// Most connections at a port that have not proven who they are.
pub const UNPROVEN_MAX: usize = 64;
/// Most of one address. The own machine is not bound by it: a whole cluster may run there.
pub const UNPROVEN_OF_ADDRESS_MAX: usize = 8;
/// Time in which a connection must prove who it is.
pub const PROVE_WITHIN: Span = Span::from_secs(3);
/// While all connections are younger than this, none gives its place to another: else a burst of honest callers would
/// displace itself. It is short, so that a flood of strangers does not keep honest ones waiting.
const YOUNG: Span = Span::from_ms(25);

/// Lines that the log has of refusals at once, and the time after which it may have one more.
const REFUSALS_AT_ONCE: u32 = 32;
const REFUSAL_EVERY: Span = Span::from_secs(1);

/// The secrets of a process, which its threads share, and which may change while it runs.
#[derive(Clone, Debug, Default)]
pub struct SharedSecrets(Arc<Mutex<Arc<Secrets>>>);

impl SharedSecrets {
    /// Those that hold now.
    pub fn now(&self) -> Arc<Secrets> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on these hold, for connections that are made from now on.
    pub fn replace(&self, secrets: Secrets) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(secrets);
    }
}

/// What a process says of itself at a port.
#[derive(Clone, Debug)]
pub struct Door {
    /// The part that this process has in the cluster.
    pub role: Role,
    /// The node and its incarnation; none of what is no node.
    pub from: Process,
    /// Its cluster, if it knows.
    pub cluster: Option<ClusterId>,
    /// The lowest and the highest version of the port's frames that it speaks.
    pub versions: (u16, u16),
    /// The secrets by which it proves who it is, and accepts others.
    pub secrets: SharedSecrets,
    /// What the log says of refusals; clones share it.
    pub refusals: Arc<Refusals>,
}

impl Door {
    /// A process that speaks one version of a port's frames.
    pub fn new(role: Role, from: Process, version: u16, secrets: SharedSecrets) -> Self {
        Self {
            role,
            from,
            cluster: None,
            versions: (version, version),
            secrets,
            refusals: Arc::default(),
        }
    }

    /// A greeting with a fresh nonce.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn greeting(&self, to: Process, channel: u8, session: u64) -> io::Result<Greeting> {
        Ok(Greeting {
            low: self.versions.0,
            high: self.versions.1,
            features: 0,
            nonce: entropy::random()?,
            secret: SecretId::NONE,
            role: self.role,
            channel,
            cluster: self.cluster,
            from: self.from,
            to,
            session,
            build: env!("CARGO_PKG_VERSION").into(),
            ended: Vec::new(),
        })
    }
}

/// A connection that has not proven who it is.
#[derive(Clone, Copy, Debug)]
pub struct Unproven<K> {
    /// The number by which its driver knows it.
    pub key: K,
    /// The address of the other end.
    pub address: IpAddr,
    /// When it came.
    pub since: Time,
}

/// Whether one more connection may be accepted now. If not, it waits in the system's queue.
pub fn has_room<K>(unproven: &[Unproven<K>], now: Time) -> bool {
    let oldest = unproven.iter().map(|line| line.since).min();
    unproven.len() < UNPROVEN_MAX || oldest.is_none_or(|since| since + YOUNG <= now)
}

/// The connection that gives its place to one that has come from `address`: the oldest of that address, or of all.
pub fn gives_way<K: Copy>(unproven: &[Unproven<K>], address: IpAddr, is_own_machine: bool) -> Option<K> {
    let of_address: Vec<_> = unproven
        .iter()
        .filter(|line| network(line.address) == network(address))
        .collect();
    let oldest = if of_address.len() >= UNPROVEN_OF_ADDRESS_MAX && !is_own_machine {
        of_address.into_iter().min_by_key(|line| line.since)
    } else if unproven.len() >= UNPROVEN_MAX {
        unproven.iter().min_by_key(|line| line.since)
    } else {
        None
    };
    oldest.map(|line| line.key)
}

/// What counts as one address: of IPv6 the upper 64 bits, since a machine may use all addresses behind them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Whether the other end of a connection is on this machine. A machine that connects to one of its own addresses uses
/// that address as its source.
pub fn is_own_machine(peer: SocketAddr, local: SocketAddr) -> bool {
    let peer = peer.ip().to_canonical();
    peer.is_loopback() || local.ip().to_canonical() == peer
}

/// Why a connection is refused, beside what its greeting lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// It has not proven who it is in time.
    Overdue,
    /// It has not proven who it is, and too many others have come.
    Crowded,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overdue => write!(
                f,
                "it has not proven who it is within {} s",
                PROVE_WITHIN.as_ms() / 1000
            ),
            Self::Crowded => write!(
                f,
                "it has not proven who it is, and others wait: at most {UNPROVEN_MAX} such connections are kept, and \
                 {UNPROVEN_OF_ADDRESS_MAX} of one address"
            ),
        }
    }
}

/// The lines of the log about refusals: one for each, but not more than anybody can read.
#[derive(Debug)]
pub struct Refusals(Mutex<Budget>);

#[derive(Debug)]
struct Budget {
    left: u32,
    /// When it was full, or got its latest addition.
    at: Time,
    unsaid: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(Budget {
            left: REFUSALS_AT_ONCE,
            at: Time(0),
            unsaid: 0,
        }))
    }
}

impl Refusals {
    /// A connection from `address` was refused, or what it said was.
    pub fn note(&self, address: Option<SocketAddr>, why: &dyn fmt::Display) {
        let Some(unsaid) = self.take(clock::mono()) else {
            return;
        };
        let address = address.map_or_else(|| "an unknown address".to_owned(), |address| address.to_string());
        match unsaid {
            0 => tracing::warn!("refused {address}: {why}"),
            more => tracing::warn!("refused {address}: {why}; and {more} more before it, which the log does not have"),
        }
    }

    /// Whether the log may have a line; then the number of those that it does not have.
    fn take(&self, now: Time) -> Option<u64> {
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = (now - budget.at).0 / REFUSAL_EVERY.0;
        if more > 0 {
            budget.left = REFUSALS_AT_ONCE.min(budget.left.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)));
            budget.at = now;
        }
        if budget.left == 0 {
            budget.unsaid += 1;
            return None;
        }
        budget.left -= 1;
        Some(core::mem::take(&mut budget.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn from(host: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, host))
    }

    fn at(ms: u64) -> Time {
        Time(0) + Span::from_ms(ms)
    }

    #[test]
    fn the_oldest_of_an_address_goes_first_and_then_the_oldest_of_all() {
        let line = |key: u64, host| Unproven {
            key,
            address: from(host),
            since: at(key),
        };
        let eight: Vec<_> = (1..=8).map(|key| line(key, 7)).collect();
        assert_eq!(gives_way(&eight, from(7), false), Some(1));
        assert_eq!(gives_way(&eight, from(7), true), None, "the own machine has more");
        assert_eq!(gives_way(&eight, from(8), false), None);
        assert_eq!(gives_way(&eight[..7], from(7), false), None);
        let full: Vec<_> = (1..=64).map(|key| line(key, key as u8)).collect();
        assert_eq!(gives_way(&full, from(70), false), Some(1));
        assert_eq!(gives_way(&full, from(70), true), Some(1));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::7"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::7"), of("2001:db8:1:3::7"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    #[test]
    fn a_burst_of_callers_waits_instead_of_displacing_itself() {
        let full: Vec<_> = (0..64)
            .map(|key| Unproven {
                key,
                address: from(1),
                since: at(1_000),
            })
            .collect();
        assert!(!has_room(&full, at(1_024)));
        assert!(has_room(&full, at(1_025)), "who holds a place without proving loses it");
        assert!(has_room(&full[1..], at(1_000)));
    }

    #[test]
    fn a_flood_of_refusals_leaves_few_lines_and_their_number() {
        let refusals = Refusals::default();
        let said = |ms: u64| refusals.take(at(10_000 + ms));
        let lines = (0..1_000_u64).filter_map(said).count();
        assert_eq!(lines, REFUSALS_AT_ONCE as usize);
        assert_eq!(said(1_000), Some(1_000 - u64::from(REFUSALS_AT_ONCE)));
        assert_eq!(said(1_001), None);
    }

    #[test]
    fn the_own_machine_is_known_by_its_addresses() {
        let socket = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(is_own_machine(socket("127.0.0.1:5"), socket("127.0.0.1:6300")));
        assert!(is_own_machine(socket("[::ffff:127.0.0.1]:5"), socket("[::]:6300")));
        assert!(is_own_machine(socket("10.0.0.1:5"), socket("10.0.0.1:6300")));
        assert!(!is_own_machine(socket("10.0.0.2:5"), socket("10.0.0.1:6300")));
    }
}
