//! A TCP segment, read from a frame into the scratch value.
//!
//! Called by both programs. What goes on was checked as `ip` and `tcp` check it, so that a segment
//! which the stack would call malformed is not answered here; what is not a plain segment (other
//! protocols, IPv4 options, fragments, extension headers, VLANs) goes to the caller's label.
//! Layouts: IEEE 802.3, RFC 791, RFC 8200, RFC 9293.

use super::{DATA, at, stack};
use crate::{AccessSize, Assembler, JumpCondition, Label, Operation, Register, Width};

/// Where the network header begins.
pub(super) const L3: i16 = 14;
/// Bytes of the fixed TCP header, and options at most.
pub(super) const TCP_BYTES: i16 = 20;
pub(super) const OPTIONS_MAX: i16 = 40;
const TCP: i32 = 6;
/// The flags that say what a segment is: ACK, RST, SYN, FIN.
const KIND_FLAGS: i32 = 0x17;
const SYN: i32 = 0x02;

/// The family of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl SegmentFamily {
    pub(super) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Bytes of the network header.
    pub(super) const fn header(self) -> i16 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }

    /// Where the TCP header begins.
    pub(super) const fn l4(self) -> i16 {
        L3 + self.header()
    }

    /// Where the addresses begin: source, then destination.
    pub(super) const fn addresses(self) -> (i16, i16) {
        match self {
            Self::V4 => (L3 + 12, L3 + 16),
            Self::V6 => (L3 + 8, L3 + 24),
        }
    }

    /// Words of a flow under a hash.
    pub(super) const fn words(self) -> usize {
        match self {
            Self::V4 => 2,
            Self::V6 => 5,
        }
    }

    pub(super) const fn number(self) -> i32 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }
}

/// A field of two bytes as it lies in memory.
pub(super) const fn wire(value: u16) -> i32 {
    value.to_be() as i32
}

/// Goes to `short` where the frame has not so many bytes. Takes `R3`.
pub(super) fn reach(a: &mut Assembler, bytes: i16, short: Label) {
    a.copy(Register::R3, Register::R7).add(Register::R3, i32::from(bytes)).jump_if_reg(
        Register::R3,
        JumpCondition::Above,
        Register::R8,
        short,
    );
}

/// The place of the frame's link addresses in `R4`; goes to `short` where it has none. Takes `R3`.
pub(super) fn head(a: &mut Assembler, short: Label) {
    a.load(AccessSize::Word, Register::R4, Register::R6, DATA)
        .copy(Register::R3, Register::R4)
        .add(Register::R3, i32::from(L3))
        .jump_if_reg(Register::R3, JumpCondition::Above, Register::R8, short);
}

/// Goes to `syn` with a plain SYN of either family, to `other` with all else: a quick look, which
/// believes the lengths. Takes `R1` and `R3`.
pub fn find_syn(a: &mut Assembler, syn: Label, other: Label) {
    let v6 = a.label();
    // The least that either family needs; a shorter IPv6 frame has no TCP header.
    reach(a, SegmentFamily::V4.l4() + TCP_BYTES, other);
    a.load(AccessSize::Half, Register::R1, Register::R7, L3 - 2)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6)
        .jump_if(Register::R1, JumpCondition::Differs, wire(0x0800), other)
        .load(AccessSize::Byte, Register::R1, Register::R7, L3 + 9)
        .jump_if(Register::R1, JumpCondition::Differs, TCP, other)
        .load(AccessSize::Byte, Register::R1, Register::R7, SegmentFamily::V4.l4() + 13)
        .compute(Register::R1, Operation::And, KIND_FLAGS)
        .jump_if(Register::R1, JumpCondition::Differs, SYN, other)
        .load(AccessSize::Byte, Register::R1, Register::R7, L3)
        .jump_if(Register::R1, JumpCondition::Differs, 0x45, other)
        .load(AccessSize::Half, Register::R1, Register::R7, L3 + 6)
        .jump_if(Register::R1, JumpCondition::Meets, wire(0x3fff), other)
        .jump(syn);
    a.place(v6);
    a.load(AccessSize::Byte, Register::R1, Register::R7, L3 + 6).jump_if(
        Register::R1,
        JumpCondition::Differs,
        TCP,
        other,
    );
    reach(a, SegmentFamily::V6.l4() + TCP_BYTES, other);
    a.load(AccessSize::Byte, Register::R1, Register::R7, SegmentFamily::V6.l4() + 13)
        .compute(Register::R1, Operation::And, KIND_FLAGS)
        .jump_if(Register::R1, JumpCondition::Equal, SYN, syn)
        .jump(other);
}

