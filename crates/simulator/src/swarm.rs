//! What a seed determines: the shape of the cluster, the length of the run, and its own mix of faults (swarm testing,
//! docs/reliability.md). Probabilities are per million.

use crate::client::Lengths;
use crate::disks::draw_settings;
use paritas_base::{OneSlot, Prng, Span, formats};
use paritas_protocol::paritylog::Settings;
use paritas_protocol::{
    ClientCoding, ClientLimits, Hotness, LogAssist, Parameters, Policy, Reads, Rules, Transactions,
};
use paritas_wire::command::KeySlots;

/// The rule of clusters that have one.
const ONE_SLOT: &str = "db:1";

/// The fixed part of a run's shape. The rest is drawn from its seed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Shape {
    /// The number of parity positions.
    pub(crate) parity: Option<u8>,
    /// The number of members that acknowledge a write.
    pub(crate) ack_quorum: Option<u8>,
    /// The number of stripe lists.
    pub(crate) stripe_lists: Option<u16>,
}

/// The settings of one run.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    /// Whether the coordinator, the agents and the supervisors are the production ones.
    pub(crate) governed: bool,
    /// The store is lost right after a decision that reaches few nodes (P10.16).
    pub(crate) loses_decision: bool,
    /// All processes speak the version of this build alone.
    pub(crate) one_version: bool,
    /// Number of data positions.
    pub(crate) data: u8,
    /// Number of parity positions.
    pub(crate) parity: u8,
    /// Number of members that must hold a write.
    pub(crate) ack_quorum: u8,
    /// Number of lists of that shape, over the same nodes.
    pub(crate) stripe_lists: u16,
    /// A node whose frames, in and out, are delayed by this time: a member that lags but answers.
    pub(crate) lag: Option<(u16, Span)>,
    /// Number of nodes beyond those in the list.
    pub(crate) spares: u16,
    /// Number of these that are members of other lists, in a governed run.
    pub(crate) beyond: u16,
    /// Bytes in a chunk. Tiny, so that few keys make many chunks.
    pub(crate) chunk_bytes: u32,
    /// A node's memory in bytes.
    pub(crate) maxmemory_bytes: u64,
    /// Duration of faults and of the clients' work.
    pub(crate) chaos: Span,
    /// Number of clients.
    pub(crate) clients: usize,
    /// Number of keys that they use.
    pub(crate) keys: u64,
    /// Number of keys written once at the start, so that the index grows and splits.
    pub(crate) filler_keys: u64,
    /// Probability that a command is about a group of keys, which are always written together.
    pub(crate) group: u32,
    /// Probability that a command that may is sent as a transaction.
    pub(crate) transactions: u32,
    /// Probability that a command is about keys of database 1, which have the names of those of database 0.
    pub(crate) elsewhere: u32,
    /// All keys of database 1 lie in one slot.
    pub(crate) one_slot: bool,
    /// Probability that a command loads a library of functions, or calls its function.
    pub(crate) functions: u32,
    /// Number of groups of keys that are neighbours in the index.
    pub(crate) crowds: u64,
    pub(crate) crowd_keys: usize,
    /// Number of keys with large values.
    pub(crate) larges: u64,
    /// Half of the operations are on keys with large values, and most of these read.
    pub(crate) reads_large: bool,
    /// Clients that read large values from their parts.
    pub(crate) guests: usize,
    /// They may write the parts of large values, too, and one of them lies about what it writes.
    pub(crate) guests_write: bool,
    /// How long they wait for a silent node.
    pub(crate) guest_deadline: Span,
    /// Commands write several keys with large values.
    pub(crate) large_groups: bool,
    /// Clients read several large values by one MGET. Some of these replies are longer than one reply may be.
    pub(crate) reads_each: bool,
    /// Clients append to large values.
    pub(crate) appends: bool,
    /// Large values may have classes that survive fewer losses than the scheme.
    pub(crate) weak: bool,
    /// Probability that a large value is written with a class.
    pub(crate) classed: u32,
    /// A large value keeps the class of its write: neither clients nor reads change it.
    pub(crate) classes_stay: bool,
    /// Every other node has no setting of its own for which values are large.
    pub(crate) differs: bool,
    /// The longest of these values in bytes.
    pub(crate) large_bytes: usize,
    /// Probability that a SET of one key is an MSET of two keys in different slots.
    pub(crate) pairs: u32,
    /// Probability that a SET has an expiry.
    pub(crate) expiring: u32,
    /// Number of FLUSHALLs to come.
    pub(crate) flushes: u32,
    /// Number of listings of all keys to come.
    pub(crate) lists: u32,
    /// Probability that a client uses the Cluster port and follows `-MOVED`.
    pub(crate) strict: u32,
    /// Bytes in the value of a key that is written once.
    pub(crate) filler_bytes: usize,
    /// Most commands that a client sends at once.
    pub(crate) pipeline_max: u64,
    /// Longest usual delay of a frame.
    pub(crate) delay_max: Span,
    /// Probability that a frame takes up to 20 times as long.
    pub(crate) slow: u32,
    /// Probability that a frame is lost.
    pub(crate) drop: u32,
    /// Probability that a frame is duplicated.
    pub(crate) duplicate: u32,
    /// Probability that a frame may overtake those before it.
    pub(crate) reorder: u32,
    /// Mean time between crashes. Zero means never, here and for the following faults.
    pub(crate) crash_every: Span,
    /// Mean time between pauses of a node.
    pub(crate) pause_every: Span,
    /// Mean time between partitions, which close the path between two nodes one way or both ways.
    pub(crate) partition_every: Span,
    /// Mean time between broken links.
    pub(crate) reset_every: Span,
    /// Mean time between replacements of a running node.
    pub(crate) suspect_every: Span,
    /// Mean time between flipped bits.
    pub(crate) flip_every: Span,
    /// Mean time between planned moves.
    pub(crate) move_every: Span,
    /// Probability that nodes are cut off when a position asks to become Live.
    pub(crate) split_at_ask: u32,
    /// Probability that a node that begins to read a large value for its client is cut off, and its owner replaced. In
    /// runs with such faults most commands are on large values.
    pub(crate) cut_at_reply: u32,
    /// Mean time between hand-offs of slots.
    pub(crate) hand_off_every: Span,
    /// Mean time between settings of a node's wall clock.
    pub(crate) wall_clock_every: Span,
    /// Probability that a supervisor certifies a crash.
    pub(crate) certified: u32,
    /// Probability that more events follow before a turn ends.
    pub(crate) batch: u32,
    /// Probability that a configuration does not reach a node at first.
    pub(crate) push_drop: u32,
    /// Largest drift of a clock, fast or slow, in parts per million.
    pub(crate) drift_ppm: u64,
    /// Number of Live parity members below which writes are refused.
    pub(crate) min_redundancy: u8,
    /// Layout of the logs of log nodes, if there are any; `disk_nodes` has a bit for each log node. Any node may hold
    /// any position.
    pub(crate) disk: Option<Settings>,
    pub(crate) disk_nodes: u64,
    /// Number of parity positions, counted from the last, that are planned for log nodes. Any node may hold them.
    pub(crate) logged: u8,
    /// Longest time of a read or a write of a disk.
    pub(crate) disk_delay_max: Span,
    /// The parameters of the machines.
    pub(crate) parameters: Parameters,
    /// A rule that coordinators and agents break.
    #[cfg(feature = "mutants")]
    pub(crate) control_mutant: Option<paritas_control::Mutant>,
}

