//! A TCP segment, read from a frame into the scratch value.
//!
//! Called by both programs. What goes on was checked as `ip` and `tcp` check it, so that a segment
//! which the stack would call malformed is not answered here; what is not a plain segment (other
//! protocols, IPv4 options, fragments, extension headers, VLANs) goes to the caller's label.
//! Layouts: IEEE 802.3, RFC 791, RFC 8200, RFC 9293.

use super::{at, stack};
use crate::{Assembler, Does, Label, Reg, Size, When, Width};

/// Where the network header begins.
pub(super) const L3: i16 = 14;
/// Bytes of the fixed TCP header, and options at most.
pub(super) const TCP_BYTES: i16 = 20;
pub(super) const OPTIONS_MAX: i16 = 40;
const TCP: i32 = 6;
/// The flags that say what a segment is: ACK, RST, SYN, FIN.
const KIND: i32 = 0x17;
const SYN: i32 = 0x02;

/// The family of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
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
    a.copy(Reg::R3, Reg::R7).add(Reg::R3, i32::from(bytes)).jump_if_reg(
        Reg::R3,
        When::Above,
        Reg::R8,
        short,
    );
}

/// Goes to `syn` with a plain SYN of either family, to `other` with all else: a quick look, which
/// believes the lengths. Takes `R1` and `R3`.
pub fn find_syn(a: &mut Assembler, syn: Label, other: Label) {
    let v6 = a.label();
    // The least that either family needs; a shorter IPv6 frame has no TCP header.
    reach(a, Family::V4.l4() + TCP_BYTES, other);
    a.load(Size::Half, Reg::R1, Reg::R7, L3 - 2)
        .jump_if(Reg::R1, When::Equal, wire(0x86dd), v6)
        .jump_if(Reg::R1, When::Differs, wire(0x0800), other)
        .load(Size::Byte, Reg::R1, Reg::R7, L3 + 9)
        .jump_if(Reg::R1, When::Differs, TCP, other)
        .load(Size::Byte, Reg::R1, Reg::R7, Family::V4.l4() + 13)
        .compute(Reg::R1, Does::And, KIND)
        .jump_if(Reg::R1, When::Differs, SYN, other)
        .load(Size::Byte, Reg::R1, Reg::R7, L3)
        .jump_if(Reg::R1, When::Differs, 0x45, other)
        .load(Size::Half, Reg::R1, Reg::R7, L3 + 6)
        .jump_if(Reg::R1, When::Meets, wire(0x3fff), other)
        .jump(syn);
    a.place(v6);
    a.load(Size::Byte, Reg::R1, Reg::R7, L3 + 6).jump_if(Reg::R1, When::Differs, TCP, other);
    reach(a, Family::V6.l4() + TCP_BYTES, other);
    a.load(Size::Byte, Reg::R1, Reg::R7, Family::V6.l4() + 13)
        .compute(Reg::R1, Does::And, KIND)
        .jump_if(Reg::R1, When::Equal, SYN, syn)
        .jump(other);
}

/// Goes on where the code of the frame's family is, to `odd` with other frames.
pub(super) fn families(a: &mut Assembler, odd: Label) -> [Label; 2] {
    let labels = [a.label(), a.label()];
    let [v4, v6] = labels;
    reach(a, L3, odd);
    a.load(Size::Half, Reg::R1, Reg::R7, L3 - 2)
        .jump_if(Reg::R1, When::Equal, wire(0x0800), v4)
        .jump_if(Reg::R1, When::Equal, wire(0x86dd), v6)
        .jump(odd);
    labels
}

/// Reads a segment: the words of its flow, its options, the key of its listener. Goes to `odd` with
/// what is no plain segment or lies about its lengths. `number` gives the number of the link, in
/// `R3`.
pub(super) fn read(a: &mut Assembler, family: Family, odd: Label, zone: impl Fn(&mut Assembler)) {
    let l4 = family.l4();
    reach(a, l4 + TCP_BYTES, odd);
    match family {
        Family::V4 => heading_v4(a, odd),
        Family::V6 => heading_v6(a, odd),
    }
    // The segment's bytes are in `R2`.
    a.load(Size::Byte, Reg::R1, Reg::R7, l4 + 12)
        .compute(Reg::R1, Does::ShiftRight, 4)
        .compute(Reg::R1, Does::ShiftLeft, 2)
        .jump_if(Reg::R1, When::Below, i32::from(TCP_BYTES), odd)
        .jump_if_reg(Reg::R1, When::Above, Reg::R2, odd)
        .add(Reg::R1, -i32::from(TCP_BYTES))
        .store(Size::Word, Reg::R9, at::OPTIONS_END, Reg::R1);
    let copied = a.label();
    for word in (0..OPTIONS_MAX).step_by(4) {
        a.jump_if(Reg::R1, When::AtMost, i32::from(word), copied);
        reach(a, l4 + TCP_BYTES + word + 4, odd);
        a.load(Size::Word, Reg::R2, Reg::R7, l4 + TCP_BYTES + word).store(
            Size::Word,
            Reg::R9,
            at::OPTIONS + word,
            Reg::R2,
        );
    }
    a.place(copied);
    a.store_value(Size::Word, Reg::R9, at::FAMILY, family.number());
    addresses(a, family);
    ports(a, family, odd, zone);
}

