//! The latency model of online erasure coding: how long a Set or Get takes, in seconds, by Equations 1 to 8 of the
//! paper (§III-A, §III-B).
//!
//! The paper's text says that Equation 3 lowers the response wait "by a factor of N/K". By its own equations it is F
//! without erasure coding and N/K with it, in units of D/B; so the factor is F·K/N.

/// A network and a value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transfer {
    /// Latency of one message, L, in seconds.
    pub latency_s: f64,
    /// Bandwidth, B, in bytes a second.
    pub bandwidth: f64,
    /// Length of the value, D, in bytes.
    pub value_bytes: f64,
}

/// A code and what computing with it costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Coding {
    /// Data chunks, K.
    pub data: u32,
    /// Parity chunks, M.
    pub parity: u32,
    /// Time to encode the value, T_encode(D), in seconds.
    pub encode_s: f64,
    /// Time to decode the value, T_decode(D), in seconds; 0 without failures.
    pub decode_s: f64,
}

impl Transfer {
    /// Equation 1: T_comm(D) = L + D/B.
    pub fn of_value(&self) -> f64 {
        self.latency_s + self.value_bytes / self.bandwidth
    }

    /// L + D/(B·K): one chunk of K.
    fn of_chunk(&self, data: u32) -> f64 {
        self.latency_s + self.value_bytes / self.bandwidth / f64::from(data)
    }

    /// Equation 2: a Set of `copies` copies (F), one after another.
    pub fn set_copies(&self, copies: u32) -> f64 {
        f64::from(copies) * self.of_value()
    }

    /// Equation 3: a Set of N = K + M chunks, one after another.
    pub fn set_coded(&self, coding: &Coding) -> f64 {
        coding.encode_s + f64::from(coding.data + coding.parity) * self.of_chunk(coding.data)
    }

    /// Equation 4: a Get of one copy. `check_s` is the time to find a server that lives, T_check.
    pub fn get_copy(&self, check_s: f64) -> f64 {
        check_s + self.of_value()
    }

    /// Equation 5: a Get of K chunks, one after another.
    pub fn get_coded(&self, coding: &Coding) -> f64 {
        coding.decode_s + f64::from(coding.data) * self.of_chunk(coding.data)
    }

    /// Equation 6: a Set of copies, all at once. It does not depend on their number.
    pub fn set_copies_at_once(&self) -> f64 {
        self.of_value()
    }

    /// Equation 7: a Set of N chunks, all at once.
    pub fn set_coded_at_once(&self, coding: &Coding) -> f64 {
        coding.encode_s + self.of_chunk(coding.data)
    }

    /// Equation 8: a Get of K chunks, all at once.
    pub fn get_coded_at_once(&self, coding: &Coding) -> f64 {
        coding.decode_s + self.of_chunk(coding.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that binary fractions hold exactly: L = 1/1024 s, D/B = 3/8 s.
    const NET: Transfer = Transfer {
        latency_s: 1.0 / 1024.0,
        bandwidth: (1 << 20) as f64,
        value_bytes: (3 << 17) as f64,
    };
    const RS: Coding = Coding {
        data: 3,
        parity: 2,
        encode_s: 1.0 / 64.0,
        decode_s: 1.0 / 32.0,
    };

    #[test]
    fn equations_1_to_8_are_those_of_the_paper() {
        let (l, d_b) = (1.0 / 1024.0, 3.0 / 8.0);
        let exact = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-15, "{value} is not {wanted}");
        exact(NET.of_value(), l + d_b);
        exact(NET.set_copies(3), 3.0 * (l + d_b));
        exact(NET.set_coded(&RS), 1.0 / 64.0 + 5.0 * (l + d_b / 3.0));
        exact(NET.get_copy(0.25), 0.25 + l + d_b);
        exact(NET.get_coded(&RS), 1.0 / 32.0 + 3.0 * (l + d_b / 3.0));
        exact(NET.set_copies_at_once(), l + d_b);
        exact(NET.set_coded_at_once(&RS), 1.0 / 64.0 + l + d_b / 3.0);
        exact(NET.get_coded_at_once(&RS), 1.0 / 32.0 + l + d_b / 3.0);
    }

    #[test]
    fn coding_beats_copies_once_bytes_and_not_messages_are_the_cost() {
        let at = |value_bytes| Transfer { value_bytes, ..NET };
        assert!(at(64.0).set_coded(&RS) > at(64.0).set_copies(3));
        assert!(at((8 << 20) as f64).set_coded(&RS) < at((8 << 20) as f64).set_copies(3));
    }
}
