//! One host and a scripted peer: every segment to the host is written out, every answer is read.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{DropReason, Endpoint, FlowKey, IfIndex, Instant, Seq, Units};
use floodwall_packet::{AccessCounters, PacketList};
use floodwall_wire::tcp::{TcpFields, TcpFlags, TcpHeader};
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use super::cable::{Host, small};
use crate::pseudo_header::pseudo_header;
use crate::{
    ConnectionAddrs, ConnectionId, ConnectionTable, ListenerId, OpenError, RecvError, SegmentInput,
    SegmentVerdict, SendError, TcpConfig, TcpSettings, TcpState,
};

pub(super) const S: TcpFlags = TcpFlags::SYN;
pub(super) const A: TcpFlags = TcpFlags::ACK;
pub(super) const F: TcpFlags = TcpFlags::FIN;
pub(super) const R: TcpFlags = TcpFlags::RST;
/// The peer's initial sequence number.
pub(super) const IRS: u32 = 0xffff_ff00;
pub(super) const PEER_PORT: u16 = 40_000;
pub(super) const PORT: u16 = 80;

/// A segment that our host sent.
#[derive(Clone, Debug)]
pub(super) struct Out {
    pub(super) flags: TcpFlags,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) options: TcpOptionSet,
    pub(super) data: Vec<u8>,
    /// DF is clear in its IP header.
    pub(super) fragmentable: bool,
}

/// The scripted peer.
#[derive(Clone, Debug)]
pub(super) struct Put<'a> {
    pub(super) flags: TcpFlags,
    /// Relative to the peer's SYN.
    pub(super) seq: u32,
    /// Relative to our SYN.
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) urgent: u16,
    pub(super) options: TcpOptionSet,
    pub(super) data: &'a [u8],
}

pub(super) const fn put(flags: TcpFlags, seq: u32, ack: u32) -> Put<'static> {
    let options = TcpOptionSet::NONE;
    Put { flags, seq, ack, window: 50_000, urgent: 0, options, data: &[] }
}

impl<'a> Put<'a> {
    pub(super) fn data(self, data: &'a [u8]) -> Self {
        Self { data, ..self }
    }

    pub(super) fn window(self, window: u16) -> Self {
        Self { window, ..self }
    }

    pub(super) fn time(mut self, value: u32, echo: u32) -> Self {
        self.options.timestamps = Some(Timestamps { value, echo });
        self
    }
}

pub(super) struct Peer {
    pub(super) host: Host,
    pub(super) now: Instant,
    pub(super) v6: bool,
    pub(super) iss: u32,
    pub(super) port: u16,
    pub(super) peer_port: u16,
    /// The IPv6 address of the peer.
    pub(super) peer_v6: IpAddr,
    pub(super) out: Vec<Out>,
    pub(super) dropped: Option<DropReason>,
    /// The MTU of the path, which no segment exceeds.
    pub(super) mtu: u32,
}

impl Peer {
    pub(super) fn new(v6: bool) -> Self {
        Self::with_config(v6, small())
    }