/// Checks the network header; leaves the bytes behind it in `R2`.
fn heading_v4(a: &mut Assembler, odd: Label) {
    a.load(Size::Byte, Reg::R1, Reg::R7, L3)
        .jump_if(Reg::R1, When::Differs, 0x45, odd)
        .load(Size::Half, Reg::R1, Reg::R7, L3 + 6)
        .jump_if(Reg::R1, When::Meets, wire(0x3fff), odd)
        .load(Size::Byte, Reg::R1, Reg::R7, L3 + 9)
        .jump_if(Reg::R1, When::Differs, TCP, odd)
        .load(Size::Half, Reg::R2, Reg::R7, L3 + 2)
        .read_wire(Reg::R2)
        .jump_if(Reg::R2, When::Below, i32::from(Family::V4.header() + TCP_BYTES), odd)
        .load(Size::Word, Reg::R3, Reg::R9, at::FRAME)
        .add(Reg::R3, -i32::from(L3))
        .jump_if_reg(Reg::R2, When::Above, Reg::R3, odd)
        .add(Reg::R2, -i32::from(Family::V4.header()));
}

fn heading_v6(a: &mut Assembler, odd: Label) {
    a.load(Size::Byte, Reg::R1, Reg::R7, L3)
        .compute(Reg::R1, Does::ShiftRight, 4)
        .jump_if(Reg::R1, When::Differs, 6, odd)
        .load(Size::Byte, Reg::R1, Reg::R7, L3 + 6)
        .jump_if(Reg::R1, When::Differs, TCP, odd)
        .load(Size::Half, Reg::R2, Reg::R7, L3 + 4)
        .read_wire(Reg::R2)
        .load(Size::Word, Reg::R3, Reg::R9, at::FRAME)
        .add(Reg::R3, -i32::from(L3 + Family::V6.header()))
        .jump_if_reg(Reg::R2, When::Above, Reg::R3, odd);
}

/// Addresses into the words of the flow, ours first, and ours into the key of the listener.
fn addresses(a: &mut Assembler, family: Family) {
    let (source, destination) = family.addresses();
    let key = stack::LISTENER;
    match family {
        Family::V4 => {
            a.load(Size::Word, Reg::R1, Reg::R7, destination)
                .store_value(Size::Double, Reg::R10, key, 0)
                // As IPv6 has it: RFC 4291 section 2.5.5.2.
                .store_value(Size::Word, Reg::R10, key + 8, i32::from_ne_bytes([0, 0, 255, 255]))
                .store(Size::Word, Reg::R10, key + 12, Reg::R1)
                .wire(Reg::R1, Width::Word)
                .compute(Reg::R1, Does::ShiftLeft, 32)
                .load(Size::Word, Reg::R2, Reg::R7, source)
                .wire(Reg::R2, Width::Word)
                .compute_reg(Reg::R1, Does::Or, Reg::R2)
                .store(Size::Double, Reg::R9, at::WORDS, Reg::R1);
        }
        Family::V6 => {
            for half in [0, 8] {
                a.load(Size::Double, Reg::R1, Reg::R7, destination + half)
                    .store(Size::Double, Reg::R10, key + half, Reg::R1)
                    .wire(Reg::R1, Width::Double)
                    .store(Size::Double, Reg::R9, at::WORDS + half, Reg::R1)
                    .load(Size::Double, Reg::R1, Reg::R7, source + half)
                    .wire(Reg::R1, Width::Double)
                    .store(Size::Double, Reg::R9, at::WORDS + 16 + half, Reg::R1);
            }
        }
    }
}

/// Ports and link into the words of the flow, our port into the key of the listener.
fn ports(a: &mut Assembler, family: Family, odd: Label, zone: impl Fn(&mut Assembler)) {
    let (l4, (source, destination)) = (family.l4(), family.addresses());
    let (local, placed) = (a.label(), a.label());
    let (mask, prefix) = match family {
        Family::V4 => (0xffff, 0xa9fe),
        Family::V6 => (0xffc0, 0xfe80),
    };
    for end in [source, destination] {
        a.load(Size::Half, Reg::R1, Reg::R7, end).compute(Reg::R1, Does::And, wire(mask)).jump_if(
            Reg::R1,
            When::Equal,
            wire(prefix),
            local,
        );
    }
    a.set(Reg::R3, 0).jump(placed);
    a.place(local);
    zone(a);
    a.place(placed);
    a.load(Size::Half, Reg::R1, Reg::R7, l4)
        .read_wire(Reg::R1)
        .jump_if(Reg::R1, When::Equal, 0, odd)
        .load(Size::Half, Reg::R2, Reg::R7, l4 + 2)
        .read_wire(Reg::R2)
        .store(Size::Word, Reg::R10, stack::LISTENER_PORT, Reg::R2)
        .compute(Reg::R2, Does::ShiftLeft, 16)
        .compute_reg(Reg::R2, Does::Or, Reg::R1)
        .compute(Reg::R2, Does::ShiftLeft, 32)
        .compute_reg(Reg::R2, Does::Or, Reg::R3)
        .store(Size::Double, Reg::R9, at::WORDS + (family.words() as i16 - 1) * 8, Reg::R2);
}

