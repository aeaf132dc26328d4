//! `LiveSender`: floods of one frame with random words in it, made by a program in the kernel.
//!
//! Called by generators of floods. The kernel runs the program on frames of its own
//! (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18): each run writes the frame, draws the random words,
//! completes the checksums, and sends the frame out by the interface, without a system call or a
//! socket buffer for each. The program keeps the pace itself: a run that is not due drops its
//! frame, so the calling thread's core is busy meanwhile. Each call of the kernel begins and ends
//! with a wait for all cores (`synchronize_rcu`), 20 to 30 ms in which nothing is sent: calls are
//! few and long, and what is owed then is made up for at no more than four times the rate, or
//! 800,000 a second where that is more, so that a ring at the other end is not filled by it.
//! Invariants: every frame has right checksums; no more than `count` are sent; what the interface
//! has no room for is lost there, and counted by it.
//!
//! The other end of a veth takes such frames where it has a program of its own, or GRO.

use core::time::Duration;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use floodwall_bpf::{
    AccessSize, Assembler, Function, Instruction, JumpCondition, NoProgram, Operation, Register,
    Width,
};

use crate::af_xdp::bpf::{BpfProgram, run_program_live};
use crate::af_xdp::features::transmits;
use crate::af_xdp::mapped_words::MappedWords;
use crate::af_xdp::xdp_abi::{DATA, DATA_END, DROP, Deliver, TRANSMIT};
use crate::host_bpf::boot_nanos;
use crate::interface::InterfaceControl;

/// A 16-bit word of a frame that is drawn anew for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveWord {
    /// Where it is, from the start of the frame: an even number.
    pub at: u16,
    /// The least value.
    pub min: u16,
    /// The greatest one.
    pub max: u16,
    /// Whether the header checksum of IPv4 covers it.
    pub in_header: bool,
    /// Whether the checksum of TCP or UDP covers it.
    pub in_upper: bool,
}

/// What is sent.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// A frame with right checksums.
    pub frame: Vec<u8>,
    /// What differs from frame to frame.
    pub words: Vec<LiveWord>,
    /// Where the header checksum of IPv4 is; `None` of IPv6.
    pub header_sum: Option<u16>,
    /// Where the checksum of TCP or UDP is, and whether it is UDP's, which is never zero.
    pub upper_sum: (u16, bool),
    /// Frames a second at most; 0 is as many as there can be.
    pub rate: u64,
    /// Frames in all; 0 is without end.
    pub count: u64,
}

/// Words shared with the program: when the next frame is due, in 256ths of a nanosecond; how many
/// were sent; the earliest time of the next, however many are owed.
const NEXT: i16 = 0;
const SENT: i16 = 8;
const EARLIEST: i16 = 16;
const DESK_WORDS: usize = 3;
/// Frames that are owed leave at so many times the rate, or this time apart (1.25 us) where that is
/// less: of several senders on one core each has a small part of it.
const OWED_SPEED: u64 = 4;
const OWED_INTERVAL: u64 = 1250 << FINE_BITS;
/// What is owed of more than so long (100 ms), because the core was taken away, is not made up for.
const OWED_MAX: u64 = 100_000_000 << FINE_BITS;
const FINE_BITS: i32 = 8;
/// Runs of the first call, and of any.
const RUNS_FIRST: u32 = 1 << 17;
const RUNS: core::ops::RangeInclusive<u64> = 1 << 10..=1 << 24;

/// The loaded program, and the interface by which it sends.
#[derive(Debug)]
pub struct LiveSender {
    program: BpfProgram,
    desk: MappedWords,
    index: u32,
    frame: Vec<u8>,
    count: u64,
    rate: u64,
    /// Runs of the last call, and its nanoseconds.
    last: (u32, u64),
}

