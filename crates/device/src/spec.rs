//! `DeviceSpec`: a device specification, `tap:fw0`, as given by operators and programs.
//!
//! Called by programs that start a host on a real device: `floodwall run` and the sockets' builder.
//! It parses the specification, opens the device with all features that it and our privilege allow,
//! and supplies what else a host needs: an Ethernet address of its own, and the secret key for its
//! stable IPv6 addresses (RFC 7217). Invariant: the same machine and name have the same address
//! after a restart. Deliberately not here: what is done with the device.

use std::fmt;
use std::str::FromStr;

use floodwall_base::{HashKey, MacAddr, Randomness};
use thiserror::Error;

#[cfg(target_os = "linux")]
use crate::af_xdp::packet_line::PacketLine;
use crate::device::Device;
use crate::error::DeviceError;
use crate::first_line_mode::FirstLineMode;
use crate::napi_policy::{NapiPolicy, NapiPriority};
use crate::napi_report::PlacementReport;
use crate::xdp_mode::XdpMode;
#[cfg(target_os = "linux")]
use crate::{
    AfPacket, AfPacketConfig, AfXdp, AfXdpConfig, OpenedXdp, Placement, PlacementConfig, Tun,
    TunConfig, TunKind,
};

/// Kinds of devices that a specification can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// A TUN interface: IP packets.
    Tun,
    /// A TAP interface: Ethernet frames.
    Tap,
    /// A packet socket on an interface of the system.
    Packet,
    /// AF_XDP sockets on an interface of the system.
    Xdp,
}

impl DeviceKind {
    /// Its keyword in a specification.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tun => "tun",
            Self::Tap => "tap",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
        }
    }
}

/// A parsed device specification: `"tap:fw0".parse()`, `"xdp:eth1,queues=2".parse()`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// The kind of device.
    pub kind: DeviceKind,
    /// The interface's name, 1 to 15 bytes.
    pub name: String,
    /// `queues=N`: how many queues.
    pub queues: Option<usize>,
    /// `mode=native`, `mode=generic`: by which way XDP shall run.
    pub mode: XdpMode,
}

/// Why a text names no device.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{what}: {remedy}")]
pub struct InvalidDeviceSpec {
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub remedy: &'static str,
}

/// Longest name that Linux gives an interface.
const NAME_MAX: usize = 15;
/// Maximum number of queues that a specification may request.
const QUEUES_MAX: usize = 64;
/// Maximum default number of queues of a TUN or TAP, where one queue a worker is used.
const TUN_QUEUES_MAX: usize = 8;

impl FromStr for DeviceSpec {
    type Err = InvalidDeviceSpec;

    fn from_str(text: &str) -> Result<Self, InvalidDeviceSpec> {
        const REMEDY: &str =
            "write tun:NAME, tap:NAME, packet:INTERFACE or xdp:INTERFACE, as in tap:fw0";
        let Some((kind, rest)) = text.split_once(':') else {
            return wrong(format!("{text:?} is not a device"), REMEDY);
        };
        let kind = match kind {
            "tun" => DeviceKind::Tun,
            "tap" => DeviceKind::Tap,
            "packet" => DeviceKind::Packet,
            "xdp" => DeviceKind::Xdp,
            _ => return wrong(format!("{kind:?} is not a kind of device"), REMEDY),
        };
        let mut parts = rest.split(',');
        let name = parts.next().unwrap_or_default();
        let is_odd =
            |c: char| c == '/' || c == ':' || c == '%' || c.is_whitespace() || c.is_control();
        if name.is_empty()
            || name.len() > NAME_MAX
            || matches!(name, "." | "..")
            || name.contains(is_odd)
        {
            let remedy = "use 1 to 15 bytes without space, slash, comma, colon or percent sign, as \
                          in tap:fw0";
            return wrong(format!("{name:?} cannot be an interface's name"), remedy);
        }
        let mut word = Self { kind, name: name.to_owned(), queues: None, mode: XdpMode::default() };
        parts.try_for_each(|option| word.set(option))?;
        Ok(word)
    }
}

