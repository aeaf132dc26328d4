//! A worker that loops back what streams write, made of the pieces that real sockets are made of:
//! two mailboxes a stream, credit in true bytes, a doorbell a worker, wake groups, lanes.

use std::future::poll_fn;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::thread::Thread;

use floodwall_packet::{Class, Lane, PacketList, PacketMailbox, PoolConfig, Region};
use floodwall_sync::mailbox::Bits;
use floodwall_sync::{CachePadded, Credit, Doorbell, Ring, WakeGroup, WakerCell};

/// True bytes that one stream may have on its way.
const CREDIT: u32 = 1 << 18;
/// Payload of one frame.
const FRAME: usize = 1792;
/// Slots that a round serves.
const SLOTS_ROUND: usize = 64;

#[repr(align(128))]
struct Stream {
    tx: PacketMailbox,
    credit: Credit,
    link: AtomicU32,
    writer: WakerCell,
    rx: PacketMailbox,
    reader: WakerCell,
}

struct Bell {
    bell: Doorbell,
    thread: OnceLock<Thread>,
}

/// All that programs and workers share.
pub(crate) struct Shared {
    streams: Box<[Stream]>,
    bells: Vec<CachePadded<Bell>>,
    pub(crate) groups: Vec<WakeGroup>,
    lane: Lane,
    pub(crate) stop: AtomicBool,
}

/// What one worker keeps.
pub(crate) struct Worker {
    index: usize,
    fifo: std::collections::VecDeque<u32>,
    wakes: Vec<Waker>,
    direct: bool,
}

impl Shared {
    pub(crate) fn new(streams: usize, workers: usize) -> Self {
        let config =
            PoolConfig { small: 16_384, frames: 8192, accounts: 0, ..PoolConfig::default() };
        let region = Region::new(&config).unwrap();
        let stream = || Stream {
            tx: PacketMailbox::new(),
            credit: Credit::new(CREDIT),
            link: AtomicU32::new(0),
            writer: WakerCell::new(),
            rx: PacketMailbox::new(),
            reader: WakerCell::new(),
        };
        let bell = || CachePadded::new(Bell { bell: Doorbell::new(), thread: OnceLock::new() });
        Self {
            streams: (0..streams).map(|_| stream()).collect(),
            bells: (0..workers).map(|_| bell()).collect(),
            groups: (0..workers).map(|_| WakeGroup::new(2 * streams)).collect(),
            lane: region.lane().unwrap(),
            stop: AtomicBool::new(false),
        }
    }

    fn ring(&self, index: usize) {
        let bell = &self.bells[index % self.bells.len()];
        if bell.bell.ring(index as u32, &self.streams[index].link) == Ok(Ring::Wake)
            && let Some(thread) = bell.thread.get()
        {
            thread.unpark();
        }
    }

    pub(crate) fn alarm(&self, worker: usize, thread: Thread) {
        let _ = self.bells[worker].thread.set(thread);
    }

    pub(crate) fn wake_workers(&self) {
        self.bells.iter().filter_map(|bell| bell.thread.get()).for_each(Thread::unpark);
    }

    /// Whether a worker may sleep.
    pub(crate) fn rests(&self, worker: usize) -> bool {
        self.bells[worker].bell.park()
    }

    /// Writes all of `bytes`, waiting for credit or memory where there is none.
    pub(crate) async fn write(&self, index: usize, bytes: &[u8]) {
        let stream = &self.streams[index];
        let mut left = bytes;
        poll_fn(|cx| {
            loop {
                let mut list = PacketList::new();
                self.lane.enter(|pool| {
                    while !left.is_empty() {
                        let len = left.len().min(FRAME);
                        let class = if len <= 176 { Class::Small } else { Class::Frame };
                        let size = if len <= 176 { 384 } else { 2176 };
                        if stream.credit.left() < size {
                            break;
                        }
                        let Some(mut packet) = pool.alloc(class) else { break };
                        assert!(packet.extend_from_slice(&left[..len]));
                        assert_eq!(stream.credit.take(packet.true_size()), packet.true_size());
                        list.push_back(packet);
                        left = &left[len..];
                    }
                });
                if !list.is_empty() && !stream.tx.push(list, Bits::QUEUED).has(Bits::QUEUED) {
                    self.ring(index);
                }
                if left.is_empty() {
                    return Poll::Ready(());
                }
                stream.writer.register(cx.waker());
                if stream.credit.park(CREDIT / 3) {
                    return Poll::Pending;
                }
                if stream.credit.left() >= u64::from(CREDIT / 3) {
                    // No memory: let the readers have their turn.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// Reads as many bytes as `out` has; what is left of a packet stays in `unread`.
    pub(crate) async fn read(&self, index: usize, unread: &mut PacketList, out: &mut [u8]) {
        let stream = &self.streams[index];
        let mut filled = 0;
        poll_fn(|cx| {
            loop {
                while filled < out.len() {
                    let Some(mut packet) = unread.pop_front() else { break };
                    let len = packet.len().min(out.len() - filled);
                    out[filled..filled + len].copy_from_slice(&packet.first()[..len]);
                    filled += len;
                    if len < packet.len() {
                        packet.trim_front(len);
                        unread.push_front(packet);
                    }
                }
                if filled == out.len() {
                    return Poll::Ready(());
                }
                *unread = stream.rx.take(Bits::NONE).0;
                if unread.is_empty() {
                    stream.reader.register(cx.waker());
                    if stream.rx.park(Bits::NONE) {
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
    }
}

impl Worker {
    pub(crate) fn new(index: usize, direct: bool, streams: usize) -> Self {
        Self {
            index,
            fifo: std::collections::VecDeque::with_capacity(streams),
            wakes: Vec::with_capacity(2 * streams),
            direct,
        }
    }

    /// One round: returns how many slots were served.
    pub(crate) fn round(&mut self, shared: &Shared) -> usize {
        let links = |index: u32| shared.streams.get(index as usize).map(|stream| &stream.link);
        self.fifo.extend(shared.bells[self.index].bell.take(links));
        let count = self.fifo.len().min(SLOTS_ROUND);
        for index in self.fifo.drain(..count) {
            let stream = &shared.streams[index as usize];
            let (list, _) = stream.tx.take(Bits::QUEUED);
            let paid: u32 = list.iter().map(floodwall_packet::PacketBuf::true_size).sum();
            if stream.rx.push(list, Bits::NONE).has(Bits::WAIT) {
                self.wakes.extend(stream.reader.take());
            }
            if stream.credit.give(paid, CREDIT / 3) {
                self.wakes.extend(stream.writer.take());
            }
        }
        if !self.wakes.is_empty() {
            if self.direct {
                self.wakes.drain(..).for_each(Waker::wake);
            } else {
                shared.groups[self.index].hand_over(self.wakes.drain(..));
            }
        }
        count + usize::from(!self.fifo.is_empty())
    }

    pub(crate) fn is_stopped(shared: &Shared) -> bool {
        shared.stop.load(Ordering::Acquire)
    }
}