impl LiveSender {
    /// Has the kernel load the program that sends by the interface `name`.
    ///
    /// # Errors
    /// No such interface, or one that frames of programs do not leave by; no privilege; a frame
    /// shorter than its words; the verifier's message. A kernel that has no live frames is found at
    /// the first call of [`LiveSender::send`].
    pub fn open(name: &str, config: &LiveConfig) -> io::Result<Self> {
        let index = InterfaceControl::open()?.interface(name).index()?.cast_unsigned();
        if !transmits(index)? {
            let words = "frames of a program do not leave by it: a veth's other end needs a \
                         program of its own, or GRO";
            return Err(io::Error::other(words));
        }
        let desk = MappedWords::create(DESK_WORDS, 1)?;
        let nowhere = |NoProgram| io::Error::other("the program has a jump to nowhere");
        let code = code(config, desk.fd()).ok_or(io::ErrorKind::InvalidInput)?.map_err(nowhere)?;
        let program = BpfProgram::load(&code, Deliver::ToSockets)?;
        let (frame, last) = (config.frame.clone(), (0, 0));
        let (count, rate) = (config.count, config.rate);
        Ok(Self { program, desk, index, frame, count, rate, last })
    }

    /// Sends for about so long, the first time for less; false once all are sent. Returns early
    /// where a signal comes.
    ///
    /// # Errors
    /// The kernel refuses: it is too old, or the interface is gone.
    pub fn send(&mut self, length: Duration) -> io::Result<bool> {
        let (runs, begun) = (self.runs(length), boot_nanos());
        match run_program_live(self.program.descriptor(), (self.index, &self.frame), runs) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) => self.last = (runs, boot_nanos() - begun),
        }
        Ok(self.left() != Some(0))
    }

    /// Frames that are still to be sent; `None` without end.
    fn left(&self) -> Option<u64> {
        (self.count > 0).then(|| self.count.saturating_sub(self.sent()))
    }

    /// Runs of which the last call has shown that they take so long, and no more than it takes to
    /// send all.
    fn runs(&self, length: Duration) -> u32 {
        let second = 1_000_000_000;
        let by_rate = self.left().and_then(|left| (left * second).checked_div(self.rate));
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let nanos = by_rate.map_or(nanos, |all| nanos.min(all));
        let runs = match self.last {
            (0, _) | (_, 0) => u64::from(RUNS_FIRST),
            (runs, took) => (u128::from(nanos) * u128::from(runs) / u128::from(took)) as u64,
        };
        // Without a rate each run sends a frame.
        let most = self.left().filter(|_| self.rate == 0).unwrap_or(u64::MAX);
        runs.clamp(*RUNS.start(), *RUNS.end()).min(most).max(1) as u32
    }

    /// Frames given to the interface so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.desk.all().get(SENT as usize / 8).map_or(0, |sent| sent.load(Relaxed))
    }
}

