//! Groups: a datagram of the kernel's to a group is received by our member, while it is one, and
//! routers receive its reports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, IfIndex, Instant, Units};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_udp::{SocketId, SocketSettings};

use crate::bench::Bench;
use crate::command::ip;
use crate::link::{Kind, NAME, ends};
use crate::namespace::{inside, until};

/// Groups of the whole link without other members here.
const GROUPS: [&str; 2] = ["239.7.7.7", "ff12::7:7:7"];
/// Where our receivers listen: a port for each group.
const fn port(group: IpAddr) -> u16 {
    if group.is_ipv4() { 7779 } else { 7780 }
}

/// Datagrams to each group.
const DATAGRAMS: u8 = 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// Joins a group, reports what it receives there, and leaves after the last datagram.
struct Member {
    group: IpAddr,
    socket: Option<SocketId>,
    tell: SyncSender<(IpAddr, Vec<u8>)>,
}

impl Application for Member {
    fn name(&self) -> &str {
        "member"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let (any, family): (IpAddr, _) = match self.group {
            IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Family::V4),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Family::V6),
        };
        let any = SocketAddr::new(any, port(self.group));
        let socket = sockets.udp_bind(any, SocketSettings::new(family))?;
        sockets.udp_join(socket, self.group, IfIndex(1)).expect("there is room for a group");
        self.socket = Some(socket);
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let Some(socket) = self.socket else { return Units(0) };
        let mut room = [0; 64];
        while let Ok(received) = sockets.udp_recv(socket, &mut room) {
            let bytes = room[..received.len].to_vec();
            if bytes == [DATAGRAMS - 1] {
                sockets.udp_leave(socket, self.group, IfIndex(1)).expect("it is a member");
            }
            self.tell.try_send((self.group, bytes)).unwrap();
        }
        Units(1)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// A socket of the kernel's that sends to a group of our link.
fn sender(group: IpAddr) -> (UdpSocket, SocketAddr) {
    let [v4, v6] = ends().map(|ends| ends.kernel);
    let from = if group.is_ipv4() { v4 } else { v6 };
    (UdpSocket::bind((from, 0)).unwrap(), SocketAddr::new(group, port(group)))
}

fn members(kind: Kind) {
    inside(move || {
        let (tell, told) = mpsc::sync_channel(256);
        let groups = GROUPS.map(|group| group.parse::<IpAddr>().unwrap());
        let member = |group| -> Box<dyn Application> {
            Box::new(Member { group, socket: None, tell: tell.clone() })
        };
        let applications = groups.into_iter().map(member).collect();
        let Some(bench) = Bench::with(kind, kind.usual_offload(), None, applications) else {
            return;
        };
        assert!(ip(&format!("-4 route add multicast 224.0.0.0/4 dev {NAME}")));
        for group in groups {
            let (socket, to) = sender(group);
            for number in 0..DATAGRAMS {
                socket.send_to(&[number], to).unwrap();
                let heard =
                    told.recv_timeout(PATIENCE).expect("a member receives its group's datagram");
                assert_eq!(heard, (group, vec![number]));
            }
            // It has left.
            let unheard = || bench.running.stats().drops_in.of(DropReason::IpGroupNotJoined);
            let before = unheard();
            socket.send_to(&[DATAGRAMS], to).unwrap();
            assert!(until(PATIENCE, || unheard() > before), "{group} is left");
            assert!(told.try_recv().is_err());
        }
        // Two reports of each group to multicast routers, and one when we left it.
        let counters = bench.running.stats().counters;
        for told in [Counter::FloodwallIgmpOutReports, Counter::Icmp6OutMLDv2Reports] {
            assert!(counters.of(told) >= 2, "{told:?}: {}", counters.of(told));
        }
        bench.end_without_loss();
    });
}

#[test]
fn a_member_hears_its_group_over_tap_until_it_leaves() {
    members(Kind::Tap);
}

#[test]
fn a_member_hears_its_group_over_a_packet_socket_until_it_leaves() {
    members(Kind::Packet);
}
