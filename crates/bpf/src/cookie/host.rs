//! SYN cookies in front of the kernel's own listeners: the programs of `floodwall guard`.
//!
//! Eight programs. [`classify`] is attached to the interface (XDP): it asks the kernel's socket
//! table for the owner of each segment to a protected port, so that connections that exist pass
//! and what belongs to none is judged. By tail calls it hands SYNs to [`answer_syn`] and other
//! segments of a listener to [`prove_ack`]. An ACK that carries a cookie goes up with a note in
//! its metadata, and [`adopt`] (tc ingress) has the kernel make the connection
//! (`bpf_sk_assign_tcp_reqsk`, Linux 6.9). Keys, options and cookies are those of [`super`];
//! but the keys are derived here, by the program's own clock (`keys.rs`), so that programs
//! which outlive their process go on. Datagrams to protected ports go to [`share_datagrams`], and
//! where their protocol has a challenge to [`challenge_source`]. Of what is dropped one frame in
//! [`RANK_EACH`] goes by [`rank_source`], which keeps the loudest prefixes.
//!
//! # Under flood
//! Reachable by anyone on the link. No memory grows: counters, keys and [`PROOFS`] recent proofs
//! and [`SOURCES`] proven sources and [`RANKED`] loud prefixes are arrays; nothing is kept of a
//! SYN. Work per frame: one look-up in the socket table, at most two hashes (four for a query that
//! returns a token), the options are walked once; an answer is never longer than its SYN or
//! question. A forged ACK is believed once in 2^24. A collision in the table of proofs overwrites
//! the older proof: its flow may lose one retransmission. Counted per port: [`Tally`].

mod adopt;
mod answer;
mod challenge;
mod classify;
mod datagram;
mod keys;
mod listener;
mod prove;
mod rank;
mod reply;
mod source;
mod tables;

pub use self::adopt::adopt;
pub use self::answer::answer_syn;
pub use self::challenge::challenge_source;
pub use self::classify::classify;
pub use self::datagram::share_datagrams;
pub use self::prove::prove_ack;
pub use self::rank::rank_source;
pub use self::source::remember_source;
pub use self::tables::{
    BUCKETS, DatagramProtocol, HostSettings, LEFT_MAX, NO_SCALING, PORT_ENTRIES, PORTS_MAX, PROOFS,
    PROTOCOL_SHIFT, PROVES_SHIFT, RANK_EACH, RANK_WORDS, RANKED, RankedSource, SETTING_WORDS,
    SOURCES, Tally,
};
use super::segment::reach;
use super::{DATA, DATA_END, Maps, at, look_up, stack};
use crate::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

/// The maps of the programs, by descriptor.
#[derive(Clone, Copy, Debug)]
pub struct HostMaps {
    /// An array of [`PORT_ENTRIES`] 64-bit words: the number of a protected TCP port from 1 on in
    /// the low byte, that of a protected UDP port in the next; 0 for others. Then
    /// [`PROTOCOL_SHIFT`] and [`PROVES_SHIFT`].
    pub ports: i32,
    /// An array of one value of [`SETTING_WORDS`] 64-bit words: [`HostSettings`].
    pub settings: i32,
    /// A per-core array of one value of [`SCRATCH_BYTES`].
    pub scratch: i32,
    /// A per-core array of [`super::KEY_ENTRIES`] values of [`super::KEY_WORDS`] 64-bit words.
    pub keys: i32,
    /// A per-core array of [`PORTS_MAX`] values of [`Tally::WORDS`] 64-bit words, by the number of
    /// the port.
    pub tallies: i32,
    /// An array of [`PROOFS`] 64-bit words.
    pub proofs: i32,
    /// An array of [`BUCKETS`] 64-bit words.
    pub buckets: i32,
    /// An array of [`SOURCES`] 64-bit words.
    pub sources: i32,
    /// An array of [`RANKED`] values of [`RANK_WORDS`] 64-bit words: [`RankedSource`].
    pub ranked: i32,
    /// A hash of our own addresses and those of broadcasts, 16 bytes each.
    pub addresses: i32,
    /// A map of programs: [`Program`].
    pub programs: i32,
}

