//! The XDP program at the interface: it steers frames for our link address to our sockets and
//! passes all others to the host's stack.
//!
//! Called by `af_xdp.rs`. A frame for our station's address goes to the socket of its queue; all
//! else passes to the system, groups and broadcasts too, up to their credit, of which the device
//! takes a copy through a packet socket: so the host keeps its interface. Invariants: what is not
//! for our unicast address is never taken from the system; the program is gone when the last device
//! of the interface is dropped, or the process ends.
//!
//! # Under flood
//! Reachable by any sender on the link. No memory grows. Work per frame: three loads, one look-up
//! of the queue's socket, and the filter's checks (`filter.rs`). A frame for us is dropped if its
//! queue has no socket or the socket has no room.

use crate::af_xdp::link_station::LinkStation;
use crate::af_xdp::xdp_abi::{DATA, DATA_END, DROP, Deliver, PASS};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::io;

use floodwall_base::Instant;
use floodwall_bpf::{
    AccessSize, Assembler, Function, Instruction, JumpCondition, Label, NoProgram, Register,
};
use floodwall_sync::lock::Mutex;

use super::bpf::{Attach, Attachment, BpfProgram, Map, MapKind};
use super::cookies::{CookieProgramPlan, Cookies};
use super::destination_maps::DestinationMaps;
use super::filter::XdpFilter;
use super::filter::destination::{OtherDestinations, look};
use super::filter::{reach, wire};
use super::line_lacks::LineLacks;

/// Bytes of the frame that the program must see to read the destination address.
const ADDRESS_BYTES: i32 = 6;

/// What the program counts, by index of its map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueCount {
    /// Frames for our station.
    Ours = 0,
    /// Frames left to the system.
    Passed = 1,
    /// Frames for groups dropped beyond their credit.
    GroupsRefused = 2,
}

const COUNTS: u32 = 3;

/// The loaded XDP program, its socket map and its counters; attached while the value exists.
#[derive(Debug)]
pub(crate) struct QueueSteering {
    sockets: Map,
    counts: Map,
    filter: Option<XdpFilter>,
    cookies: Option<Cookies>,
    program: BpfProgram,
    attached: Mutex<Option<AttachedProgram>>,
    /// When the attachment was looked at last, in nanoseconds, and how often it was gone.
    looked: AtomicU64,
    lost: AtomicU64,
    is_shared: bool,
    lacks: LineLacks,
}

/// Where the program is attached.
#[derive(Debug)]
struct AttachedProgram {
    index: u32,
    how: Attach,
    attachment: Attachment,
}

/// How often the attachment is looked at.
const LOOK_NANOS: u64 = 1_000_000_000;

impl QueueSteering {
    /// Loads the program for the station at `mac`, on an interface of `queues` receive queues. It
    /// includes what `plan` asks for if the kernel supports it; otherwise `notes` gives the reason.
    pub(crate) fn load(
        station: LinkStation,
        queues: u32,
        plan: &CookieProgramPlan,
        notes: &mut Vec<String>,
    ) -> io::Result<Self> {
        let bare = CookieProgramPlan { answers: None, ..*plan };
        if !plan.filters {
            let plain = Self::load_with(station, queues, (None, &bare), notes)?;
            return Ok(plain.without("it is off, as configured"));
        }
        let filtered = XdpFilter::create(queues.max(1), plan.flow_credit)
            .and_then(|filter| Self::load_with(station, queues, (Some(filter), plan), notes));
        filtered.or_else(|error| {
            if station.is_shared || plan.deliver == Deliver::Onward {
                return Err(error);
            }
            let plain = Self::load_with(station, queues, (None, &bare), notes)?;
            let plain =
                plain.without(&format!("the kernel reports {error}; use Linux 5.18 or later"));
            notes.push(format!(
                "unverified traffic is not limited at the interface, so a flood can crowd out \
                 established flows in the ring: the kernel reports {error}; use Linux 5.18 or later"
            ));
            Ok(plain)
        })
    }

    /// It has no filter, for this reason.
    fn without(mut self, reason: &str) -> Self {
        self.lacks.filter = Some(reason.to_owned());
        self
    }

