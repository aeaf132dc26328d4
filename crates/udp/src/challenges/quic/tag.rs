//! The integrity tag of Retry packets.
//!
//! It is AES-128-GCM over no text with a key and a nonce that the RFCs give (RFC 9001 section 5.8,
//! RFC 9369 section 3.3.3), so both blocks that AES would compute are constants: what is left is
//! GHASH (NIST SP 800-38D section 6.4) of what is covered. Used by `quic.rs`.

/// The constants of a version.
pub(super) struct RetryKey {
    /// The block 0 under the key, multiplied by each power of x up to 127.
    powers: [u128; 128],
    /// The first counter block under the key.
    mask: u128,
}

impl RetryKey {
    /// Version 1.
    pub(super) const V1: Self = Self::new(
        0x7295_6a45_4ffa_ff54_85a1_3a12_44d0_1d47,
        0x555e_4b74_9355_6eea_af75_d35b_d7fb_a5d8,
    );
    /// Version 2.
    pub(super) const V2: Self = Self::new(
        0x65f6_bee1_0d70_0eda_919c_5c69_78e4_7a5d,
        0x4e90_1396_e3a9_359f_4535_b65e_5ad6_ae51,
    );

    #[expect(clippy::indexing_slicing, reason = "below its length, and at compile time")]
    const fn new(zero: u128, mask: u128) -> Self {
        let (mut powers, mut power, mut n) = ([0; 128], zero, 0);
        while n < 128 {
            powers[n] = power;
            // Times x, by the polynomial of GCM; the lowest power is the highest bit.
            power = (power >> 1) ^ if power & 1 == 1 { 0xe1 << 120 } else { 0 };
            n += 1;
        }
        Self { powers, mask }
    }

    /// The tag of a Retry: `covered` is the client's ID behind its length, then the Retry.
    pub(super) fn tag(&self, covered: &[u8]) -> [u8; 16] {
        let lengths = ((covered.len() as u128) * 8) << 64;
        let blocks = covered.chunks(16).map(|chunk| {
            let mut block = [0; 16];
            block.iter_mut().zip(chunk).for_each(|(place, byte)| *place = *byte);
            u128::from_be_bytes(block)
        });
        let sum = blocks.chain([lengths]).fold(0, |sum, block| self.times(sum ^ block));
        (sum ^ self.mask).to_be_bytes()
    }

    fn times(&self, factor: u128) -> u128 {
        let bits = (0..128).map(|n| factor >> (127 - n) & 1);
        // Without a branch: all bits or none.
        self.powers.iter().zip(bits).fold(0, |sum, (power, bit)| sum ^ (power & bit.wrapping_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn it_is_what_both_rfcs_have_as_their_example() {
        let original = "088394c8f03e515708";
        for (key, retry, tag) in [
            // RFC 9001 appendix A.4, RFC 9369 appendix A.4.
            (
                &RetryKey::V1,
                "ff000000010008f067a5502a4262b5746f6b656e",
                "04a265ba2eff4d829058fb3f0f2496ba",
            ),
            (
                &RetryKey::V2,
                "cf6b3343cf0008f067a5502a4262b5746f6b656e",
                "c8646ce8bfe33952d955543665dcc7b6",
            ),
        ] {
            assert_eq!(key.tag(&bytes(&[original, retry].concat()))[..], bytes(tag));
        }
    }
}
