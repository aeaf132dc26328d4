//! A running instance's neighbours: the requests about them, and the answers.
//!
//! Requests are written by `cmd/neigh.rs`, carried on the control socket (`socket/request.rs`) and
//! carried out at the worker's desk. Keys and words are those of `ip -j neigh`.

use std::fmt;
use std::net::IpAddr;

use floodwall_base::{Address, IfIndex, Instant, MacAddr};
use floodwall_ip::NeighborState;
use floodwall_ip::neighbor::Neighbor;
use floodwall_stack::{LinkMedium, Stack};
use serde_json::{Value, json};

/// How a neighbour is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeighbourPut {
    /// It must not be there.
    Add,
    /// It may be there.
    Replace,
    /// It must be there.
    Change,
}

impl NeighbourPut {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Add, "add"), (Self::Replace, "replace"), (Self::Change, "change")];

    /// The verb's meaning.
    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == word).map(|(put, _)| *put)
    }
}

/// A request about neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NeighborRequest {
    /// All of them.
    Show,
    /// A neighbour that is kept for ever.
    Keep { put: NeighbourPut, dev: String, addr: IpAddr, mac: MacAddr },
    /// One less.
    Delete { dev: String, addr: IpAddr },
    /// All of an interface less; `all`: permanent ones, too.
    Flush { dev: String, all: bool },
}

impl fmt::Display for NeighborRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Show => f.write_str("show"),
            Self::Keep { put, dev, addr, mac } => {
                let verb = NeighbourPut::ALL
                    .iter()
                    .find(|(one, _)| one == put)
                    .map_or("", |(_, name)| name);
                write!(f, "{verb} {dev} {addr} {mac}")
            }
            Self::Delete { dev, addr } => write!(f, "del {dev} {addr}"),
            Self::Flush { dev, all: false } => write!(f, "flush {dev}"),
            Self::Flush { dev, all: true } => write!(f, "flush {dev} all"),
        }
    }
}

impl NeighborRequest {
    /// Reads the words behind `neigh`.
    pub(crate) fn read(words: &[&str]) -> Option<Self> {
        Some(match *words {
            ["show"] => Self::Show,
            ["del", dev, addr] => Self::Delete { dev: dev.to_owned(), addr: addr.parse().ok()? },
            ["flush", dev] => Self::Flush { dev: dev.to_owned(), all: false },
            ["flush", dev, "all"] => Self::Flush { dev: dev.to_owned(), all: true },
            [verb, dev, addr, mac] => Self::Keep {
                put: NeighbourPut::of(verb)?,
                dev: dev.to_owned(),
                addr: addr.parse().ok()?,
                mac: mac.parse().ok()?,
            },
            _ => return None,
        })
    }
}

/// Carries out a request. The refusal is one sentence with its remedy.
pub(crate) fn carry_out(
    request: NeighborRequest,
    stack: &mut Stack,
    now: Instant,
) -> Result<Value, String> {
    let done = json!({ "done": true });
    let known = |stack: &Stack, iface: IfIndex, addr: IpAddr| match addr {
        IpAddr::V4(addr) => stack.neighbors_v4().neighbor(iface, addr).is_some(),
        IpAddr::V6(addr) => stack.neighbors_v6().neighbor(iface, addr).is_some(),
    };
    match request {
        NeighborRequest::Show => {
            let v4 = stack.neighbors_v4().iter().map(|neighbor| shown(stack, neighbor));
            let v6 = stack.neighbors_v6().iter().map(|neighbor| shown(stack, neighbor));
            Ok(Value::Array(v4.chain(v6).collect()))
        }
        NeighborRequest::Keep { put, dev, addr, mac } => {
            let iface = on_ethernet(stack, &dev)?;
            if is_ours(stack, addr) {
                return Err(format!("{addr} is an address of this host, and no neighbour"));
            }
            match (put, known(stack, iface, addr)) {
                (NeighbourPut::Add, true) => {
                    Err(format!("{addr} is known on {dev} already; use replace"))
                }
                (NeighbourPut::Change, false) => {
                    Err(format!("{addr} is not known on {dev}; use add"))
                }
                _ => {
                    let kept = stack.add_neighbor(iface, addr, mac, now);
                    kept.map(|()| done).map_err(|error| format!("{dev}: {error}"))
                }
            }
        }
        NeighborRequest::Delete { dev, addr } => {
            let iface = interface_named(stack, &dev)?;
            match stack.remove_neighbor(iface, addr) {
                true => Ok(done),
                false => Err(format!(
                    "{addr} is not known on {dev}; `floodwall neigh show` names what there is"
                )),
            }
        }
        NeighborRequest::Flush { dev, all } => {
            let iface = interface_named(stack, &dev)?;
            match all {
                true => stack.flush_neighbors(iface),
                false => stack.flush_learnt_neighbors(iface),
            }
            Ok(done)
        }
    }
}

fn on_ethernet(stack: &Stack, dev: &str) -> Result<IfIndex, String> {
    let iface = interface_named(stack, dev)?;
    let link = stack.interfaces().get(usize::from(iface.0));
    match link.map(|link| link.medium) {
        Some(LinkMedium::Ethernet(_)) => Ok(iface),
        _ => Err(format!("{dev} has no link addresses, so it has no neighbour entries")),
    }
}

fn is_ours(stack: &Stack, addr: IpAddr) -> bool {
    stack.interfaces().iter().any(|link| link.address(addr).is_some())
}

fn shown<A: Address>(stack: &Stack, neighbor: Neighbor<A>) -> Value {
    let dev = stack.interfaces().get(usize::from(neighbor.iface.0));
    let mut all = serde_json::Map::new();
    all.insert("dst".to_owned(), json!(neighbor.addr.to_ip()));
    all.insert("dev".to_owned(), json!(dev.map_or("", |dev| dev.name.as_str())));
    if let Some(mac) = neighbor.link_addr {
        all.insert("lladdr".to_owned(), json!(mac.to_string()));
    }
    if neighbor.is_router {
        // iproute2 has a key without a value here.
        all.insert("router".to_owned(), Value::Null);
    }
    all.insert("state".to_owned(), json!([state(neighbor.state)]));
    Value::Object(all)
}

/// iproute2 has no state for a neighbour that is probed while packets still go to its old address.
const fn state(state: NeighborState) -> &'static str {
    match state {
        NeighborState::Unreachable => "PROBE",
        other => other.name(),
    }
}

/// The index of the interface with that name.
///
/// # Errors
/// There is none: in words, with those that there are.
pub(crate) fn interface_named(stack: &Stack, dev: &str) -> Result<IfIndex, String> {
    stack.interface_named(dev).ok_or_else(|| {
        let all: Vec<_> = stack.interfaces().iter().map(|i| i.name.as_str()).collect();
        format!("there is no interface {dev:?}; there are {}", all.join(", "))
    })
}
