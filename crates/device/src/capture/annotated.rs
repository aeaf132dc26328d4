//! `AnnotatedWriter`: a pcapng stream in which every packet has a comment.
//!
//! Called by `floodwall capture` on the control side. Invariant: one link type a stream, as tcpdump
//! demands: where one interface has Ethernet, packets without a link header get one of zeros.

use core::time::Duration;
use std::borrow::Cow;
use std::io::{self, Write};

use super::blocks::{BlockWriter, CaptureDirection, PacketBlock};
use crate::device::Medium;

/// Bytes of an Ethernet header.
const LINK_HEADER: usize = 14;

/// One packet of an annotated stream.
#[derive(Clone, Debug)]
pub struct AnnotatedPacket<'a> {
    /// The interface, by its place among those the stream began with.
    pub interface: usize,
    /// Since 1970-01-01 00:00 UTC.
    pub time: Duration,
    /// Its bytes, as many as were captured.
    pub bytes: &'a [u8],
    /// Its bytes in all.
    pub wire_len: u32,
    /// Whether `bytes` begin with a link header.
    pub has_link_header: bool,
    /// Whether it arrived, or leaves.
    pub inbound: bool,
    /// Packets before it that were not captured.
    pub missed: u64,
    /// The comment.
    pub comment: &'a str,
}

/// Writes a pcapng stream.
pub struct AnnotatedWriter<W: Write> {
    writer: BlockWriter<W>,
    is_ethernet: bool,
}

impl<W: Write> AnnotatedWriter<W> {
    /// Begins a stream with these interfaces.
    ///
    /// # Errors
    /// The writer's.
    pub fn new(writer: W, interfaces: &[(String, Medium)], snap_len: u32) -> io::Result<Self> {
        let mut writer = BlockWriter::new(writer)?;
        let is_ethernet = interfaces.iter().any(|(_, medium)| *medium == Medium::Ethernet);
        let medium = if is_ethernet { Medium::Ethernet } else { Medium::Ip };
        for (name, _) in interfaces {
            writer.interface(name, medium, snap_len)?;
        }
        Ok(Self { writer, is_ethernet })
    }

    /// Writes one packet.
    ///
    /// # Errors
    /// The writer's.
    pub fn packet(&mut self, packet: &AnnotatedPacket<'_>) -> io::Result<()> {
        let (mut data, mut original_len) = (Cow::Borrowed(packet.bytes), packet.wire_len);
        if self.is_ethernet && !packet.has_link_header {
            let is_v6 = packet.bytes.first().is_some_and(|first| first >> 4 == 6);
            let mut frame = vec![0; LINK_HEADER - 2];
            frame.extend(if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
            frame.extend_from_slice(packet.bytes);
            (data, original_len) = (Cow::Owned(frame), original_len + LINK_HEADER as u32);
        }
        let outbound = CaptureDirection::Outbound;
        self.writer.packet(&PacketBlock {
            interface: u32::try_from(packet.interface).unwrap_or(0),
            time: packet.time,
            data: &data,
            wire_len: original_len,
            direction: if packet.inbound { CaptureDirection::Inbound } else { outbound },
            missed: packet.missed,
            comment: Some(packet.comment),
        })
    }

    /// The writer inside.
    pub fn get_mut(&mut self) -> &mut W {
        self.writer.get_mut()
    }
}

impl<W: Write> core::fmt::Debug for AnnotatedWriter<W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("AnnotatedWriter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{LinkType, parse_capture};

    #[test]
    fn packets_without_link_header_get_one_where_an_interface_has_ethernet() {
        let interfaces = [("a".to_owned(), Medium::Ethernet), ("b".to_owned(), Medium::Ip)];
        let mut writer = AnnotatedWriter::new(Vec::new(), &interfaces, 0).unwrap();
        let packet = AnnotatedPacket {
            interface: 1,
            time: Duration::from_secs(5),
            bytes: &[0x60; 40],
            wire_len: 40,
            has_link_header: false,
            inbound: true,
            missed: 3,
            comment: "drop UdpNoPort",
        };
        writer.packet(&packet).unwrap();
        writer.packet(&AnnotatedPacket { has_link_header: true, ..packet }).unwrap();
        let text = writer.get_mut().clone();
        let capture = parse_capture(&text).unwrap();
        let [made, own] = &capture.packets[..] else { panic!("{capture:?}") };
        assert_eq!((made.link, made.wire_len, own.wire_len), (LinkType::Ethernet, 54, 40));
        assert_eq!(made.ip(), Some(&[0x60; 40][..]));
        assert!(text.windows(14).any(|part| part == b"drop UdpNoPort"));
    }
}
