use super::*;
use crate::interface::{FrameBuf, HaltReason, Proposal, ReplyBuf};
use paritas_base::ConnId;
use paritas_base::configuration::NodeRole;

const ME: NodeId = NodeId(5);
const LIFE: Incarnation = Incarnation(50);
const PEER: NodeId = NodeId(2);
const NOW: Time = Time(1);

/// Links of the driver, and what was bound and closed.
#[derive(Default)]
struct Wire {
    frames: FrameBuf,
    bound: Vec<LinkId>,
    closed: Vec<LinkId>,
}

impl Out for Wire {
    fn peer(&mut self, _: NodeId, _: Channel) -> Option<&mut FrameBuf> {
        None
    }
    fn link(&mut self, _: LinkId) -> Option<&mut FrameBuf> {
        Some(&mut self.frames)
    }
    fn dial(&mut self, _: NodeId, _: Channel) {}
    fn bind(&mut self, link: LinkId, _: NodeId, _: Channel) {
        self.bound.push(link);
    }
    fn close(&mut self, link: LinkId) {
        self.closed.push(link);
    }
    fn client(&mut self, _: ConnId) -> Option<&mut ReplyBuf> {
        None
    }
    fn propose(&mut self, _: Proposal) {}
    fn disk(&mut self, io: paritas_paritylog::Io) {
        panic!("no disk here: {io:?}");
    }

    fn halt(&mut self, reason: HaltReason) {
        panic!("halted: {}", reason.0);
    }
}

fn sessions() -> Sessions {
    sessions_of(Versions::OURS, formats::HIGHEST)
}

fn sessions_of(versions: Versions, active: u16) -> Sessions {
    let (redial, redial_max) = (Span::from_ms(20), Span::from_secs(1));
    Sessions::new(ClusterId(7), ME, LIFE, (versions, active), redial, redial_max)
}

/// What a dialer says that fits.
fn fitting() -> Hello {
    Hello {
        cluster: ClusterId(7),
        node: PEER,
        incarnation: Incarnation(20),
        to_node: ME,
        to_incarnation: LIFE,
        bulk: false,
        version_low: PROTOCOL_VERSION,
        version_high: PROTOCOL_VERSION,
        features: 0,
        session: 1,
    }
}

/// A link comes up, and says this.
fn greeted(sessions: &mut Sessions, out: &mut Wire, link: u64, hello: &Hello) -> Greeting {
    sessions.on_link_up(LinkId(link), (hello.node, hello.incarnation), None, out);
    sessions.on_hello(LinkId(link), hello, out)
}

#[test]
fn a_fitting_greeting_is_answered_and_binds_the_link() {
    let (mut sessions, mut out) = (sessions(), Wire::default());
    let newer = Hello {
        version_high: 9,
        features: 0xff,
        ..fitting()
    };
    let bound = Greeting::Bound(PEER, Incarnation(20), Channel::Main);
    assert_eq!(greeted(&mut sessions, &mut out, 1, &newer), bound);
    assert_eq!((out.bound, out.closed), (vec![LinkId(1)], vec![]));
    let answer = peer::decode(&out.frames.bytes).unwrap().1;
    let Message::Hello { hello: answer } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((answer.node, answer.to_node, answer.session), (ME, PEER, 1));
}

