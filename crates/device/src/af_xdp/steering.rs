//! The program at the interface that says whose a frame is: ours by its link address, or the
//! host's own, as before.
//!
//! Called by `af_xdp.rs`. A frame for our station's address goes to the socket of its queue; all
//! else passes to the system, groups and broadcasts too, of which the device takes a copy through
//! a packet socket: so the host keeps its interface. Invariants: what is not for our unicast
//! address is never taken from the system; the program is gone when the last device of the
//! interface is dropped, or the process ends.
//!
//! # Under flood
//! Reachable by anyone on the link. No memory grows. Work per frame: three loads and one look-up
//! of the queue's socket, and what the guard asks for us (`guard.rs`); a frame for us whose queue
//! has no socket, or whose socket has no room, ends there.

use std::io;

use floodwall_base::MacAddr;
use floodwall_bpf::{Assembler, Function, Instruction, Label, NoProgram, Reg, Size, When};

use super::bpf::{Attach, Attachment, Map, MapKind, Program};
use super::cookies::{Back, Cookies, Plan};
use super::guard::Guard;
use super::guard::destination::{Elsewhere, Maps, look};
use super::guard::{reach, wire};

/// Verdicts of XDP programs.
pub(super) const DROP: i32 = 1;
const PASS: i32 = 2;
pub(super) const TRANSMIT: i32 = 3;
/// Where the context has the frame's first byte, its end, and the queue.
pub(super) const DATA: i16 = 0;
pub(super) const DATA_END: i16 = 4;
pub(super) const RX_QUEUE: i16 = 16;
/// Bytes that must be there to tell whose a frame is.
const ADDRESS_BYTES: i32 = 6;

/// What the program counts, by index of its map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    /// Frames for our station.
    Ours = 0,
    /// Frames left to the system.
    Passed = 1,
}

const COUNTS: u32 = 2;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Steering {
    sockets: Map,
    counts: Map,
    guard: Option<Guard>,
    cookies: Option<Cookies>,
    program: Program,
    attached: Option<Attachment>,
    is_shared: bool,
}

/// Whose frames the program looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Station {
    pub(crate) mac: MacAddr,
    /// Whether the host has the same link address: then addresses say whose a frame is.
    pub(crate) is_shared: bool,
}

impl Steering {
    /// Loads the program for the station at `mac`, on an interface of `queues` receive queues; with
    /// a guard where the kernel lets us have one, else `notes` says why not.
    /// `plan` says what else it is to do.
    pub(crate) fn load(
        station: Station,
        queues: u32,
        plan: &Plan,
        notes: &mut Vec<String>,
    ) -> io::Result<Self> {
        if !plan.filters {
            return Self::load_with(station, queues, (None, None), notes);
        }
        let guarded = Guard::create(queues.max(1))
            .and_then(|guard| Self::load_with(station, queues, (Some(guard), plan.answers), notes));
        guarded.or_else(|error| {
            if station.is_shared {
                return Err(error);
            }
            let plain = Self::load_with(station, queues, (None, None), notes)?;
            notes.push(format!(
                "strangers are not held back at the interface, so a flood can crowd out friends in \
                 the ring: the system says {error}; Linux 5.18 or later should do"
            ));
            Ok(plain)
        })
    }

    fn load_with(
        station: Station,
        queues: u32,
        (guard, answers): (Option<Guard>, Option<Back>),
        notes: &mut Vec<String>,
    ) -> io::Result<Self> {
        let sockets = Map::create(MapKind::Sockets, 4, queues.max(1))?;
        let counts = Map::create(MapKind::PerCpuArray, 8, COUNTS)?;
        let cookies = match &guard {
            Some(guard) => Self::load_cookies(guard, sockets.fd(), queues, answers, notes),
            None => None,
        };
        let programs = cookies.as_ref().map(Cookies::programs);
        let code = code(station, sockets.fd(), counts.fd(), guard.as_ref(), programs)
            .map_err(|NoProgram| io::Error::other("the program has a jump to nowhere"))?;
        let program = Program::load(&code)?;
        let is_shared = station.is_shared;
        Ok(Self { sockets, counts, guard, cookies, program, attached: None, is_shared })
    }

    /// The programs for SYNs and ACKs, where the kernel takes them; else `notes` says why not.
    fn load_cookies(
        guard: &Guard,
        sockets: i32,
        queues: u32,
        answers: Option<Back>,
        notes: &mut Vec<String>,
    ) -> Option<Cookies> {
        match Cookies::load(guard, sockets, queues.max(1), answers?) {
            Ok(cookies) => Some(cookies),
            Err(error) => {
                notes.push(format!(
                    "SYNs are not answered at the interface: the system says {error}; Linux 5.18 or \
                     later should do"
                ));
                None
            }
        }
    }

