//! Lines of clients of memcached, into a cluster of machines.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::Cluster;

/// Memory of a node.
pub(crate) const NODE_BYTES: u64 = 8 << 20;
/// Pieces in which the bytes come.
const PIECES_MAX: usize = 64;

/// The replies to these bytes, which come in pieces of `step` bytes.
fn replies(input: &[u8], nodes: usize, step: usize) -> Vec<u8> {
    let mut cluster = Cluster::with(nodes, NODE_BYTES, Parameters::default());
    let client = cluster.connect(0, Port::Memcached);
    let mut out = Vec::new();
    for piece in input.chunks(step.max(input.len().div_ceil(PIECES_MAX)).max(1)) {
        cluster.feed(client, piece);
        cluster.pump();
        out.extend(cluster.take(client));
    }
    cluster.advance(100);
    out.extend(cluster.take(client));
    out
}

/// The result must not depend on how the bytes are split into pieces, nor on where the keys are.
pub(crate) fn lines(bytes: &[u8]) {
    let Some((cut, input)) = bytes.split_first() else {
        return;
    };
    let whole = replies(input, 1, input.len());
    let slow = replies(input, 1, usize::from(cut >> 2) + 1);
    // Each node has figures of its own, and many things that no client knows depend on the number of nodes.
    let has_figures = input.windows(5).any(|word| word == b"stats");
    if !has_figures {
        assert_eq!(
            whole.escape_ascii().to_string(),
            slow.escape_ascii().to_string(),
            "pieces give other replies"
        );
        if cut & 3 == 0 {
            let elsewhere = replies(input, 3, input.len());
            assert_eq!(
                whole.escape_ascii().to_string(),
                elsewhere.escape_ascii().to_string(),
                "keys at other nodes give other replies"
            );
        }
    }
    assert!(
        whole.is_empty() || whole.ends_with(b"\r\n"),
        "the last reply is not whole"
    );
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [
        "set a 1 0 5\r\nhello\r\nget a b a\r\ngets a\r\ncas a 0 0 1 7\r\nx\r\n",
        "add b 0 -1 1\r\nx\r\nreplace a 0 100 1\r\ny\r\nappend a 0 0 1\r\nz\r\nprepend a 0 0 1 noreply\r\nw\r\n",
        "set n 0 0 2\r\n99\r\nincr n 1\r\ndecr n 5\r\nincr n 18446744073709551615 noreply\r\nget n\r\n",
        "touch n 5\r\ngat 0 n\r\ngats 99 n m\r\ndelete n\r\ndelete n 0 noreply\r\nflush_all\r\nflush_all 10\r\n",
        "version\r\nverbosity 1\r\nstats\r\nstats settings\r\nstats items\r\nmn\r\nbogus\r\n\r\nquit\r\n",
        "set a 0 0 -1\r\nset a 0 0 99999999999\r\nset a 0 0 3\r\nabcdef\r\nset a 0 0\r\n",
        "ms a 5 F7 T30 k O1\r\nhello\r\nmg a v f t s c k O9\r\nmg b q\r\nmd a C5 q\r\nma n N0 J5 D2 v\r\nme a\r\n",
        "ms Zm9v 3 b k\r\nbar\r\nmg Zm9v b v k\r\nmg foo v\r\nmd YQ b\r\nms a 1 ME\r\nx\r\nms a 1 MA q\r\ny\r\n",
        "ms s 1 T100 c\r\nx\r\nmd s I T30 q\r\nmg s v c t R20\r\nmg s k O1\r\nms s 2 C7 I T9\r\nxy\r\nma s\r\nmg s\r\n",
        "mg m N30 v t c\r\nmg m\r\nmd m I C0\r\nmg bWlzcw== b N0 R30 T60\r\n",
        "mg m N30\r\nmg m R-1 q\r\nincr m 1\r\ntouch m 9\r\nget m\r\n",
        "set l 0 0 70000\r\n",
        "set l 0 0 2000000 noreply\r\nxxxx\r\n",
    ]
    .iter()
    .flat_map(|text| [0, 4, 255].map(|cut| [&[cut], text.as_bytes()].concat()))
    .collect()
}
