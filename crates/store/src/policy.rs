//! Which keys are evicted when memory is full: Redis's `maxmemory-policy`.

use core::fmt;
use core::str::FromStr;

/// Which keys are evicted when a write finds no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// None: the write is refused.
    #[default]
    NoEviction,
    /// The key whose last use is longest ago.
    AllKeysLru,
    /// The key that is used least often.
    AllKeysLfu,
    /// Any key.
    AllKeysRandom,
    /// Of the keys with an expiry, the one whose last use is longest ago.
    VolatileLru,
    /// Of the keys with an expiry, the one that is used least often.
    VolatileLfu,
    /// Any key with an expiry.
    VolatileRandom,
    /// The key with the earliest expiry.
    VolatileTtl,
}

impl Policy {
    /// All policies, in the order in which Redis names them.
    pub const ALL: [Self; 8] = [
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
        Self::AllKeysLru,
        Self::AllKeysLfu,
        Self::AllKeysRandom,
        Self::NoEviction,
    ];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoEviction => "noeviction",
            Self::AllKeysLru => "allkeys-lru",
            Self::AllKeysLfu => "allkeys-lfu",
            Self::AllKeysRandom => "allkeys-random",
            Self::VolatileLru => "volatile-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
        }
    }

    /// Whether keys are evicted at all.
    pub fn evicts(self) -> bool {
        self != Self::NoEviction
    }

    /// Whether only keys with an expiry are evicted.
    pub fn is_volatile(self) -> bool {
        matches!(
            self,
            Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl
        )
    }

    /// Whether the choice depends on the time of the last use.
    pub fn is_lru(self) -> bool {
        matches!(self, Self::AllKeysLru | Self::VolatileLru)
    }

    /// Whether the choice depends on how often keys are used.
    pub fn is_lfu(self) -> bool {
        matches!(self, Self::AllKeysLfu | Self::VolatileLfu)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    /// Upper or lower case, as in Redis.
    fn from_str(text: &str) -> Result<Self, String> {
        let same = |policy: &&Self| policy.name().eq_ignore_ascii_case(text);
        Self::ALL.iter().find(same).copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|policy| policy.name()).collect();
            format!("`{text}` is not an eviction policy: use one of {}", names.join(", "))
        })
    }
}
