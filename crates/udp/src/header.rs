//! The constants of the UDP header (RFC 768).

/// UDP's protocol number.
pub(crate) const PROTOCOL: u8 = 17;
/// Bytes of the UDP header.
pub(crate) const HEADER_LEN: usize = 8;