impl DeviceSpec {
    /// Applies one option of the specification.
    fn set(&mut self, option: &str) -> Result<(), InvalidDeviceSpec> {
        let unknown = || {
            let remedy =
                "the options are queues=N, and of xdp and packet mode=native or mode=generic";
            wrong(format!("{option:?} is no option of {}:", self.kind.word()), remedy)
        };
        let Some((key, value)) = option.split_once('=') else { return unknown() };
        match (key, self.kind) {
            ("queues", DeviceKind::Tun | DeviceKind::Tap | DeviceKind::Xdp) => {
                let most = if self.kind == DeviceKind::Xdp { QUEUES_MAX } else { TUN_QUEUES_MAX };
                let number = value.parse().ok().filter(|n| (1..=most).contains(n));
                if number.is_none() {
                    let remedy = "use 1 to 64; a TUN or TAP has up to 8";
                    return wrong(format!("{value:?} cannot be a number of queues"), remedy);
                }
                self.queues = number;
            }
            ("mode", DeviceKind::Xdp | DeviceKind::Packet) => match value.parse() {
                Ok(mode) => self.mode = mode,
                Err(()) => {
                    let remedy = "use auto, native or generic";
                    return wrong(format!("{value:?} is no mode of a program"), remedy);
                }
            },
            _ => return unknown(),
        }
        Ok(())
    }
}

fn wrong<T>(what: String, remedy: &'static str) -> Result<T, InvalidDeviceSpec> {
    Err(InvalidDeviceSpec { what, remedy })
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.word(), self.name)?;
        if let Some(queues) = self.queues {
            write!(f, ",queues={queues}")?;
        }
        if self.mode != XdpMode::default() {
            write!(f, ",mode={}", self.mode)?;
        }
        Ok(())
    }
}

/// How a device is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenConfig {
    /// Workers that the queues are for.
    pub workers: usize,
    /// Queues; the specification's own number takes precedence. `None` is one a worker of a TUN or
    /// TAP, and all queues of the interface of XDP; a packet socket has one.
    pub queues: Option<usize>,
    /// The link address of the station behind the device; XDP needs it for steering.
    pub station: Option<MacAddr>,
    /// Whether GSO frames and partial checksums may cross, where the device can.
    pub offload: bool,
    /// The MTU that a TUN or TAP is given; `None` leaves it.
    pub mtu: Option<u32>,
    /// Where the kernel's half of an interface shall run.
    pub kernel_half: NapiPolicy,
    /// The core of the worker that will have each queue, in their order, taken in turn where there
    /// are more queues; empty where workers are not pinned.
    pub cores: Vec<usize>,
    /// Which of the two has priority there. With `None` it is the kernel's half where the device
    /// itself drops unverified traffic, because packets that it has no time for are lost regardless
    /// of their flow; else the worker.
    pub rank: Option<NapiPriority>,
    /// What the program at an XDP or packet interface does besides steering.
    pub first_line: FirstLineMode,
    /// Of XDP: frames for our station are dropped at the interface, for a sender to which answers
    /// mean nothing.
    pub sends_only: bool,
}

impl Default for OpenConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            queues: None,
            station: None,
            offload: false,
            mtu: None,
            kernel_half: NapiPolicy::default(),
            cores: Vec::new(),
            rank: None,
            first_line: FirstLineMode::default(),
            sends_only: false,
        }
    }
}

/// What [`DeviceSpec::open`] gives.
pub struct OpenedDevice {
    /// One device a queue, at least one.
    pub queues: Vec<Box<dyn Device>>,
    /// Other notes for the operator.
    pub notes: Vec<String>,
    /// Where the kernel's half runs.
    pub placement: PlacementReport,
}

impl fmt::Debug for OpenedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedDevice")
            .field("queues", &self.queues.len())
            .field("notes", &self.notes)
            .field("placement", &self.placement)
            .finish()
    }
}

impl DeviceSpec {
    /// Opens the device. A TUN or TAP is brought up. If the process may do everything but that, as
    /// on an interface that an administrator made for this user, it is left down with a note. Costs
    /// a few system calls.
    ///
    /// # Errors
    /// See [`DeviceError`]: each names the device, what is missing and the remedy.
    #[cfg(target_os = "linux")]
    pub fn open(&self, config: &OpenConfig) -> Result<OpenedDevice, DeviceError> {
        let name = &self.name;
        let kind = match self.kind {
            DeviceKind::Tun => TunKind::Tun,
            DeviceKind::Tap => TunKind::Tap,
            DeviceKind::Packet => return open_packet(self, config),
            DeviceKind::Xdp => return open_xdp(self, config),
        };
        let mut notes = Vec::new();
        let queues =
            self.queues.or(config.queues).unwrap_or(config.workers.clamp(1, TUN_QUEUES_MAX));
        let queues = boxed(open_tun(name, kind, queues, config, &mut notes)?);
        Ok(OpenedDevice { queues, notes, placement: Placement::of_tun(name) })
    }