impl Swarm {
    /// Draws the settings of a run.
    pub(crate) fn draw(random: &mut Prng, shape: Shape) -> Self {
        let parity = shape
            .parity
            .unwrap_or_else(|| *random.pick(&[0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3]));
        let data = random.between(1, 3) as u8;
        let some = |random: &mut Prng, of: u32| {
            if random.chance(400_000) {
                0
            } else {
                random.below(u64::from(of)) as u32
            }
        };
        let every = |random: &mut Prng, ms: u64| {
            if random.chance(300_000) {
                Span(0)
            } else {
                Span::from_ms(random.between(ms / 4 + 1, ms * 2))
            }
        };
        let lease = Span::from_ms(random.between(20, 200));
        let mut parameters = Parameters {
            policy: Policy::NoEviction,
            reads: Reads::Leases,
            lease,
            lease_renewal: Span(lease.0 / random.between(2, 6)),
            resend: Span::from_ms(random.between(3, 12)),
            retry: Span::from_ms(random.between(2, 8)),
            resend_max: Span::from_ms(60),
            stable_flush: Span::from_ms(random.between(2, 15)),
            silence_report: Span::from_ms(500),
            hold_max: Span::from_ms(10),
            drain_max: Span::from_ms(20),
            // The memory is enough for a few dozen chunks only.
            kept_chunks: 4,
            mismatches_before_hold: 4,
            fetch_max: random.between(1, 8) as usize,
            rebuild_rate: None,
            log_assist: LogAssist::Auto,
            large_from: usize::MAX,
            class_rules: Default::default(),
            hotness: None,
            client_limits: ClientLimits::default(),
            streamed_bytes_min: 16 << 20,
            mget_bytes_max: 16 << 20,
            piece_bytes: 256 << 10,
            scrub_rate: None,
            scrub_pause: Span::from_ms(10),
            inventory: Span::from_secs(2),
            credit_batch: random.between(4, 16) as u32,
            walk_keys: 1024,
            transactions: Transactions::BySlot,
            client_coding: ClientCoding::Read,
            version_max: formats::HIGHEST,
            item_bytes_max: (1 << 20) - 1,
            turn_steps: 2_000_000,
            window_bytes: random.between(512, 16_384),
            history_bytes: random.between(256, 16_384),
            history: Span::from_ms(random.between(20, 500)),
            stash: Span::from_secs(600),
            log_flush: Span::from_ms(50),
            redial: Span::from_ms(2),
            redial_max: Span::from_ms(30),
            hand_off_timeout: Span::from_ms(30),
            rules: Rules::default(),
        };
        let chunk_bytes = *random.pick(&[256, 256, 512, 1024]);
        // Memory for a few dozen chunks: fewer than the keys need.
        let small = random.chance(150_000);
        let maxmemory_bytes = if small {
            u64::from(chunk_bytes) * random.between(6, 48)
        } else {
            1 << 20
        };
        parameters = Parameters {
            scrub_rate: random.chance(400_000).then(|| random.between(20_000, 4_000_000)),
            ..parameters
        };
        if small {
            parameters.policy = *random.pick(&[
                Policy::NoEviction,
                Policy::AllKeysLru,
                Policy::AllKeysLfu,
                Policy::VolatileTtl,
            ]);
        }
        let evicts = parameters.policy.evicts();
        // Passes over all chunks must end before the run does.
        let (flip_every, scrub_rate) = match parameters.scrub_rate {
            Some(rate) if parity > 0 && random.chance(500_000) => (every(random, 100), Some(rate + 1_000_000)),
            rate => (Span(0), rate),
        };
        let parameters = Parameters {
            scrub_rate,
            ..parameters
        };
        let mut swarm = Self {
            governed: false,
            loses_decision: false,
            one_version: false,
            flip_every,
            move_every: Span(0),
            split_at_ask: 0,
            cut_at_reply: 0,
            hand_off_every: Span(0),
            wall_clock_every: Span(0),
            data,
            parity,
            ack_quorum: parity,
            stripe_lists: 1,
            lag: None,
            spares: random.below(3) as u16,
            beyond: 0,
            chunk_bytes,
            maxmemory_bytes,
            chaos: Span::from_ms(random.between(300, 1500)),
            clients: random.between(2, 5) as usize,
            keys: random.between(1, 8),
            filler_bytes: if small {
                random.between(8, u64::from(chunk_bytes) / 2)
            } else {
                8
            } as usize,
            filler_keys: if small || random.chance(300_000) {
                random.between(10, 120)
            } else {
                0
            },
            strict: some(random, 900_000),
            // If nodes evict, one key of a group may go without the others.
            group: if evicts { 0 } else { some(random, 300_000) },
            transactions: 0,
            elsewhere: 0,
            one_slot: false,
            functions: 0,
            crowds: 0,
            crowd_keys: 0,
            larges: 0,
            reads_large: false,
            guests: 0,
            guests_write: false,
            guest_deadline: Span::from_ms(2_000),
            large_groups: false,
            reads_each: false,
            appends: false,
            weak: false,
            classed: 0,
            classes_stay: false,
            differs: false,
            large_bytes: 0,
            pairs: some(random, 300_000),
            expiring: some(random, 700_000),
            flushes: if random.chance(300_000) {
                random.between(1, 4) as u32
            } else {
                0
            },
            lists: 0,
            pipeline_max: random.between(1, 3),
            delay_max: Span::from_us(random.between(100, 4_000)),
            slow: some(random, 60_000),
            drop: some(random, 100_000),
            duplicate: some(random, 100_000),
            reorder: some(random, 300_000),
            crash_every: every(random, 250),
            pause_every: every(random, 300),
            partition_every: every(random, 300),
            reset_every: every(random, 200),
            suspect_every: if random.chance(250_000) {
                Span::from_ms(random.between(8, 40))
            } else {
                every(random, 200)
            },
            certified: random.below(1_000_000) as u32,
            batch: some(random, 600_000),
            push_drop: some(random, 300_000),
            drift_ppm: 9_000,
            min_redundancy: if random.chance(500_000) { 1 } else { 0 },
            disk: None,
            disk_nodes: 0,
            logged: 0,
            disk_delay_max: Span(0),
            parameters,
            #[cfg(feature = "mutants")]
            control_mutant: None,
        };
        // Drawn last, so that the settings of older seeds do not change.
        let few = parity > 1 && random.chance(350_000);
        let drawn = if few {
            random.between(1, u64::from(parity) - 1) as u8
        } else {
            parity
        };
        swarm.ack_quorum = shape.ack_quorum.map_or(drawn, |a| a.clamp(parity.min(1), parity));
        if swarm.ack_quorum < parity && random.chance(500_000) {
            let node = random.below(u64::from(data + parity)) as u16;
            swarm.lag = Some((node, Span::from_ms(random.between(1, 40))));
        }
        if parity > 0 {
            swarm.move_every = every(random, 100);
        }
        if random.chance(100_000) {
            // With confirmed reads nothing is assumed about clocks (P4.6).
            swarm.parameters.reads = Reads::Confirmed;
            swarm.drift_ppm = 400_000;
        }
        if random.chance(300_000) {
            swarm.parameters.stash = Span::from_ms(random.below(300));
        }
        if swarm.data > 1 && random.chance(500_000) {
            swarm.hand_off_every = Span::from_ms(random.between(10, 200));
            swarm.parameters.hand_off_timeout = Span::from_ms(random.between(5, 60));
        }
        if parity > 0 && random.chance(350_000) {
            swarm.disk = Some(draw_settings(random, chunk_bytes, data));
            swarm.disk_nodes = random.next_u64();
            swarm.disk_delay_max = Span::from_us(random.between(10, 5_000));
            swarm.parameters.log_flush = Span::from_ms(random.between(1, 200));
            if parity > 1 && random.chance(700_000) {
                swarm.logged = random.between(1, u64::from(parity) - 1) as u8;
                swarm.parameters.log_assist = *random.pick(&LogAssist::ALL);
            }
        }
        swarm.split_at_ask = some(random, 100_000);
        if swarm.expiring > 0 {
            swarm.wall_clock_every = every(random, 100);
        }
        if parity > 0 && random.chance(80_000) {
            // No node is free, and none has memory for two positions: a stand-in drops chunks for others (P5.10).
            swarm.spares = 0;
            swarm.maxmemory_bytes = u64::from(chunk_bytes) * random.between(10, 30);
            swarm.parameters.policy = Policy::NoEviction;
            swarm.filler_keys = random.between(20, 120);
            swarm.filler_bytes = random.between(8, u64::from(chunk_bytes) / 2) as usize;
            swarm.suspect_every = Span::from_ms(random.between(8, 100));
            swarm.drop = random.below(100_000) as u32;
        }
        if !swarm.parameters.policy.evicts() && random.chance(80_000) {
            swarm.crowds = random.between(1, 4);
            swarm.crowd_keys = random.between(10, 90) as usize;
        }
        if random.chance(100_000) {
            // In the same ratio as in production.
            swarm.parameters.retry = Span::from_ms(random.between(1, 2));
            swarm.parameters.resend = Span(10 * swarm.parameters.retry.0);
        }
        if random.chance(300_000) {
            swarm.lists = random.between(1, 8) as u32;
            swarm.parameters.walk_keys = random.between(1, 20) as u32;
            // Of many walks of one turn some wait for the next. With less, a node has more turns in a row than L1
            // allows.
            swarm.parameters.turn_steps = u64::from(swarm.parameters.walk_keys) * 800;
        }
        let drawn = if random.chance(250_000) {
            random.between(2, 3)
        } else {
            1
        };
        swarm.stripe_lists = shape.stripe_lists.unwrap_or(drawn as u16).max(1);
        if swarm.stripe_lists > 1 {
            // Each node has a position in each list.
            swarm.maxmemory_bytes *= u64::from(swarm.stripe_lists);
            swarm.parameters.kept_chunks *= u32::from(swarm.stripe_lists);
            if random.chance(500_000) {
                swarm.hand_off_every = Span::from_ms(random.between(10, 200));
            }
        }
        if random.chance(300_000) {
            swarm.larges = random.between(1, 4);
            swarm.weak = random.chance(300_000);
            let rows = random.between(1, 12);
            // Drawn from a copy: the other draws stay those of the seed.
            let mut own = Prng::new(random.clone().next_u64() ^ 0x6c61_7267_655f_6672);
            if own.chance(300_000) {
                let least = u64::from(data) * u64::from(chunk_bytes);
                let most = swarm.large_bytes_min() as u64 - 1;
                swarm.parameters.large_from = own.between(least.min(most), most) as usize;
                swarm.differs = own.chance(400_000);
            }
            swarm.large_bytes = swarm.large_bytes_min() + (rows * u64::from(chunk_bytes) * u64::from(data)) as usize;
            if swarm.maxmemory_bytes == 1 << 20 {
                swarm.maxmemory_bytes = 4 << 20;
            }
            // Drawn from a copy: the rest of the run stays the one of this seed.
            let mut own = random.clone();
            if own.chance(500_000) {
                let shortest = swarm.large_bytes_min() as u64;
                swarm.parameters.streamed_bytes_min = own.between(shortest, shortest.max(swarm.large_bytes as u64));
                swarm.parameters.piece_bytes = own.between(64, 8192);
            }
            swarm.appends = Prng::new(own.clone().next_u64()).chance(150_000);
            swarm.reads_large = Prng::new(own.clone().next_u64().rotate_left(7)).chance(400_000);
            if Prng::new(own.clone().next_u64().rotate_left(9)).chance(400_000) {
                swarm.guests = 2;
                let ms = Prng::new(own.clone().next_u64().rotate_left(11)).between(100, 2_000);
                swarm.guest_deadline = Span::from_ms(ms);
                swarm.guests_write = Prng::new(own.clone().next_u64().rotate_left(15)).chance(600_000);
                if swarm.guests_write {
                    swarm.guests = 3;
                    swarm.parameters.client_coding = ClientCoding::On;
                }
            }
            // If nodes evict, one key of a group may go without the others.
            swarm.large_groups = !evicts && own.chance(500_000);
            // A long reply is not atomic, as reads of groups must be.
            if !swarm.large_groups && swarm.crowds == 0 && own.clone().chance(800_000) {
                swarm.reads_each = true;
                swarm.parameters.mget_bytes_max = swarm.large_bytes_min().max(1024);
            }
            let mut cuts = Prng::new(own.clone().next_u64().rotate_left(13));
            if cuts.chance(400_000) {
                swarm.cut_at_reply = cuts.between(200_000, 600_000) as u32;
                // With few other faults, so that there are values to be read.
                (swarm.strict, swarm.drop, swarm.larges) = (0, swarm.drop / 8, swarm.larges.min(2));
                swarm.suspect_every = Span(0);
                for every in [
                    &mut swarm.partition_every,
                    &mut swarm.crash_every,
                    &mut swarm.pause_every,
                ] {
                    *every = Span(4 * every.0);
                }
            }
            if parity > 0 && own.chance(350_000) {
                let [hot, cold] = [0, 1].map(|n| swarm.lengths().class(n).parse());
                let (reads, period) = (own.between(1, 3) as u32, Span::from_ms(own.between(20, 400)));
                swarm.parameters.hotness = hot.ok().zip(cold.ok()).map(|(hot, cold)| Hotness {
                    hot,
                    cold,
                    reads,
                    period,
                });
            }
        }
        let mut own = Prng::new(random.clone().next_u64() ^ 0x636c_6173_7365_7321);
        if swarm.larges > 0 && parity > 0 && own.chance(400_000) {
            swarm.classed = own.between(200_000, 900_000) as u32;
            // What is appended makes another value, of no class.
            swarm.classes_stay = own.chance(500_000) && !swarm.appends;
            if swarm.classes_stay {
                swarm.parameters.hotness = None;
            }
        }
        // Drawn from a copy: runs without transactions stay those of their seeds.
        let mut own = Prng::new(random.clone().next_u64() ^ 0x7472_616e_7361_6374);
        if own.chance(400_000) {
            swarm.transactions = own.between(50_000, 600_000) as u32;
        }
        if own.chance(500_000) {
            swarm.elsewhere = own.between(50_000, 500_000) as u32;
        }
        if own.chance(250_000) {
            swarm.functions = own.between(20_000, 150_000) as u32;
        }
        swarm.one_slot = swarm.elsewhere > 0 && own.chance(300_000);
        swarm
    }

    /// The rules of the cluster for keys that lie in one slot together.
    pub(crate) fn one_slot(&self) -> OneSlot {
        match self.one_slot {
            true => ONE_SLOT.parse().unwrap_or_default(),
            false => OneSlot::default(),
        }
    }

    /// The slot of a key of a database.
    pub(crate) fn slot_of(&self, database: u8, key: &str) -> u16 {
        KeySlots::new(&self.one_slot()).slot(database, key.as_bytes())
    }

    /// The shortest value that is large, at least at some nodes.
    pub(crate) fn large_bytes_min(&self) -> usize {
        let object_max = paritas_store::Limits::of(self.chunk_bytes as usize).value_bytes;
        self.parameters.large_from.min(object_max) + 1
    }

    /// How many classes large values may have.
    pub(crate) fn classes(&self) -> u64 {
        if self.weak { 6 } else { 3 }
    }

    /// Lengths of clients' values.
    pub(crate) fn lengths(&self) -> Lengths {
        Lengths {
            filler_bytes: self.filler_bytes,
            large_bytes: (self.large_bytes_min(), self.large_bytes.max(self.large_bytes_min())),
            shape: (self.data, self.parity, self.data + self.parity - self.logged),
        }
    }
}
