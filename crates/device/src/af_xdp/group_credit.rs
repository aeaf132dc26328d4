//! `GroupCredit`: how many frames for groups and broadcasts pass the interface, by time.
//!
//! Used by `filter.rs`. These frames go to the host's stack, which shares the interface, and to a
//! packet socket of ours; both run on the core that receives. The host may need 0.3 ms for one
//! router advertisement (addresses, routes), so that 3,000 of them a second take a core. Two token
//! buckets that refill with the monotonic clock bound that: one for IPv6 that is neither UDP nor a
//! neighbor solicitation (router advertisements, redirects, MLD, extension headers; of tagged
//! frames all that is not IPv4 or ARP), one for all else. Each is one word: the time up to which
//! credit is spent. Queues on several cores read and write it unlocked, which admits some frames
//! more.
//!
//! # Under flood
//! Any sender on the link can use up both. Bound: 200 a second, 64 at once, and 50,000 a second,
//! 4,096 at once. Work per frame: three loads, the clock, one look-up. Honest group frames of the
//! same class lose with the flood: routers and groups are learnt later, known ones stay. Frames for
//! our station and answers of neighbors are unicast and lose nothing. Counter: `rx_group_full`.

use std::io;

use floodwall_bpf::{AccessSize, Assembler, Function, JumpCondition, Label, Operation, Register};

use super::filter::{reach, wire};
use super::mapped_words::MappedWords;
use super::xdp_abi::{DATA, DATA_END};

/// What a frame for a group costs the host, by index of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupClass {
    Plain = 0,
    Costly = 1,
}

const CLASSES: u32 = 2;

impl GroupClass {
    /// Nanoseconds that refill the credit of one frame.
    const fn interval(self) -> u64 {
        match self {
            Self::Plain => 20_000,
            Self::Costly => 5_000_000,
        }
    }

    /// Frames at once.
    const fn burst(self) -> u64 {
        match self {
            Self::Plain => 4096,
            Self::Costly => 64,
        }
    }
}

/// Of an Ethernet frame, and of an IPv6 packet in it without a tag.
const TYPE: i16 = 12;
const TYPE_BEHIND_TAG: i16 = 16;
const NEXT_HEADER: i16 = 14 + 6;
const ICMP_TYPE: i16 = 14 + 40;
const GROUP_BIT: i32 = 1;
const UDP: i32 = 17;
const ICMPV6: i32 = 58;
const NEIGHBOR_SOLICITATION: i32 = 135;
/// The stack slot of the look-up's key.
const KEY: i16 = -4;

/// The spent credit of both classes, shared with the program.
#[derive(Debug)]
pub(super) struct GroupCredit {
    spent: MappedWords,
}

impl GroupCredit {
    /// All of it unspent.
    ///
    /// # Errors
    /// The kernel maps no such memory.
    pub(super) fn create() -> io::Result<Self> {
        Ok(Self { spent: MappedWords::create(1, CLASSES)? })
    }

    /// Emits the check of a frame that goes to the host: continues at `passed`, or at `refused`
    /// with one for a group beyond the credit. The context is at `R6`; all other registers change.
    pub(super) fn emit(&self, program: &mut Assembler, passed: Label, refused: Label) {
        program.load(AccessSize::Word, Register::R7, Register::R6, DATA).load(
            AccessSize::Word,
            Register::R8,
            Register::R6,
            DATA_END,
        );
        class(program, passed);
        self.spend(program, passed, refused);
    }

    /// Emits the clock's look at the credit of the class at `R9`.
    fn spend(&self, program: &mut Assembler, passed: Label, refused: Label) {
        let (known, later) = (program.label(), program.label());
        program
            .call(Function::MonotonicNanos)
            .copy(Register::R8, Register::R0)
            .store(AccessSize::Word, Register::R10, KEY, Register::R9)
            .map(Register::R1, self.spent.fd())
            .copy(Register::R2, Register::R10)
            .add(Register::R2, i32::from(KEY))
            .call(Function::MapLookup)
            .jump_if(Register::R0, JumpCondition::Equal, 0, passed);
        for of in [GroupClass::Costly, GroupClass::Plain] {
            program
                .set_wide(Register::R2, of.interval())
                .set_wide(Register::R3, of.interval() * of.burst())
                .jump_if(Register::R9, JumpCondition::Equal, of as i32, known);
        }
        program.place(known);
        // Spent is at least what a full bucket leaves, and at most now.
        program
            .load(AccessSize::Double, Register::R1, Register::R0, 0)
            .copy(Register::R4, Register::R8)
            .compute_reg(Register::R4, Operation::Subtract, Register::R3)
            .jump_if_reg(Register::R1, JumpCondition::AtLeast, Register::R4, later)
            .copy(Register::R1, Register::R4);
        program.place(later);
        program
            .jump_if_reg(Register::R1, JumpCondition::Above, Register::R8, refused)
            .compute_reg(Register::R1, Operation::Add, Register::R2)
            .store(AccessSize::Double, Register::R0, 0, Register::R1);
    }
}

/// Emits what puts the class of the frame between `R7` and `R8` into `R9`; a frame that is for no
/// group continues at `passed`.
fn class(program: &mut Assembler, passed: Label) {
    let [group, v6, tagged, plain, known] = core::array::from_fn(|_| program.label());
    reach(program, TYPE + 2, passed);
    program
        .load(AccessSize::Byte, Register::R1, Register::R7, 0)
        .jump_if(Register::R1, JumpCondition::Meets, GROUP_BIT, group)
        .jump(passed);
    program.place(group);
    program
        .load(AccessSize::Half, Register::R1, Register::R7, TYPE)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x8100), tagged)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x88a8), tagged)
        .jump(plain);
    program.place(tagged);
    reach(program, TYPE_BEHIND_TAG + 2, plain);
    program
        .set(Register::R9, GroupClass::Costly as i32)
        .load(AccessSize::Half, Register::R1, Register::R7, TYPE_BEHIND_TAG)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x0800), plain)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x0806), plain)
        .jump(known);
    program.place(v6);
    program.set(Register::R9, GroupClass::Costly as i32);
    reach(program, ICMP_TYPE + 1, known);
    program
        .load(AccessSize::Byte, Register::R1, Register::R7, NEXT_HEADER)
        .jump_if(Register::R1, JumpCondition::Equal, UDP, plain)
        .jump_if(Register::R1, JumpCondition::Differs, ICMPV6, known)
        .load(AccessSize::Byte, Register::R1, Register::R7, ICMP_TYPE)
        .jump_if(Register::R1, JumpCondition::Equal, NEIGHBOR_SOLICITATION, plain)
        .jump(known);
    program.place(plain);
    program.set(Register::R9, GroupClass::Plain as i32);
    program.place(known);
}