    /// No system but Linux has these devices.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub fn open(&self, _: &OpenConfig) -> Result<OpenedDevice, DeviceError> {
        let (missing, remedy) = ("a device of Linux", "use a device value of your own");
        Err(DeviceError::Unsupported { device: self.name.clone(), missing, remedy })
    }
}

#[cfg(target_os = "linux")]
fn boxed<D: Device + 'static>(devices: Vec<D>) -> Vec<Box<dyn Device>> {
    devices.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect()
}

#[cfg(target_os = "linux")]
fn placement_of(config: &OpenConfig, chooses: bool) -> PlacementConfig {
    let rank = if chooses { NapiPriority::Choosing } else { NapiPriority::Behind };
    let rank = config.rank.unwrap_or(rank);
    PlacementConfig { half: config.kernel_half, cores: config.cores.clone(), rank }
}

/// A packet socket, and the placement of its kernel half (NAPI).
#[cfg(target_os = "linux")]
fn open_packet(word: &DeviceSpec, config: &OpenConfig) -> Result<OpenedDevice, DeviceError> {
    let name = &word.name;
    let wanted = AfPacketConfig { offload: config.offload, ..AfPacketConfig::default() };
    let mut device = AfPacket::open(name, &wanted)?;
    let mut notes = device.notes();
    if let Some(station) = config.station {
        let line = PacketLine::attach(name, station, (config.first_line, word.mode), &mut notes)?;
        device.set_line(station, line);
    }
    let wanted = placement_of(config, device.has_program());
    let placement = Placement::take(name, &wanted)?;
    let report = placement.report().clone();
    device.place(placement);
    Ok(OpenedDevice { queues: boxed(vec![device]), notes, placement: report })
}

/// AF_XDP sockets, and the place of the kernel's half behind them.
#[cfg(target_os = "linux")]
fn open_xdp(word: &DeviceSpec, config: &OpenConfig) -> Result<OpenedDevice, DeviceError> {
    let name = &word.name;
    let Some(station) = config.station else {
        return Err(DeviceError::Unsupported {
            device: name.clone(),
            missing: "XDP without a link address of our own",
            remedy: "set the link address of the station behind the device",
        });
    };
    let queues = word.queues.or(config.queues);
    let wanted = AfXdpConfig {
        queues,
        mode: word.mode,
        first_line: if config.sends_only { FirstLineMode::Off } else { config.first_line },
        sends_only: config.sends_only,
        ..AfXdpConfig::new(station)
    };
    let OpenedXdp { mut queues, notes } = AfXdp::open(name, &wanted)?;
    let wanted = placement_of(config, queues.first().is_some_and(Device::knows_established_flows));
    let mut placement = Placement::take(name, &wanted)?;
    let report = placement.report().clone();
    for (queue, half) in queues.iter_mut().zip(placement.halves()) {
        queue.set_half(half);
    }
    if let Some((first, others)) = queues.split_first_mut() {
        first.place(placement);
        others.iter_mut().for_each(|queue| queue.place_as(first));
    }
    Ok(OpenedDevice { queues: boxed(queues), notes, placement: report })
}

#[cfg(target_os = "linux")]
fn open_tun(
    name: &str,
    kind: TunKind,
    queues: usize,
    wanted: &OpenConfig,
    notes: &mut Vec<String>,
) -> Result<Vec<Tun>, DeviceError> {
    let OpenConfig { offload, mtu, .. } = *wanted;
    let config = TunConfig { kind, queues, vnet_header: offload, up: true, mtu };
    match Tun::open(name, &config) {
        Err(DeviceError::NoPrivilege { action: "bring the interface up", .. }) => {
            notes.push(format!(
                "may not bring {name} up (CAP_NET_ADMIN is missing): do `ip link set {name} up`"
            ));
            Tun::open(name, &TunConfig { up: false, ..config })
        }
        opened => opened,
    }
}

