//! What IGMP and MLD have in common: the messages by which hosts report to routers which groups
//! they receive.
//!
//! Called by `ip` (a host's membership), by `show` and the tests, through `igmp.rs` and `mld.rs`,
//! which know what differs. Invariant: a message is a value of either family; records and sources
//! are walked in place, each announced count checked against the bytes that are there, and every
//! step moves by at least one address or record header. Read first: RFC 9776 section 4 and RFC 9777
//! section 5 (IGMPv3 and MLDv2, formerly RFC 3376 and RFC 3810). Not here: what a host does about
//! them.

use core::marker::PhantomData;
use core::time::Duration;

use floodwall_base::Address;
use floodwall_checksum::InternetSum;
use thiserror::Error;

use crate::field::{BufferTooShort, FieldWriter};

/// Bytes before the records of a report, in both families.
pub const REPORT_HEADER_LEN: usize = 8;
/// Bytes of a record before its group address.
const RECORD_HEADER_LEN: usize = 4;

/// The age of a message: the same three in both families, though MLD has no first one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Generation {
    /// IGMPv1: a host that leaves is silent (RFC 1112 appendix I).
    First,
    /// IGMPv2 (RFC 2236) and MLDv1 (RFC 2710): one group a message.
    Second,
    /// IGMPv3 (RFC 9776) and MLDv2 (RFC 9777): records with sources.
    Third,
}

/// Sender and destination of a message: MLD's checksum covers both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupAddrs<A> {
    /// The sender.
    pub src_addr: A,
    /// The destination.
    pub dst_addr: A,
}

/// The two protocols, as far as they depend on their addresses.
pub trait GroupProtocol: Address {
    /// Where general queries go: every host is in it, and never reports it.
    const ALL_SYSTEMS: Self;
    /// Where leave messages of the second generation go.
    const ALL_ROUTERS: Self;
    /// Where reports of the third generation go.
    const ALL_REPORT_ROUTERS: Self;
    /// Bytes of an address.
    const WIDTH: usize;
    /// Bytes of a query of the third generation before its sources.
    const QUERY_HEADER_LEN: usize;

    /// Reads a message: the whole payload of the IP packet, contiguous.
    ///
    /// # Errors
    /// It is shorter than its type and its counts require. The checksum is not looked at: see
    /// `igmp` and `icmpv6`.
    fn parse(bytes: &[u8]) -> Result<GroupMessage<'_, Self>, GroupMessageError>;

    /// The pseudo-header's sum for a message of `len` bytes: zero for IGMP, which has none.
    fn pseudo(ends: GroupAddrs<Self>, len: usize) -> InternetSum;

