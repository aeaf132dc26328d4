//! `Blast`: fills bursts on schedule, regardless of what comes back.
//!
//! Driven by `world` or `dispatch` through [`Engine`]: `deadline` is when the next packet is meant
//! to leave, `work` sends what is due. The loop is open: no answer, and no lack of one, changes
//! the schedule. A call that comes late sends what has become due, oldest first, within its
//! budget. Invariant: packet `i` of a stream has the same intended time in every run; what could
//! not be made is counted and not sent later.
//!
//! # Under flood
//! It is the flood. Of what comes back it keeps counts only.

use core::time::Duration;

use floodwall_base::{Instant, MacAddr, Units};
use floodwall_packet::{Burst, Engine, Round, Triage};
use floodwall_wire::IpProtocol;

use crate::count::Returned;
use crate::error::PlanError;
use crate::latency::Latency;
use crate::plan::{Content, Plan, Stream};
use crate::replay;
use crate::seen::{LOOK_BYTES, SeenPacket, see};
use crate::spreads::KeptSpread;
use crate::stamp::Stamp;
use crate::station::PktgenStation;
use crate::template::{Template, TemplateShape};
use crate::{forge, fragment, headers};

/// The longest frame that headers are put into; a longer one stays as it is.
const FRAME_MAX: usize = 1514;

/// What was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlastStats {
    /// Packets of the plan that were sent, before fragmentation.
    pub sent: u64,
    /// Frames that were sent for them.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that could not be made because the packet pool was empty.
    pub no_buffer: u64,
    /// Packets of the plan that became due before the peer's link address was known.
    pub no_peer: u64,
    /// The maximum delay of a packet after its intended time.
    pub late_max: Duration,
}

/// One stream under way.
struct RunningBlast {
    stream: Stream,
    /// `None` for a replay.
    template: Option<Template>,
    /// The next packet.
    next: u64,
    /// When it is meant to leave; `None` when the stream is over, or has not begun.
    due: Option<Instant>,
    flows: KeptSpread,
    /// Times that the packet in the template is sent again.
    repeats: u32,
}

/// A packet generator for one plan, as an engine.
pub struct Blast {
    station: PktgenStation,
    streams: Vec<RunningBlast>,
    /// The first call: what the plan's times count from.
    started: Option<Instant>,
    peer: Option<MacAddr>,
    stats: BlastStats,
    returned: Returned,
    /// Of stamped datagrams that came back, from when they were meant to leave.
    latency: Option<Latency>,
    /// Where frames are made that no template holds: as they leave, and before they are cut.
    scratch: [Vec<u8>; 2],
}

impl Blast {
    /// An engine that carries out `plan`.
    ///
    /// # Errors
    /// The plan's first mistake.
    pub fn new(plan: Plan) -> Result<Self, PlanError> {
        plan.check()?;
        let station = PktgenStation::new(plan.station)?;
        let (mut scratch, mut stamps) = (0, false);
        let mut streams = Vec::with_capacity(plan.streams.len());
        for stream in plan.streams {
            scratch = scratch.max(scratch_bytes(&stream));
            let template = template_of(&stream, &station)?;
            let (next, due, flows, repeats) = (0, None, KeptSpread::new(&stream), 0);
            stamps |= stream.stamp;
            streams.push(RunningBlast { stream, template, next, due, flows, repeats });
        }
        Ok(Self {
            station,
            streams,
            started: None,
            peer: None,
            stats: BlastStats::default(),
            returned: Returned::default(),
            latency: stamps.then(Latency::default),
            scratch: [scratch, scratch].map(Vec::with_capacity),
        })
    }

    /// What was sent so far.
    #[must_use]
    pub const fn stats(&self) -> BlastStats {
        self.stats
    }

    /// What came back so far.
    #[must_use]
    pub const fn returned(&self) -> Returned {
        self.returned
    }

    /// Round-trip times of stamped datagrams, from the intended send time of each; `None` where no
    /// stream stamps. Stamps are accepted from any source.
    #[must_use]
    pub const fn latency(&self) -> Option<&Latency> {
        self.latency.as_ref()
    }

