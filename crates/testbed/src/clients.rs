//! Clients of the nodes.

use super::Cluster;
use paritas_base::ConnId;
use paritas_protocol::{Ends, Event, Port, ReplyBuf};
use paritas_wire::resp::{ReplyDecoder, Value};

/// A client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The node.
    pub at: usize,
    /// Its number at the node.
    pub conn: ConnId,
}

impl Cluster {
    /// A client connects to a port of a node.
    pub fn connect(&mut self, at: usize, port: Port) -> Client {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let process = &mut self.processes[at];
        process.out.clients.insert(conn, ReplyBuf::default());
        process.inputs.insert(conn, Vec::new());
        process.outputs.insert(conn, Vec::new());
        // As if the clients had ports from 50001 on.
        let end = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let ends = Ends {
            client: end(50_000 + conn.0 as u16),
            server: end(6379 + at as u16),
        };
        self.event(at, Event::ClientUp { conn, port, ends });
        Client { at, conn }
    }

    /// A client's connection ends.
    pub fn disconnect(&mut self, client: Client) {
        self.event(client.at, Event::ClientDown { conn: client.conn });
        let process = &mut self.processes[client.at];
        process.out.clients.remove(&client.conn);
        process.inputs.remove(&client.conn);
        process.outputs.remove(&client.conn);
        self.pump();
    }

    /// Gives bytes to a node as from a client, without running any turn.
    pub fn feed(&mut self, client: Client, bytes: &[u8]) {
        self.processes[client.at]
            .inputs
            .get_mut(&client.conn)
            .unwrap()
            .extend_from_slice(bytes);
    }

    /// Bytes held for a client beside its buffers.
    pub fn elsewhere_bytes(&self, client: Client) -> usize {
        self.processes[client.at].out.clients[&client.conn].elsewhere_bytes
    }

    /// What a client has received since the last call.
    pub fn take(&mut self, client: Client) -> Vec<u8> {
        core::mem::take(self.processes[client.at].outputs.get_mut(&client.conn).unwrap())
    }

    /// Sends a line, and gives what comes back.
    pub fn ask(&mut self, client: Client, line: &str) -> String {
        self.feed(client, format!("{line}\r\n").as_bytes());
        self.pump();
        String::from_utf8_lossy(&self.take(client)).into_owned()
    }

    /// The same, of a command as a RESP array: an argument may be long.
    pub fn ask_words(&mut self, client: Client, words: &[&str]) -> String {
        let mut request = Vec::new();
        paritas_wire::resp::encode::request(&mut request, words);
        self.feed(client, &request);
        self.pump();
        String::from_utf8_lossy(&self.take(client)).into_owned()
    }

    /// Sends a command, moves the clock on, and gives the bytes that come back.
    pub fn call_bytes(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> Vec<u8> {
        let mut request = Vec::new();
        paritas_wire::resp::encode::request(&mut request, words);
        self.feed(client, &request);
        self.advance(200);
        self.take(client)
    }

    /// The same, and reads the reply.
    ///
    /// # Panics
    /// If what comes back is not one reply.
    pub fn call(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> Value {
        let bytes = self.call_bytes(client, words);
        let reply = ReplyDecoder::new().decode(&bytes).expect("a reply");
        let (reply, used) = reply.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&bytes)));
        assert_eq!(used, bytes.len(), "one reply");
        reply.to_value()
    }

    /// The same of a command that is refused: the text of the error.
    ///
    /// # Panics
    /// If it is not refused.
    pub fn call_refused(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> String {
        match self.call(client, words) {
            Value::Error(text) => text,
            other => panic!("no error: {other:?}"),
        }
    }

    /// Whether the node has closed the connection of a client.
    pub fn is_closed(&self, client: Client) -> bool {
        self.processes[client.at].closed.contains(&client.conn)
    }
}
