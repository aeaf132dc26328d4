//! `TcpPeer`: a host that listens and connects, and a peer of it that is played by hand.
//!
//! Every segment of the peer is written out, and every one of the host's is read and its checksum
//! verified. Sequence numbers of the peer begin shortly before they wrap.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::Family;
use floodwall_packet::PacketBuf;
use floodwall_stack::{Sockets, StackConfig};
use floodwall_tcp::{ConnectionId, ConnectionTable, Info, ListenerId, TcpSettings, TcpState};
use floodwall_wire::IpProtocol;
use floodwall_wire::tcp::{TcpFields, TcpFlags, TcpHeader};
use floodwall_wire::tcp_options::TcpOptionSet;

use crate::answer::bytes_of;
use crate::craft::{self, HOST, PEER, addr, from_peer};
use crate::rig::{Rig, ethernet_config};

/// A segment that the host sent.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The ports: the host's, and the peer's.
    pub ports: (u16, u16),
    /// The control bits.
    pub flags: TcpFlags,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgment.
    pub ack: u32,
    /// The window as written.
    pub window: u16,
    /// The options.
    pub options: TcpOptionSet,
    /// Bytes of payload.
    pub len: usize,
}

/// A segment that the peer sends; numbers are relative to both first ones.
#[derive(Clone, Debug)]
pub struct Put {
    /// The control bits.
    pub flags: TcpFlags,
    /// From the peer's SYN on.
    pub seq: u32,
    /// From the host's SYN on.
    pub ack: u32,
    /// The window as written.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options.
    pub options: TcpOptionSet,
    /// The payload.
    pub data: Vec<u8>,
}

/// A segment of the peer.
#[must_use]
pub const fn put(flags: TcpFlags, seq: u32, ack: u32) -> Put {
    let options = TcpOptionSet::NONE;
    Put { flags, seq, ack, window: 50_000, urgent: 0, options, data: Vec::new() }
}

impl Put {
    /// With a payload.
    #[must_use]
    pub fn data(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self
    }

    /// With this window.
    #[must_use]
    pub const fn window(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    /// With these options.
    #[must_use]
    pub const fn options(mut self, options: TcpOptionSet) -> Self {
        self.options = options;
        self
    }
}

/// The peer's first sequence number.
pub const IRS: u32 = 0xffff_ff00;

/// A host with TCP, and a peer of it that is played by hand.
pub struct TcpPeer {
    /// The host.
    pub rig: Rig,
    /// The family of both ends.
    pub family: Family,
    /// The host's number on its network, and the peer's.
    pub hosts: (u8, u8),
    /// The host's port, and the peer's.
    pub ports: (u16, u16),
    /// The host's first sequence number of the flow that is played now.
    pub iss: u32,
    /// The listener.
    pub listener: ListenerId,
    /// The host's address, where that is not the one of its number.
    pub towards: Option<IpAddr>,
}

impl TcpPeer {
    /// A host that listens at port 80.
    ///
    /// # Panics
    /// The configuration is wrong.
    #[must_use]
    pub fn new(family: Family, settings: &TcpSettings) -> Self {
        Self::between(family, settings, (HOST, PEER), (80, 40_000))
    }

    /// The same between these hosts and ports.
    ///
    /// # Panics
    /// As [`TcpPeer::new`].
    #[must_use]
    pub fn between(
        family: Family,
        settings: &TcpSettings,
        hosts: (u8, u8),
        ports: (u16, u16),
    ) -> Self {
        Self::on(&ethernet_config(hosts.0), family, settings, (hosts, ports))
    }

    /// The same on a host of this configuration.
    ///
    /// # Panics
    /// As [`TcpPeer::new`].
    #[must_use]
    pub fn on(
        config: &StackConfig,
        family: Family,
        settings: &TcpSettings,
        (hosts, ports): ((u8, u8), (u16, u16)),
    ) -> Self {
        let config = StackConfig { tcp_connections_max: 4096, ..config.clone() };
        let mut rig = Rig::with_neighbor(&config, hosts.1);
        let any = SocketAddr::new(IpAddr::from([0_u16; 8]), ports.0);
        let listen = |s: &mut Sockets<'_>| s.tcp_listen(any, settings, 1024, 1);
        let listener = rig.sockets(listen).0.expect("a listener");
        Self { rig, family, hosts, ports, iss: 0, listener, towards: None }
    }

    fn addrs(&self) -> (IpAddr, IpAddr) {
        let ours = self.towards.unwrap_or_else(|| addr(self.family, self.hosts.0));
        (ours, addr(self.family, self.hosts.1))
    }

    /// The segment's bytes, from its TCP header on.
    ///
    /// # Panics
    /// The options do not fit.
    #[must_use]
    pub fn bytes(&self, put: &Put) -> Vec<u8> {
        let (host, peer) = self.addrs();
        let has_ack = put.flags.contains(TcpFlags::ACK);
        let fields = TcpFields {
            src_port: self.ports.1,
            dst_port: self.ports.0,
            seq: IRS.wrapping_add(put.seq),
            ack: if has_ack { self.iss.wrapping_add(put.ack) } else { 0 },
            flags: put.flags,
            window: put.window,
            urgent: put.urgent,
        };
        let len = 20 + put.options.emitted_len();
        let pseudo = craft::pseudo(peer, host, IpProtocol::TCP, len + put.data.len());
        let mut out = vec![0; 60];
        let sum = floodwall_checksum::sum(&put.data);
        fields.emit(&put.options, pseudo, sum, &mut out).expect("60 bytes hold any header");
        out.truncate(len);
        out.extend_from_slice(&put.data);
        out
    }