    /// Whether every stream has sent its last packet.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.peer.is_some() && self.streams.iter().all(|running| running.due.is_none())
    }

    /// Notes the first call, and the moment at which the peer is known: from then on packets go.
    fn begin(&mut self, now: Instant) {
        let started = *self.started.get_or_insert(now);
        let (None, Some(peer)) = (self.peer, self.station.peer()) else { return };
        self.peer = Some(peer);
        for running in &mut self.streams {
            if let Some(template) = &mut running.template {
                template.set_link(self.station.config.mac, peer);
            }
            let skipped = running.stream.meant_before(now - started);
            self.stats.no_peer += skipped;
            running.next = skipped;
            running.due = running.stream.intended(skipped).map(|after| started + after);
        }
    }

    /// Notes how long a stamped datagram has taken.
    fn time(&mut self, seen: &SeenPacket<'_>, now: Instant) {
        let Some(latency) = &mut self.latency else { return };
        let SeenPacket::Ip(ip) = seen else { return };
        if ip.protocol == IpProtocol::UDP
            && !ip.is_fragment
            && let Some(stamp) = Stamp::read(ip.udp_payload())
            && stamp.intended <= now
        {
            latency.record(now - stamp.intended);
        }
    }

    /// The stream with the packet that is due first; the earlier one of the plan among equals.
    fn due_first(&self) -> Option<(Instant, usize)> {
        let due = self.streams.iter().enumerate().filter_map(|(at, r)| Some((r.due?, at)));
        due.min()
    }

    /// Sends one packet of a stream, and notes when its next is due. Returns the frames.
    fn send(&mut self, at: usize, due: Instant, round: &mut Round<'_>) -> u32 {
        let Some(running) = self.streams.get_mut(at) else { return 0 };
        let Some((started, peer)) = self.started.zip(self.peer) else { return 0 };
        running.draw(at as u32, due, round);
        let RunningBlast { stream, template, next, .. } = running;
        let (station, stats, [scratch, whole]) =
            (&self.station, &mut self.stats, &mut self.scratch);
        let (medium, link) = (station.config.medium, (station.config.mac, peer));
        let mut frames = 0;
        let mut transmit = |frame: &[u8], round: &mut Round<'_>| {
            frames += 1;
            if station.transmit(frame, round) {
                stats.frames += 1;
                stats.bytes += frame.len() as u64;
            } else {
                stats.no_buffer += 1;
            }
        };
        match (&stream.content, template) {
            (Content::Replay { frames, mutate }, _) => {
                let random = mutate.then_some(&mut round.random.public);
                replay::write(frames, *next, medium, link, random, scratch);
                transmit(scratch, round);
            }
            (Content::Forged(forgery), _) => {
                let random = &mut round.random.public;
                let addrs = stream.draw_addrs(*next, random);
                forge::write(*forgery, forge::ForgedAddrs { medium, link, addrs }, random, scratch);
                transmit(scratch, round);
            }
            (_, Some(template)) => {
                let (mut frame, network) = (template.frame(), template.network());
                if let Some(plan) = stream.headers {
                    let random = &mut round.random.public;
                    headers::put_in(frame, network, plan, FRAME_MAX, random, whole);
                    frame = whole;
                }
                match stream.fragments {
                    None => transmit(frame, round),
                    Some(plan) => {
                        let id = round.random.public.next_u64() as u32;
                        fragment::cut(frame, network, plan, id, scratch, |f| transmit(f, round));
                    }
                }
            }
            (_, None) => {}
        }
        self.stats.sent += 1;
        self.stats.late_max = self.stats.late_max.max(round.now - due);
        running.next += 1;
        running.due = running.stream.intended(running.next).map(|after| started + after);
        frames
    }
}

impl RunningBlast {
    /// Fills the template's holes for the next packet.
    fn draw(&mut self, number: u32, intended: Instant, round: &mut Round<'_>) {
        let Some(template) = &mut self.template else { return };
        let (stream, random) = (&self.stream, &mut round.random.public);
        if self.repeats > 0 {
            self.repeats -= 1;
            return;
        }
        self.repeats = stream.repeats.max(1) - 1;
        if let Some(ends) = self.flows.next(stream, random) {
            template.set_src_addr(ends.addrs.0);
            template.set_dst_addr(ends.addrs.1);
            template.set_src_port(ends.ports.0);
            template.set_dst_port(ends.ports.1);
        }
        if let Content::Tcp(_) = stream.content {
            let numbers = random.next_u64();
            template.set_numbers(numbers as u32, (numbers >> 32) as u32);
        }
        template.set_id(self.next as u16);
        template.set_payload_len(stream.payload.draw(stream.drawn().payload, self.next, random));
        if stream.stamp {
            let stamp = Stamp { stream: number, seq: self.next, intended };
            template.set_payload(0, &stamp.to_bytes());
        }
    }
}

fn template_of(stream: &Stream, station: &PktgenStation) -> Result<Option<Template>, PlanError> {
    let shape = match stream.content {
        Content::Udp => TemplateShape::Udp,
        Content::IcmpEcho => TemplateShape::Echo,
        Content::Tcp(flags) => TemplateShape::Tcp(flags),
        Content::Replay { .. } | Content::Forged(_) => return Ok(None),
    };
    let config = &station.config;
    let link = (config.mac, station.peer().unwrap_or(MacAddr::ZERO));
    let addrs = (stream.src_addrs.first(), stream.dst_addrs.first());
    let (hops, most) = (stream.hop_limit, stream.payload.max);
    Template::new(shape, config.medium, link, addrs, hops, most).map(Some)
}

/// The largest frame that a stream makes outside its template.
fn scratch_bytes(stream: &Stream) -> usize {
    let cut = stream.fragments.map_or(0, |plan| fragment::HEADERS_MAX + plan.bytes);
    let whole = if stream.headers.is_some() { FRAME_MAX + stream.payload.max } else { 0 };
    match &stream.content {
        Content::Replay { frames, .. } => frames.iter().map(Vec::len).max().unwrap_or(0),
        Content::Forged(_) => forge::FRAME_MAX,
        _ => cut.max(whole),
    }
}

impl Engine for Blast {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let mut spent = 0;
        let mut scratch = [0; LOOK_BYTES];
        // The burst is taken aside, so that answers can be sent while it is gone through.
        let mut arrived = core::mem::take(round.arrived);
        for packet in arrived.drain() {
            let seen = see(&packet, self.station.config.medium, &mut scratch);
            self.returned.count(&seen, packet.len());
            self.time(&seen, round.now);
            self.station.input(&packet, &seen, round);
            spent += 1;
        }
        self.begin(round.now);
        Units(spent)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        self.station.ask(round);
        self.begin(round.now);
        let mut spent = 1;
        while spent < round.budget.0.max(2) {
            let Some((due, at)) = self.due_first().filter(|(due, _)| *due <= round.now) else {
                break;
            };
            spent = spent.saturating_add(self.send(at, due, round).max(1));
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        match self.started {
            None => Some(Instant::ORIGIN),
            Some(_) if self.peer.is_none() => self.station.ask_deadline(),
            Some(_) => self.due_first().map(|(due, _)| due),
        }
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        classes.iter_mut().take(burst.len()).for_each(|class| *class = Triage::Established);
    }
}

impl core::fmt::Debug for Blast {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Blast({} streams, {:?})", self.streams.len(), self.stats)
    }
}
