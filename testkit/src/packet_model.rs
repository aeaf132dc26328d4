//! Packets beside flat vectors: every operation is done to both, and both must agree.
//!
//! Called by the property tests of `packet` and by the fuzz target `pulldown`. Operations are read
//! from bytes, four each, so that any bytes are a program and a shorter program is a simpler one.
//! Invariants checked: bytes and lengths after each operation, of all packets that might share
//! memory; that accounts have exactly what is charged; at the end that everything is home.

use std::collections::VecDeque;

use floodwall_packet::{
    AccessCounters, Account, Burst, Class, PacketBuf, PacketList, Pool, PoolConfig, PulldownError,
};

/// Packets alive at a time.
const PACKETS_MAX: usize = 12;
/// `floodwall_base::limits::CHUNKS_MAX`, which this crate states once more on purpose.
const CHUNKS_MAX: usize = 64;

/// What should be charged, to which account.
type Charge = Option<(usize, u32)>;

/// A packet, what its bytes should be, and what should be charged.
struct Pair {
    packet: PacketBuf,
    flat: Vec<u8>,
    charged: Charge,
}

/// A list of packets, and what it should have in it, in order.
#[derive(Default)]
struct Queue {
    list: PacketList,
    models: VecDeque<(Vec<u8>, Charge)>,
}

/// Packets and accounts of one pool, each beside its flat model.
pub struct PacketModel {
    pool: Pool,
    accounts: Vec<Account>,
    pairs: Vec<Pair>,
    queue: Queue,
    /// To be dropped on another thread.
    elsewhere: Vec<PacketBuf>,
    access: AccessCounters,
    /// The next byte to be written: packets of one memory differ.
    next: u8,
}

/// One operation: which, on which packet, and two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op(pub [u8; 4]);

impl Op {
    fn a(self) -> usize {
        self.0[2] as usize
    }

    fn b(self) -> usize {
        self.0[3] as usize
    }
}

impl Default for PacketModel {
    fn default() -> Self {
        Self::new()
    }
}

impl PacketModel {
    /// A small pool without packets.
    ///
    /// # Panics
    /// There is no memory for it.
    #[must_use]
    pub fn new() -> Self {
        let config = PoolConfig {
            workers: 1,
            small: 96,
            frames: 24,
            frame_bytes: 2048,
            supers: 2,
            references: 160,
            accounts: 8,
        };
        let pool = Pool::new(&config).expect("half a megabyte");
        let accounts = [20_000, 1 << 30].map(|limit| pool.open_account(limit).expect("one of 8"));
        Self {
            pool,
            accounts: accounts.into(),
            pairs: Vec::new(),
            queue: Queue::default(),
            elsewhere: Vec::new(),
            access: AccessCounters::default(),
            next: 0,
        }
    }

    /// Runs a program from no packets to no packets.
    ///
    /// # Panics
    /// Something is not as it should be.
    pub fn run(&mut self, program: &[u8]) {
        let before = self.pool.available();
        let (ops, _) = program.as_chunks::<4>();
        for op in ops {
            self.step(Op(*op));
        }
        self.pairs.iter().for_each(check);
        self.drop_elsewhere();
        self.pairs.clear();
        self.queue = Queue::default();
        assert!(self.accounts.iter().all(|account| account.used() == 0), "still charged");
        assert_eq!(self.pool.available(), before, "not all is home");
    }

    /// Does one operation to a packet and to its model.
    ///
    /// # Panics
    /// They differ afterwards.
    pub fn step(&mut self, op: Op) {
        let kind = op.0[0] % 20;
        if kind < 3 || self.pairs.is_empty() {
            self.create(op);
        } else {
            let at = op.0[1] as usize % self.pairs.len();
            match kind {
                3..=9 => self.shape(kind, at, op),
                10 => self.append(at, op),
                11 => self.share(at, op),
                12 | 13 => self.pull_down(at, op),
                14 => self.push_header(at, op),
                15 => self.charge(at, op),
                16 => self.go(at, op),
                17 => self.travel(at, op),
                18 => self.read(at, op),
                _ => self.write(at),
            }
        }
        self.check_accounts();
    }

