//! Handshakes through the whole stack: honest clients during a flood, and each mistake that other
//! stacks made with half-open connections.
//!
//! A "row" in the words of a test is the number of the mistake in the project's list of seventy
//! (rows 1 to 11 and the adversarial list of mechanism S3; row 12 is the SYN proxy's, which is not
//! built). Floods are counted, not timed: `drill` and `lab syn-flood` measure. What the SYN cache
//! does for itself is in its own crate's tests: the map of all rows is in `docs/threats.md`.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod adversarial;
mod floods;
mod interface;
mod order;
mod rows;
mod triage;

use floodwall_base::Family;
use floodwall_packet::PacketBuf;
use floodwall_stack::StackConfig;
use floodwall_stack::tcp_set::{ConnectionId, ListenerId, TcpSettings};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER};
use floodwall_tests::tcp::{Heard, SYN_ACK, TcpClient};
use floodwall_tests::{Rig, ethernet_config};

/// Where the service listens.
const PORT: u16 = 80;
/// Where another one does.
const OTHER_PORT: u16 = 81;

/// An honest client's first bytes.
const HELLO: &[u8] = b"HELO client";
/// A server's first bytes.
const GREETING: &[u8] = b"220 ready";

/// A host with TCP; its peer is also the router to all others.
fn config() -> StackConfig {
    let mut config = ethernet_config(HOST);
    config.interfaces[0].gateways = FAMILIES.map(|family| craft::addr(family, PEER)).to_vec();
    StackConfig { tcp_connections_max: 512, ..config }
}

fn rig() -> Rig {
    Rig::with_neighbor(&config(), PEER)
}

/// Listens for both families.
fn listen(rig: &mut Rig, port: u16, backlog: usize) -> ListenerId {
    let any = format!("[::]:{port}").parse().unwrap();
    let settings = TcpSettings { ecn: true, ..TcpSettings::default() };
    rig.sockets(|s| {
        let owner = s.tcp_owner().unwrap();
        s.tcp_listen(any, &settings, backlog, owner).unwrap()
    })
    .0
}

fn server(backlog: usize) -> (Rig, ListenerId) {
    let mut rig = rig();
    let listener = listen(&mut rig, PORT, backlog);
    (rig, listener)
}

/// The SYN-ACK for a client among these packets; that there is one and no more is asserted.
fn answer(client: &TcpClient, departed: &[PacketBuf]) -> Heard {
    let heard = client.hears(departed);
    let [answer] = &heard[..] else { panic!("{} answers: {heard:?}", heard.len()) };
    assert_eq!((answer.flags.0 & 0x3f, answer.ack), (SYN_ACK.0, client.isn.wrapping_add(1)));
    answer.clone()
}

fn accept(rig: &mut Rig, listener: ListenerId) -> Option<ConnectionId> {
    rig.sockets(|s| s.tcp_accept(listener).unwrap()).0
}

fn read(rig: &mut Rig, id: ConnectionId) -> Vec<u8> {
    let mut out = [0; 4096];
    let n = rig.sockets(|s| s.tcp_recv(id, &mut out)).0.unwrap_or(0);
    out[..n].to_vec()
}

/// The side that sends first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    Client,
    Server,
}

/// A whole conversation: the handshake, and the first words. Whether it came off at once: each
/// segment's answer is in the same round.
fn converses(rig: &mut Rig, listener: ListenerId, client: &TcpClient, first: First) -> bool {
    let departed = rig.frame(&client.syn());
    let answer = answer(client, &departed);
    let text = if first == First::Client { HELLO } else { &[] };
    rig.frame(&client.ack(&answer, text));
    let Some(id) = accept(rig, listener) else { return false };
    let came_off = match first {
        First::Client => read(rig, id) == HELLO,
        First::Server => {
            let (sent, departed) = rig.sockets(|s| s.tcp_send(id, GREETING));
            sent.is_ok() && client.hears(&departed).iter().any(|heard| heard.text == GREETING)
        }
    };
    rig.sockets(|s| s.tcp_abort(id).unwrap());
    came_off
}

/// Half-open connections now.
fn half_open(rig: &Rig) -> u64 {
    rig.stack.half_open_stats().unwrap().half_open
}

/// The `n`th client at the service.
fn client(n: u32, family: Family) -> TcpClient {
    TcpClient::nth(n, family, PORT)
}