/// A word of the frame as the machine reads it.
fn half(frame: &[u8], at: u16) -> Option<u16> {
    frame.get(usize::from(at)..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The sum of what a checksum covers, without the random words: its complement, less those words.
fn start(config: &LiveConfig, at: u16, covers: fn(&LiveWord) -> bool) -> Option<i32> {
    let mut sum = u32::from(!half(&config.frame, at)?);
    for word in config.words.iter().filter(|word| covers(word)) {
        sum += u32::from(!half(&config.frame, word.at)?);
    }
    Some((sum & 0xffff).wrapping_add(sum >> 16).cast_signed())
}

/// The program. `R6` sums the IPv4 header, `R7` is the frame, `R8` sums what is above, `R9` is the
/// desk.
fn code(config: &LiveConfig, desk: i32) -> Option<Result<Vec<Instruction>, NoProgram>> {
    let header = match config.header_sum {
        Some(at) => start(config, at, |word| word.in_header)?,
        None => 0,
    };
    let upper = start(config, config.upper_sum.0, |word| word.in_upper)?;
    let mut a = Assembler::new();
    let none = a.label();
    a.copy(Register::R6, Register::R1)
        .store_value(AccessSize::Word, Register::R10, -4, 0)
        .map(Register::R1, desk)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, -4)
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, none)
        .copy(Register::R9, Register::R0)
        .load(AccessSize::Word, Register::R7, Register::R6, DATA)
        .load(AccessSize::Word, Register::R8, Register::R6, DATA_END)
        .copy(Register::R1, Register::R7)
        .add(Register::R1, config.frame.len() as i32)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R8, none);
    if config.count > 0 {
        a.load(AccessSize::Double, Register::R1, Register::R9, SENT)
            .set_wide(Register::R2, config.count)
            .jump_if_reg(Register::R1, JumpCondition::AtLeast, Register::R2, none);
    }
    pace(&mut a, config.rate, none);
    a.load(AccessSize::Double, Register::R1, Register::R9, SENT)
        .add(Register::R1, 1)
        .store(AccessSize::Double, Register::R9, SENT, Register::R1)
        .set(Register::R6, header)
        .set(Register::R8, upper);
    write(&mut a, &config.frame);
    for word in &config.words {
        draw(&mut a, word);
    }
    if let Some(at) = config.header_sum {
        finish(&mut a, Register::R6, at, false);
    }
    finish(&mut a, Register::R8, config.upper_sum.0, config.upper_sum.1);
    a.set(Register::R0, TRANSMIT).exit();
    a.place(none);
    a.set(Register::R0, DROP).exit();
    Some(a.finish())
}

/// Goes on where a frame is due.
fn pace(a: &mut Assembler, rate: u64, none: floodwall_bpf::Label) {
    let Some(interval) = (1_000_000_000_u64 << FINE_BITS).checked_div(rate) else { return };
    let (first, due) = (a.label(), a.label());
    a.call(Function::MonotonicNanos)
        .compute(Register::R0, Operation::ShiftLeft, FINE_BITS)
        .load(AccessSize::Double, Register::R1, Register::R9, NEXT)
        .jump_if(Register::R1, JumpCondition::Equal, 0, first)
        .jump_if_reg(Register::R0, JumpCondition::Below, Register::R1, none)
        .load(AccessSize::Double, Register::R2, Register::R9, EARLIEST)
        .jump_if_reg(Register::R0, JumpCondition::Below, Register::R2, none)
        .copy(Register::R3, Register::R0)
        .set_wide(Register::R2, OWED_MAX)
        .compute_reg(Register::R3, Operation::Subtract, Register::R2)
        .jump_if_reg(Register::R1, JumpCondition::AtLeast, Register::R3, due)
        .copy(Register::R1, Register::R3)
        .jump(due);
    a.place(first);
    a.copy(Register::R1, Register::R0);
    a.place(due);
    a.set_wide(Register::R2, interval)
        .compute_reg(Register::R1, Operation::Add, Register::R2)
        .store(AccessSize::Double, Register::R9, NEXT, Register::R1)
        .set_wide(Register::R2, (interval / OWED_SPEED).min(OWED_INTERVAL))
        .compute_reg(Register::R0, Operation::Add, Register::R2)
        .store(AccessSize::Double, Register::R9, EARLIEST, Register::R0);
}

/// Writes the frame: the last receiver may have changed it.
fn write(a: &mut Assembler, frame: &[u8]) {
    let words = frame.chunks_exact(8);
    let rest = (frame.len() - words.remainder().len()) as i16;
    let last = words.remainder();
    for (at, bytes) in (0..).step_by(8).zip(words) {
        let word = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        a.set_wide(Register::R1, word).store(AccessSize::Double, Register::R7, at, Register::R1);
    }
    for (at, byte) in (rest..).zip(last) {
        a.store_value(AccessSize::Byte, Register::R7, at, i32::from(*byte));
    }
}

