//! The Internet checksum: whole, incremental, copy-and-sum.
