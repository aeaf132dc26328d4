//! `Guard`: the life of the programs at one interface.
//!
//! Made by `floodwall guard`, which calls [`Guard::follow`] four times a second. Invariants: what
//! the programs need is written before they are attached, tc first, so that no cookie is made that
//! could not be redeemed; dropped, both links go and nothing is left. The secret is written before
//! the generation that puts it in force.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use floodwall_bpf::cookie::host::{
    DatagramProtocol, HostSettings, PORTS_MAX, PROTOCOL_SHIFT, PROVES_SHIFT, SETTING_WORDS, Tally,
};
use floodwall_device::host_bpf::{
    HostLink, HostProgram, boot_nanos, carries, interface, wall_nanos,
};
use floodwall_device::{NapiPolicy, NapiPriority, Placement, PlacementConfig, PlacementReport};
use floodwall_syncache::Secret;

use crate::addresses;
use crate::error::GuardError;
use crate::facts::{Facts, ListeningPorts};
use crate::loaded::Loaded;
use crate::notice::Notice;
use crate::pins::{self, PinPlace, Pins};
use crate::rules::{self, RuleWatch};
use crate::status::{self, PortStatus, Status};

/// SYNs to one port at one core within 134 ms that wake the programs: 10,000 a second.
const SYN_WINDOW_WAKES: u64 = 1_342;
/// Nanoseconds of its rate that a prefix may send at once.
const UDP_BURST: u64 = 250_000_000;
/// Looks to which addresses are read once: a second.
const ADDRESS_LOOKS: u32 = 4;
/// The change of the wall clock from which on the programs are told.
const SET_BY: u64 = 200_000_000;

/// Windows of 134 ms in a second, in which datagrams of unproven sources are counted.
const WINDOWS_PER_SECOND: f64 = 1e9 / (1_u64 << 27) as f64;

/// When SYNs are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// At any time.
    Always,
    /// When a listener's half-open connections pass this part of its backlog (a power of two below
    /// one), or more SYNs come than 10,000 a second at one core.
    Backlog {
        /// The backlog is shifted right by this: 2 is a quarter.
        shift: u32,
    },
}

/// A protected UDP port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpPort {
    /// The port.
    pub port: u16,
    /// What its datagrams are, where sources of those can be challenged.
    pub protocol: Option<DatagramProtocol>,
}

/// What is to be guarded, and how.
#[derive(Clone, Debug)]
pub struct GuardConfig {
    /// The interface.
    pub interface: String,
    /// Protected TCP ports.
    pub ports: Vec<u16>,
    /// Protected UDP ports. The TCP port of one with DNS is protected too.
    pub udp_ports: Vec<UdpPort>,
    /// Datagrams a second that one source prefix may send to all of them.
    pub udp_rate: u32,
    /// Datagrams a second by one core that sources may send which nothing has proven, to a port
    /// with a protocol; beyond that they are challenged. None are with [`Watch::Always`].
    pub udp_unproven: u32,
    /// The secret of cookies.
    pub secret: Secret,
    /// A random key for hashes of flows.
    pub clock: (u64, u64),
    /// When SYNs are answered.
    pub watch: Watch,
    /// In front of the system's stack, not in the driver.
    pub generic: bool,
    /// A folder of a BPF file system in which links and maps are kept beyond the process. Where
    /// there are some of this interface already, their place is taken without a gap.
    pub pin: Option<PathBuf>,
    /// Of what is pinned: its secret is not taken over.
    pub own_secret: bool,
    /// Rules of the packet filter that break connections are no reason not to start.
    pub ignore_rules: bool,
    /// While it runs, the interface's receive half is in threads that go before programs, so that
    /// the card's ring is looked at in time. Their rank is given back at the end.
    pub half_first: bool,
}

/// What `follow` compares with.
#[derive(Debug)]
struct Seen {
    facts: Facts,
    listening: Vec<bool>,
    multipath: Vec<u64>,
    awake: Vec<bool>,
    not_adopted: Vec<u64>,
    no_metadata: Vec<u64>,
    addresses: BTreeSet<[u8; 16]>,
    carries: bool,
    rules: RuleWatch,
    looks: u32,
}

