//! `FilterTables`: which destinations the stack accepts, in a form that the XDP program can read.
//!
//! Made by `filter.rs`. Each worker reports through its queue what its shard accepts
//! ([`RxFilter`]). The program uses the union over all workers. Addresses are keys of a kernel hash
//! table, so a change costs system calls. Ports are counted in shared memory, one byte a port: the
//! number of queues that accept it. Invariant: additions are visible before removals, so that in
//! between the program lets through too much and never too little.
//!
//! # Under flood
//! No peer can make it grow. Bound: `ADDRESSES_MAX` addresses of each family, with their broadcast
//! addresses, over all workers' shards. Beyond that bound every address is accepted. The lock is
//! taken where addresses change, never on the packet path.

use core::net::{IpAddr, Ipv6Addr};
use core::sync::atomic::Ordering::Relaxed;
use std::io;
use std::sync::atomic::AtomicU64;

use floodwall_base::limits::{ACCESS_RULES_MAX, ADDRESSES_MAX};
use floodwall_base::{IpCidr, PortSet};
use floodwall_packet::RxFilter;
use floodwall_sync::lock::Mutex;

use super::bpf::BpfMapData;
use super::destination_maps::DestinationMaps;
use super::mapped_words::MappedWords;

/// Addresses that the table holds: of two families, with their broadcast addresses, twice, because
/// additions come before removals.
const ADDRESS_ENTRIES: u32 = 8 * ADDRESSES_MAX as u32;
/// Port counts in one 64-bit word, and bits of each.
const PORT_LANES: usize = 8;
const LANE_BITS: usize = 8;
/// 64-bit words of one protocol's ports.
pub(super) const PORT_WORDS: usize = (1 << 16) / PORT_LANES;
/// Queues of which a lane can count so many.
const QUEUES_MAX: u32 = (1 << LANE_BITS) - 1;

/// What is accepted regardless of address or port, by index of its word on the board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AnyAddress {
    V4 = 0,
    V6 = 1,
    Udp = 2,
    Tcp = 3,
}

const ANY: usize = 4;
/// The board's word that states whether anything is denied, and the number of words.
pub(super) const DENIES_WORD: usize = ANY;
const BOARD_WORDS: usize = ANY + 1;

/// The value stored with an address: every port, or only those counted.
pub(super) const EVERY_PORT: u64 = 0;
pub(super) const BY_PORT: u64 = 1;

/// A prefix as the kernel's tables have them: how many bits count, and an address.
const KEY_BYTES: usize = 20;
type Key = [u8; KEY_BYTES];

/// An address, and whether only some of its ports are accepted.
type Claim = (Ipv6Addr, bool);

/// The accepted destinations of all queues, shared with the XDP program.
#[derive(Debug)]
pub(crate) struct FilterTables {
    /// How many queues want everything of a kind.
    board: MappedWords,
    /// How many queues want each port: UDP's, then TCP's.
    ports: MappedWords,
    addresses: BpfMapData<16>,
    /// Prefixes from which nothing is wanted.
    denied: BpfMapData<KEY_BYTES>,
    /// What each queue has claimed, and what the table holds.
    ledger: Mutex<FilterLedger>,
    queues: u32,
}

#[derive(Debug, Default)]
struct FilterLedger {
    claimed: Vec<Vec<Claim>>,
    shown: Vec<Claim>,
    /// The same of what is denied: what all queues deny that there are.
    denied: Vec<Option<Vec<Key>>>,
    shown_denied: Vec<Key>,
}

/// The last report of one queue.
#[derive(Debug)]
pub(crate) struct FilterUpdate {
    any: [bool; ANY],
    ports: [PortSet; 2],
}

impl FilterTables {
    /// Nothing is known of any queue, of which there are so many.
    pub(crate) fn create(queues: u32) -> io::Result<Self> {
        let claimed = (0..queues).map(|_| Vec::with_capacity(ADDRESS_ENTRIES as usize)).collect();
        Ok(Self {
            board: MappedWords::create(BOARD_WORDS, 1)?,
            ports: MappedWords::create(1, 2 * PORT_WORDS as u32)?,
            addresses: BpfMapData::create(ADDRESS_ENTRIES)?,
            denied: BpfMapData::create_of_prefixes(ACCESS_RULES_MAX as u32)?,
            ledger: Mutex::new(FilterLedger {
                claimed,
                shown: Vec::with_capacity(ADDRESS_ENTRIES as usize),
                denied: (0..queues).map(|_| None).collect(),
                shown_denied: Vec::with_capacity(ACCESS_RULES_MAX),
            }),
            queues,
        })
    }

