//! One BPF instruction and the names of its parts.
//!
//! Written by `assembler.rs`, read by `interpreter.rs`. Layout and numbers: RFC 9669 sections 3
//! to 5, and `linux/bpf.h` for the numbers of helper functions.

/// One instruction as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Class, operation and kind of source.
    pub code: u8,
    /// Destination in the low four bits, source in the high ones.
    pub registers: u8,
    /// Distance of a jump in instructions, or offset of a load or store in bytes.
    pub offset: i16,
    /// A constant.
    pub immediate: i32,
}

impl Instruction {
    /// The number of the destination register.
    #[must_use]
    pub const fn to(self) -> u8 {
        self.registers & 0xf
    }

    /// The number of the source register, or what a load of a constant or a call says there.
    #[must_use]
    pub const fn from(self) -> u8 {
        self.registers >> 4
    }
}

/// A register. `R1` holds the context at the start, `R0` the verdict at the end; calls take `R1`
/// to `R5` and lose them; `R10` is the end of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "they are numbered")]
pub enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

impl Register {
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }
}

/// How many bytes a load or store moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessSize {
    /// One.
    Byte = 0x10,
    /// Two.
    Half = 0x08,
    /// Four.
    Word = 0x00,
    /// Eight.
    Double = 0x18,
}

impl AccessSize {
    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Double => 8,
        }
    }
}

/// When a jump is taken: the left register beside the right value. Without a sign unless said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JumpCondition {
    /// They are the same.
    Equal = 0x10,
    /// The left is greater.
    Above = 0x20,
    /// The left is greater or the same.
    AtLeast = 0x30,
    /// They have a bit in common.
    Meets = 0x40,
    /// They are not the same.
    Differs = 0x50,
    /// The left is greater, both with a sign.
    SignedAbove = 0x60,
    /// The left is greater or the same, both with a sign.
    SignedAtLeast = 0x70,
    /// The left is less.
    Below = 0xa0,
    /// The left is less or the same.
    AtMost = 0xb0,
    /// The left is less, both with a sign.
    SignedBelow = 0xc0,
    /// The left is less or the same, both with a sign.
    SignedAtMost = 0xd0,
}

/// What is done to a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `+=`, wrapping.
    Add = 0x00,
    /// `-=`, wrapping.
    Subtract = 0x10,
    /// `*=`, wrapping.
    Multiply = 0x20,
    /// `/=`, without a sign; by 0 it becomes 0.
    Divide = 0x30,
    /// `|=`.
    Or = 0x40,
    /// `&=`.
    And = 0x50,
    /// `<<=`.
    ShiftLeft = 0x60,
    /// `>>=`, zeros come in.
    ShiftRight = 0x70,
    /// `%=`, without a sign; by 0 it stays.
    Modulo = 0x90,
    /// `^=`.
    Xor = 0xa0,
    /// `>>=`, the sign comes in.
    ShiftRightSigned = 0xc0,
}

/// How wide a swap of bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// 16 bits.
    Half = 16,
    /// 32 bits.
    Word = 32,
    /// 64 bits.
    Double = 64,
}

/// Helper functions of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// `bpf_map_lookup_elem(map, key)`: the address of the value, or 0.
    MapLookup = 1,
    /// `bpf_map_update_elem(map, key, value, flags)`: 0, or an error.
    MapUpdate = 2,
    /// `bpf_map_delete_elem(map, key)`: 0, or an error.
    MapDelete = 3,
    /// `bpf_ktime_get_ns()`: the monotonic clock.
    MonotonicNanos = 5,
    /// `bpf_get_prandom_u32()`.
    Random = 7,
    /// `bpf_get_smp_processor_id()`.
    Core = 8,
    /// `bpf_tail_call(context, programs, index)`: returns only where there is no such program.
    TailCall = 12,
    /// `bpf_redirect(interface, flags)`: a verdict.
    Redirect = 23,
    /// `bpf_redirect_map(map, key, flags)`: a verdict.
    RedirectMap = 51,
    /// `bpf_xdp_adjust_meta(context, delta)`: 0, or an error.
    AdjustMeta = 54,
    /// `bpf_xdp_adjust_tail(context, delta)`: 0, or an error. Packet pointers are lost.
    AdjustTail = 65,
    /// `bpf_sk_release(socket)`.
    Release = 86,
    /// `bpf_skc_lookup_tcp(context, tuple, size, namespace, flags)`: a socket, or 0.
    LookupTcp = 99,
    /// `bpf_ktime_get_boot_ns()`: the monotonic clock that counts suspension.
    BootNanos = 125,
    /// `bpf_skc_to_tcp_sock(socket)`.
    ToTcpSocket = 137,
    /// `bpf_xdp_get_buff_len(context)`: bytes of the frame.
    FrameBytes = 188,
    /// `bpf_tcp_raw_check_syncookie_ipv4(ip, tcp)`: 0 where the kernel's own cookie is valid.
    CheckKernelCookieV4 = 206,
    /// `bpf_tcp_raw_check_syncookie_ipv6(ip, tcp)`: 0 where the kernel's own cookie is valid.
    CheckKernelCookieV6 = 207,
}