    /// Answers are to leave by an interface that runs its program so.
    pub(crate) fn reach_peer(&mut self, plan: &Plan, is_generic: bool, notes: &mut Vec<String>) {
        if let Some(cookies) = &mut self.cookies {
            cookies.reach_peer(plan, is_generic, notes);
        }
    }

    /// The programs for SYNs and ACKs, where there are any.
    pub(crate) const fn cookies(&self) -> Option<&Cookies> {
        self.cookies.as_ref()
    }

    /// Whether the host has our link address as well.
    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The first line of defence, where there is one.
    pub(crate) const fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Attaches it to the interface.
    pub(crate) fn attach(&mut self, index: u32, how: Attach) -> io::Result<()> {
        self.attached = Some(self.program.attach(index, how)?);
        Ok(())
    }

    /// From now on the frames of `queue` for us go to `socket`.
    pub(crate) fn take(&self, queue: u32, socket: i32) -> io::Result<()> {
        self.sockets.set(queue, socket.cast_unsigned())
    }

    /// Frames for our station since the start, those included that found no room.
    pub(crate) fn ours(&self) -> io::Result<u64> {
        self.counts.sum(Count::Ours as u32)
    }

    /// Frames that the system got.
    pub(crate) fn passed(&self) -> io::Result<u64> {
        self.counts.sum(Count::Passed as u32)
    }

    /// The program's descriptor.
    #[cfg(test)]
    pub(crate) fn program(&self) -> i32 {
        self.program.fd()
    }

    /// Runs it on a frame that no device has seen: see [`Program::run`].
    pub(crate) fn run(&self, frame: &mut Vec<u8>, times: u32) -> io::Result<(i32, u32)> {
        self.program.run(frame, times).map(|(verdict, nanos)| (verdict.cast_signed(), nanos))
    }

    /// What it says of a frame that no device has seen.
    #[cfg(test)]
    pub(crate) fn verdict(&self, frame: &[u8]) -> io::Result<i32> {
        self.program.verdict(frame).map(u32::cast_signed)
    }
}

/// The program. Six bytes are compared as four and two, in the machine's own byte order.
fn code(
    station: Station,
    sockets: i32,
    counts: i32,
    guard: Option<&Guard>,
    cookies: Option<i32>,
) -> Result<Vec<Instruction>, NoProgram> {
    let [a, b, c, d, e, f] = station.mac.0;
    let mut program = Assembler::new();
    let (pass, through) = (program.label(), program.label());
    program
        .copy(Reg::R6, Reg::R1)
        .load(Size::Word, Reg::R2, Reg::R6, DATA)
        .load(Size::Word, Reg::R3, Reg::R6, DATA_END)
        .copy(Reg::R4, Reg::R2)
        .add(Reg::R4, ADDRESS_BYTES)
        .jump_if_reg(Reg::R4, When::Above, Reg::R3, pass)
        .load(Size::Word, Reg::R4, Reg::R2, 0)
        .jump_if_word(Reg::R4, When::Differs, u32::from_ne_bytes([a, b, c, d]), pass)
        .load(Size::Half, Reg::R4, Reg::R2, 4)
        .jump_if_word(Reg::R4, When::Differs, u32::from(u16::from_ne_bytes([e, f])), pass);
    if let Some(guard) = guard.filter(|_| station.is_shared) {
        own(&mut program, &guard.maps(), pass);
    }
    count(&mut program, counts, Count::Ours);
    if let Some(guard) = guard {
        guard.emit(&mut program, through, cookies);
    }
    program.place(through);
    program
        .map(Reg::R1, sockets)
        .load(Size::Word, Reg::R2, Reg::R6, RX_QUEUE)
        .set(Reg::R3, DROP)
        .call(Function::RedirectMap)
        .exit();
    program.place(pass);
    count(&mut program, counts, Count::Passed);
    program.set(Reg::R0, PASS).exit();
    program.finish()
}

/// Goes on with what is for an address that we want; the rest goes to `pass`, what nobody can tell
/// the owner of by an address too. The frame begins at `R2` and ends at `R3`.
fn own(program: &mut Assembler, maps: &Maps, pass: Label) {
    const TYPE: i16 = 12;
    const TAG: i16 = 4;
    let (tagged, ours) = (program.label(), program.label());
    program.copy(Reg::R7, Reg::R2).copy(Reg::R8, Reg::R3);
    reach(program, TYPE + 2, pass);
    program.load(Size::Half, Reg::R1, Reg::R7, TYPE).jump_if(
        Reg::R1,
        When::Equal,
        wire(0x8100),
        tagged,
    );
    network(program, maps, TYPE + 2, (ours, pass));
    // A priority tag (IEEE 802.1Q) belongs to no other link.
    program.place(tagged);
    reach(program, TYPE + 2 + TAG, pass);
    program
        .load(Size::Half, Reg::R1, Reg::R7, TYPE + 2)
        .jump_if(Reg::R1, When::Meets, wire(0x0fff), pass)
        .load(Size::Half, Reg::R1, Reg::R7, TYPE + TAG);
    network(program, maps, TYPE + 2 + TAG, (ours, pass));
    program.place(ours);
}