    /// Why it does less than it could.
    pub(super) const fn lacks(&self) -> &LineLacks {
        &self.lacks
    }

    fn load_with(
        station: LinkStation,
        queues: u32,
        (filter, plan): (Option<XdpFilter>, &CookieProgramPlan),
        notes: &mut Vec<String>,
    ) -> io::Result<Self> {
        let sockets = Map::create(MapKind::Sockets, 4, queues.max(1))?;
        let counts = Map::create(MapKind::PerCpuArray, 8, COUNTS)?;
        let cookies = match &filter {
            Some(filter) => Self::load_cookies(filter, sockets.fd(), queues, plan, notes),
            None => Err(String::new()),
        };
        let (cookies, lack) = match cookies {
            Ok(cookies) => (Some(cookies), None),
            Err(lack) => (None, Some(lack)),
        };
        let lacks = LineLacks { filter: None, cookies: lack };
        let programs = cookies.as_ref().map(Cookies::programs);
        let code =
            code(station, (sockets.fd(), plan.deliver), counts.fd(), filter.as_ref(), programs)
                .map_err(|NoProgram| io::Error::other("the program has a jump to nowhere"))?;
        let program = BpfProgram::load(&code, plan.deliver)?;
        let is_shared = station.is_shared;
        let (looked, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let attached = Mutex::new(None);
        Ok(Self {
            sockets,
            counts,
            filter,
            cookies,
            program,
            attached,
            looked,
            lost,
            is_shared,
            lacks,
        })
    }

    /// The programs for SYNs and ACKs, if they are asked for and the kernel takes them; otherwise
    /// the reason, which is in `notes` too.
    fn load_cookies(
        filter: &XdpFilter,
        sockets: i32,
        queues: u32,
        plan: &CookieProgramPlan,
        notes: &mut Vec<String>,
    ) -> Result<Cookies, String> {
        let Some(answers) = plan.answers else {
            return Err("they are not asked for (`--first-line filter`)".to_owned());
        };
        match Cookies::load(filter, (sockets, plan.deliver), queues.max(1), answers) {
            Ok(cookies) => Ok(cookies),
            Err(error) => {
                notes.push(format!(
                    "SYNs are not answered at the interface: the kernel reports {error}; use Linux \
                     5.18 or later"
                ));
                Err(format!("the kernel reports {error}; use Linux 5.18 or later"))
            }
        }
    }

    /// Answers are to leave by an interface that runs its program so.
    pub(crate) fn reach_peer(
        &mut self,
        plan: &CookieProgramPlan,
        is_generic: bool,
        notes: &mut Vec<String>,
    ) {
        if let Some(cookies) = &mut self.cookies {
            cookies.reach_peer(plan, is_generic, notes);
        }
    }

    /// The programs for SYNs and ACKs, if there are any.
    pub(crate) const fn cookies(&self) -> Option<&Cookies> {
        self.cookies.as_ref()
    }

    /// Whether frames that are redirected to the interface leave by it; nothing is known of a veth
    /// without the programs for SYNs.
    pub(crate) fn takes_redirected(&self, is_veth: bool) -> bool {
        self.cookies.as_ref().map_or(!is_veth, Cookies::transmits)
    }

    /// Whether the host has our link address as well.
    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The first line of defence, where there is one.
    pub(crate) const fn filter(&self) -> Option<&XdpFilter> {
        self.filter.as_ref()
    }

    /// Attaches it to the interface.
    pub(crate) fn attach(&self, index: u32, how: Attach) -> io::Result<()> {
        let attachment = self.program.attach(index, how)?;
        // No code panics while it holds this lock.
        if let Ok(mut attached) = self.attached.lock() {
            *attached = Some(AttachedProgram { index, how, attachment });
        }
        Ok(())
    }

    /// Takes it off the interface, until it is attached again.
    pub(crate) fn detach(&self) {
        let attached = self.attached.lock().ok().and_then(|mut attached| attached.take());
        drop(attached);
    }

    /// Looks once a second whether the program is still at its interface. Where it was taken off
    /// it is attached again: at once, or as soon as another program that has its place is gone.
    /// For the worker's turns; costs a load but for that once, and then a system call.
    pub(crate) fn look_after(&self, now: Instant) {
        let nanos = now.as_nanos();
        let looked = self.looked.load(Relaxed);
        if nanos.saturating_sub(looked) >= LOOK_NANOS {
            self.looked.store(nanos, Relaxed);
            self.look();
        }
    }

    #[cold]
    fn look(&self) {
        // No code panics while it holds this lock.
        let Ok(mut attached) = self.attached.lock() else { return };
        let Some(here) = attached.as_mut() else { return };
        if here.attachment.is_in_force().unwrap_or(true) {
            return;
        }
        self.lost.fetch_add(1, Relaxed);
        // An interface that is gone is found by its device.
        if let Ok(anew) = self.program.attach(here.index, here.how) {
            here.attachment = anew;
        }
    }

    /// How often a look found that the program was not at its interface.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// From now on the frames of `queue` for us go to `socket`.
    pub(crate) fn take(&self, queue: u32, socket: i32) -> io::Result<()> {
        self.sockets.set(queue, socket.cast_unsigned())
    }

    /// Frames for our station since the start, those included that found no room.
    pub(crate) fn ours(&self) -> io::Result<u64> {
        self.counts.sum(QueueCount::Ours as u32)
    }

    /// Frames that the system got.
    pub(crate) fn passed(&self) -> io::Result<u64> {
        self.counts.sum(QueueCount::Passed as u32)
    }

    /// Frames for groups that were dropped beyond their credit.
    pub(crate) fn groups_refused(&self) -> io::Result<u64> {
        self.counts.sum(QueueCount::GroupsRefused as u32)
    }

    /// The program's descriptor.
    #[cfg(test)]
    pub(crate) fn program(&self) -> i32 {
        self.program.fd()
    }

    /// Runs it on a frame by a test run that involves no device: see [`BpfProgram::run`].
    pub(crate) fn run(&self, frame: &mut Vec<u8>, times: u32) -> io::Result<(i32, u32)> {
        self.program.run(frame, times).map(|(verdict, nanos)| (verdict.cast_signed(), nanos))
    }

    /// The program's verdict for `frame`, by a test run that involves no device.
    #[cfg(test)]
    pub(crate) fn verdict(&self, frame: &[u8]) -> io::Result<i32> {
        self.program.verdict(frame).map(u32::cast_signed)
    }
}

/// The program. Six bytes are compared as four and two, in the machine's own byte order.
fn code(
    station: LinkStation,
    (sockets, deliver): (i32, Deliver),
    counts: i32,
    filter: Option<&XdpFilter>,
    cookies: Option<i32>,
) -> Result<Vec<Instruction>, NoProgram> {
    let [a, b, c, d, e, f] = station.mac.0;
    let mut program = Assembler::new();
    let (pass, through) = (program.label(), program.label());
    program
        .copy(Register::R6, Register::R1)
        .load(AccessSize::Word, Register::R2, Register::R6, DATA)
        .load(AccessSize::Word, Register::R3, Register::R6, DATA_END)
        .copy(Register::R4, Register::R2)
        .add(Register::R4, ADDRESS_BYTES)
        .jump_if_reg(Register::R4, JumpCondition::Above, Register::R3, pass)
        .load(AccessSize::Word, Register::R4, Register::R2, 0)
        .jump_if_word(Register::R4, JumpCondition::Differs, u32::from_ne_bytes([a, b, c, d]), pass)
        .load(AccessSize::Half, Register::R4, Register::R2, 4)
        .jump_if_word(
            Register::R4,
            JumpCondition::Differs,
            u32::from(u16::from_ne_bytes([e, f])),
            pass,
        );
    if let Some(filter) = filter.filter(|_| station.is_shared) {
        own(&mut program, &filter.maps(), pass);
    }
    count(&mut program, counts, QueueCount::Ours);
    if let Some(filter) = filter {
        filter.emit(&mut program, through, (cookies, deliver == Deliver::ToSockets));
    }
    program.place(through);
    deliver.emit(&mut program, sockets);
    program.place(pass);
    let (passed, refused) = (program.label(), program.label());
    if let Some(filter) = filter {
        filter.groups().emit(&mut program, passed, refused);
    }
    program.place(passed);
    count(&mut program, counts, QueueCount::Passed);
    program.set(Register::R0, PASS).exit();
    // The verifier refuses code that nothing reaches.
    if program.is_used(refused) {
        program.place(refused);
        count(&mut program, counts, QueueCount::GroupsRefused);
        program.set(Register::R0, DROP).exit();
    }
    program.finish()
}

/// Continues with frames for an address that the stack wants. All others go to `pass`, including
/// frames without a readable address. The frame begins at `R2` and ends at `R3`.
fn own(program: &mut Assembler, maps: &DestinationMaps, pass: Label) {
    const TYPE: i16 = 12;
    const TAG: i16 = 4;
    let (tagged, ours) = (program.label(), program.label());
    program.copy(Register::R7, Register::R2).copy(Register::R8, Register::R3);
    reach(program, TYPE + 2, pass);
    program.load(AccessSize::Half, Register::R1, Register::R7, TYPE).jump_if(
        Register::R1,
        JumpCondition::Equal,
        wire(0x8100),
        tagged,
    );
    network(program, maps, TYPE + 2, (ours, pass));
    // A priority tag (IEEE 802.1Q) belongs to no other link.
    program.place(tagged);
    reach(program, TYPE + 2 + TAG, pass);
    program
        .load(AccessSize::Half, Register::R1, Register::R7, TYPE + 2)
        .jump_if(Register::R1, JumpCondition::Meets, wire(0x0fff), pass)
        .load(AccessSize::Half, Register::R1, Register::R7, TYPE + TAG);
    network(program, maps, TYPE + 2 + TAG, (ours, pass));
    program.place(ours);
}

/// Checks the destination of a packet: its header starts at `l3` and `R1` holds the EtherType.
fn network(program: &mut Assembler, maps: &DestinationMaps, l3: i16, (ours, pass): (Label, Label)) {
    let v6 = program.label();
    let elsewhere = OtherDestinations { foreign: pass, group: pass };
    program.jump_if(Register::R1, JumpCondition::Equal, wire(0x86dd), v6).jump_if(
        Register::R1,
        JumpCondition::Differs,
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
fn count(program: &mut Assembler, counts: i32, which: QueueCount) {
    const KEY: i16 = -4;
    let missing = program.label();
    program
        .set(Register::R1, which as i32)
        .store(AccessSize::Word, Register::R10, KEY, Register::R1)
        .map(Register::R1, counts)
        .copy(Register::R2, Register::R10)
        .add(Register::R2, i32::from(KEY))
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, missing)
        .load(AccessSize::Double, Register::R1, Register::R0, 0)
        .add(Register::R1, 1)
        .store(AccessSize::Double, Register::R0, 0, Register::R1);
    program.place(missing);
}

#[cfg(test)]
mod tests {
    use floodwall_base::MacAddr;

    use super::*;

    const STATION: MacAddr = MacAddr([2, 0x11, 0x22, 0x33, 0x44, 0x55]);

    fn loaded() -> Option<QueueSteering> {
        let station = LinkStation { mac: STATION, is_shared: false };
        match QueueSteering::load(station, 4, &CookieProgramPlan::default(), &mut Vec::new()) {
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
    fn only_frames_for_our_station_are_taken_with_any_payload() {
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

    /// A router advertisement may cost the host a third of a millisecond.
    #[test]
    fn frames_for_groups_pass_up_to_a_credit_which_is_small_for_costly_ones() {
        const MANY: u32 = 2000;
        let Some(steering) = loaded() else { return };
        let refused_of = |frame: &[u8], times: u32| {
            let before = steering.groups_refused().unwrap();
            steering.run(&mut frame.to_vec(), times).unwrap();
            steering.groups_refused().unwrap() - before
        };
        let (all_nodes, all_hosts) = ([0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]);
        let v6 = |next_header: u8, icmp_type: u8| {
            let mut packet = vec![0_u8; 64];
            (packet[0], packet[6], packet[40]) = (0x60, next_header, icmp_type);
            packet
        };
        let tagged = |ether_type: u16| {
            let tag = [&[0, 0][..], &ether_type.to_be_bytes()].concat();
            frame(all_nodes, 0x8100, &[&tag[..], &v6(58, 134)].concat())
        };
        let plain = [
            frame([0xff; 6], 0x0806, &[0, 1, 8, 0]),
            frame(all_hosts, 0x0800, &[0x45]),
            frame(all_nodes, 0x86dd, &v6(58, 135)),
            frame(all_nodes, 0x86dd, &v6(17, 0)),
            tagged(0x0800),
            tagged(0x0806),
        ];
        for frame in &plain {
            assert_eq!(refused_of(frame, 500), 0, "{frame:x?}");
        }
        let costly = [
            frame(all_nodes, 0x86dd, &v6(58, 134)),
            frame(all_nodes, 0x86dd, &v6(0, 0)),
            frame(all_nodes, 0x86dd, &v6(44, 134)),
            tagged(0x86dd),
            tagged(0x8100),
        ];
        let first = refused_of(&costly[0], MANY);
        assert!(first <= u64::from(MANY) - 64, "{first} refused");
        for frame in &costly {
            let refused = refused_of(frame, MANY);
            // It refills by 200 a second.
            assert!(refused > u64::from(MANY) / 2, "{refused} refused of {frame:x?}");
        }
        let spent = refused_of(&plain[0], 50 * MANY);
        assert!(spent > 0, "even these have a limit");
        let mut to_the_host = costly[0].clone();
        to_the_host[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        assert_eq!(refused_of(&to_the_host, MANY), 0);
    }

    #[test]
    fn without_a_filter_frames_for_groups_have_no_limit() {
        if loaded().is_none() {
            return;
        }
        let station = LinkStation { mac: STATION, is_shared: false };
        let plan = CookieProgramPlan { filters: false, ..CookieProgramPlan::default() };
        let steering = QueueSteering::load(station, 4, &plan, &mut Vec::new()).unwrap();
        assert!(steering.filter().is_none());
        let mut group = frame([0x33, 0x33, 0, 0, 0, 1], 0x86dd, &[0x60]);
        steering.run(&mut group, 2000).unwrap();
        assert_eq!((steering.passed().unwrap(), steering.groups_refused().unwrap()), (2000, 0));
        assert_eq!(steering.verdict(&frame(STATION.0, 0x86dd, &[0x60])).unwrap(), DROP);
    }

    /// Its interface is the loopback of a namespace that ends with its thread.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a namespace is left with its thread")]
    fn a_program_that_was_taken_off_is_attached_again_once_its_place_is_free() {
        const LOOPBACK: u32 = 1;
        let inside = std::thread::spawn(|| {
            // SAFETY: the new thread alone enters another network namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return eprintln!("SKIPPED: no namespace: {}", io::Error::last_os_error());
            }
            let (Some(ours), Some(other)) = (loaded(), loaded()) else { return };
            ours.attach(LOOPBACK, Attach::Generic).unwrap();
            let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
            let take_off = |steering: &QueueSteering| {
                steering.attached.lock().unwrap().as_ref().unwrap().attachment.take_off().unwrap();
            };
            let is_there = |steering: &QueueSteering| {
                let attached = steering.attached.lock().unwrap();
                attached.as_ref().unwrap().attachment.is_in_force().unwrap()
            };
            ours.look_after(at(1000));
            assert_eq!((is_there(&ours), ours.lost()), (true, 0));
            take_off(&ours);
            assert!(!is_there(&ours));
            ours.look_after(at(1999));
            assert_eq!((is_there(&ours), ours.lost()), (false, 0), "one look a second");
            ours.look_after(at(2000));
            assert_eq!((is_there(&ours), ours.lost()), (true, 1));
            // Another program takes its place.
            take_off(&ours);
            other.attach(LOOPBACK, Attach::Generic).unwrap();
            ours.look_after(at(3000));
            ours.look_after(at(4000));
            assert_eq!((is_there(&ours), ours.lost(), is_there(&other)), (false, 3, true));
            drop(other);
            ours.look_after(at(5000));
            assert_eq!((is_there(&ours), ours.lost()), (true, 4));
            ours.look_after(at(6000));
            assert_eq!(ours.lost(), 4);
        });
        inside.join().unwrap();
    }
}