    /// Writes a query; returns its length.
    ///
    /// # Errors
    /// If `out` is too short.
    fn emit_query(
        query: &QueryFields<'_, Self>,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort>;

    /// Writes a report (`Generation::First` exists for IGMP only; MLD writes its own first) about
    /// one group; returns its length.
    ///
    /// # Errors
    /// If `out` is too short.
    fn emit_report(
        generation: Generation,
        group: Self,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort>;

    /// Writes that no member of a group is left on this host (IGMPv2 leave, MLDv1 done); returns
    /// its length.
    ///
    /// # Errors
    /// If `out` is too short.
    fn emit_leave(
        group: Self,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort>;

    /// The type byte of a report with records.
    const REPORT_KIND: u8;
}

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum GroupMessageError {
    /// It ends within its fixed header, or a query has a length that none has.
    #[error("the membership message is cut short")]
    Truncated,
    /// A query announces more sources than there are bytes for.
    #[error("the membership query announces more sources than it has")]
    Sources,
    /// A report announces more records than there are bytes for, or a record more sources or
    /// auxiliary data.
    #[error("the membership report announces more records than it has")]
    Records,
}

/// The content of a message.
#[derive(Clone, Copy, Debug)]
pub enum GroupMessage<'a, A> {
    /// A query for the members of one group, or of any.
    Query(GroupQuery<'a, A>),
    /// A host is in a group; [`Generation::First`] or [`Generation::Second`].
    Report {
        /// How old the message's form is.
        generation: Generation,
        /// Which group.
        group: A,
    },
    /// A host left a group (second generation).
    Leave {
        /// Which group.
        group: A,
    },
    /// A host reports many groups at once (third generation).
    Records(GroupRecords<'a, A>),
    /// Anything else.
    Unknown(u8),
}

/// A checked query.
#[derive(Clone, Copy, Debug)]
pub struct GroupQuery<'a, A> {
    /// Its form.
    pub generation: Generation,
    /// The queried group; unspecified for all.
    pub group: A,
    /// How long the answer may take at most.
    pub max_response: Duration,
    /// Routers are not to restart their timers for this query (the S flag).
    pub suppress: bool,
    /// The querier's robustness variable, 0 to 7; 0 where it is not given.
    pub robustness: u8,
    /// The querier's query interval; zero where it is not given.
    pub interval: Duration,
    /// The queried sources; none for any.
    pub sources: Sources<'a, A>,
}

/// Addresses one behind the other, their number checked.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a, A> {
    bytes: &'a [u8],
    family: PhantomData<A>,
}

impl<'a, A: GroupProtocol> Sources<'a, A> {
    /// No address.
    pub const NONE: Self = Self { bytes: &[], family: PhantomData };

    /// The first `count` addresses of `bytes`, and what is behind them.
    pub(crate) fn take(bytes: &'a [u8], count: u16) -> Option<(Self, &'a [u8])> {
        let len = usize::from(count) * A::WIDTH;
        let (bytes, rest) = bytes.split_at_checked(len)?;
        Some((Self { bytes, family: PhantomData }, rest))
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / A::WIDTH
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Each in turn.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = A> + use<'a, A> {
        self.bytes.chunks_exact(A::WIDTH).map(addr)
    }
}

/// The address in these bytes.
pub(crate) fn addr<A: Address>(bytes: &[u8]) -> A {
    let bits = bytes.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    A::from_bits_aligned(bits << (128 - u32::from(A::BITS)))
}

/// The type of a group record (RFC 9776 section 4.2.13, RFC 9777 section 5.2.12).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordKind(pub u8);

impl RecordKind {
    /// Current state: only these sources are received.
    pub const IS_INCLUDE: Self = Self(1);
    /// Current state: all but these sources are received.
    pub const IS_EXCLUDE: Self = Self(2);
    /// From now on only these sources are received; none: the group is left.
    pub const TO_INCLUDE: Self = Self(3);
    /// From now on all but these sources are received.
    pub const TO_EXCLUDE: Self = Self(4);
    /// These sources are received in addition.
    pub const ALLOW_NEW: Self = Self(5);
    /// These sources are not received any more.
    pub const BLOCK_OLD: Self = Self(6);

    /// The RFC's abbreviation, for the kinds that it has.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::IS_INCLUDE => "is_in",
            Self::IS_EXCLUDE => "is_ex",
            Self::TO_INCLUDE => "to_in",
            Self::TO_EXCLUDE => "to_ex",
            Self::ALLOW_NEW => "allow",
            Self::BLOCK_OLD => "block",
            _ => return None,
        })
    }
}

/// One record of a report; its auxiliary data is skipped, as the RFCs want.
#[derive(Clone, Copy, Debug)]
pub struct GroupRecord<'a, A> {
    /// Its type.
    pub kind: RecordKind,
    /// Of which group.
    pub group: A,
    /// With which sources.
    pub sources: Sources<'a, A>,
}

/// The records of a report, one after another; ends at the first malformed one. At most as many as
/// the report announces, and as there are bytes for.
#[derive(Clone, Copy, Debug)]
pub struct GroupRecords<'a, A> {
    left: u16,
    rest: &'a [u8],
    family: PhantomData<A>,
}

impl<'a, A: GroupProtocol> GroupRecords<'a, A> {
    pub(crate) fn of_report(bytes: &'a [u8]) -> Result<Self, GroupMessageError> {
        match bytes {
            [_, _, _, _, _, _, high, low, rest @ ..] => {
                let left = u16::from_be_bytes([*high, *low]);
                Ok(Self { left, rest, family: PhantomData })
            }
            _ => Err(GroupMessageError::Truncated),
        }
    }