#[test]
fn a_greeting_that_does_not_fit_is_refused_without_an_answer() {
    type Case = (&'static str, fn(&mut Hello));
    let cases: [Case; 7] = [
        ("another cluster", |h| h.cluster = ClusterId(8)),
        (CANNOT_SPEAK, |h| {
            (h.version_low, h.version_high) = (PROTOCOL_VERSION + 1, 9)
        }),
        (CANNOT_SPEAK, |h| (h.version_low, h.version_high) = (0, 0)),
        ("meant for another incarnation", |h| h.to_node = NodeId(6)),
        ("meant for another incarnation", |h| h.to_incarnation = Incarnation(49)),
        ("the smaller node id dials", |h| h.node = NodeId(6)),
        ("the smaller node id dials", |h| h.node = ME),
    ];
    for (reason, change) in cases {
        let (mut sessions, mut out) = (sessions(), Wire::default());
        let mut hello = fitting();
        change(&mut hello);
        assert_eq!(
            greeted(&mut sessions, &mut out, 1, &hello),
            Greeting::Refused(reason),
            "{hello:?}"
        );
        assert_eq!((out.bound, out.closed), (vec![], vec![LinkId(1)]), "{reason}");
        assert!(out.frames.bytes.is_empty(), "{reason}");
        assert_eq!(sessions.incarnation_of(PEER, Channel::Main), None, "{reason}");
    }
}

#[test]
fn when_a_version_becomes_active_who_cannot_speak_it_is_left_and_refused() {
    let (mut sessions, mut out) = (
        sessions_of(Versions::up_to(TOMORROW), formats::HIGHEST),
        Wire::default(),
    );
    assert_eq!(greeted(&mut sessions, &mut out, 1, &fitting()), bound(20));
    let able = Hello {
        node: NodeId(3),
        version_high: TOMORROW,
        ..fitting()
    };
    let of_able = Greeting::Bound(NodeId(3), Incarnation(20), Channel::Main);
    assert_eq!(greeted(&mut sessions, &mut out, 2, &able), of_able);
    out.frames.bytes.clear();
    sessions.try_tomorrow(LinkId(2), Rules::default(), &mut out);
    assert!(out.frames.bytes.is_empty(), "it is not active yet");
    sessions.on_active(TOMORROW, Rules::default(), &mut out);
    assert_eq!(out.closed, [LinkId(1)]);
    let sent = peer::decode(&out.frames.bytes).map(|(_, message)| message);
    assert_eq!(sent, Ok(Message::Tomorrow), "to the other one alone");
    sessions.on_link_down(NOW, LinkId(1));
    let below = greeted(&mut sessions, &mut out, 3, &fitting());
    assert_eq!(below, Greeting::Refused(CANNOT_SPEAK));
}

#[test]
fn a_node_that_poses_as_another_is_refused() {
    for proven in [(NodeId(3), Incarnation(20)), (PEER, Incarnation(21))] {
        let (mut sessions, mut out) = (sessions(), Wire::default());
        sessions.on_link_up(LinkId(1), proven, None, &mut out);
        let greeting = sessions.on_hello(LinkId(1), &fitting(), &mut out);
        assert!(
            matches!(greeting, Greeting::Refused(why) if why.contains("another process")),
            "{greeting:?}"
        );
        assert_eq!((out.bound, out.closed), (vec![], vec![LinkId(1)]));
        assert!(out.frames.bytes.is_empty());
    }
}

#[test]
fn a_newer_session_replaces_the_older_one_and_never_the_other_way() {
    let (mut sessions, mut out) = (sessions(), Wire::default());
    let at = |session| Hello { session, ..fitting() };
    assert!(matches!(
        greeted(&mut sessions, &mut out, 1, &at(4)),
        Greeting::Bound(..)
    ));
    let late = greeted(&mut sessions, &mut out, 2, &at(4));
    assert_eq!(late, Greeting::Refused("an older session"));
    assert!(matches!(
        greeted(&mut sessions, &mut out, 3, &at(5)),
        Greeting::Bound(..)
    ));
    assert_eq!(out.closed, [LinkId(2), LinkId(1)]);
    assert_eq!(sessions.peer_of(LinkId(1)), None);
    let again = sessions.on_hello(LinkId(3), &at(6), &mut out);
    assert_eq!(again, Greeting::Refused("a second greeting"));
}

#[test]
fn a_process_that_no_record_names_takes_no_session_from_one_that_they_name() {
    let (mut sessions, mut out) = (sessions(), Wire::default());
    let of = |incarnation| Hello {
        incarnation: Incarnation(incarnation),
        ..fitting()
    };
    // As long as the recorded one has no session, an unknown one may be its successor.
    assert_eq!(greeted(&mut sessions, &mut out, 1, &of(77)), bound(77));
    sessions.on_nodes(NOW, &[record(20)], &mut out);
    assert_eq!(greeted(&mut sessions, &mut out, 2, &of(20)), bound(20));
    let stray = greeted(&mut sessions, &mut out, 3, &of(77));
    assert_eq!(
        stray,
        Greeting::Refused("the node's process by the records has a session")
    );
    assert_eq!(sessions.peer_of(LinkId(2)).map(|(_, i, _)| i), Some(Incarnation(20)));
    // The link of the recorded one has ended, or the records name another.
    sessions.on_link_down(NOW, LinkId(2));
    assert_eq!(greeted(&mut sessions, &mut out, 4, &of(77)), bound(77));
    sessions.on_nodes(NOW, &[record(78)], &mut out);
    assert_eq!(greeted(&mut sessions, &mut out, 5, &of(78)), bound(78));
}

fn bound(incarnation: u64) -> Greeting {
    Greeting::Bound(PEER, Incarnation(incarnation), Channel::Main)
}

/// What the coordinator tells of the peer.
fn record(incarnation: u64) -> NodeRecord {
    NodeRecord {
        id: PEER,
        incarnation: Incarnation(incarnation),
        ordinal: 1,
        domain: String::new(),
        role: NodeRole::Member,
        state: NodeState::Up,
        pid: 0,
        client_address: String::new(),
        cluster_address: String::new(),
        peer_address: String::new(),
        more: Default::default(),
    }
}

#[test]
fn an_incarnation_that_the_records_have_replaced_is_refused() {
    let (mut sessions, mut out) = (sessions(), Wire::default());
    for incarnation in [20, 21] {
        sessions.on_nodes(NOW, &[record(incarnation)], &mut out);
    }
    let late = greeted(&mut sessions, &mut out, 1, &fitting());
    assert_eq!(late, Greeting::Refused("an incarnation that is over"));
    let present = Hello {
        incarnation: Incarnation(21),
        ..fitting()
    };
    assert!(matches!(
        greeted(&mut sessions, &mut out, 2, &present),
        Greeting::Bound(..)
    ));
}

#[test]
fn an_answer_of_another_than_was_called_is_refused() {
    let (mut sessions, mut out) = (sessions(), Wire::default());
    let called = NodeId(9);
    let proven = (NodeId(8), Incarnation(20));
    sessions.on_link_up(LinkId(1), proven, Some((called, Channel::Main)), &mut out);
    let answer = Hello {
        node: NodeId(8),
        ..fitting()
    };
    let greeting = sessions.on_hello(LinkId(1), &answer, &mut out);
    assert_eq!(greeting, Greeting::Refused("answered by another than was called"));
    assert_eq!(out.closed, [LinkId(1)]);
}