/// A guard in force: its programs are attached until it is dropped, or longer where pinned.
#[derive(Debug)]
pub struct Guard {
    config: GuardConfig,
    loaded: Loaded,
    settings: HostSettings,
    seen: Seen,
    // Given back first, while the interface still has the half that XDP gives to a veth.
    half: Option<Placement>,
    // In the order in which they leave: XDP first, so that no cookie is made that is not redeemed.
    _classify: HostLink,
    _adopt: HostLink,
}

fn wall_offset() -> u64 {
    wall_nanos().wrapping_sub(boot_nanos())
}

/// What the programs are told at first.
fn settings(
    config: &GuardConfig,
    facts: &Facts,
    index: u32,
    (secret, clock): ((u64, u64), (u64, u64)),
) -> HostSettings {
    let (offer_v4, offer_v6) = facts.offers();
    let (always, watch_shift) = match config.watch {
        Watch::Always => (true, 0),
        Watch::Backlog { shift } => (false, shift),
    };
    HostSettings {
        offer_v4,
        offer_v6,
        always,
        paused: false,
        ending: false,
        wakes: SYN_WINDOW_WAKES,
        watch_shift: u64::from(watch_shift),
        wall_offset: wall_offset(),
        generation: 0,
        secret,
        clock,
        zone: u64::from(index),
        interval: 1_000_000_000 / u64::from(config.udp_rate.max(1)),
        burst: UDP_BURST,
        unproven: match always {
            true => 0,
            false => (f64::from(config.udp_unproven) / WINDOWS_PER_SECOND).ceil() as u64,
        },
        own_filter: 0,
    }
}

fn index_of(name: &str) -> Result<(u32, u32), GuardError> {
    interface(name).map_err(|_| GuardError::NoInterface(name.to_owned()))
}

impl UdpPort {
    fn is_dns(&self) -> bool {
        self.protocol == Some(DatagramProtocol::Dns)
    }
}

impl Guard {
    /// Loads the programs and attaches them.
    ///
    /// # Errors
    /// See [`GuardError`]. Nothing is attached then.
    pub fn start(mut config: GuardConfig) -> Result<Self, GuardError> {
        // What is challenged there comes again by TCP.
        let by_tcp = config.udp_ports.iter().filter(|port| port.is_dns()).map(|port| port.port);
        config.ports.extend(by_tcp);
        config.ports.sort_unstable();
        config.ports.dedup();
        let count = config.ports.len() + config.udp_ports.len();
        if count == 0 || count >= PORTS_MAX {
            return Err(GuardError::Ports(count, PORTS_MAX - 1));
        }
        let (index, mtu) = index_of(&config.interface)?;
        let facts = Facts::read(&config.interface, mtu);
        if facts.syncookies == 0 {
            return Err(GuardError::CookiesOff);
        }
        let breaking = rules::breaking(&config.ports);
        if let Some(text) = breaking.first().filter(|_| !config.ignore_rules) {
            return Err(GuardError::Rule(text.clone()));
        }
        let challenges = config.udp_ports.iter().any(|port| port.protocol.is_some());
        let loaded = Loaded::load(challenges)?;
        let before = match &config.pin {
            Some(folder) => predecessor(folder, (&config.interface, index))?,
            None => None,
        };
        write_ports(&config, &loaded)?;
        let (mut secret, mut clock) = (config.secret.words(), config.clock);
        if let Some(before) = &before
            && let Ok([last, last_clock]) = before.keys()
        {
            clock = last_clock;
            if !config.own_secret {
                secret = last;
            }
        }
        let mut settings = settings(&config, &facts, index, (secret, clock));
        let mut addresses = BTreeSet::new();
        follow_addresses(&loaded, &mut addresses)?;
        settings.own_filter = own_filter(&addresses);
        let none = vec![0; count];
        let seen = Seen {
            facts,
            listening: vec![true; count],
            multipath: none.clone(),
            awake: vec![false; count],
            not_adopted: none.clone(),
            no_metadata: none,
            addresses,
            carries: true,
            rules: RuleWatch::new(breaking),
            looks: 0,
        };
        write(&loaded, &settings, true)?;
        let (classify, adopt) = attach(&config, &loaded, index, before)?;
        let half = config.half_first.then(|| place_half(&config.interface)).transpose()?;
        let settings = HostSettings { generation: 1, ..settings };
        Ok(Self { config, loaded, settings, seen, half, _classify: classify, _adopt: adopt })
    }

