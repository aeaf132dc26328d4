//! Several readers of one handle: between one's look and its sleep another takes the whole batch
//! out, reads one of it and goes away. What it left must keep the first one awake. And the room
//! that a reader gives back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use floodwall_base::Family;
use floodwall_packet::{Class, PacketList, Pool, PoolConfig};
use floodwall_sync::mailbox::Bits;
use floodwall_udp::SocketSettings;

use super::handle::{UdpHandle, lock};
use super::request::RequestAddrs;
use super::shared::RemoteShared;
use super::slot::SlotId;
use super::tcp::Listening;
use super::waiters::{WaitDirection, Waited};
use super::{ListenHandle, Remote, RemoteConfig, RemoteShard, TcpHandle};

/// What programs share, and the shards, which do no work: without them it would have stopped.
fn shared() -> (Vec<RemoteShard>, Arc<RemoteShared>) {
    let config = RemoteConfig { sockets_max: 4, connections_max: 4, ..RemoteConfig::default() };
    let (remote, shards) = Remote::new(&config).unwrap();
    (shards, Arc::clone(&remote.shared))
}

fn two_packets(shared: &RemoteShared) -> PacketList {
    let mut list = PacketList::new();
    for _ in 0..2 {
        list.push_back(shared.with_lane(0, |pool| pool.alloc(Class::Small)).flatten().unwrap());
    }
    list
}

/// Whether a reader that found nothing and is about to sleep stays awake when `meanwhile` runs.
fn stays_awake(handle: &dyn Waited, mut meanwhile: impl FnMut()) -> bool {
    let mut times = 0;
    let mut once = || {
        times += 1;
        assert!(times < 3, "it looks again and again");
        if times == 1 {
            meanwhile();
        }
    };
    handle.poll_ready_by(WaitDirection::Read, &mut once).is_ready()
}

#[test]
fn a_datagram_that_another_reader_left_is_not_slept_over() {
    let (_shards, shared) = shared();
    let handle = udp(&shared);
    let awake = stays_awake(&handle, || {
        let slot = handle.slot().unwrap();
        slot.rx.push(<_>::default(), two_packets(&shared), Bits::NONE);
        handle.read(PacketList::pop_front).unwrap().unwrap();
    });
    assert!(awake, "one is left");
    assert!(reads_one_more(&handle), "and is read");
}

/// A reader writes the worker's account once for an eighth of the limit: less than the limit is
/// charged at any time, and nothing when it has read all.
#[test]
fn what_is_read_gives_its_room_back_together_within_an_eighth_of_the_limit() {
    let (_shards, shared) = shared();
    let (handle, pool) = (udp(&shared), Pool::new(&PoolConfig::default()).unwrap());
    let limit = lock(&handle.facts).settings.receive_bytes;
    let account = pool.open_account(limit).unwrap();
    let slot = handle.slot().unwrap();
    let (mut list, mut waiting) = (PacketList::new(), 0_u64);
    while let Some(mut packet) = pool.alloc(Class::Small)
        && packet.charge(&account).is_ok()
    {
        list.push_back(packet);
        waiting += 1;
    }
    let size = account.used() / waiting;
    slot.rx.push(<_>::default(), list, Bits::NONE);
    let mut changes = 0;
    while waiting > 0 {
        let before = account.used();
        // They have no headers: there is nothing to copy.
        let read = handle.read(|list| Some(handle.copy_first(list, &mut [])));
        assert_eq!(read.unwrap().unwrap(), None);
        waiting -= 1;
        let beyond = account.used() - waiting * size;
        assert!(beyond <= limit / 8, "{beyond} of {limit}");
        changes += u64::from(account.used() != before);
    }
    assert_eq!(account.used(), 0);
    assert!((8..=10).contains(&changes), "{changes}");
}

/// The socket of the first slot.
fn udp(shared: &Arc<RemoteShared>) -> UdpHandle {
    let ends = RequestAddrs { local: ([127, 0, 0, 1], 7).into(), peer: None };
    let id = SlotId { index: 0, generation: 1 };
    UdpHandle::new(Arc::clone(shared), id, ends, SocketSettings::new(Family::V4))
}

/// One more is there, and then none.
fn reads_one_more(handle: &UdpHandle) -> bool {
    let one = handle.read(PacketList::pop_front).is_some();
    one && handle.read(PacketList::pop_front).is_none()
}

#[test]
fn an_error_is_not_slept_over_when_another_reader_saw_its_flag() {
    let (_shards, shared) = shared();
    let handle = udp(&shared);
    let awake = stays_awake(&handle, || {
        let slot = handle.slot().unwrap();
        slot.error.store(111, Ordering::Release);
        slot.rx.set(super::slot::SLOT_ERROR);
        // The reader has checked the number too early; it takes the flag, finds an error, and does
        // not read.
        assert!(slot.rx.take(super::slot::SLOT_ERROR).0.is_empty());
    });
    assert!(awake, "the error is still pending");
}

#[test]
fn bytes_that_another_reader_left_are_not_slept_over() {
    let (_shards, shared) = shared();
    let handle = TcpHandle::new(Arc::clone(&shared), 0);
    let awake = stays_awake(&handle, || {
        let slot = shared.tcp.slot(0).unwrap();
        slot.rx.push(two_packets(&shared), Bits::NONE);
        assert!(handle.try_read_chunk().unwrap().is_some());
    });
    assert!(awake, "one is left");
}

#[test]
fn a_connection_that_another_left_is_not_slept_over() {
    let (_shards, shared) = shared();
    let (listening, handle) = listener(&shared);
    let awake = stays_awake(&handle, || {
        for index in 0..2 {
            let link = &shared.tcp.slot(index).unwrap().accept_link;
            drop(listening.hand_over(index, link).unwrap());
        }
        drop(handle.try_accept().unwrap());
    });
    assert!(awake, "one is left");
    drop(handle.try_accept().unwrap());
}

#[test]
fn one_that_tries_to_accept_and_finds_nothing_leaves_the_sleeper_its_wake() {
    let (_shards, shared) = shared();
    let (listening, handle) = listener(&shared);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(handle.poll_accept(&mut cx).is_pending());
    assert!(handle.try_accept().is_err());
    let link = &shared.tcp.slot(0).unwrap().accept_link;
    let waiting = listening.hand_over(0, link).unwrap();
    waiting.expect("a waker is registered").wake();
    assert!(woken.0.load(Ordering::Relaxed));
    drop(handle.try_accept().unwrap());
}

fn listener(shared: &Arc<RemoteShared>) -> (Arc<Listening>, ListenHandle) {
    let listening = Arc::new(Listening::new());
    let local = ([127, 0, 0, 1], 80).into();
    let handle = ListenHandle::new(Arc::clone(shared), Arc::clone(&listening), local);
    (listening, handle)
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
