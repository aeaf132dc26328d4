//! The demux against a list that is searched from end to end.

use floodwall_base::Randomness;
use proptest::prelude::*;

use super::key_table::KeyTable;
use super::*;

/// Sockets in the order in which they began to listen to what they listen to.
#[derive(Default)]
struct Oracle(Vec<(u32, SocketKey, KeyHold)>);

impl Oracle {
    fn lookup(&self, probe: &DemuxProbe) -> Option<u32> {
        let rank = |kind| match kind {
            KeyKind::Connected => 3,
            KeyKind::Bound => 2,
            _ => 1,
        };
        let on_port = |local_port| {
            let probe = DemuxProbe { local_port, ..*probe };
            let hits = self.0.iter().filter(move |(_, key, _)| wants(key, &probe));
            hits.max_by_key(|(_, key, _)| rank(key.kind)).map(|hit| hit.0)
        };
        on_port(probe.local_port).or_else(|| on_port(EVERY_PORT))
    }

    fn group(&self, probe: &DemuxProbe) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.0.iter().filter(|(_, key, _)| wants(key, probe)).map(|hit| hit.0).collect();
        all.sort_unstable();
        all
    }

    fn refuses(&self, new: &KeyHold) -> bool {
        self.0.iter().any(|(_, _, old)| {
            let same = (old.local, old.zone) == (new.local, new.zone);
            old.port == new.port
                && old.families & new.families != 0
                && (same || old.local == 0 || new.local == 0)
                && !(old.reuse && new.reuse)
        })
    }

    fn leave(&mut self, index: u32) -> Option<(u32, SocketKey, KeyHold)> {
        let at = self.0.iter().position(|entry| entry.0 == index)?;
        Some(self.0.remove(at))
    }
}

fn wants(key: &SocketKey, probe: &DemuxProbe) -> bool {
    key.local_port == probe.local_port && key.accepts(probe)
}

const ADDRS: [&str; 8] = [
    "10.0.0.1",
    "10.0.0.2",
    "169.254.0.1",
    "224.0.0.1",
    "fd00::1",
    "fe80::1",
    "fe80::2",
    "ff02::1",
];

fn any_addr() -> impl Strategy<Value = u128> {
    prop::sample::select(ADDRS.map(|text| bits(text.parse().unwrap())).to_vec())
}

#[derive(Clone, Debug)]
enum Op {
    Bind { local: u128, zone: u32, port: u16, reuse: bool },
    BindWildcard { families: u8, port: u16, reuse: bool },
    Connect { socket: prop::sample::Index, local: u128, remote: u128, port: u16, iface: u32 },
    Disconnect(prop::sample::Index),
    Close(prop::sample::Index),
    Probe { local: u128, remote: u128, ports: (u16, u16), iface: u32 },
}

fn any_op() -> impl Strategy<Value = Op> {
    let socket = any::<prop::sample::Index>;
    let bind = (any_addr(), 1..3_u32, 0..3_u16, prop::bool::weighted(0.8))
        .prop_map(|(local, zone, port, reuse)| Op::Bind { local, zone, port, reuse });
    let wildcard = (1..4_u8, 0..3_u16, prop::bool::weighted(0.8))
        .prop_map(|(families, port, reuse)| Op::BindWildcard { families, port, reuse });
    let connect = (socket(), any_addr(), any_addr(), 0..2_u16, 1..3_u32).prop_map(
        |(socket, local, remote, port, iface)| Op::Connect { socket, local, remote, port, iface },
    );
    let probe = (any_addr(), any_addr(), (0..3_u16, 0..2_u16), 1..3_u32)
        .prop_map(|(local, remote, ports, iface)| Op::Probe { local, remote, ports, iface });
    prop_oneof![
        4 => bind,
        3 => wildcard,
        4 => connect,
        2 => socket().prop_map(Op::Disconnect),
        3 => socket().prop_map(Op::Close),
        6 => probe,
    ]
}

/// Both under test, and the places that are free.
struct Pair {
    demux: SocketDemux,
    oracle: Oracle,
    free: Vec<u32>,
}

impl Pair {
    fn new(sockets: u32) -> Self {
        let mut random = Randomness::from_number(5);
        let mut demux = SocketDemux::new(sockets as usize, &mut random.secret);
        (0..sockets).for_each(|_| demux.grow());
        Self { demux, oracle: Oracle::default(), free: (0..sockets).collect() }
    }

