//! What connections of programs cost a call of timed work, in simulation, both families.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::Units;
use floodwall_packet::Engine;
use floodwall_stack::StackConfig;
use floodwall_stack::remote::{Remote, RemoteConfig, TcpHandle};
use floodwall_tcp::TcpSettings;
use floodwall_tests::Rig;

const LOCALS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
const CONNECTIONS: usize = 8;
const BUDGET: u32 = 16;
/// Writes of a few bytes each to every connection.
const WRITES: usize = 160;

/// The units of one call of timed work, after a program has written so often to each connection.
fn spent(local: IpAddr, writes: usize) -> u32 {
    let config = StackConfig { tcp_connections_max: 64, ..StackConfig::default() };
    let mut rig = Rig::new(&config);
    let settings = RemoteConfig { connections_max: 64, lanes: 1, ..RemoteConfig::default() };
    let (remote, mut shards) = Remote::new(&settings).unwrap();
    rig.stack.serve(shards.remove(0));
    let turn = |rig: &mut Rig| {
        rig.run_for(Duration::from_millis(1));
        rig.stack.departed();
    };
    let at = SocketAddr::new(local, 0);
    let listener = remote.listen_tcp(at, TcpSettings::default(), CONNECTIONS);
    turn(&mut rig);
    let listener = listener.wait(Duration::ZERO).unwrap();
    let clients: Vec<TcpHandle> = (0..CONNECTIONS)
        .map(|_| {
            let asked = remote.connect_tcp(None, listener.local_addr(), TcpSettings::default());
            turn(&mut rig);
            asked.wait(Duration::ZERO).unwrap()
        })
        .collect();
    (0..20).for_each(|_| turn(&mut rig));
    for client in &clients {
        client.opened_blocking(Duration::ZERO).unwrap();
        for _ in 0..writes {
            assert_eq!(client.try_write(&[IoSlice::new(b"small")]).unwrap(), 5);
        }
    }
    let (units, _) = rig.round(Vec::new(), |stack, round| {
        round.budget = Units(BUDGET);
        stack.work(round)
    });
    units.0
}

/// A connection with many small chunks costs more than one with a single one: a call ends with the
/// one that uses up its units.
#[test]
fn connections_with_many_small_chunks_use_up_a_call_sooner() {
    for local in LOCALS {
        let few = spent(local, 1);
        assert!((CONNECTIONS as u32..BUDGET).contains(&few), "{local}: {few} units for all");
        let many = spent(local, WRITES);
        let all = (CONNECTIONS * (1 + WRITES / 16)) as u32;
        assert!((BUDGET..all / 2).contains(&many), "{local}: {many} of {all} units");
    }
}
