//! Eviction. The key least worth keeping is chosen from a sample of the index, and deleted with an ordinary delta
//! (P8.1).

use super::find::{At, Found};
use super::{Blocked, ObjectStore, page_stripe};
use crate::index::page::{self, SLOTS};
use crate::{Arena, Delta, Policy};
use paritas_base::HIDDEN_DATABASE;

/// Lines searched together: about sixty keys, whose entries and marks are adjacent in memory.
const LINES: u32 = 8;
/// Except under random policies, a search ends after this number of candidates, or after `LINES_MAX` lines if it has
/// found one. This matters where only keys with an expiry count.
const CANDIDATES: usize = 16;
const LINES_MAX: u64 = 1024;
/// Most lines searched in one call, whatever was found. It bounds the time spent on headers of keys that do not count.
const SEARCH_LINES_MAX: u64 = 8192;
/// Most keys evicted in one call.
const VICTIMS_MAX: u32 = 256;

/// The state of a search: the entry least worth keeping so far. A smaller value is worse.
struct Search {
    candidates: usize,
    worst: Option<(u64, At, u32)>,
}

impl ObjectStore {
    /// The eviction policy.
    pub fn policy(&self) -> Policy {
        self.usage.policy()
    }

    /// Sets the eviction policy. All keys start without a history of use.
    pub fn set_policy(&mut self, policy: Policy) {
        self.usage.set_policy(policy);
        self.usage.set_pages(self.index.pages, self.shape.lines());
    }

    /// Sets the wall clock. Under LFU, counters decay with it.
    pub fn set_time(&mut self, now_ms: u64) {
        self.usage.set_time(now_ms);
    }

    /// A key's counter of uses, under an LFU policy. `None` if the key does not exist.
    pub fn uses(&mut self, arena: &Arena, hash: u64, key: &[u8]) -> Result<Option<u8>, Blocked> {
        let Some(found) = self.locate(arena, hash, key)? else {
            return Ok(None);
        };
        let At::ChunkRef { page, line, slot, .. } = found.at else {
            return Ok(Some(0));
        };
        let marks = self.usage.marks(page);
        Ok(Some(marks.get(line as usize * SLOTS + slot).copied().unwrap_or(0)))
    }

    /// Records a use of a key.
    #[inline]
    pub(super) fn note_use(&mut self, at: At) {
        if self.usage.is_on()
            && let At::ChunkRef { page, line, slot, .. } = at
        {
            self.usage.touch(page, line, slot, self.index.keys);
        }
    }

    /// Evicts keys by the policy until `bytes` bytes are dead, `VICTIMS_MAX` keys are evicted, or the delta is full.
    /// Calls `gone` with the hash of each. Returns the number of keys evicted. It is 0 if the policy evicts nothing, or
    /// if no candidate is resident or found yet ([`ObjectStore::eviction_goes_on`]).
    pub fn evict(
        &mut self,
        arena: &mut Arena,
        delta: &mut Delta,
        bytes: u64,
        mut gone: impl FnMut(u64),
    ) -> Result<u32, Blocked> {
        let died = self.space.died_bytes;
        let (mut count, mut lines_left) = (0, SEARCH_LINES_MAX);
        if self.index.searched_lines >= self.line_count() {
            self.index.searched_lines = 0;
        }
        while count < VICTIMS_MAX && self.space.died_bytes - died < bytes {
            let Some((at, locator)) = self.find_victim(arena, &mut lines_left) else {
                break;
            };
            let Some(head) = self.head(arena, locator)? else {
                debug_assert!(false, "an index entry points at no object");
                break;
            };
            let hash = self.hash_of(&head, self.data(arena, self.split(locator).0)?);
            match self.delete_found(arena, delta, Found { at, locator, head }) {
                Ok(()) => {}
                Err(_) if count > 0 => break,
                Err(blocked) => return Err(blocked),
            }
            gone(hash);
            count += 1;
        }
        Ok(count)
    }

    /// Whether the search for keys to evict has found none so far and has not yet covered the whole index.
    pub fn eviction_goes_on(&self) -> bool {
        (1..self.line_count()).contains(&self.index.searched_lines)
    }

    fn line_count(&self) -> u64 {
        u64::from(self.index.pages) * u64::from(self.shape.lines())
    }