    fn bind(&mut self, hold: KeyHold) {
        let refused = self.oracle.refuses(&hold);
        assert_eq!(self.demux.refuses(&hold), refused, "{hold:?}");
        if refused {
            return;
        }
        if let Some(index) = self.free.pop() {
            self.demux.enter(index, SocketKey::bound(&hold), hold).unwrap();
            self.oracle.0.push((index, SocketKey::bound(&hold), hold));
        }
    }

    fn rekey(&mut self, at: usize, key: impl FnOnce(&KeyHold) -> SocketKey) {
        let (index, _, hold) = self.oracle.0[at];
        let key = key(&hold);
        self.demux.rekey(index, key).unwrap();
        self.oracle.leave(index);
        self.oracle.0.push((index, key, hold));
    }

    fn apply(&mut self, op: Op) {
        let len = self.oracle.0.len();
        match op {
            Op::Bind { local, zone, port, reuse } => {
                let zone = if is_link_scope(local) { zone } else { 0 };
                let families = if key::is_v4(local) { V4 } else { V6 };
                self.bind(KeyHold { local, zone, port, families, reuse, spread: false });
            }
            Op::BindWildcard { families, port, reuse } => {
                self.bind(KeyHold { local: 0, zone: 0, port, families, reuse, spread: false });
            }
            Op::Connect { socket, local, remote, port, iface } if len > 0 => {
                self.rekey(socket.index(len), |hold| {
                    let local = if hold.is_wildcard() { local } else { hold.local };
                    SocketKey::connected(local, hold.port, remote, port, iface)
                });
            }
            Op::Disconnect(socket) if len > 0 => self.rekey(socket.index(len), SocketKey::bound),
            Op::Close(socket) if len > 0 => {
                let index = self.oracle.0[socket.index(len)].0;
                self.demux.leave(index);
                self.oracle.leave(index);
                self.free.push(index);
            }
            Op::Probe { local, remote, ports, iface } => {
                let (local_port, remote_port) = ports;
                self.probe(&DemuxProbe { local, remote, iface, local_port, remote_port });
            }
            _ => (),
        }
    }

