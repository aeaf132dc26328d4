//! From the settings' words to open devices, and to what the operator reads about them.
//!
//! Called by `run` before the stack is made: the stack wants the devices' MTUs.

use floodwall_base::{HashKey, IfIndex, MacAddr, Randomness};
use floodwall_device::{
    AfPacket, AfPacketConfig, Device, DeviceError, DeviceInfo, Medium, Tun, TunConfig, TunKind,
};

use crate::settings::{DeviceKind, InterfaceSettings};

/// One interface's devices, one a queue.
pub(crate) struct Opened {
    pub(crate) iface: IfIndex,
    pub(crate) info: DeviceInfo,
    /// Our station's address, where the medium has such.
    pub(crate) mac: Option<MacAddr>,
    pub(crate) queues: Vec<Box<dyn Device>>,
    /// What the operator should know besides.
    pub(crate) notes: Vec<String>,
}

/// Opens an interface's device as wanted, with the most that it and our privilege allow.
pub(crate) fn open(
    index: usize,
    wanted: &InterfaceSettings,
    random: &mut Randomness,
) -> Result<Opened, DeviceError> {
    let name = &wanted.device.value.name;
    let mut notes = Vec::new();
    let queues: Vec<Box<dyn Device>> = match wanted.device.value.kind {
        DeviceKind::Tun => boxed(open_tun(name, TunKind::Tun, wanted, &mut notes)?),
        DeviceKind::Tap => boxed(open_tun(name, TunKind::Tap, wanted, &mut notes)?),
        DeviceKind::Packet => {
            let offload = wanted.offload.value;
            let config = AfPacketConfig { offload, ..AfPacketConfig::default() };
            boxed(vec![AfPacket::open(name, &config)?])
        }
    };
    let Some(first) = queues.first() else {
        let device = name.clone();
        let (missing, remedy) = ("a device without queues", "ask for at least one");
        return Err(DeviceError::Unsupported { device, missing, remedy });
    };
    let info = first.info().clone();
    let mac = (info.medium == Medium::Ethernet)
        .then(|| wanted.mac.as_ref().map_or_else(|| own_mac(name, random), |mac| mac.value));
    let iface = IfIndex(u16::try_from(index + 1).unwrap_or(u16::MAX));
    Ok(Opened { iface, info, mac, queues, notes })
}

fn boxed<D: Device + 'static>(devices: Vec<D>) -> Vec<Box<dyn Device>> {
    devices.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect()
}

/// Opens a TUN or TAP and brings it up. Where only the latter is not allowed, as on an interface
/// that an administrator made for this user, it is left to the administrator.
fn open_tun(
    name: &str,
    kind: TunKind,
    wanted: &InterfaceSettings,
    notes: &mut Vec<String>,
) -> Result<Vec<Tun>, DeviceError> {
    let config = TunConfig {
        kind,
        queues: wanted.queues.as_ref().map_or(1, |queues| queues.value),
        vnet_header: wanted.offload.value,
        up: true,
        mtu: wanted.mtu.as_ref().map(|mtu| mtu.value),
    };
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

/// A locally administered address that stays the same for this machine and name, so that
/// neighbours need not learn it anew after a restart; where the machine has no identity, a random
/// one. The identity itself cannot be read from it.
fn own_mac(name: &str, random: &mut Randomness) -> MacAddr {
    let bits = match std::fs::read_to_string("/etc/machine-id") {
        Ok(identity) if identity.trim().len() >= 32 => {
            let key = HashKey::new(0x666c_6f6f_6477_616c, 0x6c20_6d61_6320_6164);
            key.bytes(format!("{}/{name}", identity.trim()).as_bytes())
        }
        _ => random.public.next_u64(),
    };
    let [a, b, c, d, e, f, ..] = bits.to_le_bytes();
    MacAddr([a & 0xfc | 2, b, c, d, e, f])
}

/// The secret behind the IPv6 addresses that we make ourselves (RFC 7217): the same for this
/// machine after a restart; `None` where the machine has no identity.
pub(crate) fn stable_secret() -> Option<[u8; 16]> {
    let identity = std::fs::read_to_string("/etc/machine-id").ok()?;
    let identity = Some(identity.trim()).filter(|identity| identity.len() >= 32)?;
    let half = |n: u64| HashKey::new(0x666c_6f6f_6477_616c, n).bytes(identity.as_bytes());
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&half(0x7372_6663_3732_3137).to_le_bytes());
    secret[8..].copy_from_slice(&half(0x7372_6663_3732_3138).to_le_bytes());
    Some(secret)
}

impl Opened {
    /// One line about what was got, and notes about what was not.
    pub(crate) fn lines(&self, wanted: &InterfaceSettings) -> Vec<String> {
        let info = &self.info;
        let station = match (self.mac, wanted.mac.is_some()) {
            (Some(mac), true) => format!("Ethernet, our address {mac}"),
            (Some(mac), false) => format!("Ethernet, our address {mac} (chosen by us)"),
            (None, _) => "IP without link header".to_owned(),
        };
        let offload = if info.offload { "on" } else { "off" };
        let queues = self.queues.len();
        let plural = if queues == 1 { "queue" } else { "queues" };
        let mut lines = vec![format!(
            "{}: interface {}, {station}, MTU {}, offload {offload}, {queues} {plural}",
            wanted.device.value, self.iface.0, info.mtu,
        )];
        if wanted.addresses.is_empty() {
            let asked =
                [(wanted.wants_dhcp(), "DHCP servers"), (wanted.wants_routers(), "IPv6 routers")];
            let asked: Vec<_> =
                asked.iter().filter(|(asks, _)| *asks).map(|(_, who)| *who).collect();
            let asks = match asked.is_empty() {
                true => "no address of ours yet, and nobody is asked for one".to_owned(),
                false => format!("no address given: asking {}", asked.join(" and ")),
            };
            lines.push(format!("{}: note: {asks}", wanted.device.value));
        }
        let device = &wanted.device.value;
        lines.extend(self.notes.iter().map(|note| format!("{device}: note: {note}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_address_of_our_own_making_is_local_and_stays() {
        let mut random = Randomness::from_number(1);
        let (one, other) = (own_mac("fw0", &mut random), own_mac("fw1", &mut random));
        assert_ne!(one, other);
        for mac in [one, other] {
            assert!(mac.is_unicast() && mac.0[0] & 2 == 2, "{mac}");
        }
        if std::fs::read_to_string("/etc/machine-id").is_ok_and(|id| id.trim().len() >= 32) {
            assert_eq!(own_mac("fw0", &mut Randomness::from_number(2)), one);
        }
    }
}
