//! What was found, as numbers, tables and a picture.
//!
//! Called by `xdp_flood.rs` at the end of a run. Invariant: every number named by a claim is set
//! here, and only from what was measured.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{Instant, MacAddr, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_wire::{EtherType, EthernetHeader, Ipv4Header, Ipv6Header, UdpHeader};

use super::Scene;
use super::topology::{self, PORT, Server};
use super::trials::{Results, Trial};
use super::victims::Victim;
use crate::baselines::xdp_loop::turn_round;
use crate::error::LabError;
use crate::experiments::stamps::Stamps;
use crate::measure::{Measured, Metrics};
use crate::plot::{Axes, Plot, Series, lines};
use crate::table::Table;

/// The load at which a curve is said to have its knee behind it.
const KNEE: u64 = 400_000;

pub(super) fn measured(results: &Results, least: bool, loop_turns_round: f64) -> Measured {
    let mut measured = Measured::default();
    let flag = |yes: bool| f64::from(u8::from(yes));
    let metrics = &mut measured.metrics;
    metrics.set("loop-turns-round", loop_turns_round);
    metrics.set("ran", flag(!results.trials.is_empty()));
    metrics.set("measured", flag(!results.trials.is_empty() && !least));
    for trial in &results.trials {
        trial.numbers(metrics, &results.load_name(trial));
    }
    results.works(metrics);
    results.ratios(metrics);
    for scene in Scene::ALL {
        measured.tables.push(results.table(scene));
    }
    measured.plots.extend(results.plots());
    measured
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn millis(length: core::time::Duration) -> f64 {
    length.as_secs_f64() * 1e3
}

impl Trial {
    /// What it delivered a second: answers, or datagrams forgotten.
    fn delivered(&self) -> f64 {
        if self.scene == Scene::Drops { self.served } else { self.seen.answers }
    }

    fn numbers(&self, metrics: &mut Metrics, load: &str) {
        let name = format!("{}/{}/{load}", self.scene.name(), self.victim.name());
        let mut set = |what: &str, value| metrics.set(format!("{name}/{what}"), value);
        let [v4, v6] = self.seen.honest;
        set("offered-pps", self.seen.offered);
        set("delivered-pps", self.delivered());
        if self.scene != Scene::Drops {
            set("honest/v4", v4);
            set("honest/v6", v6);
        }
        set("unverified-refused", self.ended.unknown as f64);
        set("gate-refused", self.ended.gate as f64);
        set("ring-full", self.ended.ring_full as f64);
        if let Some(stamps) = &self.stamps {
            set("app-share", stamps.share());
            set("app-p99-gap-ms", millis(stamps.p99));
            set("app-gap-ms", millis(stamps.longest));
            set("thirds-part", stamps.thirds_part());
        }
    }
}

impl Results {
    fn loads(&self, scene: Scene) -> Vec<u64> {
        let of_scene = self.trials.iter().filter(|trial| trial.scene == scene);
        let mut loads: Vec<u64> = of_scene.map(|trial| trial.planned).collect();
        loads.sort_unstable();
        loads.dedup();
        loads
    }

    fn most(&self, scene: Scene) -> u64 {
        self.loads(scene).last().copied().unwrap_or(0)
    }

    /// The highest load is called so, because no core sends what the plan has there.
    fn load_name(&self, trial: &Trial) -> String {
        if trial.planned == self.most(trial.scene) && self.loads(trial.scene).len() > 1 {
            return "most".to_owned();
        }
        trial.planned.to_string()
    }

    fn of(&self, scene: Scene, victim: Victim, planned: u64) -> Option<&Trial> {
        let is =
            |trial: &&Trial| (trial.scene, trial.victim, trial.planned) == (scene, victim, planned);
        self.trials.iter().find(is)
    }

    /// Whether each victim is reached at the least load of each scene.
    fn works(&self, metrics: &mut Metrics) {
        for trial in &self.trials {
            if self.loads(trial.scene).first() == Some(&trial.planned) {
                let name = format!("{}/{}/works", trial.scene.name(), trial.victim.name());
                metrics.set(name, f64::from(u8::from(trial.works)));
            }
        }
    }

    /// What each victim delivers at the highest load, beside its rivals and beside itself.
    fn ratios(&self, metrics: &mut Metrics) {
        for trial in &self.trials {
            let (scene, victim) = (trial.scene, trial.victim);
            // One load alone has no knee behind it.
            if trial.planned != self.most(scene) || self.loads(scene).len() < 2 {
                continue;
            }
            let rivals = [
                ("of-bare-loop", self.of(scene, Victim::BareLoop, trial.planned)),
                ("of-packet", self.of(scene, Victim::Packet, trial.planned)),
                ("of-kernel", self.of(scene, Victim::Kernel, trial.planned)),
                ("of-knee", self.of(scene, victim, KNEE)),
            ];
            for (what, rival) in rivals {
                let Some(rival) = rival else { continue };
                let ratio = trial.delivered() / rival.delivered().max(1.0);
                metrics.set(format!("{}/{}/{what}", scene.name(), victim.name()), ratio);
            }
        }
    }

    fn table(&self, scene: Scene) -> Table {
        let title = match scene {
            Scene::Answers => {
                "Answers: both halves of a UDP echo on one core, honest clients beside a flood"
            }
            Scene::Drops => "Drops: both halves of a program that forgets datagrams on one core",
            Scene::Shared => "Shared: a UDP echo and a program that takes timestamps, on one core",
        };
        let columns = [
            "victim",
            "planned/s",
            "offered/s",
            "delivered/s",
            "honest IPv4",
            "honest IPv6",
            "program's share",
            "p99 gap",
            "longest gap",
            "at the interface",
            "at the gate",
            "ring full",
        ];
        let mut table = Table::new(title, &columns);
        let none = || "-".to_owned();
        for trial in self.trials.iter().filter(|trial| trial.scene == scene) {
            let [v4, v6] = trial.seen.honest;
            let honest = |part| if scene == Scene::Drops { none() } else { percent(part) };
            let gap = |what: fn(&Stamps) -> core::time::Duration| {
                trial.stamps.as_ref().map_or_else(none, |s| format!("{:.2} ms", millis(what(s))))
            };
            table.row([
                format!("{} ({})", trial.victim.name(), trial.ended.place),
                self.load_name(trial),
                format!("{:.0}", trial.seen.offered),
                format!("{:.0}", trial.delivered()),
                honest(v4),
                honest(v6),
                trial.stamps.as_ref().map_or_else(none, |stamps| percent(stamps.share())),
                gap(|stamps| stamps.p99),
                gap(|stamps| stamps.longest),
                trial.ended.unknown.to_string(),
                trial.ended.gate.to_string(),
                trial.ended.ring_full.to_string(),
            ]);
        }
        table.note = self.note();
        table
    }

    fn note(&self) -> String {
        match &self.why_not {
            Some(why) => format!("not measured: {why}"),
            None => format!(
                "medians of {} turns, all victims in turns; in brackets where the kernel's half \
                 ran; of a flood of invented senders to the service's port, half of each family; \
                 honest is the answered part of the clients' questions; a gap is a pause of the \
                 program over 20 us, p99 is by number; drops at the interface, at the gate and \
                 in rings is of a whole trial",
                self.rounds
            ),
        }
    }

    /// The curves: what each victim delivers over what is offered, and which senders it answers.
    fn plots(&self) -> Vec<(String, Plot)> {
        let mut victims: Vec<Victim> = Vec::new();
        for trial in self.trials.iter().filter(|trial| trial.scene == Scene::Answers) {
            if !victims.contains(&trial.victim) {
                victims.push(trial.victim);
            }
        }
        let series = |value: &dyn Fn(&Trial) -> f64| -> Vec<Series> {
            let of = |victim: &Victim| {
                let is = |t: &&Trial| t.scene == Scene::Answers && t.victim == *victim;
                let point = |t: &Trial| (t.seen.offered / 1000.0, value(t));
                let points = self.trials.iter().filter(is).map(point).collect();
                Series { name: victim.name().to_owned(), points }
            };
            victims.iter().map(of).collect()
        };
        if self.loads(Scene::Answers).len() < 2 {
            return Vec::new();
        }
        let answers = series(&|trial| trial.seen.answers / 1000.0);
        let honest = series(&|trial| trial.seen.honest.iter().sum::<f64>() / 2.0);
        let highest = |series: &[Series], of: fn(&(f64, f64)) -> f64| {
            let all = series.iter().flat_map(|one| one.points.iter().map(of));
            (all.fold(1.0, f64::max) / 100.0).ceil() * 100.0
        };
        let (x, x_max) = ("offered a second, in thousands", highest(&answers, |point| point.0));
        let y_max = highest(&answers, |point| point.1);
        let (title, y) =
            ("Answers of a core that has both halves", "answers a second, in thousands");
        let curve = lines(&Axes { title, x, y, x_max, y_max, marks: &[] }, &answers);
        let (title, y) = ("Honest requests answered beside the flood", "part of the requests");
        let honest_chart = lines(&Axes { title, x, y, x_max, y_max: 1.0, marks: &[] }, &honest);
        vec![("answers.svg".to_owned(), curve), ("honest.svg".to_owned(), honest_chart)]
    }
}

/// The part of the flood's datagrams that the bare loop turns round rightly, by the product's own
/// parsers: all of them, or the comparison is worth nothing. Needs no root.
pub(super) fn loop_turns_round() -> Result<f64, LabError> {
    const PACKETS: usize = 128;
    let pool = Pool::new(&PoolConfig { frames: 2 * PACKETS, ..PoolConfig::default() })?;
    let mut flood = topology::unknown(1_000_000, Server::ours())?;
    let mut random = Randomness::from_number(1);
    let (mut nothing, mut frames) = (Burst::new(), PacketList::new());
    for now in [Instant::ORIGIN, Instant::from_nanos(1_000_000)] {
        flood.work(&mut Round {
            now,
            pool: &pool,
            random: &mut random,
            arrived: &mut nothing,
            departing: &mut frames,
            budget: Units(PACKETS as u32),
            peers: None,
        });
    }
    let (mut right, mut all) = (0_u32, 0_u32);
    while let Some(mut packet) = frames.pop_front() {
        let asked = ends_of(packet.first());
        let turned = packet.first_mut().is_some_and(|frame| turn_round(frame, PORT));
        let answered = ends_of(packet.first());
        let reversed = asked.map(|[from, to]| [to, from]);
        right += u32::from(turned && reversed.is_some() && answered == reversed);
        all += 1;
    }
    Ok(f64::from(right) / f64::from(all.max(1)))
}

/// A datagram's ends, sender first: link address, address and port.
fn ends_of(frame: &[u8]) -> Option<[(MacAddr, SocketAddr); 2]> {
    let link = EthernetHeader::parse(frame).ok()?;
    let packet = frame.get(floodwall_wire::ethernet::HEADER_LEN..)?;
    let ([from, to], at): ([IpAddr; 2], usize) = if link.ether_type() == EtherType::IPV4 {
        let header = Ipv4Header::parse(packet, packet.len()).ok()?;
        ([header.src_addr().into(), header.dst_addr().into()], header.header_len())
    } else {
        let header = Ipv6Header::parse(packet, packet.len()).ok()?;
        ([header.src_addr().into(), header.dst_addr().into()], 40)
    };
    let datagram = packet.get(at..)?;
    let udp = UdpHeader::parse(datagram, datagram.len()).ok()?;
    let ends = [(link.src_addr(), from, udp.src_port()), (link.dst_addr(), to, udp.dst_port())];
    Some(ends.map(|(mac, addr, port)| (mac, SocketAddr::new(addr, port))))
}