    pub(super) fn with_config(v6: bool, config: TcpConfig) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        let host = Host::new(77, 1, config, now);
        let (port, peer_port) = (PORT, PEER_PORT);
        let (peer_v6, out) = ("fd00::9".parse().unwrap(), vec![]);
        Self { host, now, v6, iss: 0, port, peer_port, peer_v6, out, dropped: None, mtu: 1500 }
    }

    fn addrs(&self) -> (IpAddr, IpAddr) {
        let peer = if self.v6 { self.peer_v6 } else { IpAddr::from([10, 0, 0, 9]) };
        (self.host.addrs[usize::from(self.v6)], peer)
    }

    pub(super) fn flow(&self) -> FlowKey {
        let (ours, theirs) = self.addrs();
        FlowKey {
            local: Endpoint::new(ours, self.port),
            remote: Endpoint::new(theirs, self.peer_port),
            zone: IfIndex::default(),
            protocol: 6,
        }
    }

    pub(super) fn listen(&mut self, settings: &TcpSettings, backlog: usize) -> ListenerId {
        let any = core::net::SocketAddr::new("::".parse().unwrap(), PORT);
        let tcp = &mut self.host.tcp;
        tcp.listen(any, IfIndex::default(), 1500, settings, backlog, 0).unwrap()
    }

    /// A connection that the peer opened, with these options.
    pub(super) fn accepted(
        v6: bool,
        settings: &TcpSettings,
        options: TcpOptionSet,
    ) -> (Self, ConnectionId) {
        let mut peer = Self::new(v6);
        let listener = peer.listen(settings, 4);
        let id = peer.handshake(listener, options);
        (peer, id)
    }

    pub(super) fn handshake(
        &mut self,
        listener: ListenerId,
        options: TcpOptionSet,
    ) -> ConnectionId {
        let answer = self.give(Put { options, ..put(S, 0, 0) }).remove(0);
        assert!(answer.flags.contains(S | A), "{answer:?}");
        self.iss = answer.seq;
        let mut ack = put(A, 1, 1);
        if let (Some(ours), Some(theirs)) = (options.timestamps, answer.options.timestamps) {
            ack = ack.time(ours.value + 1, theirs.value);
        }
        assert!(self.give(ack).is_empty());
        self.host.tcp.accept(listener).unwrap().unwrap()
    }

    /// A connection that our host opened; the peer's SYN-ACK has these options.
    pub(super) fn connected(
        v6: bool,
        settings: &TcpSettings,
        options: TcpOptionSet,
    ) -> (Self, ConnectionId) {
        let mut peer = Self::new(v6);
        let id = peer.connect(settings);
        let answer = peer.give(Put { options, ..put(S | A, 0, 1) });
        assert_eq!(answer[0].flags, A);
        (peer, id)
    }

    /// Our host opens a connection; its SYN stays where it is.
    pub(super) fn try_connect(
        &mut self,
        settings: &TcpSettings,
    ) -> Result<ConnectionId, OpenError> {
        self.try_connect_from(0, settings)
    }

    /// The same from this port.
    pub(super) fn try_connect_from(
        &mut self,
        port: u16,
        settings: &TcpSettings,
    ) -> Result<ConnectionId, OpenError> {
        let (ours, theirs) = self.addrs();
        let ends = ConnectionAddrs {
            local: (ours, port).into(),
            remote: (theirs, PEER_PORT).into(),
            zone: IfIndex::default(),
            mtu: self.mtu,
        };
        let now = self.now;
        let (tcp, mut lend) = self.host.lend(now);
        tcp.connect(&mut lend, &ends, settings, 0)
    }

    /// Our host's SYN.
    pub(super) fn connect(&mut self, settings: &TcpSettings) -> ConnectionId {
        self.connect_saying(settings).0
    }

    /// The same, and the parsed SYN.
    pub(super) fn connect_saying(&mut self, settings: &TcpSettings) -> (ConnectionId, Out) {
        let id = self.try_connect(settings).unwrap();
        self.port = self.host.tcp.ends(id).unwrap().0.port();
        self.flush();
        let syn = self.out.remove(0);
        assert_eq!(syn.flags, S);
        self.iss = syn.seq;
        (id, syn)
    }

    /// The bytes of a segment of the peer.
    pub(super) fn bytes(&self, put: &Put<'_>) -> Vec<u8> {
        let (ours, theirs) = self.addrs();
        let fields = TcpFields {
            src_port: self.peer_port,
            dst_port: self.port,
            seq: IRS.wrapping_add(put.seq),
            ack: if put.flags.contains(A) { self.iss.wrapping_add(put.ack) } else { 0 },
            flags: put.flags,
            window: put.window,
            urgent: put.urgent,
        };
        let flow = FlowKey {
            local: Endpoint::new(theirs, self.peer_port),
            remote: Endpoint::new(ours, self.port),
            ..self.flow()
        };
        let mut bytes = vec![0; 60];
        let len = 20 + put.options.emitted_len();
        let pseudo = pseudo_header(&flow, (len + put.data.len()) as u32).unwrap();
        let sum = floodwall_checksum::sum(put.data);
        fields.emit(&put.options, pseudo, sum, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes.extend_from_slice(put.data);
        bytes
    }

    /// The peer sends a segment; returns the host's immediate answer.
    pub(super) fn give(&mut self, put: Put<'_>) -> Vec<Out> {
        let bytes = self.bytes(&put);
        self.give_bytes(&bytes)
    }

    pub(super) fn give_bytes(&mut self, bytes: &[u8]) -> Vec<Out> {
        let (dst_addr, src_addr) = self.addrs();
        let now = self.now;
        let (tcp, mut lend) = self.host.lend(now);
        let packet = lend.pool.packet_from(bytes).unwrap();
        let input = SegmentInput {
            src_addr,
            dst_addr,
            iface: IfIndex(1),
            l4: 0,
            len: bytes.len(),
            mtu: self.mtu,
            group: false,
            congestion: false,
        };
        let verdict = tcp.input(&mut lend, &input, packet, &mut AccessCounters::default());
        self.dropped = None;
        let packet = match verdict {
            SegmentVerdict::Taken | SegmentVerdict::Replied => None,
            SegmentVerdict::Answered(transmit) => Some(transmit.packet),
            SegmentVerdict::Dropped(reason) => {
                self.dropped = Some(reason);
                None
            }
            SegmentVerdict::Refused(reset, reason) => {
                self.dropped = Some(reason);
                tcp.reset(&mut lend, &reset)
            }
        };
        if let Some(packet) = packet {
            self.note(&packet.chunks().flatten().copied().collect::<Vec<_>>());
        }
        self.flush();
        core::mem::take(&mut self.out)
    }

    fn note(&mut self, bytes: &[u8]) {
        let len = bytes.len() + if self.v6 { 40 } else { 20 };
        assert!(len <= self.mtu as usize, "a segment of {len} bytes would be fragmented");
        let header = TcpHeader::parse(bytes, bytes.len()).unwrap();
        let flow = self.flow();
        let pseudo = pseudo_header(&flow, bytes.len() as u32).unwrap();
        assert!(pseudo.add(floodwall_checksum::sum(bytes)).verifies(), "our checksum is right");
        self.out.push(Out {
            flags: TcpFlags(header.flags().0 & !TcpFlags::PSH.0),
            seq: header.seq(),
            ack: header.ack(),
            window: header.window(),
            options: TcpOptionSet::read(header.options()).unwrap(),
            data: bytes[header.header_len()..].to_vec(),
            fragmentable: false,
        });
    }

    fn flush(&mut self) {
        loop {
            let now = self.now;
            let (tcp, mut lend) = self.host.lend(now);
            if tcp.next_to_send(&mut lend).is_none() {
                break;
            }
            let (mtu, mut rest) = (Some(self.mtu), PacketList::new());
            let Some(out) = tcp.transmit_on(&mut lend, mtu, u32::MAX, &mut rest) else { continue };
            for packet in [out.packet].into_iter().chain(core::iter::from_fn(|| rest.pop_front())) {
                self.note(&packet.chunks().flatten().copied().collect::<Vec<_>>());
                self.out.last_mut().unwrap().fragmentable = out.marks.fragmentable;
            }
        }
    }

    /// The segments that our host sends while the peer is silent for so long.
    pub(super) fn wait(&mut self, time: Duration) -> Vec<Out> {
        let until = self.now + time;
        while let Some(next) = self.host.tcp.deadline().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            let now = self.now;
            let (tcp, mut lend) = self.host.lend(now);
            let mut again = vec![];
            tcp.work(&mut lend, Units(64), &mut |answer| again.push(*answer));
            let mtu = self.mtu;
            let again = again.iter().filter_map(|answer| tcp.syn_ack(&mut lend, answer, mtu));
            for out in again.collect::<Vec<_>>() {
                self.note(&out.packet.chunks().flatten().copied().collect::<Vec<_>>());
            }
            self.flush();
        }
        self.now = until;
        core::mem::take(&mut self.out)
    }

    /// Our application writes; returns the segments sent at once.
    pub(super) fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> Vec<Out> {
        let now = self.now;
        let (tcp, mut lend) = self.host.lend(now);
        assert_eq!(tcp.send(&mut lend, id, bytes), Ok(bytes.len()));
        self.flush();
        core::mem::take(&mut self.out)
    }

    /// The same, where a segment may leave with the call.
    pub(super) fn write_at_once(&mut self, id: ConnectionId, bytes: &[u8]) -> Vec<Out> {
        let now = self.now;
        let (tcp, mut lend) = self.host.lend(now);
        let (sent, out) = tcp.send_now(&mut lend, id, bytes, (false, None));
        assert_eq!(sent, Ok(bytes.len()));
        if let Some(out) = out {
            self.note(&out.packet.chunks().flatten().copied().collect::<Vec<_>>());
        }
        self.flush();
        core::mem::take(&mut self.out)
    }

    /// The same, with `MSG_MORE`.
    pub(super) fn write_more(&mut self, id: ConnectionId, bytes: &[u8]) -> Vec<Out> {
        let now = self.now;
        let (tcp, mut lend) = self.host.lend(now);
        assert_eq!(tcp.send_more(&mut lend, id, bytes), Ok(bytes.len()));
        self.flush();
        core::mem::take(&mut self.out)
    }

    /// Our application writes as much as fits; the segments sent are ignored.
    pub(super) fn try_write(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<usize, SendError> {
        let now = self.now;
        let (tcp, mut lend) = self.host.lend(now);
        let taken = tcp.send(&mut lend, id, bytes);
        self.flush();
        self.out.clear();
        taken
    }

    /// Bytes written and not sent, and whether more may be written.
    pub(super) fn unsent(&self, id: ConnectionId) -> (u32, bool) {
        let unsent = self.host.tcp.named(id).unwrap().snd.unsent();
        (unsent, self.host.tcp.info(id, self.now).unwrap().writable)
    }

    /// The segments sent after an operation on the set.
    pub(super) fn with<R>(
        &mut self,
        act: impl FnOnce(&mut ConnectionTable, Instant) -> R,
    ) -> Vec<Out> {
        act(&mut self.host.tcp, self.now);
        self.flush();
        core::mem::take(&mut self.out)
    }

    /// Our application reads; returns the data, and the segments sent at once.
    pub(super) fn read(
        &mut self,
        id: ConnectionId,
        most: usize,
    ) -> (Result<Vec<u8>, RecvError>, Vec<Out>) {
        let mut buffer = vec![0; most];
        let now = self.now;
        let read = self.host.tcp.recv(id, &mut buffer, now).map(|n| buffer[..n].to_vec());
        self.flush();
        (read, core::mem::take(&mut self.out))
    }

    pub(super) fn shutdown(&mut self, id: ConnectionId) -> Vec<Out> {
        let now = self.now;
        self.host.tcp.shutdown_write(id, now).unwrap();
        self.flush();
        core::mem::take(&mut self.out)
    }

    pub(super) fn close(&mut self, id: ConnectionId) -> Vec<Out> {
        let now = self.now;
        let (tcp, lend) = self.host.lend(now);
        tcp.close(&lend, id).unwrap();
        self.flush();
        core::mem::take(&mut self.out)
    }

    pub(super) fn state(&self, id: ConnectionId) -> TcpState {
        self.host.tcp.state(id).unwrap_or(TcpState::Closed)
    }

    /// A sequence number of the peer's stream.
    pub(super) fn theirs(&self, n: u32) -> u32 {
        IRS.wrapping_add(n)
    }

    /// A sequence number of our stream.
    pub(super) fn ours(&self, n: u32) -> u32 {
        (Seq(self.iss) + n).0
    }

    /// Whether these are exactly one acknowledgment up to `ack` of the peer's stream.
    pub(super) fn is_ack(&self, out: &[Out], ack: u32) -> bool {
        matches!(out, [one] if one.flags == A && one.ack == self.theirs(ack) && one.data.is_empty())
    }
}