/// Numbers in the map of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// [`answer_syn`].
    Answer = 0,
    /// [`prove_ack`].
    Prove = 1,
    /// [`share_datagrams`].
    Share = 2,
    /// [`challenge_source`].
    Challenge = 3,
    /// [`remember_source`].
    Remember = 4,
    /// [`rank_source`].
    Rank = 5,
}

impl Program {
    /// How many there are.
    pub const COUNT: usize = 6;
}

/// Offsets of fields of the kernel's `struct tcp_sock`, from its BTF.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListenerFields {
    /// `sk_ack_backlog`: connections that wait to be accepted.
    pub ack_backlog: i16,
    /// `sk_max_ack_backlog`.
    pub max_ack_backlog: i16,
    /// `icsk_accept_queue.qlen`: half-open connections.
    pub half_open: i16,
    /// `sk_rcvbuf`.
    pub receive_buffer: i16,
    /// `sk_userlocks`, a byte.
    pub user_locks: i16,
    /// `rx_opt.user_mss`, two bytes.
    pub user_mss: i16,
    /// `is_mptcp`, a byte; `None` in a kernel without it.
    pub is_mptcp: Option<i16>,
}

impl ListenerFields {
    /// Reads them.
    #[must_use]
    pub fn read(btf: &crate::btf::Btf<'_>) -> Option<Self> {
        let field = |path: &str| btf.field("tcp_sock", path).and_then(|at| i16::try_from(at).ok());
        Some(Self {
            ack_backlog: field("inet_conn.icsk_inet.sk.sk_ack_backlog")?,
            max_ack_backlog: field("inet_conn.icsk_inet.sk.sk_max_ack_backlog")?,
            half_open: field("inet_conn.icsk_accept_queue.qlen")?,
            receive_buffer: field("inet_conn.icsk_inet.sk.sk_rcvbuf")?,
            user_locks: field("inet_conn.icsk_inet.sk.sk_userlocks")?,
            user_mss: field("rx_opt.user_mss")?,
            is_mptcp: field("is_mptcp"),
        })
    }
}

/// Bytes of the scratch value.
pub const SCRATCH_BYTES: usize = 320;

/// Verdicts.
const DROP: i32 = 1;
const PASS: i32 = 2;
const TRANSMIT: i32 = 3;

/// Fields of `struct bpf_sock`, and the state of a listener.
const SOCKET_STATE: i16 = 72;
const LISTENING: i32 = 10;
/// Of a namespace: that of the device.
const OWN_NAMESPACE: i32 = -1;

/// Bytes of metadata, and of the note at their end.
const META_BYTES: i16 = 32;
const NOTE: i16 = 16;
/// What the note's first word begins with; the number of the port is its low byte.
const MAGIC: i32 = 0x46_57_67;

/// Where things are in the scratch value, behind those of [`super::at`]: four bytes each unless it
/// says otherwise.
mod own {
    /// The number of the port.
    pub(super) const PORT: i16 = 224;
    /// Bytes of a VLAN tag: 0 or 4.
    pub(super) const TAG: i16 = 228;
    /// Fields of the listener.
    pub(super) const ACK_BACKLOG: i16 = 232;
    pub(super) const MAX_ACK_BACKLOG: i16 = 236;
    pub(super) const HALF_OPEN: i16 = 240;
    pub(super) const RECEIVE_BUFFER: i16 = 244;
    pub(super) const USER_LOCKS: i16 = 248;
    pub(super) const USER_MSS: i16 = 252;
    pub(super) const IS_MPTCP: i16 = 256;
    /// The flags' byte of the segment.
    pub(super) const FLAGS: i16 = 260;
    /// The keyed hash of the flow, eight bytes.
    pub(super) const HASH: i16 = 264;
    /// Not 0 where the flow was proven within the last second.
    pub(super) const IS_KNOWN: i16 = 272;
    /// The family: 4 or 6, before the segment is read.
    pub(super) const FAMILY: i16 = 276;
    /// The protocol of the port's datagrams; 0 for none.
    pub(super) const PROTOCOL: i16 = 280;
    /// The token that a query has returned, and the one that is right now.
    pub(super) const TOKEN: i16 = 284;
    pub(super) const TOKEN_NOW: i16 = 288;
    /// Not 0 where the datagram is a query that can be answered.
    pub(super) const IS_QUERY: i16 = 292;
    /// Why the frame is dropped: a [`super::Tally`].
    pub(super) const REASON: i16 = 296;
    /// [`super::HostSettings::own_filter`], eight bytes.
    pub(super) const OWN_FILTER: i16 = 304;
}