/// Goes to `odd` with a packet from where no packet comes that is to be answered: `is_answerable`
/// of `syncache` and the checks of `ip`.
pub(super) fn source(a: &mut Assembler, family: Family, own: Option<i32>, odd: Label) {
    let (source, destination) = family.addresses();
    // From a group of the link.
    a.load(Size::Byte, Reg::R1, Reg::R7, 6).jump_if(Reg::R1, When::Meets, 1, odd);
    a.load(Size::Byte, Reg::R1, Reg::R7, source);
    match family {
        Family::V4 => {
            a.jump_if(Reg::R1, When::Equal, 0, odd)
                .jump_if(Reg::R1, When::Equal, 127, odd)
                .jump_if(Reg::R1, When::AtLeast, 224, odd)
                .load(Size::Word, Reg::R1, Reg::R7, source)
                .load(Size::Word, Reg::R2, Reg::R7, destination)
                .jump_if_reg(Reg::R1, When::Equal, Reg::R2, odd);
            if own.is_some() {
                let mapped = i32::from_ne_bytes([0, 0, 255, 255]);
                a.store_value(Size::Double, Reg::R10, stack::SOURCE, 0)
                    .store_value(Size::Word, Reg::R10, stack::SOURCE + 8, mapped)
                    .store(Size::Word, Reg::R10, stack::SOURCE + 12, Reg::R1);
            }
        }
        Family::V6 => {
            let (named, other) = (a.label(), a.label());
            a.jump_if(Reg::R1, When::Equal, 0xff, odd)
                .load(Size::Double, Reg::R1, Reg::R9, at::WORDS + 16)
                .load(Size::Double, Reg::R2, Reg::R9, at::WORDS + 24)
                .jump_if(Reg::R1, When::Differs, 0, named)
                .compute(Reg::R2, Does::ShiftRight, 48)
                .jump_if(Reg::R2, When::Equal, 0, odd);
            a.place(named);
            a.load(Size::Double, Reg::R1, Reg::R7, source)
                .load(Size::Double, Reg::R2, Reg::R7, source + 8)
                .load(Size::Double, Reg::R3, Reg::R7, destination)
                .load(Size::Double, Reg::R4, Reg::R7, destination + 8)
                .jump_if_reg(Reg::R1, When::Differs, Reg::R3, other)
                .jump_if_reg(Reg::R2, When::Equal, Reg::R4, odd);
            a.place(other);
            if own.is_some() {
                a.store(Size::Double, Reg::R10, stack::SOURCE, Reg::R1).store(
                    Size::Double,
                    Reg::R10,
                    stack::SOURCE + 8,
                    Reg::R2,
                );
            }
        }
    }
    if let Some(own) = own {
        a.map(Reg::R1, own)
            .copy(Reg::R2, Reg::R10)
            .add(Reg::R2, i32::from(stack::SOURCE))
            .call(crate::Function::MapLookup)
            .jump_if(Reg::R0, When::Differs, 0, odd);
    }
}

/// Goes to `odd` where the IPv4 header's checksum is wrong.
pub(super) fn header_sum(a: &mut Assembler, odd: Label) {
    a.load(Size::Word, Reg::R1, Reg::R7, L3);
    for word in (4..20).step_by(4) {
        a.load(Size::Word, Reg::R2, Reg::R7, L3 + word).compute_reg(Reg::R1, Does::Add, Reg::R2);
    }
    fold(a, Reg::R1, Reg::R2);
    a.jump_if(Reg::R1, When::Differs, 0xffff, odd);
}

/// Makes the sum of 16-bit words out of the sum of wider ones (RFC 1071); takes `with`.
pub(super) fn fold(a: &mut Assembler, sum: Reg, with: Reg) {
    for (shift, times) in [(32, 1), (16, 3)] {
        for _ in 0..times {
            a.copy(with, sum).compute(with, Does::ShiftRight, shift);
            match shift {
                // The low half alone.
                32 => a.copy_word(sum, sum),
                _ => a.compute(sum, Does::And, 0xffff),
            };
            a.compute_reg(sum, Does::Add, with);
        }
    }
}
