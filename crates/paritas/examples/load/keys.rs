//! Keys and values, and the commands that use them.

use std::io::{self, Write};

/// splitmix64, so that every run uses the same keys.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}

/// Random numbers below `end`; the n-th has the weight 1 / n^theta (Gray et al., SIGMOD 1994). With theta 0 all numbers
/// are equally likely.
pub(crate) struct Zipf {
    end: u64,
    theta: f64,
    zeta: f64,
}

impl Zipf {
    pub(crate) fn new(end: u64, theta: f64) -> Self {
        let weight = |n: u64| (n as f64).powf(-theta);
        let zeta = if theta > 0.0 { (1..=end).map(weight).sum() } else { 0.0 };
        Self { end, theta, zeta }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let (end, theta) = (self.end as f64, self.theta);
        if theta == 0.0 {
            return random.below(self.end);
        }
        let u = random.below(1 << 53) as f64 / (1u64 << 53) as f64;
        let two = 1.0 + 0.5f64.powf(theta);
        match u * self.zeta {
            sum if sum < 1.0 => 0,
            sum if sum < two => 1,
            _ => {
                let eta = (1.0 - (2.0 / end).powf(1.0 - theta)) / (1.0 - two / self.zeta);
                ((end * (eta * u - eta + 1.0).powf(1.0 / (1.0 - theta))) as u64).min(self.end - 1)
            }
        }
    }
}

pub(crate) fn key(id: u64) -> [u8; 24] {
    let mut key = *b"key:00000000000000000000";
    let mut rest = id;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The cluster's hash slot: CRC16/XMODEM modulo 16,384.
pub(crate) fn slot(key: &[u8]) -> usize {
    let crc = key.iter().fold(0u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    usize::from(crc) % 16_384
}

/// Bytes for values. They are not digits, because Redis stores digits as a number. Different offsets give different
/// values.
pub(crate) fn noise() -> Vec<u8> {
    let mut random = Random(7);
    (0..3 * 8192).map(|_| b'a' + random.below(26) as u8).collect()
}

pub(crate) struct Commands {
    pub(crate) memcached: bool,
    pub(crate) noise: Vec<u8>,
}

impl Commands {
    /// `from` selects the value's bytes in the noise.
    pub(crate) fn set(&self, out: &mut Vec<u8>, id: u64, from: u64, bytes: usize) -> io::Result<()> {
        out.extend_from_slice(if self.memcached {
            b"ms "
        } else {
            b"*3\r\n$3\r\nSET\r\n$24\r\n"
        });
        out.extend_from_slice(&key(id));
        if self.memcached {
            write!(out, " {bytes}\r\n")?;
        } else {
            write!(out, "\r\n${bytes}\r\n")?;
        }
        // A long value repeats the noise.
        let noise = self.noise.iter().cycle().skip((from % 8192) as usize);
        match self
            .noise
            .get((from % 8192) as usize..)
            .and_then(|rest| rest.get(..bytes))
        {
            Some(value) => out.extend_from_slice(value),
            None => out.extend(noise.take(bytes)),
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    pub(crate) fn get(&self, out: &mut Vec<u8>, id: u64) {
        out.extend_from_slice(if self.memcached {
            b"mg "
        } else {
            b"*2\r\n$3\r\nGET\r\n$24\r\n"
        });
        out.extend_from_slice(&key(id));
        out.extend_from_slice(if self.memcached { b" v\r\n" } else { b"\r\n" });
    }
}
