//! Membership messages, IGMP's and MLD's, as part of a line.
//!
//! Called by `upper.rs` only. Invariant: begins with a space; as many records are shown as there
//! are bytes for.

use core::fmt::{self, Formatter};

use crate::group::{Generation, GroupMessage, GroupProtocol, GroupQuery, GroupRecords, Sources};

pub(super) fn message<A: GroupProtocol>(
    bytes: &[u8],
    len: usize,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    // MLD counts from the second generation on.
    let version = |generation| generation as u8 + if A::WIDTH == 4 { 1 } else { 0 };
    match A::parse(bytes) {
        Ok(GroupMessage::Query(found)) => query(&found, version(found.generation), f),
        Ok(GroupMessage::Report { generation, group }) => {
            write!(f, " report v{} {group}", version(generation))
        }
        Ok(GroupMessage::Leave { group }) => write!(f, " leave {group}"),
        Ok(GroupMessage::Records(found)) => {
            write!(f, " report v{}", version(Generation::Third))?;
            records(found, f)
        }
        Ok(GroupMessage::Unknown(kind)) => write!(f, " type {kind:#04x} len {len}"),
        Err(error) => write!(f, " [{error}]"),
    }
}

fn query<A: GroupProtocol>(
    query: &GroupQuery<'_, A>,
    version: u8,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    write!(f, " query v{version}")?;
    if query.group != A::UNSPECIFIED {
        write!(f, " {}", query.group)?;
    }
    write!(f, " within {:?}", query.max_response)?;
    sources(query.sources, f)
}

fn records<A: GroupProtocol>(records: GroupRecords<'_, A>, f: &mut Formatter<'_>) -> fmt::Result {
    for record in records {
        match record {
            Ok(record) => {
                match record.kind.name() {
                    Some(name) => write!(f, " {name} {}", record.group)?,
                    None => write!(f, " kind {} {}", record.kind.0, record.group)?,
                }
                sources(record.sources, f)?;
            }
            Err(error) => write!(f, " [{error}]")?,
        }
    }
    Ok(())
}

fn sources<A: GroupProtocol>(sources: Sources<'_, A>, f: &mut Formatter<'_>) -> fmt::Result {
    if sources.is_empty() {
        return Ok(());
    }
    f.write_str(" from")?;
    sources.iter().try_for_each(|source| write!(f, " {source}"))
}