    fn fresh(&mut self, len: usize) -> Vec<u8> {
        let from = self.next;
        self.next = self.next.wrapping_add(len as u8 | 1);
        (0..len).map(|n| from.wrapping_add(n as u8)).collect()
    }

    fn create(&mut self, op: Op) {
        while self.pairs.len() >= PACKETS_MAX {
            self.pairs.remove(op.0[1] as usize % self.pairs.len());
        }
        let len = op.a() * if op.0[0] >= 128 { op.b() } else { 1 };
        let flat = self.fresh(len);
        let packet = match op.0[0] % 3 {
            0 => self.pool.packet_from(&flat),
            1 => {
                let chunk = (len / (op.b() % 40 + 1)).max(1);
                let chunks = [&[][..]].into_iter().chain(flat.chunks(chunk)).chain([&[][..]]);
                self.pool.packet_from_chunks(chunks)
            }
            _ => {
                let class = Class::ALL[op.b() % 4];
                let mut packet = self.pool.alloc(class);
                let fits = packet.as_mut().is_some_and(|packet| packet.extend_from_slice(&flat));
                packet.filter(|_| fits)
            }
        };
        self.pairs.extend(packet.map(|packet| Pair { packet, flat, charged: None }));
        if let Some(pair) = self.pairs.last() {
            check(pair);
        }
    }

    /// What changes lengths only, and what grows.
    fn shape(&mut self, kind: u8, at: usize, op: Op) {
        let n = op.a() + if kind >= 8 { op.b() * 8 } else { 0 };
        let bytes = self.fresh(n);
        let Pair { packet, flat, .. } = &mut self.pairs[at];
        match kind {
            3 | 8 => {
                let room = packet.headroom();
                let grown = packet.prepend(n).map(|front| front.copy_from_slice(&bytes));
                assert_eq!(grown.is_some(), n == 0 || n <= room, "{n} into {room}");
                if grown.is_some() {
                    flat.splice(0..0, bytes);
                }
            }
            4 | 9 => {
                let one = packet.chunk_count() == 1;
                let room = packet.tailroom();
                let grown = packet.extend_from_slice(&bytes);
                assert_eq!(grown, n == 0 || one && n <= room, "{n} into {room}");
                if grown {
                    flat.extend(bytes);
                }
            }
            5 | 6 => {
                packet.trim_front(n);
                flat.drain(..n.min(flat.len()));
            }
            _ => {
                packet.truncate(n);
                flat.truncate(n);
            }
        }
        check(&self.pairs[at]);
    }

    fn append(&mut self, at: usize, op: Op) {
        if self.pairs.len() < 2 {
            return;
        }
        let more = self.pairs.remove(at);
        let onto = op.a() % self.pairs.len();
        let pair = &mut self.pairs[onto];
        let chunks = pair.packet.chunk_count() + more.packet.chunk_count();
        match pair.packet.append(more.packet) {
            Ok(()) => {
                assert!(chunks <= CHUNKS_MAX);
                pair.flat.extend(more.flat);
                check(&self.pairs[onto]);
            }
            Err(full) => {
                assert!(chunks > CHUNKS_MAX);
                self.pairs.push(Pair { packet: full.0, ..more });
            }
        }
    }

    fn share(&mut self, at: usize, op: Op) {
        let Pair { packet, flat, .. } = &self.pairs[at];
        let (off, len) = range(op, flat.len());
        let view = packet.share(&self.pool, off, len);
        if off + len > flat.len() {
            assert!(view.is_none());
        } else if let Some(view) = view.filter(|_| self.pairs.len() < PACKETS_MAX) {
            let flat = flat[off..off + len].to_vec();
            self.pairs.push(Pair { packet: view, flat, charged: None });
            self.pairs.iter().for_each(check);
        }
    }

