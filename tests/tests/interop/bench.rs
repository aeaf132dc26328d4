//! What a scenario stands on: the cable, the kernel at one end, and us at the other with an echo
//! service.

use floodwall_device::{Device, Fault, FaultConfig};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{Application, InterfaceConfig, StackConfig};

use crate::link::{self, Kind};
use crate::namespace::inside;
use crate::running::{End, Running};

/// Where we send back what we get.
pub(crate) const ECHO_PORT: u16 = 7777;
/// A port without a listener.
pub(crate) const CLOSED_PORT: u16 = 7778;

/// The veth pair or TUN, the kernel at one end, and our host with an echo service at the other.
pub(crate) struct Bench {
    pub(crate) kind: Kind,
    pub(crate) running: Running,
}

/// Runs one scenario in a namespace of its own.
pub(crate) fn over(kind: Kind, scenario: fn(Bench)) {
    inside(move || {
        if let Some(bench) = Bench::set_up(kind, kind.usual_offload(), None) {
            scenario(bench);
        }
    });
}

impl Bench {
    /// `None`, and said so, where this machine cannot.
    pub(crate) fn set_up(kind: Kind, offload: bool, fault: Option<FaultConfig>) -> Option<Self> {
        let echo = UdpService::new(ServiceKind::Echo, ECHO_PORT);
        Self::with(kind, offload, fault, vec![Box::new(echo)])
    }

    /// With an echo service, on a link with packets of at most `mtu` bytes.
    pub(crate) fn with_mtu(kind: Kind, mtu: u32) -> Option<Self> {
        let device = link::open_with(kind, kind.usual_offload(), mtu)?;
        let echo = UdpService::new(ServiceKind::Echo, ECHO_PORT);
        let running = start_with(link::interface(kind, mtu), device, vec![Box::new(echo)]);
        running.wait_for_addresses();
        Some(Self { kind, running })
    }

    /// The same with these applications.
    pub(crate) fn with(
        kind: Kind,
        offload: bool,
        fault: Option<FaultConfig>,
        applications: Vec<Box<dyn Application>>,
    ) -> Option<Self> {
        let mut device = link::open(kind, offload)?;
        if let Some(fault) = fault {
            device = Box::new(Fault::new(device, &fault));
        }
        let bench = Self { kind, running: start(kind, device, applications) };
        bench.running.wait_for_addresses();
        Some(bench)
    }

    /// Stops, and the device must have lost nothing.
    pub(crate) fn end_without_loss(self) -> End {
        let end = self.running.stop();
        let ended = end.outcome.as_ref().expect("it was asked to end");
        for port in &ended.ports {
            assert_eq!((port.stats.rx_lost(), port.stats.tx_lost()), (0, 0), "{port:?}");
        }
        assert_eq!(end.facts.lost(), 0, "{:?}", end.facts);
        end
    }
}

/// A host on such a link.
pub(crate) fn start(
    kind: Kind,
    device: Box<dyn Device>,
    applications: Vec<Box<dyn Application>>,
) -> Running {
    start_with(link::interface(kind, link::MTU), device, applications)
}

/// Checksums are left to the device where it takes them, as `floodwall run` does.
fn start_with(
    interface: InterfaceConfig,
    device: Box<dyn Device>,
    applications: Vec<Box<dyn Application>>,
) -> Running {
    let checksum_offload = device.info().offload;
    let interfaces = vec![InterfaceConfig { checksum_offload, ..interface }];
    let config = StackConfig {
        interfaces,
        udp_sockets_max: 64,
        tcp_connections_max: 4096,
        ..StackConfig::default()
    };
    Running::start(config, device, applications)
}