/// Where things are on the stack, behind those of [`super::stack`].
mod spot {
    pub(super) const SOCKET: i16 = -80;
    pub(super) const PORT: i16 = -84;
    pub(super) const TAG: i16 = -88;
    pub(super) const FLAGS: i16 = -92;
    pub(super) const FAMILY: i16 = -96;
    /// The address of the flow's proof.
    pub(super) const PROOF: i16 = -104;
    /// Whether a connection at this port proves its source for datagrams.
    pub(super) const PROVES: i16 = -108;
    /// The address of the settings.
    pub(super) const SETTINGS: i16 = -120;
}

impl HostMaps {
    /// As the programs of [`super`] have them.
    const fn inner(&self) -> Maps {
        Maps {
            desks: self.tallies,
            scratch: self.scratch,
            keys: self.keys,
            listeners: self.settings,
            addresses: Some(self.addresses),
            // Each protected port has counts of its own.
            samples: None,
        }
    }
}

/// Adds one to a word of the port's tally.
fn count(a: &mut Assembler, word: Tally) {
    a.load(AccessSize::Double, Register::R1, Register::R10, stack::DESK)
        .load(AccessSize::Double, Register::R2, Register::R1, word.offset())
        .add(Register::R2, 1)
        .store(AccessSize::Double, Register::R1, word.offset(), Register::R2);
}

/// Counts a frame that is dropped for this reason, has one in [`RANK_EACH`] ranked by its source,
/// and ends.
fn refuse(a: &mut Assembler, maps: &HostMaps, reason: Tally) {
    let drop = a.label();
    count(a, reason);
    // The new count; the first is ranked too.
    a.compute(Register::R2, Operation::And, RANK_EACH as i32 - 1)
        .jump_if(Register::R2, JumpCondition::Differs, 1, drop)
        .store_value(AccessSize::Word, Register::R9, own::REASON, reason as i32)
        .tail_call(Register::R6, maps.programs, Program::Rank as i32);
    a.place(drop);
    a.set(Register::R0, DROP).exit();
}

/// What the programs behind [`classify`] begin with: registers, scratch value, tally, and the frame
/// from its network header's tag on. Goes to `missing` where a map has no such value.
fn begin(a: &mut Assembler, maps: &HostMaps, missing: Label) {
    a.copy(Register::R6, Register::R1).set(Register::R1, 0);
    look_up(a, maps.scratch, missing);
    a.copy(Register::R9, Register::R0).load(
        AccessSize::Word,
        Register::R1,
        Register::R9,
        own::PORT,
    );
    look_up(a, maps.tallies, missing);
    a.store(AccessSize::Double, Register::R10, stack::DESK, Register::R0)
        .copy(Register::R1, Register::R6)
        .call(Function::FrameBytes)
        .load(AccessSize::Word, Register::R1, Register::R9, own::TAG)
        .compute_reg(Register::R0, Operation::Subtract, Register::R1)
        .store(AccessSize::Word, Register::R9, at::FRAME, Register::R0);
    find_frame(a, missing);
}

/// The frame's place in `R7` and its end in `R8`; behind its tag. Takes `R1` and `R3`.
fn find_frame(a: &mut Assembler, missing: Label) {
    let plain = a.label();
    a.load(AccessSize::Word, Register::R7, Register::R6, DATA)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA_END)
        .load(AccessSize::Word, Register::R1, Register::R9, own::TAG)
        .jump_if(Register::R1, JumpCondition::Equal, 0, plain);
    reach(a, 4, missing);
    a.add(Register::R7, 4);
    a.place(plain);
}

/// Ends with a verdict at each label.
fn ends(a: &mut Assembler, ends: &[(Label, i32)]) {
    for (label, verdict) in ends {
        a.place(*label);
        a.set(Register::R0, *verdict).exit();
    }
}