    /// The key least worth keeping among a sample of keys whose chunks are all resident.
    fn find_victim(&mut self, arena: &Arena, lines_left: &mut u64) -> Option<(At, u32)> {
        let policy = self.usage.policy();
        let (pages, lines) = (self.index.pages, self.shape.lines());
        let none = policy.is_volatile() && self.space.expiring() == 0;
        if !policy.evicts() || pages == 0 || none || !self.chunks.directory_known() {
            self.index.searched_lines = 0;
            return None;
        }
        let all = self.line_count();
        // Keys with an expiry may be few, so the next search continues where this one ends.
        let start = if policy.is_volatile() || self.index.searched_lines > 0 {
            self.index.eviction_cursor % all
        } else {
            self.usage.next_random() % all
        };
        let enough = match policy {
            Policy::AllKeysRandom | Policy::VolatileRandom => 1,
            _ => CANDIDATES,
        };
        let mut search = Search {
            candidates: 0,
            worst: None,
        };
        let mut seen = 0;
        while seen < all.min(*lines_left) {
            let at = (start + seen) % all;
            let (page, first) = ((at / u64::from(lines)) as u32, (at % u64::from(lines)) as u32);
            let last = (first + LINES).min(lines);
            self.search_lines(arena, page, first..last, &mut search);
            seen += u64::from(last - first);
            if search.candidates >= enough || (search.candidates > 0 && seen >= LINES_MAX) {
                break;
            }
        }
        self.index.eviction_cursor = start + seen;
        *lines_left = lines_left.saturating_sub(seen);
        self.index.searched_lines = match search.worst {
            Some(_) => 0,
            None => self.index.searched_lines + seen,
        };
        search.worst.map(|(_, at, locator)| (at, locator))
    }

    fn search_lines(&mut self, arena: &Arena, page: u32, lines: core::ops::Range<u32>, search: &mut Search) {
        let policy = self.usage.policy();
        let random = self.usage.next_random();
        let reads_all = self.chunks.absent_count() > 0 || self.may_have_hidden();
        self.usage.marks(page);
        let Ok(Some(bytes)) = self.chunks.bytes(arena, page_stripe(page)) else {
            return;
        };
        for number in lines {
            let line = page::line(bytes, number);
            for slot in 0..SLOTS {
                let tag = page::tag(line, slot);
                if tag == 0 {
                    continue;
                }
                let locator = page::locator(line, slot);
                let mut worth = match policy {
                    _ if self.usage.is_on() => u64::from(self.usage.mark(page, number, slot)),
                    // Any key will do, but the choice must not always be the first of a line.
                    _ => u64::from(tag.rotate_left(random as u32 % 16)),
                };
                let better = search.worst.is_none_or(|(worst, ..)| worth < worst);
                // Its header is read only if it can change the choice.
                if policy.is_volatile() || (better && reads_all) {
                    let Some(expiry_ms) = self.expiry_of_candidate(arena, locator) else {
                        continue;
                    };
                    match expiry_ms {
                        Some(at) if policy == Policy::VolatileTtl => worth = at,
                        None if policy.is_volatile() => continue,
                        _ => {}
                    }
                }
                search.candidates += 1;
                if search.worst.is_none_or(|(worst, ..)| worth < worst) {
                    let home = if page::is_guest(line, slot) {
                        self.shape.home(number, tag)
                    } else {
                        number
                    };
                    let line = number;
                    search.worst = Some((worth, At::ChunkRef { page, home, line, slot }, locator));
                }
            }
        }
    }

    /// Whether some keys may be in the hidden database, which are never evicted.
    fn may_have_hidden(&self) -> bool {
        let counted = self.space.by_database()[usize::from(HIDDEN_DATABASE)];
        counted.count > 0 || self.space.unknown_count() > 0
    }

    /// An object's expiry, if any. The outer `None` means that its chunk is not resident, or that it is never evicted.
    fn expiry_of_candidate(&self, arena: &Arena, locator: u32) -> Option<Option<u64>> {
        let head = self.head(arena, locator).ok()??;
        let chunk = self.data(arena, self.split(locator).0).ok()?;
        // The first piece is enough: the others are only counted as dead.
        (head.database() != HIDDEN_DATABASE).then(|| head.expiry_ms(chunk))
    }
}