/// Goes on where the code of the frame's family is, to `odd` with other frames.
pub(super) fn families(a: &mut Assembler, odd: Label) -> [Label; 2] {
    let labels = [a.label(), a.label()];
    let [v4, v6] = labels;
    reach(a, L3, odd);
    a.load(AccessSize::Half, Register::R1, Register::R7, L3 - 2)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x0800), v4)
        .jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6)
        .jump(odd);
    labels
}

/// Reads a segment: the words of its flow, its options, the key of its listener. Goes to `odd` with
/// what is no plain segment or lies about its lengths. `number` gives the number of the link, in
/// `R3`.
pub(super) fn read(
    a: &mut Assembler,
    family: SegmentFamily,
    odd: Label,
    zone: impl Fn(&mut Assembler),
) {
    let l4 = family.l4();
    reach(a, l4 + TCP_BYTES, odd);
    match family {
        SegmentFamily::V4 => heading_v4(a, odd),
        SegmentFamily::V6 => heading_v6(a, odd),
    }
    // The segment's bytes are in `R2`.
    a.load(AccessSize::Byte, Register::R1, Register::R7, l4 + 12)
        .compute(Register::R1, Operation::ShiftRight, 4)
        .compute(Register::R1, Operation::ShiftLeft, 2)
        .jump_if(Register::R1, JumpCondition::Below, i32::from(TCP_BYTES), odd)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R2, odd)
        .add(Register::R1, -i32::from(TCP_BYTES))
        .store(AccessSize::Word, Register::R9, at::OPTIONS_END, Register::R1);
    let copied = a.label();
    for word in (0..OPTIONS_MAX).step_by(4) {
        a.jump_if(Register::R1, JumpCondition::AtMost, i32::from(word), copied);
        reach(a, l4 + TCP_BYTES + word + 4, odd);
        a.load(AccessSize::Word, Register::R2, Register::R7, l4 + TCP_BYTES + word).store(
            AccessSize::Word,
            Register::R9,
            at::OPTIONS + word,
            Register::R2,
        );
    }
    a.place(copied);
    a.store_value(AccessSize::Word, Register::R9, at::FAMILY, family.number());
    addresses(a, family);
    ports(a, family, odd, zone);
}

/// Checks the network header; leaves the bytes behind it in `R2`.
fn heading_v4(a: &mut Assembler, odd: Label) {
    a.load(AccessSize::Byte, Register::R1, Register::R7, L3)
        .jump_if(Register::R1, JumpCondition::Differs, 0x45, odd)
        .load(AccessSize::Half, Register::R1, Register::R7, L3 + 6)
        .jump_if(Register::R1, JumpCondition::Meets, wire(0x3fff), odd)
        .load(AccessSize::Byte, Register::R1, Register::R7, L3 + 9)
        .jump_if(Register::R1, JumpCondition::Differs, TCP, odd)
        .load(AccessSize::Half, Register::R2, Register::R7, L3 + 2)
        .read_wire(Register::R2)
        .jump_if(
            Register::R2,
            JumpCondition::Below,
            i32::from(SegmentFamily::V4.header() + TCP_BYTES),
            odd,
        )
        .load(AccessSize::Word, Register::R3, Register::R9, at::FRAME)
        .add(Register::R3, -i32::from(L3))
        .jump_if_reg(Register::R2, JumpCondition::Above, Register::R3, odd)
        .add(Register::R2, -i32::from(SegmentFamily::V4.header()));
}

fn heading_v6(a: &mut Assembler, odd: Label) {
    a.load(AccessSize::Byte, Register::R1, Register::R7, L3)
        .compute(Register::R1, Operation::ShiftRight, 4)
        .jump_if(Register::R1, JumpCondition::Differs, 6, odd)
        .load(AccessSize::Byte, Register::R1, Register::R7, L3 + 6)
        .jump_if(Register::R1, JumpCondition::Differs, TCP, odd)
        .load(AccessSize::Half, Register::R2, Register::R7, L3 + 4)
        .read_wire(Register::R2)
        .load(AccessSize::Word, Register::R3, Register::R9, at::FRAME)
        .add(Register::R3, -i32::from(L3 + SegmentFamily::V6.header()))
        .jump_if_reg(Register::R2, JumpCondition::Above, Register::R3, odd);
}

