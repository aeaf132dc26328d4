//! Devices on interfaces of their own: one program, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

mod af_packet;
mod af_xdp;
mod af_xdp_words;
mod first_line_report;
mod live_sender;
mod namespace;
mod packet_supers;
mod packets;
mod placement;
mod shared_link_address;
mod tun;
mod umem;
