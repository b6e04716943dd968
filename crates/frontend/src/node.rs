//! The machine of one node, as drivers call it: the replica, which has the roles, and the router, which has the
//! clients.

use crate::router::Router;
use paritas_base::{Clock, Time};
use paritas_protocol::{
    Context, Event, Figures, FrontMessage, Identity, Lists, Notice, Out, Parameters, ProcessFigures, Replica, Shared,
};
use paritas_wire::resp::Password;

/// One node.
#[derive(Debug)]
pub struct Node {
    pub(crate) replica: Replica,
    pub(crate) router: Router,
}

impl Node {
    /// A node without roles and clients.
    ///
    /// # Panics
    /// If the cluster record holds a scheme that no coordinator makes.
    pub fn new(identity: Identity, parameters: Parameters) -> Self {
        Self {
            replica: Replica::new(identity, parameters),
            router: Router::default(),
        }
    }

    /// Clients must give this password before other commands. To be set before the first event.
    pub fn require(&mut self, password: Password) {
        self.router.require(password);
    }

    /// Gives the time that the thread of the node has worked, in nanoseconds, which ends scripts that take too long.
    /// Without it the time stands still, and only their work is counted.
    pub fn set_script_clock(&mut self, clock: fn() -> u64) {
        self.router.dispatcher.scripts.clock = clock;
    }

    /// Its roles.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Its roles, to set up the disk's log and memory before the first event, and to inject faults in tests.
    pub fn replica_mut(&mut self) -> &mut Replica {
        &mut self.replica
    }

    /// Takes what the driver has measured, a few times a second.
    pub fn set_process(&mut self, now: Time, figures: ProcessFigures) {
        self.replica.set_process(figures);
        self.router.dispatcher.counters.sample(now);
    }

    /// Measures the memory and chunks that it holds.
    pub fn figures(&self) -> Figures {
        self.replica.figures(self.router.buffer_bytes())
    }

    /// Errors that clients of memcached have not seen because of `noreply`.
    pub fn silenced_errors(&self) -> u64 {
        self.router.dispatcher.silenced
    }

    /// Handles one event.
    pub fn on(&mut self, now: Clock, event: Event<'_>, out: &mut impl Out) {
        self.replica.begin_event(now.mono);
        let turn_ends = matches!(event, Event::TurnEnd);
        self.handle(now, event, out);
        self.replica.end_event(now, out, !turn_ends);
        self.heed(now, out);
    }

    #[inline]
    fn handle(&mut self, now: Clock, event: Event<'_>, out: &mut impl Out) {
        if let Event::TurnEnd = event {
            return self.end_turn(now, out);
        }
        let (mut cx, lists, router) = self.command_parts(now, out);
        match event {
            Event::ClientUp { conn, port, ends } => return router.on_client_up(&mut cx, conn, port, ends),
            Event::Client { conn, bytes } => return router.on_client(&mut cx, lists, conn, bytes),
            Event::ClientDown { conn } => return router.on_client_down(&mut cx, lists, conn),
            Event::Answer { conn, n, answer } => return router.on_answer(&mut cx, conn, n, answer),
            Event::Nodes(nodes) => router.on_nodes(&mut cx, lists, nodes),
            _ => {}
        }
        let Some(message) = self.replica.on(now, event, out) else {
            return;
        };
        let (mut cx, lists, router) = self.command_parts(now, out);
        match message {
            FrontMessage::Command { from, conn, command } => router.on_forward(&mut cx, lists, from, conn, command),
            FrontMessage::Reply { from, conn, n, bytes } => router.on_reply(&mut cx, lists, from, conn, n, bytes),
            FrontMessage::Staged {
                from,
                conn,
                n,
                taken,
                state,
            } => router.on_staged(&mut cx, from, conn, n, taken, state),
            FrontMessage::ReplyBody(reply) => router.on_reply_body(&mut cx, lists, reply),
        }
    }

    /// The parts that commands need: the context of the event, the lists, and the router.
    #[inline]
    pub(crate) fn command_parts<'a, O: Out>(
        &'a mut self,
        now: Clock,
        out: &'a mut O,
    ) -> (Context<'a, O>, &'a mut Lists, &'a mut Router) {
        let (shared, lists): (&mut Shared, &mut Lists) = self.replica.parts();
        (Context { now, out, shared }, lists, &mut self.router)
    }

    /// Hands the router what has changed at the replica.
    #[inline]
    pub(crate) fn heed(&mut self, now: Clock, out: &mut impl Out) {
        // Few events change anything that commands follow.
        if self.replica.has_notices() {
            self.heed_all(now, out);
        }
    }

    #[cold]
    fn heed_all(&mut self, now: Clock, out: &mut impl Out) {
        for notice in self.replica.take_notices() {
            let (mut cx, lists, router) = self.command_parts(now, out);
            match notice {
                Notice::Configuration(list) => router.on_configuration(&mut cx, lists, list),
                Notice::Slots => router.on_slots(&mut cx),
                Notice::SessionUp => router.on_session_up(),
                Notice::SessionDown(node, incarnation) => router.on_session_down(&mut cx, node, incarnation),
            }
        }
    }

    /// Frames that will come next: asks for the memory that deltas and forwarded commands will touch, so that their
    /// waits overlap. Nothing else happens, whatever the frames hold.
    pub fn look_ahead(&self, frames: &[&[u8]]) {
        self.replica.look_ahead(frames);
        let (shared, lists) = self.replica.view();
        self.router.look_ahead(&shared.arena, lists, frames);
    }

    /// When to call with [`Event::Timer`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = [self.replica.next_deadline(), self.router.next_deadline()];
        deadlines.into_iter().flatten().min()
    }
}