    fn pull_down(&mut self, at: usize, op: Op) {
        let (off, len) = range(op, self.pairs[at].flat.len());
        let bytes = self.fresh(len);
        let free = self.pool.available();
        let Pair { packet, flat, .. } = &mut self.pairs[at];
        let was = packet.chunk_count();
        match packet.pulldown(&self.pool, off, len, &mut self.access) {
            Ok(got) => {
                assert_eq!(got, &flat[off..off + len]);
                got.copy_from_slice(&bytes);
                flat[off..off + len].copy_from_slice(&bytes);
            }
            Err(PulldownError::TooShort) => assert!(off + len > flat.len()),
            Err(error) => {
                assert!(off + len <= flat.len());
                let full = was + 2 > CHUNKS_MAX;
                let empty = free.small == 0 || free.frames == 0 || free.references == 0;
                assert!(full || empty || len > 1792, "{error} with {was} chunks and {free:?}");
                assert_eq!(packet.chunk_count(), was, "a failure changed something");
            }
        }
        // A write must not show in anybody else's bytes.
        self.pairs.iter().for_each(check);
    }

    fn push_header(&mut self, at: usize, op: Op) {
        let n = op.a();
        let bytes = self.fresh(n);
        let Pair { packet, mut flat, charged } = self.pairs.remove(at);
        let packet = match packet.push_header(&self.pool, n) {
            Ok(mut packet) => {
                if n > 0 {
                    let first = packet.first_mut().expect("a pushed header can be written");
                    first[..n].copy_from_slice(&bytes);
                    flat.splice(0..0, bytes);
                }
                packet
            }
            Err(packet) => packet,
        };
        self.pairs.push(Pair { packet, flat, charged });
        self.pairs.iter().for_each(check);
    }

    fn charge(&mut self, at: usize, op: Op) {
        let pair = &mut self.pairs[at];
        pair.charged = None;
        if op.a() % 3 == 2 {
            return pair.packet.uncharge();
        }
        let account = op.a() % 3;
        if pair.packet.charge(&self.accounts[account]).is_ok() {
            pair.charged = Some((account, pair.packet.true_size()));
        }
    }

    fn go(&mut self, at: usize, op: Op) {
        let mut pair = self.pairs.remove(at);
        check(&pair);
        if op.a().is_multiple_of(2) {
            return;
        }
        pair.packet.uncharge();
        self.elsewhere.push(pair.packet);
        if self.elsewhere.len() == 8 {
            self.drop_elsewhere();
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "packets dropped on another thread need another thread"
    )]
    fn drop_elsewhere(&mut self) {
        let packets = std::mem::take(&mut self.elsewhere);
        if packets.is_empty() {
            return;
        }
        std::thread::spawn(move || drop(packets)).join().expect("dropping does not panic");
    }

    /// Into the queue or a burst and out again, or to a device and back.
    fn travel(&mut self, at: usize, op: Op) {
        match op.a() % 8 {
            0 | 1 => {
                let pair = self.pairs.remove(at);
                self.queue.push(pair, op.a() % 8 == 1);
            }
            2 | 3 => self.pairs.extend(self.queue.pop()),
            4 => {
                let mut more = Queue::default();
                (0..op.b() % 3).filter_map(|_| self.pairs.pop()).for_each(|p| more.push(p, false));
                self.queue.append(&mut more);
                more.check();
            }
            5 => self.through_a_burst(op.b() % 4),
            _ => self.by_a_device(at),
        }
        self.queue.check();
    }

    /// All packets go in; some stay there until the burst itself goes.
    fn through_a_burst(&mut self, stay: usize) {
        let mut burst = Burst::new();
        let mut models = Vec::new();
        for pair in self.pairs.drain(..) {
            burst.push(pair.packet).expect("it has room for 64");
            models.push((pair.flat, pair.charged));
        }
        assert_eq!(burst.len(), models.len());
        assert!(burst.iter().zip(&models).all(|(packet, model)| same(packet, &model.0)));
        let leave = models.len().saturating_sub(stay);
        let out = burst.drain().zip(models).take(leave);
        self.pairs.extend(out.map(|(packet, (flat, charged))| Pair { packet, flat, charged }));
    }

