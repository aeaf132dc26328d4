//! A host's events as events of `tracing`, for programs that collect logs that way.
//!
//! Called by the thread of `watcher.rs`, a few times a second at most; never on the packet path.
//! Target `floodwall`; values are fields, and texts of others are escaped. Levels: `WARN` for what
//! an operator should look at, `INFO` for what has changed.

use floodwall_dispatch::{FloodBegan, FloodEnded, FloodEvent};
use tracing::dispatcher::{self, Dispatch};
use tracing::subscriber::NoSubscriber;
use tracing::{info, warn};

use super::event::{HostLease, NetworkEvent};

/// The subscriber that gets the events.
pub(super) struct EventLog(Dispatch);

impl EventLog {
    /// The one that is in force for the calling thread; `None` where there is none.
    pub(super) fn of_caller() -> Option<Self> {
        let dispatch = dispatcher::get_default(Dispatch::clone);
        (!dispatch.is::<NoSubscriber>()).then_some(Self(dispatch))
    }

    pub(super) fn write(&self, event: &NetworkEvent) {
        dispatcher::with_default(&self.0, || write(event));
    }
}

fn write(event: &NetworkEvent) {
    match event {
        NetworkEvent::Flood(event) => write_flood(event),
        NetworkEvent::Evicted { connections } => warn!(
            target: "floodwall",
            event = "evictions",
            connections,
            "TCP connections reset to make room"
        ),
        NetworkEvent::LinkDown { interface } => {
            warn!(target: "floodwall", event = "link_down", ?interface, "the link is down");
        }
        NetworkEvent::LinkUp { interface } => {
            info!(target: "floodwall", event = "link_up", ?interface, "the link is up again");
        }
        NetworkEvent::Mtu { interface, mtu } => {
            info!(target: "floodwall", event = "mtu", ?interface, mtu, "another MTU of the link");
        }
        NetworkEvent::AddressAdded { interface, address, learnt } => info!(
            target: "floodwall",
            event = "address_added",
            ?interface,
            %address,
            learnt,
            "a new address may be used"
        ),
        NetworkEvent::AddressLost { interface, address } => info!(
            target: "floodwall",
            event = "address_lost",
            ?interface,
            %address,
            "an address may not be used any more"
        ),
        NetworkEvent::Leased(HostLease { interface, address, server, left_out }) => info!(
            target: "floodwall",
            event = "leased",
            ?interface,
            %address,
            ?server,
            ?left_out,
            "a lease was granted"
        ),
        NetworkEvent::LeaseLost { interface, address } => warn!(
            target: "floodwall",
            event = "lease_lost",
            ?interface,
            %address,
            "a lease has ended"
        ),
        NetworkEvent::Configuration => info!(
            target: "floodwall",
            event = "configuration",
            "routers, routes or name servers have changed"
        ),
    }
}

fn write_flood(event: &FloodEvent) {
    match event {
        FloodEvent::Began(FloodBegan { kind, rate, .. }) => warn!(
            target: "floodwall",
            event = "flood_began",
            kind = kind.name(),
            rate,
            "flood begins: {}",
            kind.sentence()
        ),
        FloodEvent::Ended(FloodEnded { kind, length, peak, refused, honest_share, .. }) => info!(
            target: "floodwall",
            event = "flood_ended",
            kind = kind.name(),
            seconds = length.as_secs_f64(),
            peak_rate = peak,
            refused,
            honest_share,
            "flood ended"
        ),
        _ => {}
    }
}