/// Addresses into the words of the flow, ours first, and ours into the key of the listener.
fn addresses(a: &mut Assembler, family: SegmentFamily) {
    let (source, destination) = family.addresses();
    let key = stack::LISTENER;
    match family {
        SegmentFamily::V4 => {
            a.load(AccessSize::Word, Register::R1, Register::R7, destination)
                .store_value(AccessSize::Double, Register::R10, key, 0)
                // As IPv6 has it: RFC 4291 section 2.5.5.2.
                .store_value(
                    AccessSize::Word,
                    Register::R10,
                    key + 8,
                    i32::from_ne_bytes([0, 0, 255, 255]),
                )
                .store(AccessSize::Word, Register::R10, key + 12, Register::R1)
                .wire(Register::R1, Width::Word)
                .compute(Register::R1, Operation::ShiftLeft, 32)
                .load(AccessSize::Word, Register::R2, Register::R7, source)
                .wire(Register::R2, Width::Word)
                .compute_reg(Register::R1, Operation::Or, Register::R2)
                .store(AccessSize::Double, Register::R9, at::WORDS, Register::R1);
        }
        SegmentFamily::V6 => {
            for half in [0, 8] {
                a.load(AccessSize::Double, Register::R1, Register::R7, destination + half)
                    .store(AccessSize::Double, Register::R10, key + half, Register::R1)
                    .wire(Register::R1, Width::Double)
                    .store(AccessSize::Double, Register::R9, at::WORDS + half, Register::R1)
                    .load(AccessSize::Double, Register::R1, Register::R7, source + half)
                    .wire(Register::R1, Width::Double)
                    .store(AccessSize::Double, Register::R9, at::WORDS + 16 + half, Register::R1);
            }
        }
    }
}

/// Ports and link into the words of the flow, our port into the key of the listener.
fn ports(a: &mut Assembler, family: SegmentFamily, odd: Label, zone: impl Fn(&mut Assembler)) {
    let (l4, (source, destination)) = (family.l4(), family.addresses());
    let (local, placed) = (a.label(), a.label());
    let (mask, prefix) = match family {
        SegmentFamily::V4 => (0xffff, 0xa9fe),
        SegmentFamily::V6 => (0xffc0, 0xfe80),
    };
    for end in [source, destination] {
        a.load(AccessSize::Half, Register::R1, Register::R7, end)
            .compute(Register::R1, Operation::And, wire(mask))
            .jump_if(Register::R1, JumpCondition::Equal, wire(prefix), local);
    }
    a.set(Register::R3, 0).jump(placed);
    a.place(local);
    zone(a);
    a.place(placed);
    a.load(AccessSize::Half, Register::R1, Register::R7, l4)
        .read_wire(Register::R1)
        .jump_if(Register::R1, JumpCondition::Equal, 0, odd)
        .load(AccessSize::Half, Register::R2, Register::R7, l4 + 2)
        .read_wire(Register::R2)
        .store(AccessSize::Word, Register::R10, stack::LISTENER_PORT, Register::R2)
        .compute(Register::R2, Operation::ShiftLeft, 16)
        .compute_reg(Register::R2, Operation::Or, Register::R1)
        .compute(Register::R2, Operation::ShiftLeft, 32)
        .compute_reg(Register::R2, Operation::Or, Register::R3)
        .store(
            AccessSize::Double,
            Register::R9,
            at::WORDS + (family.words() as i16 - 1) * 8,
            Register::R2,
        );
}

/// Our own addresses, as `source` asks for them.
#[derive(Clone, Copy)]
pub(super) struct OwnAddresses {
    /// A hash of them, 16 bytes each.
    pub(super) map: i32,
    /// Where in the scratch value a word has a bit for the low six bits of each address's last
    /// byte: other sources need no look-up in the map.
    pub(super) filter: Option<i16>,
}