/// What the keyed hashes below begin with.
const HASH_KEY_START: u64 = 0x666c_6f6f_6477_616c;

/// The machine's identity, where it has one.
fn machine() -> Option<String> {
    let identity = std::fs::read_to_string("/etc/machine-id").ok()?;
    Some(identity.trim().to_owned()).filter(|identity| identity.len() >= 32)
}

/// A locally administered address for an interface of ours, which stays the same for this machine,
/// name and interface of the system, so that neighbours need not learn it anew after a restart;
/// where the machine has no identity, a random one. The identity itself cannot be read from it.
/// Containers that share an identity and a name have interfaces of their own, and so addresses.
#[must_use]
pub fn station_address(name: &str, random: &mut Randomness) -> MacAddr {
    let bits = match machine() {
        Some(identity) => {
            let key = HashKey::new(HASH_KEY_START, 0x6c20_6d61_6320_6164);
            key.bytes(seed(&identity, name, crate::napi::hardware_address(name)).as_bytes())
        }
        None => random.public.next_u64(),
    };
    let [a, b, c, d, e, f, ..] = bits.to_le_bytes();
    MacAddr([a & 0xfc | 2, b, c, d, e, f])
}

fn seed(identity: &str, name: &str, hardware: Option<String>) -> String {
    match hardware {
        Some(hardware) => format!("{identity}/{name}/{hardware}"),
        None => format!("{identity}/{name}"),
    }
}

/// The secret behind the IPv6 addresses that we make ourselves (RFC 7217): the same for this
/// machine after a restart; `None` where the machine has no identity.
#[must_use]
pub fn stable_secret() -> Option<[u8; 16]> {
    let identity = machine()?;
    let half = |n: u64| HashKey::new(HASH_KEY_START, n).bytes(identity.as_bytes()).to_le_bytes();
    let [low, high] = [half(0x7372_6663_3732_3137), half(0x7372_6663_3732_3138)];
    let mut secret = [0; 16];
    secret.iter_mut().zip(low.into_iter().chain(high)).for_each(|(to, from)| *to = from);
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_and_written_back() {
        for text in [
            "tun:t",
            "tap:fw0",
            "packet:eth0.100",
            "xdp:eth1",
            "xdp:eth1,queues=2,mode=generic",
            "packet:e,mode=generic",
        ] {
            assert_eq!(text.parse::<DeviceSpec>().unwrap().to_string(), text);
        }
        for text in ["", "fw0", "tap:", "tap:a b", "tap:..", "veth:fw0", "tap:sixteen-bytes-it"] {
            let refused = text.parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(refused.ends_with("as in tap:fw0"), "{refused}");
        }
        for text in [
            "tap:t,",
            "tap:t,mode=native",
            "packet:e,queues=2",
            "xdp:e,queues=0",
            "xdp:e,queues=65",
            "xdp:e,mode=fast",
            "packet:e,mode=fast",
            "xdp:e,colour=red",
        ] {
            let refused = text.parse::<DeviceSpec>().unwrap_err().to_string();
            let words = ["is no option", "cannot be a number", "is no mode"];
            assert!(words.iter().any(|words| refused.contains(words)), "{text}: {refused}");
        }
    }

    #[test]
    fn a_station_address_of_our_own_making_is_local_and_stays() {
        let mut random = Randomness::from_number(1);
        let (one, other) =
            (station_address("fw0", &mut random), station_address("fw1", &mut random));
        assert_ne!(one, other);
        for mac in [one, other] {
            assert!(mac.is_unicast() && mac.0[0] & 2 == 2, "{mac}");
        }
        if machine().is_some() {
            assert_eq!(station_address("fw0", &mut Randomness::from_number(2)), one);
            assert_eq!(stable_secret(), stable_secret());
        }
    }

    #[test]
    fn containers_with_one_identity_have_addresses_of_their_own() {
        let of = |hardware: Option<&str>| seed("identity", "eth0", hardware.map(str::to_owned));
        let all = [of(None), of(Some("020000000001")), of(Some("020000000002"))];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
        assert_eq!(crate::napi::hardware_address("no-such-iface"), None);
        // Loopback has zeros.
        assert_eq!(crate::napi::hardware_address("lo"), None);
    }
}