    /// Where the interface's receive half runs, where that was asked for, and what lacks.
    #[must_use]
    pub fn half(&self) -> Option<&PlacementReport> {
        self.half.as_ref().map(Placement::report)
    }

    /// Looks at everything that the programs depend on, and tells them. Returns what has changed.
    ///
    /// # Errors
    /// The interface has gone, or the kernel refuses to write a map.
    pub fn follow(&mut self) -> Result<Vec<Notice>, GuardError> {
        let mut notices = Vec::new();
        let (_, mtu) = index_of(&self.config.interface)?;
        let facts = Facts::read(&self.config.interface, mtu);
        let before = self.settings;
        if facts != self.seen.facts {
            let was_on = self.seen.facts.syncookies != 0;
            let is_on = facts.syncookies != 0;
            if was_on != is_on {
                notices.push(Notice::Cookies(is_on));
            }
            if (Facts { syncookies: 0, ..facts }) != (Facts { syncookies: 0, ..self.seen.facts }) {
                notices.push(Notice::Offers);
            }
            (self.settings.offer_v4, self.settings.offer_v6) = facts.offers();
            self.settings.paused = !is_on;
            self.seen.facts = facts;
        }
        self.seen.looks = self.seen.looks.wrapping_add(1);
        // Where the table of routes is large this takes a while.
        if self.seen.looks.is_multiple_of(ADDRESS_LOOKS) {
            follow_addresses(&self.loaded, &mut self.seen.addresses)?;
            self.settings.own_filter = own_filter(&self.seen.addresses);
        }
        let offset = wall_offset();
        let drift = offset.wrapping_sub(self.settings.wall_offset).cast_signed().unsigned_abs();
        let turns = drift > SET_BY;
        if turns {
            self.settings.wall_offset = offset;
        }
        if turns || self.settings != before {
            self.tell(turns)?;
        }
        let carries = carries(&self.config.interface).unwrap_or(false);
        if carries != self.seen.carries {
            self.seen.carries = carries;
            notices.push(Notice::Carrier(carries));
        }
        self.follow_ports(&mut notices)?;
        notices.extend(self.seen.rules.look(&self.config.ports));
        Ok(notices)
    }

    /// From now on cookies are made with another secret.
    ///
    /// # Errors
    /// The kernel refuses to write a map.
    pub fn set_secret(&mut self, secret: Secret) -> Result<(), GuardError> {
        self.settings.secret = secret.words();
        self.tell(true)
    }

    /// From now on no SYN is answered; cookies that were given are redeemed until the guard is
    /// dropped, a round trip later ([`Guard::LINGERS`]). Not for what stays pinned.
    ///
    /// # Errors
    /// The kernel refuses to write a map.
    pub fn end(&mut self) -> Result<(), GuardError> {
        self.settings.ending = true;
        self.tell(false)
    }

    /// Leaves what is pinned in force on purpose, and ends.
    ///
    /// # Errors
    /// It cannot be noted beside the pins. They are left in force all the same.
    pub fn leave_pinned(self) -> io::Result<()> {
        self.config.pin.as_deref().map_or(Ok(()), |folder| pins::set_kept(folder, true))
    }

    fn tell(&mut self, new_keys: bool) -> Result<(), GuardError> {
        write(&self.loaded, &self.settings, new_keys)?;
        if new_keys {
            self.settings.generation += 1;
        }
        Ok(())
    }