    /// How many are announced and not yet walked over.
    #[must_use]
    pub const fn announced(&self) -> u16 {
        self.left
    }

    fn read(&mut self) -> Option<GroupRecord<'a, A>> {
        let (&[kind, words, high, low], rest) =
            self.rest.split_first_chunk::<RECORD_HEADER_LEN>()?;
        let (group, rest) = rest.split_at_checked(A::WIDTH)?;
        let (sources, rest) = Sources::take(rest, u16::from_be_bytes([high, low]))?;
        self.rest = rest.get(usize::from(words) * 4..)?;
        Some(GroupRecord { kind: RecordKind(kind), group: addr(group), sources })
    }
}

impl<'a, A: GroupProtocol> Iterator for GroupRecords<'a, A> {
    type Item = Result<GroupRecord<'a, A>, GroupMessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let record = self.read().ok_or(GroupMessageError::Records);
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

/// The values of a query to be written.
#[derive(Clone, Copy, Debug)]
pub struct QueryFields<'a, A> {
    /// Its form; the first exists for IGMP only.
    pub generation: Generation,
    /// The queried group; unspecified for all.
    pub group: A,
    /// How long the answer may take; rounded down to a value that the form can encode.
    pub max_response: Duration,
    /// The S flag.
    pub suppress: bool,
    /// The robustness variable, of which three bits are written; only of the third generation.
    pub robustness: u8,
    /// The query interval, as `max_response`; only of the third generation.
    pub interval: Duration,
    /// The queried sources; only of the third generation.
    pub sources: &'a [A],
}

impl<'a, A: GroupProtocol> QueryFields<'a, A> {
    /// A general query of the third generation with the RFCs' defaults: ten seconds to answer,
    /// robustness 2, one query every 125 seconds.
    #[must_use]
    pub const fn general() -> Self {
        Self {
            generation: Generation::Third,
            group: A::UNSPECIFIED,
            max_response: Duration::from_secs(10),
            suppress: false,
            robustness: 2,
            interval: Duration::from_secs(125),
            sources: &[],
        }
    }

    /// Writes what is behind the group address in a query of the third generation.
    pub(crate) fn put_tail(&self, writer: &mut FieldWriter<'_>) {
        let flags = u8::from(self.suppress) << 3 | self.robustness.min(7);
        writer.put(&[flags, encode_8(self.interval.as_secs())]);
        writer.put(&(self.sources.len() as u16).to_be_bytes());
        self.sources.iter().for_each(|source| put_addr(*source, writer));
    }
}

/// Writes an address.
pub(crate) fn put_addr<A: GroupProtocol>(addr: A, writer: &mut FieldWriter<'_>) {
    let bytes = addr.to_bits_aligned().to_be_bytes();
    writer.put(bytes.get(..A::WIDTH).unwrap_or_default());
}

/// Writes the checksum into a message of `len` bytes at the front of `out`; it is the third and
/// fourth byte in both families.
pub(crate) fn seal<A: GroupProtocol>(ends: GroupAddrs<A>, len: usize, out: &mut [u8]) {
    let Some(message) = out.get_mut(..len) else { return };
    let check = floodwall_checksum::sum(message).add(A::pseudo(ends, len)).finish().to_be_bytes();
    if let Some(place) = message.get_mut(2..4) {
        place.copy_from_slice(&check);
    }
}

/// Writes a report with records into a buffer, as many as fit.
#[derive(Debug)]
pub struct ReportWriter<'a, A> {
    out: &'a mut [u8],
    len: usize,
    records: u16,
    family: PhantomData<A>,
}

impl<'a, A: GroupProtocol> ReportWriter<'a, A> {
    /// An empty report in `out`.
    ///
    /// # Errors
    /// If `out` cannot hold its header.
    pub fn new(out: &'a mut [u8]) -> Result<Self, BufferTooShort> {
        let short = BufferTooShort { needed: REPORT_HEADER_LEN };
        let header = out.get_mut(..REPORT_HEADER_LEN).ok_or(short)?;
        header.copy_from_slice(&[A::REPORT_KIND, 0, 0, 0, 0, 0, 0, 0]);
        Ok(Self { out, len: REPORT_HEADER_LEN, records: 0, family: PhantomData })
    }

