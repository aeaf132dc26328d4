//! MLD, versions 1 and 2: group membership for IPv6, inside of ICMPv6.
//!
//! Called by `ip`, `stack`, `show` and the tests; what it has in common with IGMP is in `group.rs`.
//! Invariant: see there. A query's version follows from its length (RFC 9777 section 8.1). Read
//! first: RFC 9777 section 5, RFC 2710 section 3. Not here: the checksum of what arrived, which is
//! ICMPv6's (`icmpv6.rs`).

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_checksum::{InternetSum, pseudo_header_v6};

use crate::field::{BufferTooShort, FieldWriter};
use crate::group::{
    Generation, GroupAddrs, GroupMessage, GroupMessageError, GroupProtocol, GroupQuery,
    GroupRecords, QueryFields, Sources, addr, decode_8, decode_16, encode_16, put_addr, seal,
};
use crate::{Icmpv6Type, IpProtocol};

/// Bytes of a message of the first version.
pub const HEADER_LEN: usize = 24;

impl GroupProtocol for Ipv6Addr {
    const ALL_SYSTEMS: Self = Self::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    const ALL_ROUTERS: Self = Self::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    const ALL_REPORT_ROUTERS: Self = Self::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
    const WIDTH: usize = 16;
    const QUERY_HEADER_LEN: usize = 28;
    const REPORT_KIND: u8 = Icmpv6Type::LISTENER_REPORT_V2.0;

    fn parse(bytes: &[u8]) -> Result<GroupMessage<'_, Self>, GroupMessageError> {
        let &kind = bytes.first().ok_or(GroupMessageError::Truncated)?;
        let one = || {
            let group = bytes.get(8..HEADER_LEN).ok_or(GroupMessageError::Truncated)?;
            Ok(addr::<Self>(group))
        };
        Ok(match Icmpv6Type(kind) {
            Icmpv6Type::LISTENER_QUERY => GroupMessage::Query(query(one()?, bytes)?),
            Icmpv6Type::LISTENER_REPORT_V1 => {
                GroupMessage::Report { generation: Generation::Second, group: one()? }
            }
            Icmpv6Type::LISTENER_DONE_V1 => GroupMessage::Leave { group: one()? },
            Icmpv6Type::LISTENER_REPORT_V2 => {
                GroupMessage::Records(GroupRecords::of_report(bytes)?)
            }
            _ => GroupMessage::Unknown(kind),
        })
    }

    fn pseudo(ends: GroupAddrs<Self>, len: usize) -> InternetSum {
        let (kind, len) = (IpProtocol::ICMPV6.0, u32::try_from(len).unwrap_or(u32::MAX));
        pseudo_header_v6(ends.src_addr, ends.dst_addr, kind, len)
    }

    fn emit_query(
        query: &QueryFields<'_, Self>,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let millis = query.max_response.as_millis() as u64;
        let code = match query.generation {
            Generation::Third => encode_16(millis),
            _ => millis.min(0xffff) as u16,
        };
        let mut writer = FieldWriter::new(out);
        writer.put(&[Icmpv6Type::LISTENER_QUERY.0, 0, 0, 0]);
        writer.put(&code.to_be_bytes());
        writer.put(&[0, 0]);
        put_addr(query.group, &mut writer);
        if query.generation == Generation::Third {
            query.put_tail(&mut writer);
        }
        let len = writer.finish()?;
        seal(ends, len, out);
        Ok(len)
    }

    fn emit_report(
        _: Generation,
        group: Self,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        one_group(Icmpv6Type::LISTENER_REPORT_V1, group, ends, out)
    }

    fn emit_leave(
        group: Self,
        ends: GroupAddrs<Self>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        one_group(Icmpv6Type::LISTENER_DONE_V1, group, ends, out)
    }
}

fn query(group: Ipv6Addr, bytes: &[u8]) -> Result<GroupQuery<'_, Ipv6Addr>, GroupMessageError> {
    let code = match bytes {
        [_, _, _, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => return Err(GroupMessageError::Truncated),
    };
    match *bytes.get(HEADER_LEN..).unwrap_or_default() {
        [] => Ok(GroupQuery {
            generation: Generation::Second,
            group,
            max_response: Duration::from_millis(u64::from(code)),
            suppress: false,
            robustness: 0,
            interval: Duration::ZERO,
            sources: Sources::NONE,
        }),
        [flags, interval, high, low, ref rest @ ..] => {
            let count = u16::from_be_bytes([high, low]);
            let (sources, _) = Sources::take(rest, count).ok_or(GroupMessageError::Sources)?;
            Ok(GroupQuery {
                generation: Generation::Third,
                max_response: Duration::from_millis(decode_16(code)),
                suppress: flags & 8 != 0,
                robustness: flags & 7,
                interval: Duration::from_secs(decode_8(interval)),
                sources,
                group,
            })
        }
        // "Query messages that do not match any of the above conditions (e.g., a Query of length
        // 26 octets) MUST be silently ignored."
        _ => Err(GroupMessageError::Truncated),
    }
}

fn one_group(
    kind: Icmpv6Type,
    group: Ipv6Addr,
    ends: GroupAddrs<Ipv6Addr>,
    out: &mut [u8],
) -> Result<usize, BufferTooShort> {
    let mut writer = FieldWriter::new(out);
    writer.put(&[kind.0, 0, 0, 0, 0, 0, 0, 0]);
    put_addr(group, &mut writer);
    let len = writer.finish()?;
    seal(ends, len, out);
    Ok(len)
}
