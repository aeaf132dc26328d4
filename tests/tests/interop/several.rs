//! One host of two workers on a TAP device with two queues, and the kernel as its peer.
//!
//! The kernel spreads flows over the queues by a hash of its own, so that half of all frames arrive
//! at another worker than their owner's.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use floodwall_base::{IfIndex, Randomness};
use floodwall_device::{Tun, TunConfig, TunKind};
use floodwall_dispatch::{
    Port, Setting, Shown, Stop, WorkerCounter, WorkerGroup, WorkerGroupConfig, WorkerSlot,
};
use floodwall_packet::PoolConfig;
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{Host, Stack, StackConfig, accounts_needed, seats};

use crate::bench::ECHO_PORT;
use crate::command::ip;
use crate::echo::{PATIENCE, bind, there_and_back};
use crate::link::{self, Ends, Kind, MTU, ends};
use crate::namespace::{inside, skip, until};
use crate::ping::ping_all;

const WORKERS: usize = 2;
/// Sockets of the kernel, each a flow.
const FLOWS: usize = 60;

#[test]
fn two_workers_on_two_queues_answer_the_kernel() {
    inside(|| {
        let queues = WORKERS;
        let tap =
            TunConfig { kind: TunKind::Tap, queues, vnet_header: true, up: true, mtu: Some(MTU) };
        let opened = match Tun::open(link::NAME, &tap) {
            Ok(opened) => opened,
            Err(error) => return skip(&format!("no device with two queues: {error}")),
        };
        assert!(ip(&format!("addr add 10.77.0.1/24 dev {}", link::NAME)));
        assert!(link::give_v6("fd77::1/64", link::NAME));
        let slot =
            |queue| WorkerSlot { core: None, ports: vec![Port::new(IfIndex(1), Box::new(queue))] };
        let group = WorkerGroupConfig::new(opened.into_iter().map(slot).collect()).unwrap();
        let interfaces = vec![link::interface(Kind::Tap, MTU)];
        let config = StackConfig { interfaces, udp_sockets_max: 64, ..StackConfig::default() };
        let accounts = accounts_needed(&config);
        let group = WorkerGroupConfig {
            memory: PoolConfig { accounts, supers: 32, ..group.memory },
            ..group
        };
        let mut random = Randomness::from_number(1);
        let seated = seats(&config, &group.domain, group.steering, &mut random.secret);
        let seated = Mutex::new(seated.into_iter().map(Some).collect::<Vec<_>>());
        let make = move |setting: &mut Setting<'_>| {
            let at = usize::from(setting.worker.0);
            let seat = seated.lock().unwrap()[at].take().ok_or("a shard is made once")?;
            let Setting { pool, random, now, .. } = setting;
            let stack = Stack::seated(&config, seat, random, *now).map_err(|e| e.to_string())?;
            let echo = Box::new(UdpService::new(ServiceKind::Echo, ECHO_PORT));
            let host = Host::with_stack(stack, vec![echo], pool, random, *now);
            host.map(Shown::silent).map_err(|e| e.to_string())
        };
        let stop = Stop::new().unwrap();
        let group = WorkerGroup::start(group, &stop, make).unwrap();
        let ready = || {
            let all = |desk: &mut floodwall_dispatch::ControlQueue<'_, Shown<Host>>| {
                let mut addresses =
                    desk.engine.engine.stack().interfaces().iter().flat_map(|i| i.addresses());
                addresses.all(|a| a.state.is_assigned())
            };
            group.control().ask(PATIENCE, all).unwrap()
        };
        assert!(until(PATIENCE, ready), "our addresses may be used");
        for Ends { ours, kernel } in ends() {
            flows(ours, kernel);
            let _ = ping_all(&ours.to_string(), 20, "-i 0.002");
        }
        stop.trigger();
        let ended = group.join().unwrap();
        assert!(ended.is_conserved(), "{ended:?}");
        let rounds = |at: usize| ended.workers[at].facts.of(WorkerCounter::RxPackets);
        assert!(rounds(0) > 0 && rounds(1) > 0, "both queues are used: {ended:?}");
        assert!(ended.sum(WorkerCounter::HandedOver) > 0);
    });
}

fn flows(ours: IpAddr, kernel: IpAddr) {
    for _ in 0..FLOWS {
        let socket = bind(kernel);
        for len in [0, 100, 1400] {
            there_and_back(&socket, SocketAddr::new(ours, ECHO_PORT), len);
        }
    }
}