/// Looks at the destination of a packet whose header is at `l3` and whose kind is in `R1`.
fn network(program: &mut Assembler, maps: &Maps, l3: i16, (ours, pass): (Label, Label)) {
    let v6 = program.label();
    let elsewhere = Elsewhere { foreign: pass, group: pass };
    program.jump_if(Reg::R1, When::Equal, wire(0x86dd), v6).jump_if(
        Reg::R1,
        When::Differs,
        wire(0x0800),
        pass,
    );
    reach(program, l3 + 20, pass);
    look(program, maps, (false, l3), elsewhere);
    program.jump(ours);
    program.place(v6);
    reach(program, l3 + 40, pass);
    look(program, maps, (true, l3), elsewhere);
    program.jump(ours);
}

/// Adds one to a count of this core's.
fn count(program: &mut Assembler, counts: i32, which: Count) {
    const KEY: i16 = -4;
    let missing = program.label();
    program
        .set(Reg::R1, which as i32)
        .store(Size::Word, Reg::R10, KEY, Reg::R1)
        .map(Reg::R1, counts)
        .copy(Reg::R2, Reg::R10)
        .add(Reg::R2, i32::from(KEY))
        .call(Function::MapLookup)
        .jump_if(Reg::R0, When::Equal, 0, missing)
        .load(Size::Double, Reg::R1, Reg::R0, 0)
        .add(Reg::R1, 1)
        .store(Size::Double, Reg::R0, 0, Reg::R1);
    program.place(missing);
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATION: MacAddr = MacAddr([2, 0x11, 0x22, 0x33, 0x44, 0x55]);

    fn loaded() -> Option<Steering> {
        let station = Station { mac: STATION, is_shared: false };
        match Steering::load(station, 4, &Plan::default(), &mut Vec::new()) {
            Ok(steering) => Some(steering),
            Err(error) => {
                eprintln!("SKIPPED: the kernel loads no program here: {error}");
                None
            }
        }
    }

    fn frame(to: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = to.to_vec();
        bytes.extend([2, 0, 0, 0, 0, 9]);
        bytes.extend(ether_type.to_be_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().max(60), 0);
        bytes
    }

    /// Without sockets a frame of ours ends at the interface, and one of the host's passes.
    #[test]
    fn only_what_is_for_our_station_is_taken_whatever_it_carries() {
        let Some(steering) = loaded() else { return };
        let kinds: [(u16, &[u8]); 6] = [
            (0x0800, &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]),
            (0x0800, &[0x45, 0, 0, 28, 0, 0, 0x20, 7, 64, 6]),
            (0x86dd, &[0x60, 0, 0, 0, 0, 8, 17, 64]),
            (0x86dd, &[0x60, 0, 0, 0, 0, 8, 0, 64]),
            (0x8100, &[0, 0, 8, 0, 0x45]),
            (0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]),
        ];
        for (kind, payload) in kinds {
            assert_eq!(
                steering.verdict(&frame(STATION.0, kind, payload)).unwrap(),
                DROP,
                "{kind:#x}"
            );
        }
        let mut passed = 0;
        for bit in 0..48 {
            let mut other = STATION.0;
            other[bit / 8] ^= 1 << (bit % 8);
            for (kind, payload) in kinds {
                assert_eq!(
                    steering.verdict(&frame(other, kind, payload)).unwrap(),
                    PASS,
                    "bit {bit}"
                );
                passed += 1;
            }
        }
        for group in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]] {
            assert_eq!(steering.verdict(&frame(group, 0x86dd, &[0x60])).unwrap(), PASS);
            passed += 1;
        }
        assert_eq!(steering.ours().unwrap(), kinds.len() as u64);
        assert_eq!(steering.passed().unwrap(), passed);
    }

    #[test]
    fn a_frame_of_a_header_alone_is_told_apart_too() {
        let Some(steering) = loaded() else { return };
        // The kernel runs no program on less than a link header.
        let mut shortest = STATION.0.to_vec();
        shortest.extend([0; 8]);
        assert_eq!(steering.verdict(&shortest).unwrap(), DROP);
        shortest[5] ^= 1;
        assert_eq!(steering.verdict(&shortest).unwrap(), PASS);
    }
}