/// Goes to `odd` with a packet from where no packet comes that is to be answered: `is_answerable`
/// of `syncache` and the checks of `ip`.
pub(super) fn source(
    a: &mut Assembler,
    family: SegmentFamily,
    own: Option<OwnAddresses>,
    odd: Label,
) {
    let (source, destination) = family.addresses();
    // From a group of the link.
    head(a, odd);
    a.load(AccessSize::Byte, Register::R1, Register::R4, 6).jump_if(
        Register::R1,
        JumpCondition::Meets,
        1,
        odd,
    );
    a.load(AccessSize::Byte, Register::R1, Register::R7, source);
    match family {
        SegmentFamily::V4 => {
            a.jump_if(Register::R1, JumpCondition::Equal, 0, odd)
                .jump_if(Register::R1, JumpCondition::Equal, 127, odd)
                .jump_if(Register::R1, JumpCondition::AtLeast, 224, odd)
                .load(AccessSize::Word, Register::R1, Register::R7, source)
                .load(AccessSize::Word, Register::R2, Register::R7, destination)
                .jump_if_reg(Register::R1, JumpCondition::Equal, Register::R2, odd);
            if own.is_some() {
                let mapped = i32::from_ne_bytes([0, 0, 255, 255]);
                a.store_value(AccessSize::Double, Register::R10, stack::SOURCE, 0)
                    .store_value(AccessSize::Word, Register::R10, stack::SOURCE + 8, mapped)
                    .store(AccessSize::Word, Register::R10, stack::SOURCE + 12, Register::R1);
            }
        }
        SegmentFamily::V6 => {
            let (named, other) = (a.label(), a.label());
            a.jump_if(Register::R1, JumpCondition::Equal, 0xff, odd)
                .load(AccessSize::Double, Register::R1, Register::R9, at::WORDS + 16)
                .load(AccessSize::Double, Register::R2, Register::R9, at::WORDS + 24)
                .jump_if(Register::R1, JumpCondition::Differs, 0, named)
                .compute(Register::R2, Operation::ShiftRight, 48)
                .jump_if(Register::R2, JumpCondition::Equal, 0, odd);
            a.place(named);
            a.load(AccessSize::Double, Register::R1, Register::R7, source)
                .load(AccessSize::Double, Register::R2, Register::R7, source + 8)
                .load(AccessSize::Double, Register::R3, Register::R7, destination)
                .load(AccessSize::Double, Register::R4, Register::R7, destination + 8)
                .jump_if_reg(Register::R1, JumpCondition::Differs, Register::R3, other)
                .jump_if_reg(Register::R2, JumpCondition::Equal, Register::R4, odd);
            a.place(other);
            if own.is_some() {
                a.store(AccessSize::Double, Register::R10, stack::SOURCE, Register::R1).store(
                    AccessSize::Double,
                    Register::R10,
                    stack::SOURCE + 8,
                    Register::R2,
                );
            }
        }
    }
    if let Some(own) = own {
        let other = a.label();
        if let Some(filter) = own.filter {
            a.load(AccessSize::Byte, Register::R1, Register::R7, destination - 1)
                .compute(Register::R1, Operation::And, 63)
                .load(AccessSize::Double, Register::R2, Register::R9, filter)
                .compute_reg(Register::R2, Operation::ShiftRight, Register::R1)
                .compute(Register::R2, Operation::And, 1)
                .jump_if(Register::R2, JumpCondition::Equal, 0, other);
        }
        a.map(Register::R1, own.map)
            .copy(Register::R2, Register::R10)
            .add(Register::R2, i32::from(stack::SOURCE))
            .call(crate::Function::MapLookup)
            .jump_if(Register::R0, JumpCondition::Differs, 0, odd);
        a.place(other);
    }
}

/// Goes to `odd` where the IPv4 header's checksum is wrong.
pub(super) fn header_sum(a: &mut Assembler, odd: Label) {
    a.load(AccessSize::Word, Register::R1, Register::R7, L3);
    for word in (4..20).step_by(4) {
        a.load(AccessSize::Word, Register::R2, Register::R7, L3 + word).compute_reg(
            Register::R1,
            Operation::Add,
            Register::R2,
        );
    }
    fold(a, Register::R1, Register::R2);
    a.jump_if(Register::R1, JumpCondition::Differs, 0xffff, odd);
}

/// Makes the sum of 16-bit words out of the sum of wider ones (RFC 1071); takes `with`.
pub(super) fn fold(a: &mut Assembler, sum: Register, with: Register) {
    for (shift, times) in [(32, 1), (16, 3)] {
        for _ in 0..times {
            a.copy(with, sum).compute(with, Operation::ShiftRight, shift);
            match shift {
                // The low half alone.
                32 => a.copy_word(sum, sum),
                _ => a.compute(sum, Operation::And, 0xffff),
            };
            a.compute_reg(sum, Operation::Add, with);
        }
    }
}
