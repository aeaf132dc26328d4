//! `BlockWriter`: the blocks of a pcapng stream with one section and nanosecond times.
//!
//! Called by `recorder.rs` and `annotated.rs`; the bytes are `pcap-parser`'s. Reading:
//! draft-ietf-opsawg-pcapng.

use core::time::Duration;
use std::borrow::Cow;
use std::io::{self, Write};

use pcap_parser::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, Linktype, OptionCode, PcapNGOption,
    SectionHeaderBlock, ToVec,
};

use crate::device::Medium;

/// Times are nanoseconds: ten to the power of minus nine.
const TIME_RESOLUTION: u8 = 9;
/// The options `epb_flags` and `epb_dropcount`.
const OPTION_FLAGS: OptionCode = OptionCode(2);
const DROP_COUNT: OptionCode = OptionCode(4);

/// Whether a packet arrived or leaves: the lowest two bits of a packet's flags.
#[derive(Clone, Copy, Debug)]
pub(super) enum CaptureDirection {
    Inbound = 1,
    Outbound = 2,
}

/// One packet of a stream.
#[derive(Debug)]
pub(super) struct PacketBlock<'a> {
    /// The interface, by its place among those described.
    pub(super) interface: u32,
    /// Since 1970-01-01 00:00 UTC.
    pub(super) time: Duration,
    pub(super) data: &'a [u8],
    pub(super) wire_len: u32,
    pub(super) direction: CaptureDirection,
    /// Packets before it that are not in the stream.
    pub(super) missed: u64,
    pub(super) comment: Option<&'a str>,
}

/// Writes blocks.
pub(super) struct BlockWriter<W> {
    inner: W,
}

impl<W: Write> BlockWriter<W> {
    /// Begins a stream with its section header.
    ///
    /// # Errors
    /// The writer's.
    pub(super) fn new(inner: W) -> io::Result<Self> {
        let mut writer = Self { inner };
        writer.write(&mut SectionHeaderBlock {
            block_type: 0,
            block_len1: 0,
            bom: 0,
            major_version: 1,
            minor_version: 0,
            // Not known in advance.
            section_len: -1,
            options: Vec::new(),
            block_len2: 0,
        })?;
        Ok(writer)
    }

    /// Describes an interface; a snap length of 0 is none.
    ///
    /// # Errors
    /// The writer's.
    pub(super) fn interface(
        &mut self,
        name: &str,
        medium: Medium,
        snap_len: u32,
    ) -> io::Result<()> {
        let linktype = match medium {
            Medium::Ethernet => Linktype::ETHERNET,
            Medium::Ip => Linktype::RAW,
        };
        self.write(&mut InterfaceDescriptionBlock {
            block_type: 0,
            block_len1: 0,
            linktype,
            reserved: 0,
            snaplen: snap_len,
            options: vec![
                option(OptionCode::IfName, name.as_bytes()),
                option(OptionCode::IfTsresol, &[TIME_RESOLUTION]),
            ],
            block_len2: 0,
            if_tsresol: TIME_RESOLUTION,
            if_tsoffset: 0,
        })
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// The writer's.
    pub(super) fn packet(&mut self, packet: &PacketBlock<'_>) -> io::Result<()> {
        let nanos = u64::try_from(packet.time.as_nanos()).unwrap_or(u64::MAX);
        let flags = (packet.direction as u32).to_le_bytes();
        let missed = packet.missed.to_le_bytes();
        let mut options = Vec::with_capacity(3);
        options.extend(packet.comment.map(|text| option(OptionCode::Comment, text.as_bytes())));
        options.push(option(OPTION_FLAGS, &flags));
        if packet.missed > 0 {
            options.push(option(DROP_COUNT, &missed));
        }
        self.write(&mut EnhancedPacketBlock {
            block_type: 0,
            block_len1: 0,
            if_id: packet.interface,
            ts_high: (nanos >> 32) as u32,
            ts_low: nanos as u32,
            caplen: packet.data.len() as u32,
            origlen: packet.wire_len,
            data: packet.data,
            options,
            block_len2: 0,
        })
    }

    /// The writer inside.
    pub(super) const fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// The writer inside, for good.
    pub(super) fn into_inner(self) -> W {
        self.inner
    }

    fn write(&mut self, block: &mut impl ToVec) -> io::Result<()> {
        // Lengths and magic numbers are filled in by it.
        let bytes = block.to_vec().map_err(|error| io::Error::other(format!("{error:?}")))?;
        self.inner.write_all(&bytes)
    }
}

/// An option, as long as its length field allows.
fn option(code: OptionCode, value: &[u8]) -> PcapNGOption<'_> {
    let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
    PcapNGOption { code, len: value.len() as u16, value: Cow::Borrowed(value) }
}
