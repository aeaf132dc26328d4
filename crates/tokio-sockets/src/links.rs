//! The state and the MTU of a host's links, followed while it runs.
//!
//! Started by `network.rs` where a device was opened by its name: a thread that looks at the
//! system's interfaces four times a second, off the packet path, and tells the control shard what
//! has changed. Invariants: an interface is looked for in the network namespace in which the device
//! was opened; a link counts as up until it was seen up for the first time, so that a program may
//! start before its interface is configured; a configured MTU is the most that is followed, and an
//! XDP interface's first one; an interface that is gone keeps its last one. The thread
//! ends with the network. Devices that a program attaches itself have no name that the system
//! knows: their MTU is told by [`Network::set_mtu`].

use std::thread;
use std::time::Duration;

use floodwall_base::{IfIndex, Randomness};
use floodwall_device::LinkState;
use floodwall_dispatch::{Control, ControlQueue, Shown, Stop, WorkerCommand};
use floodwall_stack::Stack;

use crate::builder::is_mtu;
use crate::error::NetworkError;
use crate::host::{HostChangeError, interface_of};
use crate::network::Network;

/// How often the links are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// A link that is looked at.
#[derive(Debug)]
pub(crate) struct WatchedLink {
    iface: IfIndex,
    state: LinkState,
    /// Whether it is up, as the stack knows it; `None` until it was seen up.
    up: Option<bool>,
    /// The MTU that the stack has.
    mtu: u32,
    /// The most that it may have.
    mtu_max: u32,
}

impl WatchedLink {
    /// A look at the interface `name`, with which the stack begins at `mtu`, in the calling
    /// thread's network namespace; `None` where no descriptor is left.
    pub(crate) fn new(iface: IfIndex, name: &str, mtu: u32, most: Option<u32>) -> Option<Self> {
        let state = LinkState::new(name).ok()?;
        Some(Self { iface, state, up: None, mtu, mtu_max: most.unwrap_or(u32::MAX) })
    }

    /// Tells the control shard what has changed. What it has no room for is tried at the next look.
    fn look(&mut self, control: &Control<Shown<Stack>>) {
        self.look_at_carrier(control);
        let (iface, now) = (self.iface, self.state.mtu().map(|mtu| mtu.min(self.mtu_max)));
        let Some(mtu) = now.filter(|mtu| *mtu != self.mtu) else { return };
        let command = WorkerCommand::new(move |desk: &mut ControlQueue<'_, Shown<Stack>>| {
            desk.engine.engine.set_link_mtu(iface, mtu);
        });
        if control.post(command).is_ok() {
            self.mtu = mtu;
        }
    }
}

impl WatchedLink {
    fn look_at_carrier(&mut self, control: &Control<Shown<Stack>>) {
        let (iface, up) = (self.iface, self.state.carries());
        let Some(known) = self.up else {
            self.up = up.then_some(true);
            return;
        };
        if up == known {
            return;
        }
        let command = WorkerCommand::new(move |desk: &mut ControlQueue<'_, Shown<Stack>>| {
            // For delays, which need not be unpredictable.
            let mut random = Randomness::from_number(desk.now.as_nanos());
            desk.engine.engine.set_carrier(iface, up, desk.now, &mut random);
        });
        if control.post(command).is_ok() {
            self.up = Some(up);
        }
    }
}

/// Looks at the links until the network ends, in a thread of its own.
///
/// # Errors
/// The thread cannot be started.
#[expect(clippy::disallowed_methods, reason = "a thread that has nothing else to do")]
pub(crate) fn watch(
    mut links: Vec<WatchedLink>,
    control: Control<Shown<Stack>>,
    stop: Stop,
) -> Result<(), NetworkError> {
    if links.is_empty() {
        return Ok(());
    }
    let looks = move || {
        while !stop.is_triggered() {
            links.iter_mut().for_each(|link| link.look(&control));
            thread::sleep(LOOK_INTERVAL);
        }
    };
    let system = |source| NetworkError::System { action: "start a thread", source };
    thread::Builder::new().name("floodwall-links".to_owned()).spawn(looks).map_err(system)?;
    Ok(())
}

impl Network {
    /// Tells the host that the link of an interface carries IP packets of `mtu` bytes at most from
    /// now on: for a device that the program attached itself. What was opened by name is followed
    /// without it.
    ///
    /// # Errors
    /// `Interface` where there is none of this name; `Network` for a size that no link has, and
    /// where the network has ended.
    pub async fn set_mtu(&self, interface: &str, mtu: u32) -> Result<(), HostChangeError> {
        if !is_mtu(&mtu) {
            return Err(NetworkError::Mtu(mtu).into());
        }
        let name = interface.to_owned();
        self.ask_control(move |desk| {
            let stack = &mut desk.engine.engine;
            let iface = interface_of(stack, Some(&name))?;
            stack.set_link_mtu(iface, mtu);
            Ok(())
        })
        .await?
    }
}