    /// The maps that the program reads.
    pub(super) fn maps(&self) -> DestinationMaps {
        let (board, ports) = (self.board.fd(), self.ports.fd());
        DestinationMaps { board, ports, addresses: self.addresses.fd(), denied: self.denied.fd() }
    }

    /// A queue that has not reported yet. It accepts everything or, where the host has the same
    /// link address, no address.
    pub(crate) fn join(&self, queue: u32, shares: bool) -> FilterUpdate {
        if let Ok(mut ledger) = self.ledger.lock()
            && let Some(denied) = ledger.denied.get_mut(queue as usize)
        {
            *denied = Some(Vec::with_capacity(ACCESS_RULES_MAX));
        }
        let mut told = FilterUpdate { any: [false; ANY], ports: Default::default() };
        for any in [AnyAddress::V4, AnyAddress::V6, AnyAddress::Udp, AnyAddress::Tcp] {
            let is_address = matches!(any, AnyAddress::V4 | AnyAddress::V6);
            self.set_any(&mut told, any, !(shares && is_address));
        }
        told
    }

    fn set_any(&self, told: &mut FilterUpdate, any: AnyAddress, wanted: bool) {
        let words = (told.any.get_mut(any as usize), self.board.all().get(any as usize));
        let (Some(told), Some(count)) = words else { return };
        if core::mem::replace(told, wanted) != wanted {
            count.fetch_add(if wanted { 1 } else { u64::MAX }, Relaxed);
        }
    }

    /// Sets what `queue` accepts. `shares` is whether the host has the same link address.
    pub(crate) fn tell(
        &self,
        queue: u32,
        told: &mut FilterUpdate,
        wanted: &RxFilter,
        shares: bool,
    ) {
        let countable = self.queues <= QUEUES_MAX;
        // Where the host has the same link address, replies to an address that is not configured
        // yet arrive through a packet socket: the host may wait for them as well.
        let any = [
            (AnyAddress::V4, wanted.any_v4 || wanted.asks_v4 && !shares),
            (AnyAddress::V6, wanted.any_v6),
            (AnyAddress::Udp, wanted.any_udp || !countable),
            (AnyAddress::Tcp, wanted.any_tcp || !countable),
        ];
        any.into_iter().filter(|(_, on)| *on).for_each(|(any, _)| self.set_any(told, any, true));
        if countable {
            for (number, set) in [&wanted.udp, &wanted.tcp].into_iter().enumerate() {
                self.count_ports(number, told, set);
            }
        }
        let claimed = self.claim(queue, wanted);
        // What could not be shown comes to the stack, which denies it.
        let _ = self.deny(queue, wanted.denied());
        for (any, on) in any {
            let is_address = matches!(any, AnyAddress::V4 | AnyAddress::V6);
            self.set_any(told, any, on || is_address && claimed.is_err());
        }
    }

    /// Counts the ports that were added or removed since the queue's last report.
    fn count_ports(&self, number: usize, told: &mut FilterUpdate, wanted: &PortSet) {
        let Some(told) = told.ports.get_mut(number) else { return };
        for at in 0..wanted.words().len() {
            let word = |set: &PortSet| set.words().get(at).copied().unwrap_or(0);
            let mut changed = word(wanted) ^ word(told);
            while changed != 0 {
                let port = (at * u64::BITS as usize) as u16 | changed.trailing_zeros() as u16;
                changed &= changed - 1;
                let has = wanted.has(port);
                told.set(port, has);
                if let Some((count, lane)) = self.count_of(number, port) {
                    count.fetch_add(if has { lane } else { lane.wrapping_neg() }, Relaxed);
                }
            }
        }
    }

