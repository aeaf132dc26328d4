//! The names that iproute2 has for numbers: protocols of routes, tables, kinds.

use floodwall_fib::{RouteKind, RouteProtocol, TableId};

use crate::settings::parse::{WrongValue, wrong};

/// `/etc/iproute2/rt_protos`, as it is delivered.
const ROUTE_PROTOCOLS: [(u8, &str); 21] = [
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (8, "gated"),
    (9, "ra"),
    (10, "mrt"),
    (11, "zebra"),
    (12, "bird"),
    (13, "dnrouted"),
    (14, "xorp"),
    (15, "ntk"),
    (16, "dhcp"),
    (18, "keepalived"),
    (42, "babel"),
    (99, "openr"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];

/// The protocol (origin) of a route, by name or number.
pub(crate) fn protocol(text: &str) -> Result<RouteProtocol, WrongValue> {
    let named = ROUTE_PROTOCOLS.iter().find(|(_, name)| *name == text).map(|(number, _)| *number);
    named.or_else(|| text.parse().ok()).map(RouteProtocol::of_number).ok_or_else(|| {
        let remedy = "write a name, as in static, boot or bgp, or a number from 0 to 255";
        wrong(format!("{text:?} is not a protocol"), remedy)
    })
}

/// Its name, or its number where it has none.
pub(crate) fn of_protocol(protocol: RouteProtocol) -> String {
    let number = protocol.number();
    let named = ROUTE_PROTOCOLS.iter().find(|(known, _)| *known == number);
    named.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// A table, by name or number.
pub(crate) fn table(text: &str) -> Result<TableId, WrongValue> {
    match text {
        "main" => Ok(TableId::MAIN),
        "local" => Ok(TableId::LOCAL),
        "default" => Ok(TableId::DEFAULT),
        number => match number.parse() {
            Ok(number) if number != 0 => Ok(TableId(number)),
            _ => {
                let remedy = "write main, local, default, or a number from 1 on";
                Err(wrong(format!("{text:?} is not a table"), remedy))
            }
        },
    }
}

/// The kind of a route, where the word is one.
pub(crate) fn kind(text: &str) -> Option<RouteKind> {
    use RouteKind::{Blackhole, Local, Prohibit, Unicast, Unreachable};
    [Unicast, Local, Blackhole, Unreachable, Prohibit].into_iter().find(|kind| kind.name() == text)
}