    /// Puts the checksum of a segment's bytes right.
    ///
    /// # Panics
    /// They are no header.
    pub fn mend(&self, bytes: &mut [u8]) {
        let (host, peer) = self.addrs();
        bytes[16..18].fill(0);
        let pseudo = craft::pseudo(peer, host, IpProtocol::TCP, bytes.len());
        let sum = pseudo.add(floodwall_checksum::sum(bytes)).finish();
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    }

    /// The peer sends; what the host answers at once.
    pub fn give(&mut self, put: &Put) -> Vec<Segment> {
        let bytes = self.bytes(put);
        self.give_bytes(&bytes)
    }

    /// As [`TcpPeer::give`], of a segment's bytes.
    pub fn give_bytes(&mut self, bytes: &[u8]) -> Vec<Segment> {
        let (host, peer) = self.addrs();
        self.give_packet(&craft::ip(peer, host, IpProtocol::TCP, bytes))
    }

    /// As [`TcpPeer::give`], of a whole IP packet.
    pub fn give_packet(&mut self, packet: &[u8]) -> Vec<Segment> {
        let mut frame = from_peer(packet);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, self.hosts.0]);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, self.hosts.1]);
        let departed = self.rig.frame(&frame);
        self.read(&departed)
    }

    /// The segments among what departed.
    ///
    /// # Panics
    /// A checksum of ours is wrong.
    #[must_use]
    pub fn read(&self, departed: &[PacketBuf]) -> Vec<Segment> {
        let (host, peer) = self.addrs();
        let read = |packet: &PacketBuf| {
            let frame = bytes_of(packet);
            let l4 = match (self.family, frame.get(12..14)?) {
                (Family::V4, [8, 0]) if frame[23] == 6 => 34,
                (Family::V6, [0x86, 0xdd]) if frame[20] == 6 => 54,
                _ => return None,
            };
            let bytes = &frame[l4..];
            let pseudo = craft::pseudo(host, peer, IpProtocol::TCP, bytes.len());
            assert!(pseudo.add(floodwall_checksum::sum(bytes)).verifies(), "our checksum");
            let header = TcpHeader::parse(bytes, bytes.len()).expect("a header");
            Some(Segment {
                ports: (header.src_port(), header.dst_port()),
                flags: header.flags(),
                seq: header.seq(),
                ack: header.ack(),
                window: header.window(),
                options: TcpOptionSet::read(header.options()).expect("options"),
                len: bytes.len() - header.header_len(),
            })
        };
        departed.iter().filter_map(read).collect()
    }

    /// What the host sends within so long a time of silence.
    ///
    /// What departs is given back to the pool in steps, as a device does: else a long wait uses up
    /// the pool, and each connection tries for memory all the time.
    pub fn wait(&mut self, time: Duration) -> Vec<Segment> {
        const STEP: Duration = Duration::from_millis(250);
        let (mut left, mut all) = (time, Vec::new());
        loop {
            let step = left.min(STEP);
            let departed = self.rig.run_for(step);
            all.append(&mut self.read(&departed));
            left -= step;
            if left.is_zero() {
                return all;
            }
        }
    }

    /// Works with the sockets; what leaves beside the result.
    pub fn sockets<R>(&mut self, act: impl FnOnce(&mut Sockets<'_>) -> R) -> (R, Vec<Segment>) {
        let (result, departed) = self.rig.sockets(act);
        let read = self.read(&departed);
        (result, read)
    }

    /// Does something with the host's set.
    ///
    /// # Panics
    /// It has none.
    pub fn set<R>(&mut self, act: impl FnOnce(&mut ConnectionTable) -> R) -> R {
        self.sockets(|s| s.tcp_with(|tcp, _| act(tcp)).expect("TCP")).0
    }

    /// A connection that the peer opens from its port.
    ///
    /// # Panics
    /// The host does not answer as it must.
    pub fn open(&mut self, options: TcpOptionSet) -> ConnectionId {
        let answer = self.give(&put(TcpFlags::SYN, 0, 0).options(options));
        let [answer] = answer.as_slice() else { panic!("one answer, not {answer:?}") };
        assert!(answer.flags.contains(TcpFlags::SYN | TcpFlags::ACK), "{answer:?}");
        self.iss = answer.seq;
        let mut ack = put(TcpFlags::ACK, 1, 1);
        if let (Some(mut ours), Some(theirs)) = (options.timestamps, answer.options.timestamps) {
            ours.echo = theirs.value;
            ack.options.timestamps = Some(ours);
        }
        self.give(&ack);
        let listener = self.listener;
        let accepted = self.sockets(|s| s.tcp_accept(listener)).0;
        accepted.expect("the listener lives").expect("it is open")
    }

    /// The connection as it stands.
    ///
    /// # Panics
    /// It is gone.
    pub fn info(&mut self, id: ConnectionId) -> Info {
        let now = self.rig.now;
        self.set(|tcp| tcp.info(id, now)).expect("it is there")
    }

    /// The state; closed where it is gone.
    pub fn state(&mut self, id: ConnectionId) -> TcpState {
        self.set(|tcp| tcp.state(id)).unwrap_or(TcpState::Closed)
    }

    /// Reads all that waits.
    pub fn received(&mut self, id: ConnectionId) -> Vec<u8> {
        let mut out = vec![0; 1 << 17];
        let mut all = Vec::new();
        loop {
            match self.sockets(|s| s.tcp_recv(id, &mut out)).0 {
                Ok(n) if n > 0 => all.extend_from_slice(&out[..n]),
                Ok(_) | Err(_) => return all,
            }
        }
    }
}