    fn probe(&self, probe: &DemuxProbe) {
        assert_eq!(self.demux.lookup(probe), self.oracle.lookup(probe), "{probe:?}");
        let mut found = [0; 64];
        let count = self.demux.lookup_group(probe, &mut found);
        found[..count].sort_unstable();
        assert_eq!(&found[..count], self.oracle.group(probe), "{probe:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_demux_answers_as_a_searched_list_does(ops in prop::collection::vec(any_op(), 1..120)) {
        let mut pair = Pair::new(32);
        for op in ops {
            pair.apply(op);
        }
        for (index, _, _) in std::mem::take(&mut pair.oracle.0) {
            pair.demux.leave(index);
        }
        prop_assert_eq!(pair.demux.entries(), [(0, 0); 2]);
        prop_assert!(pair.demux.ports.iter().all(|port| *port == 0));
    }
}

#[test]
fn a_full_table_finds_every_entry_and_forgets_every_one() {
    let mut table = KeyTable::new(60_000);
    let mut random = Randomness::from_number(1).public;
    let hashes: Vec<u32> = (0..60_000).map(|_| random.next_u64() as u32).collect();
    for (socket, hash) in hashes.iter().enumerate() {
        table.insert(*hash, socket as u32).unwrap();
    }
    let mut looks = 0;
    for (socket, hash) in hashes.iter().enumerate() {
        let found = table.find(*hash, |candidate| {
            looks += 1;
            candidate as usize == socket
        });
        assert_eq!(found, Some(socket as u32));
    }
    assert!(looks < 60_000 * 101 / 100, "{looks} keys looked at for 60000 hits");
    for (socket, hash) in hashes.iter().enumerate().rev() {
        table.remove(*hash, socket as u32);
    }
    assert_eq!(table.entries(), (0, 0));
}

#[test]
fn colliding_hashes_end_in_an_error_and_not_in_a_long_probe() {
    let mut table = KeyTable::new(4096);
    let fit = (0..4096).take_while(|socket| table.insert(7, *socket).is_ok()).count();
    assert_eq!(fit, 16 * 8);
    assert_eq!(table.find(7, |_| false), None);
    assert_eq!(table.find(7, |socket| socket == 127), Some(127));
    for socket in 0..fit as u32 {
        table.remove(7, socket);
    }
    assert_eq!(table.entries(), (0, 0));
}

#[test]
fn a_refused_entry_leaves_the_port_as_it_was() {
    let mut pair = Pair::new(200);
    let local = bits("10.0.0.1".parse().unwrap());
    let hold = KeyHold { local: 0, zone: 0, port: 9, families: V4, reuse: true, spread: false };
    pair.bind(hold);
    pair.bind(hold);
    // Fill the probe path of one key with others that hash alike.
    let key = SocketKey::connected(local, 9, local, 1, 1);
    let hash = pair.demux.hash.key(&key);
    while pair.demux.flows.insert(hash, 199).is_ok() {}
    let before = pair.demux.key(1);
    assert_eq!(pair.demux.rekey(198, key), Err(TableFull));
    let probe = DemuxProbe { local, remote: local, iface: 1, local_port: 9, remote_port: 1 };
    assert_eq!(pair.demux.lookup(&probe), pair.oracle.lookup(&probe));
    assert_eq!(pair.demux.key(1), before);
}

#[test]
fn keys_hash_apart_in_every_field() {
    let hash = TupleHash::new(&mut Randomness::from_number(3).secret);
    for (local, remote, other) in
        [("10.0.0.1", "10.0.0.2", "10.0.0.3"), ("fe80::1", "fe80::2", "fd00::3")]
    {
        let [local, remote, other] = [local, remote, other].map(|a| bits(a.parse().unwrap()));
        let mut seen: Vec<u32> = [
            SocketKey::connected(local, 1, remote, 2, 1),
            SocketKey::connected(other, 1, remote, 2, 1),
            SocketKey::connected(local, 1, other, 2, 1),
            SocketKey::connected(local, 2, remote, 2, 1),
            SocketKey::connected(local, 1, remote, 1, 1),
            SocketKey { zone: 9, ..SocketKey::connected(local, 1, remote, 2, 1) },
        ]
        .map(|key| hash.key(&key))
        .to_vec();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }
}

#[test]
fn a_burst_finds_what_one_look_up_after_another_finds() {
    let mut random = Randomness::from_number(11);
    let mut demux = SocketDemux::new(4096, &mut random.secret);
    let mut pick = random.public.clone();
    let address = |n: u64, v6: bool| {
        let n = (n % 5) as u128;
        if v6 { (0xfe80 << 112) + ((n % 2) << 100) + n } else { (0xffff << 32) + 0x0a00_0000 + n }
    };
    for index in 0..1500 {
        demux.grow();
        let v6 = pick.below(2) == 1;
        let (local, remote) = (address(pick.next_u64(), v6), address(pick.next_u64(), v6));
        // Few ports, so that most are shared by every kind of socket.
        let port = 1 + pick.below(12) as u16;
        let local = if pick.below(8) == 0 { 0 } else { local };
        let zone = if local != 0 && is_link_scope(local) { 1 + pick.below(2) as u32 } else { 0 };
        let families = if v6 { V6 } else { V4 };
        let hold = KeyHold { local, zone, port, families, reuse: true, spread: false };
        let key = if pick.below(3) > 0 && local != 0 {
            SocketKey::connected(
                local,
                port,
                remote,
                pick.below(40) as u16,
                1 + pick.below(2) as u32,
            )
        } else {
            SocketKey::bound(&hold)
        };
        let _ = demux.enter(index, key, hold);
    }
    let mut hits = 0;
    for _ in 0..2000 {
        let probes: Vec<DemuxProbe> = (0..pick.below(65))
            .map(|_| {
                let v6 = pick.below(2) == 1;
                DemuxProbe {
                    local: address(pick.next_u64(), v6),
                    remote: address(pick.next_u64(), v6),
                    iface: 1 + pick.below(2) as u32,
                    local_port: pick.below(14) as u16,
                    remote_port: pick.below(40) as u16,
                }
            })
            .collect();
        for probe in &probes {
            let (expected, seek) =
                (demux.lookup(probe).unwrap_or(NONE), demux.seek(probe.local_port, || *probe));
            assert!(demux.may_find(seek) || expected == NONE, "{probe:?}");
            match demux.sight(seek) {
                BurstSight::Unmatched => assert_eq!(expected, NONE, "{probe:?}"),
                BurstSight::Perhaps(socket) => {
                    assert!(expected == socket || expected == NONE, "{probe:?}");
                }
                BurstSight::Unclear => {}
            }
            assert_eq!(demux.settle(probe, seek), expected, "{probe:?}");
            assert!(demux.is_heard(probe.local_port) || expected == NONE);
            hits += u32::from(expected != NONE);
        }
    }
    assert!(hits > 10_000 && demux.connected() > 100);
    (0..1500).for_each(|index| demux.leave(index));
    assert_eq!(demux.connected(), 0);
}