    /// Appends a record; false, and nothing is written, where it does not fit.
    pub fn record(
        &mut self,
        kind: RecordKind,
        group: A,
        sources: impl ExactSizeIterator<Item = A>,
    ) -> bool {
        let Ok(count) = u16::try_from(sources.len()) else { return false };
        let room = self.out.get_mut(self.len..).unwrap_or_default();
        let mut writer = FieldWriter::new(room);
        writer.put(&[kind.0, 0]);
        writer.put(&count.to_be_bytes());
        put_addr(group, &mut writer);
        sources.for_each(|source| put_addr(source, &mut writer));
        let Ok(len) = writer.finish() else { return false };
        let Some(records) = self.records.checked_add(1) else { return false };
        self.len += len;
        self.records = records;
        true
    }

    /// Bytes that are left for records.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.out.len() - self.len
    }

    /// Bytes of a record with so many sources.
    #[must_use]
    pub const fn record_len(sources: usize) -> usize {
        RECORD_HEADER_LEN + A::WIDTH * (1 + sources)
    }

    /// How many records it has.
    #[must_use]
    pub const fn records(&self) -> u16 {
        self.records
    }

    /// Writes the number of records and the checksum; returns the message's length.
    #[must_use]
    pub fn finish(self, ends: GroupAddrs<A>) -> usize {
        if let Some(place) = self.out.get_mut(6..8) {
            place.copy_from_slice(&self.records.to_be_bytes());
        }
        seal(ends, self.len, self.out);
        self.len
    }
}

/// The value of an 8-bit code (RFC 9776 section 4.1.1): from 128 on three bits of exponent and
/// four of mantissa.
pub(crate) const fn decode_8(code: u8) -> u64 {
    match code {
        0..128 => code as u64,
        _ => ((code & 0x0f | 0x10) as u64) << ((code >> 4 & 7) + 3),
    }
}

/// The largest code for a value of `value` at most.
pub(crate) const fn encode_8(value: u64) -> u8 {
    if value < 128 {
        return value as u8;
    }
    // Bit 7 is the lowest leading bit that the floating form has: exponent 0.
    let exponent = 63 - value.leading_zeros() - 7;
    if exponent > 7 {
        return 0xff;
    }
    0x80 | (exponent as u8) << 4 | (value >> (exponent + 3)) as u8 & 0x0f
}

/// The value of a 16-bit code (RFC 9777 section 5.1.3): from 32,768 on three bits of exponent and
/// twelve of mantissa.
pub(crate) const fn decode_16(code: u16) -> u64 {
    match code {
        0..0x8000 => code as u64,
        _ => ((code & 0x0fff | 0x1000) as u64) << ((code >> 12 & 7) + 3),
    }
}

/// The largest code for a value of `value` at most.
pub(crate) const fn encode_16(value: u64) -> u16 {
    if value < 0x8000 {
        return value as u16;
    }
    let exponent = 63 - value.leading_zeros() - 15;
    if exponent > 7 {
        return 0xffff;
    }
    0x8000 | (exponent as u16) << 12 | (value >> (exponent + 3)) as u16 & 0x0fff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_back_as_it_was_and_none_overflows() {
        for code in 0..=u8::MAX {
            assert_eq!(encode_8(decode_8(code)), code);
        }
        for code in 0..=u16::MAX {
            assert_eq!(encode_16(decode_16(code)), code);
        }
        // The RFCs' largest values.
        assert_eq!((decode_8(0xff), decode_16(0xffff)), (31_744, 8_387_584));
        assert_eq!((encode_8(u64::MAX), encode_16(u64::MAX)), (0xff, 0xffff));
        // A value between two codes is rounded down.
        assert_eq!((decode_8(encode_8(135)), decode_8(encode_8(136))), (128, 136));
        assert_eq!(decode_16(encode_16(32_775)), 32_768);
    }
}