    fn by_a_device(&mut self, at: usize) {
        let Pair { packet, flat, charged } = self.pairs.remove(at);
        let packet = match packet.lend() {
            Ok(address) => {
                let region = self.pool.region();
                assert!(region.take_back(address + 1).is_none());
                let packet = region.take_back(address).expect("lent just now");
                assert!(region.take_back(address).is_none());
                packet
            }
            Err(packet) => packet,
        };
        let pair = Pair { packet, flat, charged };
        check(&pair);
        self.pairs.push(pair);
    }

    fn read(&mut self, at: usize, op: Op) {
        let Pair { packet, flat, .. } = &self.pairs[at];
        let (off, len) = range(op, flat.len());
        let want = flat.get(off..off + len);
        let mut scratch = [0; 512];
        let got = packet.header(off, len, &mut scratch, &mut self.access);
        assert_eq!(got, want, "{len} bytes from {off}");
        let mut out = vec![0; len];
        let there = packet.copy_out(off, &mut out);
        let from = off.min(flat.len());
        assert_eq!(&out[..there], &flat[from..(from + len).min(flat.len())]);
        let parts: Vec<u8> = packet.chunks_in(off, len).flatten().copied().collect();
        assert_eq!(parts, out[..there]);
    }

    /// Writes all that may be written of a first chunk.
    fn write(&mut self, at: usize) {
        let n = self.pairs[at].packet.first().len();
        let bytes = self.fresh(n);
        let Pair { packet, flat, .. } = &mut self.pairs[at];
        if let Some(first) = packet.first_mut() {
            first.copy_from_slice(&bytes);
            flat[..n].copy_from_slice(&bytes);
        }
        self.pairs.iter().for_each(check);
    }

    fn check_accounts(&self) {
        for (number, account) in self.accounts.iter().enumerate() {
            let queued = self.queue.models.iter().filter_map(|model| model.1);
            let charges = self.pairs.iter().filter_map(|pair| pair.charged).chain(queued);
            let want: u64 = charges.filter(|c| c.0 == number).map(|c| u64::from(c.1)).sum();
            assert_eq!(account.used(), want, "account {number}");
        }
    }
}

impl Queue {
    fn push(&mut self, pair: Pair, in_front: bool) {
        let model = (pair.flat, pair.charged);
        if in_front {
            self.list.push_front(pair.packet);
            self.models.push_front(model);
        } else {
            self.list.push_back(pair.packet);
            self.models.push_back(model);
        }
    }

    fn pop(&mut self) -> Option<Pair> {
        let packet = self.list.pop_front();
        let model = self.models.pop_front();
        assert_eq!(packet.is_some(), model.is_some());
        let (flat, charged) = model?;
        Some(Pair { packet: packet?, flat, charged })
    }

    fn append(&mut self, more: &mut Self) {
        self.list.append(&mut more.list);
        self.models.append(&mut more.models);
    }

    fn check(&self) {
        assert_eq!(self.list.len(), self.models.len());
        assert_eq!(self.list.iter().count(), self.models.len());
        assert!(self.list.iter().zip(&self.models).all(|(packet, model)| same(packet, &model.0)));
    }
}

/// Where an operation looks: mostly inside of `len` bytes.
fn range(op: Op, len: usize) -> (usize, usize) {
    let off = if len > 255 { op.a() * len / 255 } else { op.a() % (len + 2) };
    (off, op.b() % (len.saturating_sub(off) + 2))
}

/// Fails unless a packet equals its model.
fn check(pair: &Pair) {
    let Pair { packet, flat, .. } = pair;
    assert!(same(packet, flat), "{packet:?} is not {flat:?}");
}

/// Whether a packet has these bytes, by each of its read methods.
fn same(packet: &PacketBuf, flat: &[u8]) -> bool {
    let mut rest = flat;
    for chunk in packet.chunks() {
        let Some(behind) = rest.strip_prefix(chunk) else { return false };
        rest = behind;
    }
    rest.is_empty()
        && packet.chunk_count() <= CHUNKS_MAX
        && packet.len() == flat.len()
        && packet.is_empty() == flat.is_empty()
        && packet.is_contiguous() == (packet.first().len() == flat.len())
}
