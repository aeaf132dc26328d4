//! IGMP, versions 1 to 3: group membership for IPv4.
//!
//! Called by `ip`, `stack`, `show` and the tests; what it has in common with MLD is in `group.rs`.
//! Invariant: see there. A query's version follows from its length and its second byte (RFC 9776
//! section 7.1). Read first: RFC 9776 section 4, RFC 2236 section 2, RFC 1112 appendix I.

use core::net::Ipv4Addr;
use core::time::Duration;

use floodwall_checksum::InternetSum;

use crate::field::{BufferTooShort, FieldWriter};
use crate::group::{
    Generation, GroupAddrs, GroupMessage, GroupMessageError, GroupProtocol, GroupQuery,
    GroupRecords, QueryFields, Sources, decode_8, encode_8, put_addr, seal,
};

/// The least bytes of a message.
pub const HEADER_LEN: usize = 8;
/// How long a host may take to answer a query of the first version (RFC 9776 section 7.2.1).
const MAX_RESPONSE_V1: Duration = Duration::from_secs(10);
/// A unit of the maximum response code, in milliseconds.
const TENTH_MILLIS: u64 = 100;

/// The type of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IgmpType(pub u8);

impl IgmpType {
    /// Membership query, all versions.
    pub const QUERY: Self = Self(0x11);
    /// Membership report, version 1.
    pub const REPORT_V1: Self = Self(0x12);
    /// Membership report, version 2.
    pub const REPORT_V2: Self = Self(0x16);
    /// Leave group, version 2.
    pub const LEAVE_V2: Self = Self(0x17);
    /// Membership report, version 3.
    pub const REPORT_V3: Self = Self(0x22);
}

impl GroupProtocol for Ipv4Addr {
    const ALL_SYSTEMS: Self = Self::new(224, 0, 0, 1);
    const ALL_ROUTERS: Self = Self::new(224, 0, 0, 2);
    const ALL_REPORT_ROUTERS: Self = Self::new(224, 0, 0, 22);
    const WIDTH: usize = 4;
    const QUERY_HEADER_LEN: usize = 12;
    const REPORT_KIND: u8 = IgmpType::REPORT_V3.0;

    fn parse(bytes: &[u8]) -> Result<GroupMessage<'_, Self>, GroupMessageError> {
        let (header, rest) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(GroupMessageError::Truncated)?;
        let &[kind, code, _, _, group @ ..] = header;
        let group = Self::from_octets(group);
        Ok(match IgmpType(kind) {
            IgmpType::QUERY => GroupMessage::Query(query(code, group, rest)?),
            IgmpType::REPORT_V1 => GroupMessage::Report { generation: Generation::First, group },
            IgmpType::REPORT_V2 => GroupMessage::Report { generation: Generation::Second, group },
            IgmpType::LEAVE_V2 => GroupMessage::Leave { group },
            IgmpType::REPORT_V3 => GroupMessage::Records(GroupRecords::of_report(bytes)?),
            _ => GroupMessage::Unknown(kind),
        })
    }

    fn pseudo(_: GroupAddrs<Self>, _: usize) -> InternetSum {
        InternetSum::ZERO
    }

    fn emit_query(
        query: &QueryFields<'_, Self>,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let tenths = query.max_response.as_millis() as u64 / TENTH_MILLIS;
        let code = match query.generation {
            Generation::First => 0,
            // Zero would be the first version.
            Generation::Second => tenths.clamp(1, 255) as u8,
            Generation::Third => encode_8(tenths),
        };
        let mut writer = FieldWriter::new(out);
        writer.put(&[IgmpType::QUERY.0, code, 0, 0]);
        put_addr(query.group, &mut writer);
        if query.generation == Generation::Third {
            query.put_tail(&mut writer);
        }
        let len = writer.finish()?;
        seal(ends, len, out);
        Ok(len)
    }

    fn emit_report(
        generation: Generation,
        group: Self,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let kind = match generation {
            Generation::First => IgmpType::REPORT_V1,
            _ => IgmpType::REPORT_V2,
        };
        one_group(kind, group, ends, out)
    }

    fn emit_leave(
        group: Self,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        one_group(IgmpType::LEAVE_V2, group, ends, out)
    }
}

fn query(
    code: u8,
    group: Ipv4Addr,
    rest: &[u8],
) -> Result<GroupQuery<'_, Ipv4Addr>, GroupMessageError> {
    let old = |generation, max_response| GroupQuery {
        generation,
        group,
        max_response,
        suppress: false,
        robustness: 0,
        interval: Duration::ZERO,
        sources: Sources::NONE,
    };
    match *rest {
        [] if code == 0 => Ok(old(Generation::First, MAX_RESPONSE_V1)),
        [] => Ok(old(Generation::Second, Duration::from_millis(u64::from(code) * TENTH_MILLIS))),
        [flags, interval, high, low, ref rest @ ..] => {
            let count = u16::from_be_bytes([high, low]);
            let (sources, _) = Sources::take(rest, count).ok_or(GroupMessageError::Sources)?;
            Ok(GroupQuery {
                generation: Generation::Third,
                max_response: Duration::from_millis(decode_8(code) * TENTH_MILLIS),
                suppress: flags & 8 != 0,
                robustness: flags & 7,
                interval: Duration::from_secs(decode_8(interval)),
                sources,
                group,
            })
        }
        // "Query messages that do not match any of the above conditions (e.g., a Query of length
        // 10 octets) MUST be silently ignored."
        _ => Err(GroupMessageError::Truncated),
    }
}

fn one_group(
    kind: IgmpType,
    group: Ipv4Addr,
    ends: GroupAddrs<Ipv4Addr>,
    out: &mut [u8],
) -> Result<usize, BufferTooShort> {
    let mut writer = FieldWriter::new(out);
    writer.put(&[kind.0, 0, 0, 0]);
    put_addr(group, &mut writer);
    let len = writer.finish()?;
    seal(ends, len, out);
    Ok(len)
}
