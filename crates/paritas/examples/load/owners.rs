//! Finds the owner of each key.

use crate::drive::reply;
use crate::keys::{key, slot};
use std::io::{self, Read, Write};
use std::net::SocketAddr;

/// For each hash slot the port of its owner, from CLUSTER NODES.
fn owners(port: u16) -> io::Result<Vec<u16>> {
    let mut stream = std::net::TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
    stream.write_all(b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n")?;
    let mut text = Vec::new();
    let mut block = [0; 4096];
    while reply(&text, false)?.is_none() {
        let n = stream.read(&mut block)?;
        if n == 0 {
            return Err(io::Error::other("the server has closed the connection"));
        }
        text.extend_from_slice(&block[..n]);
    }
    let mut owners = vec![port; 16_384];
    for line in String::from_utf8_lossy(&text).lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let address = fields
            .get(1)
            .and_then(|field| field.split('@').next()?.rsplit(':').next()?.parse().ok());
        let Some(owner) = address else { continue };
        for range in fields.iter().skip(8) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
                owners
                    .get_mut(first..=last)
                    .ok_or_else(|| io::Error::other("not a slot"))?
                    .fill(owner);
            }
        }
    }
    Ok(owners)
}

/// The ports of the nodes, and for each node the ids of the keys that it owns, in the given order.
pub(crate) fn by_owner(
    cluster: bool,
    port: u16,
    ids: impl Iterator<Item = u64>,
) -> io::Result<(Vec<u16>, Vec<Vec<u64>>)> {
    let owners = if cluster { owners(port)? } else { vec![port; 16_384] };
    let mut ports = owners.clone();
    ports.sort_unstable();
    ports.dedup();
    let mut owned = vec![Vec::new(); ports.len()];
    for id in ids {
        owned[ports.partition_point(|&node| node < owners[slot(&key(id))])].push(id);
    }
    Ok((ports, owned))
}