/// Draws a word, and adds it to the sums.
fn draw(a: &mut Assembler, word: &LiveWord) {
    let span = i32::from(word.max.saturating_sub(word.min)) + 1;
    a.call(Function::Random);
    match span {
        0x1_0000 => a.compute(Register::R0, Operation::And, 0xffff),
        _ => a
            .compute(Register::R0, Operation::Modulo, span)
            .add(Register::R0, i32::from(word.min))
            .wire(Register::R0, Width::Half),
    };
    a.store(AccessSize::Half, Register::R7, word.at.cast_signed(), Register::R0);
    if word.in_header {
        a.compute_reg(Register::R6, Operation::Add, Register::R0);
    }
    if word.in_upper {
        a.compute_reg(Register::R8, Operation::Add, Register::R0);
    }
}

/// Writes a checksum out of its sum.
fn finish(a: &mut Assembler, sum: Register, at: u16, is_udp: bool) {
    for _ in 0..2 {
        a.copy(Register::R1, sum)
            .compute(Register::R1, Operation::ShiftRight, 16)
            .compute(sum, Operation::And, 0xffff)
            .compute_reg(sum, Operation::Add, Register::R1);
    }
    a.compute(sum, Operation::Xor, 0xffff).compute(sum, Operation::And, 0xffff);
    if is_udp {
        let some = a.label();
        a.jump_if(sum, JumpCondition::Differs, 0, some).set(sum, 0xffff);
        a.place(some);
    }
    a.store(AccessSize::Half, Register::R7, at.cast_signed(), sum);
}

#[cfg(test)]
mod tests {
    use floodwall_bpf::interpreter::{Machine, verdict};

    use super::*;

    /// A program that sends so many frames a second, and what it runs on.
    struct Paced {
        machine: Machine,
        code: Vec<Instruction>,
    }

    impl Paced {
        fn new(rate: u64) -> Self {
            let mut machine = Machine::new();
            machine.nanos = 1_000_000_000;
            let desk = machine.array(DESK_WORDS * 8, 1);
            let frame = vec![0; 64];
            let (words, header_sum, upper_sum) = (Vec::new(), None, (50, false));
            let config = LiveConfig { frame, words, header_sum, upper_sum, rate, count: 0 };
            Self { machine, code: code(&config, desk).unwrap().unwrap() }
        }

        /// Frames sent by runs every 100 ns for so long.
        fn sends(&mut self, length: Duration) -> u64 {
            let runs = length.as_nanos() / 100;
            let sent = (0..runs).filter(|_| {
                self.machine.nanos += 100;
                let outcome = self.machine.run(&self.code, &mut vec![0; 64]).unwrap();
                outcome.verdict == verdict::TRANSMIT
            });
            sent.count() as u64
        }
    }

    #[test]
    fn what_a_pause_owes_is_made_up_for_at_four_times_the_rate() {
        let millis = Duration::from_millis;
        let mut paced = Paced::new(200_000);
        assert_eq!(paced.sends(millis(2)), 400);
        // As between two calls of the kernel.
        paced.machine.nanos += 30_000_000;
        let burst = paced.sends(millis(1));
        assert!((750..=800).contains(&burst), "{burst} in a millisecond");
        let all = burst + paced.sends(millis(11));
        assert!((8398..=8402).contains(&all), "the 8,400 of 42 ms: {all}");
        assert_eq!(paced.sends(millis(1)), 200);
        // Of a second in which another had the core a tenth is made up for.
        paced.machine.nanos += 1_000_000_000;
        let owed = paced.sends(millis(40));
        assert!((27_900..=28_010).contains(&owed), "20,000 and 8,000: {owed}");
    }

    #[test]
    fn a_slow_sender_that_seldom_has_the_core_keeps_its_rate() {
        let mut paced = Paced::new(50_000);
        let sent: u64 = (0..20)
            .map(|_| {
                paced.machine.nanos += 14_000_000;
                paced.sends(Duration::from_millis(1))
            })
            .sum();
        assert!(
            (14_200..=15_000).contains(&sent),
            "300 ms, a fifteenth of them on the core: {sent}"
        );
    }
}