    fn follow_ports(&mut self, notices: &mut Vec<Notice>) -> Result<(), GuardError> {
        let listening = ListeningPorts::read();
        let ports = self.ports()?;
        let tcp = ports.iter().filter(|port| port.protocol == "tcp");
        for (n, port) in tcp.enumerate() {
            let number = port.port;
            let listens = listening.has(number);
            if changed(&mut self.seen.listening, n, listens) {
                notices.push(Notice::Listener(number, listens));
            }
            let is_awake = port.awake.is_some();
            if changed(&mut self.seen.awake, n, is_awake) {
                notices.push(Notice::Awake(number, is_awake));
            }
            let passed = port.count(Tally::Multipath);
            if risen(&mut self.seen.multipath, n, passed).is_some_and(|before| before == 0) {
                notices.push(Notice::Multipath(number));
            }
            let refused = port.count(Tally::NotAdopted);
            if let Some(before) = risen(&mut self.seen.not_adopted, n, refused) {
                notices.push(Notice::NotAdopted(number, refused - before));
            }
            let without = port.count(Tally::NoMetadata);
            if risen(&mut self.seen.no_metadata, n, without).is_some_and(|before| before == 0) {
                notices.push(Notice::NoMetadata(number));
            }
        }
        Ok(())
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// The kernel refuses to read a map.
    pub fn status(&self) -> Result<Status, GuardError> {
        let by_number = |number| {
            numbered(&self.config)
                .find(|it| it.0 == number)
                .map(|(_, protocol, port)| (protocol, port))
        };
        Ok(Status {
            interface: self.config.interface.clone(),
            paused: self.settings.paused,
            ports: self.ports()?,
            refused: status::refused(&self.loaded.ranked, boot_nanos(), by_number)?,
        })
    }

    fn ports(&self) -> io::Result<Vec<PortStatus>> {
        let now = boot_nanos();
        let ports = numbered(&self.config).map(|(number, protocol, port)| {
            let values = self.loaded.tallies.get(&u32::from(number).to_ne_bytes())?;
            Ok(PortStatus::of(protocol, port, &values, now))
        });
        ports.collect()
    }

    /// What is guarded.
    #[must_use]
    pub const fn config(&self) -> &GuardConfig {
        &self.config
    }

    /// The program at the interface, for test runs.
    #[must_use]
    pub const fn classifier(&self) -> &HostProgram {
        &self.loaded.classify
    }

    /// How long handshakes that have begun are waited for at the end.
    pub const LINGERS: Duration = Duration::from_secs(1);

    /// How often [`Guard::follow`] is to be called.
    pub const PERIOD: Duration = Duration::from_millis(250);
}

/// Puts the interface's receive half before programs.
fn place_half(name: &str) -> Result<Placement, GuardError> {
    let config = PlacementConfig {
        half: NapiPolicy::NapiThread,
        cores: Vec::new(),
        rank: NapiPriority::Guarding,
    };
    Ok(Placement::take(name, &config)?)
}

/// Each protected port with its number and protocol.
fn numbered(config: &GuardConfig) -> impl Iterator<Item = (u8, &'static str, u16)> + '_ {
    let tcp = config.ports.iter().map(|port| ("tcp", *port));
    let udp = config.udp_ports.iter().map(|port| ("udp", port.port));
    (1..).zip(tcp.chain(udp)).map(|(number, (protocol, port))| (number, protocol, port))
}

/// Writes the numbers of ports: TCP in the low byte, UDP in the next; and what their datagrams are.
fn write_ports(config: &GuardConfig, loaded: &Loaded) -> io::Result<()> {
    let mut words = BTreeMap::new();
    for (number, protocol, port) in numbered(config) {
        let shift = if protocol == "udp" { 8 } else { 0 };
        *words.entry(port).or_insert(0) |= u64::from(number) << shift;
    }
    for port in &config.udp_ports {
        let word = words.entry(port.port).or_insert(0);
        *word |= port.protocol.map_or(0, |protocol| (protocol as u64) << PROTOCOL_SHIFT);
        *word |= u64::from(port.is_dns()) << PROVES_SHIFT;
    }
    words.iter().try_for_each(|(port, word)| {
        loaded.ports.set(&u32::from(*port).to_ne_bytes(), &word.to_ne_bytes())
    })
}

fn changed(seen: &mut [bool], n: usize, now: bool) -> bool {
    seen.get_mut(n).is_some_and(|seen| core::mem::replace(seen, now) != now)
}

/// What it was, where it has risen.
fn risen(seen: &mut [u64], n: usize, now: u64) -> Option<u64> {
    let seen = seen.get_mut(n)?;
    let before = core::mem::replace(seen, now);
    (now > before).then_some(before)
}

/// Writes the settings; with a new generation where keys are to be derived anew.
fn write(loaded: &Loaded, settings: &HostSettings, new_keys: bool) -> io::Result<()> {
    let put = |words: [u64; SETTING_WORDS]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        loaded.settings.set(&0_u32.to_ne_bytes(), &bytes)
    };
    put(settings.words())?;
    if new_keys {
        put(HostSettings { generation: settings.generation + 1, ..*settings }.words())?;
    }
    Ok(())
}

fn own_filter(addresses: &BTreeSet<[u8; 16]>) -> u64 {
    addresses.iter().fold(0, |filter, address| filter | HostSettings::own_bit(*address))
}

fn follow_addresses(loaded: &Loaded, seen: &mut BTreeSet<[u8; 16]>) -> io::Result<()> {
    let now = addresses::read();
    for gone in seen.difference(&now) {
        loaded.addresses.remove(gone)?;
    }
    for new in now.difference(seen) {
        loaded.addresses.set(new, &[0; 8])?;
    }
    *seen = now;
    Ok(())
}

/// What a guard that has ended has pinned there, at the interface with this name and number. What
/// guards nothing is removed.
fn predecessor(folder: &Path, (name, index): (&str, u32)) -> Result<Option<Pins>, GuardError> {
    let pin = |error| GuardError::Pin(name.to_owned(), error);
    let place = Pins::open(folder).map(|pins| Ok((pins.place(index)?, pins))).transpose();
    match place.map_err(pin)? {
        Some((PinPlace::Here, pins)) => return Ok(Some(pins)),
        Some((PinPlace::Elsewhere, _)) => {
            return Err(GuardError::PinnedElsewhere(name.to_owned(), folder.to_owned()));
        }
        Some((PinPlace::Nowhere, _)) | None => {}
    }
    pins::remove(folder).map_err(pin).map(|()| None)
}

/// Attaches both programs, tc first, or puts them in the place of those that are pinned.
fn attach(
    config: &GuardConfig,
    loaded: &Loaded,
    index: u32,
    before: Option<Pins>,
) -> Result<(HostLink, HostLink), GuardError> {
    let name = &config.interface;
    let pin = |error| GuardError::Pin(name.clone(), error);
    if let Some(Pins { folder, classify, adopt, .. }) = before {
        // Links of an interface that has gone take no program.
        if adopt.update(&loaded.adopt).and_then(|()| classify.update(&loaded.classify)).is_ok() {
            pins::set_kept(&folder, false).map_err(pin)?;
            pins::keep_maps(&folder, loaded).map_err(pin)?;
            return Ok((classify, adopt));
        }
        pins::remove(&folder).map_err(pin)?;
    }
    let adopt = HostLink::attach(&loaded.adopt, index, false)
        .map_err(|error| GuardError::Attach(name.clone(), error))?;
    let classify = HostLink::attach(&loaded.classify, index, config.generic)
        .map_err(|error| refused(name, error))?;
    if let Some(folder) = &config.pin {
        let kept = pins::keep(folder, loaded, &classify, &adopt);
        kept.inspect_err(|_| drop(pins::remove(folder))).map_err(pin)?;
    }
    Ok((classify, adopt))
}

fn refused(name: &str, error: io::Error) -> GuardError {
    const EBUSY: i32 = 16;
    const EEXIST: i32 = 17;
    const EOPNOTSUPP: i32 = 95;
    match error.raw_os_error() {
        Some(EBUSY | EEXIST) => GuardError::Busy(name.to_owned()),
        Some(EOPNOTSUPP) => GuardError::NoDriverSupport(name.to_owned(), error),
        _ => GuardError::Attach(name.to_owned(), error),
    }
}