    /// The word in which a port is counted, and the value that adds one to that count.
    fn count_of(&self, number: usize, port: u16) -> Option<(&AtomicU64, u64)> {
        let port = usize::from(port);
        let word = self.ports.all().get(number * PORT_WORDS + port / PORT_LANES)?;
        Some((word, 1 << (port % PORT_LANES * LANE_BITS)))
    }

    /// Shows the prefixes that all queues deny.
    fn deny(&self, queue: u32, wanted: &[IpCidr]) -> io::Result<()> {
        let Ok(mut ledger) = self.ledger.lock() else { return Err(io::ErrorKind::Other.into()) };
        let FilterLedger { denied, shown_denied, .. } = &mut *ledger;
        let Some(Some(own)) = denied.get_mut(queue as usize) else { return Ok(()) };
        own.clear();
        own.extend(wanted.iter().map(|prefix| key_of(*prefix)));
        let by_all = |key: &Key| denied.iter().flatten().all(|queue| queue.contains(key));
        for key in shown_denied.extract_if(.., |key| !by_all(key)) {
            self.denied.remove(&key)?;
        }
        for key in wanted.iter().map(|prefix| key_of(*prefix)) {
            if by_all(&key) && !shown_denied.contains(&key) {
                self.denied.set(&key, 0)?;
                shown_denied.push(key);
            }
        }
        if let Some(denies) = self.board.all().get(DENIES_WORD) {
            denies.store(u64::from(!shown_denied.is_empty()), Relaxed);
        }
        Ok(())
    }

    /// Shows the addresses that any queue claims.
    fn claim(&self, queue: u32, wanted: &RxFilter) -> io::Result<()> {
        // No code panics while it holds this lock.
        let Ok(mut ledger) = self.ledger.lock() else { return Err(io::ErrorKind::Other.into()) };
        let FilterLedger { claimed, shown, .. } = &mut *ledger;
        let Some(own) = claimed.get_mut(queue as usize) else { return Ok(()) };
        if own.iter().copied().eq(wanted.addresses()) {
            return Ok(());
        }
        own.clear();
        own.extend(wanted.addresses());
        // Where the shards do not agree yet, every port is accepted.
        let by_port = |addr| !claimed.iter().flatten().any(|claim| *claim == (addr, false));
        for (addr, _) in claimed.iter().flatten() {
            let claim = (*addr, by_port(*addr));
            if !shown.contains(&claim) {
                self.addresses.set(&addr.octets(), if claim.1 { BY_PORT } else { EVERY_PORT })?;
                shown.retain(|(other, _)| other != addr);
                shown.push(claim);
            }
        }
        let is_claimed = |addr| claimed.iter().flatten().any(|(other, _)| *other == addr);
        for (addr, _) in shown.extract_if(.., |(addr, _)| !is_claimed(*addr)) {
            self.addresses.remove(&addr.octets())?;
        }
        Ok(())
    }
}

/// The key of a prefix; an IPv4 prefix is stored IPv4-mapped.
fn key_of(prefix: IpCidr) -> Key {
    let (addr, before) = match prefix.addr() {
        IpAddr::V4(addr) => (addr.to_ipv6_mapped(), 96),
        IpAddr::V6(addr) => (addr, 0),
    };
    let bits = before + u32::from(prefix.prefix_len());
    let behind = u128::MAX.checked_shr(bits).unwrap_or(0);
    let mut key = [0; KEY_BYTES];
    let (length, rest) = key.split_at_mut(4);
    length.copy_from_slice(&bits.to_ne_bytes());
    rest.copy_from_slice(&(addr.to_bits() & !behind).to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn wants(queues: u32) -> Option<FilterTables> {
        FilterTables::create(queues)
            .inspect_err(|error| eprintln!("SKIPPED: the kernel gives no maps here: {error}"))
            .ok()
    }

    fn wanted(ports: &[u16], hosts: &[(u8, bool)]) -> RxFilter {
        let mut wanted = RxFilter::default();
        wanted.nothing();
        ports.iter().for_each(|port| wanted.tcp.set(*port, true));
        hosts.iter().for_each(|(host, by)| wanted.add_v4(Ipv4Addr::new(10, 0, 0, *host), *by));
        wanted
    }

    /// Which of these ports are accepted; and the addresses, by their last byte.
    fn shown(wants: &FilterTables, ports: &[u16]) -> (Vec<u16>, Vec<(u8, bool)>) {
        let counted = |port: &u16| {
            let (word, lane) = wants.count_of(1, *port).unwrap();
            word.load(Relaxed) / lane % 256 != 0
        };
        let ledger = wants.ledger.lock().unwrap();
        let mut hosts: Vec<_> =
            ledger.shown.iter().map(|(addr, by_port)| (addr.octets()[15], *by_port)).collect();
        hosts.sort_unstable();
        (ports.iter().copied().filter(counted).collect(), hosts)
    }

    #[test]
    fn what_any_queue_wants_is_wanted_until_the_last_one_wants_it_no_more() {
        let Some(wants) = wants(2) else { return };
        let ports = [0, 7, 8, 80, 81, u16::MAX];
        let (mut one, mut two) = (wants.join(0, false), wants.join(1, false));
        let any =
            |wants: &FilterTables| wants.board.all().iter().map(|n| n.load(Relaxed)).sum::<u64>();
        assert_eq!(any(&wants), 8, "each accepts everything of four kinds");
        wants.tell(0, &mut one, &wanted(&[7, 80, u16::MAX], &[(1, true)]), false);
        assert_eq!(any(&wants), 4, "one has not reported yet");
        wants.tell(1, &mut two, &wanted(&[80, 81], &[(1, true), (2, true)]), false);
        assert_eq!(any(&wants), 0);
        let both = (vec![7, 80, 81, u16::MAX], vec![(1, true), (2, true)]);
        assert_eq!(shown(&wants, &ports), both);
        // One of them has it in use no more, or not yet.
        wants.tell(0, &mut one, &wanted(&[], &[(1, false)]), false);
        assert_eq!(shown(&wants, &ports), (vec![80, 81], vec![(1, false), (2, true)]));
        wants.tell(0, &mut one, &wanted(&[], &[]), false);
        assert_eq!(shown(&wants, &ports), (vec![80, 81], vec![(1, true), (2, true)]));
        wants.tell(1, &mut two, &wanted(&[0], &[(2, true)]), false);
        assert_eq!(shown(&wants, &ports), (vec![0], vec![(2, true)]));
        wants.tell(1, &mut two, &wanted(&[], &[]), false);
        assert_eq!(shown(&wants, &ports), (vec![], vec![]));
        assert!(wants.ports.all().iter().all(|word| word.load(Relaxed) == 0), "nothing is left");
    }

    #[test]
    fn prefixes_are_denied_that_every_queue_denies() {
        let Some(wants) = wants(3) else { return };
        let denies = |prefixes: &[&str]| {
            let mut all = wanted(&[], &[]);
            prefixes.iter().for_each(|prefix| all.deny(prefix.parse().unwrap()));
            all
        };
        let shown = || wants.ledger.lock().unwrap().shown_denied.len();
        let board = || wants.board.all()[DENIES_WORD].load(Relaxed);
        // The third queue has no device.
        let (mut one, mut two) = (wants.join(0, false), wants.join(1, false));
        wants.tell(0, &mut one, &denies(&["10.1.0.0/16", "10.1.2.3/16", "fd01::/16"]), false);
        assert_eq!((shown(), board()), (0, 0), "the other one has not reported yet");
        wants.tell(1, &mut two, &denies(&["10.1.9.9/16", "fd02::/16"]), false);
        assert_eq!((shown(), board()), (1, 1), "host bits do not count");
        wants.tell(0, &mut one, &denies(&["fd02::/16", "10.1.0.0/17"]), false);
        assert_eq!((shown(), board()), (1, 1));
        wants.tell(1, &mut two, &denies(&[]), false);
        assert_eq!((shown(), board()), (0, 0));
    }

    #[test]
    fn more_queues_than_can_be_counted_want_every_port() {
        let Some(wants) = wants(QUEUES_MAX + 1) else { return };
        let mut told = wants.join(0, false);
        wants.tell(0, &mut told, &wanted(&[7], &[(1, true)]), false);
        assert_eq!(told.any, [false, false, true, true]);
    }
}
