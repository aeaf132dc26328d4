//! From the settings' words to open devices, and to what the operator reads about them.
//!
//! Called by `run` before the stack is made: the stack wants the devices' MTUs.

use floodwall_base::{IfIndex, MacAddr, Randomness};
use floodwall_device::{
    Device, DeviceError, DeviceInfo, DeviceKind, Medium, NapiPriority, OpenConfig, OpenedDevice,
    PlacementReport, station_address,
};

use crate::instance_mark::{InstanceMark, OpenError};
use crate::settings::InterfaceSettings;

/// One interface's devices, one a queue.
pub(crate) struct OpenedDevices {
    pub(crate) iface: IfIndex,
    pub(crate) info: DeviceInfo,
    /// Our station's address, where the medium has such.
    pub(crate) mac: Option<MacAddr>,
    pub(crate) queues: Vec<Box<dyn Device>>,
    /// Notes for the operator.
    pub(crate) notes: Vec<String>,
    /// Where the kernel's half runs.
    pub(crate) placement: PlacementReport,
    /// What others know us by, as long as it is kept.
    pub(crate) mark: Option<InstanceMark>,
}

/// Opens an interface's device as configured, for the workers on these cores. The kernel half is
/// placed before or behind other programs where the device leaves that open, with as many features
/// as the device and our privileges allow.
pub(crate) fn open(
    index: usize,
    wanted: &InterfaceSettings,
    (cores, rank): (&[Option<usize>], Option<NapiPriority>),
    random: &mut Randomness,
) -> Result<OpenedDevices, OpenError> {
    let name = &wanted.device.value.name;
    let workers = cores.len();
    let station = match (&wanted.mac, wanted.device.value.kind) {
        (Some(mac), _) => Some(mac.value),
        (None, DeviceKind::Tun) => None,
        (None, _) => Some(station_address(name, random)),
    };
    let config = OpenConfig {
        workers,
        queues: wanted.queues.as_ref().map(|queues| queues.value),
        station,
        offload: wanted.offload.value,
        mtu: wanted.mtu.as_ref().map(|mtu| mtu.value),
        kernel_half: wanted.kernel_half.as_ref().map(|half| half.value).unwrap_or_default(),
        first_line: wanted.first_line.as_ref().map(|mode| mode.value).unwrap_or_default(),
        // Queues go to the workers in their order; if one is not pinned, none is.
        cores: cores.iter().copied().collect::<Option<_>>().unwrap_or_default(),
        rank,
        sends_only: false,
    };
    // Before anything is set at the interface, where another instance may be.
    let mark = station.map(|mac| InstanceMark::take(name, mac)).transpose()?;
    let OpenedDevice { queues, mut notes, placement } = wanted.device.value.open(&config)?;
    let (mark, others) = mark.unzip();
    notes.extend(others.into_iter().flatten());
    let Some(first) = queues.first() else {
        let device = name.clone();
        let (missing, remedy) = ("a device without queues", "ask for at least one");
        return Err(DeviceError::Unsupported { device, missing, remedy }.into());
    };
    let info = first.info().clone();
    if queues.len() < workers {
        notes.push(few_queues(queues.len(), workers));
    }
    let mac = station.filter(|_| info.medium == Medium::Ethernet);
    let iface = IfIndex(u16::try_from(index + 1).unwrap_or(u16::MAX));
    Ok(OpenedDevices { iface, info, mac, queues, notes, placement, mark })
}

/// What it costs that some workers have no queue of their own.
fn few_queues(queues: usize, workers: usize) -> String {
    let (served, passes) = match queues {
        1 => ("worker 0 alone is".to_owned(), "passes"),
        2 => ("workers 0 and 1 are".to_owned(), "pass"),
        n => (format!("workers 0 to {} are", n - 1), "pass"),
    };
    format!(
        "{queues} of {workers} workers can have a queue: {served} called by the device, and \
         {passes} on what the others receive and send (a TAP or TUN has up to 8 queues)"
    )
}

impl OpenedDevices {
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
                asked.iter().filter(|(asks, _)| *asks).map(|(_, server)| *server).collect();
            let asks = match asked.is_empty() {
                true => "no address of ours yet, and address configuration is off".to_owned(),
                false => format!("no address given: asking {}", asked.join(" and ")),
            };
            lines.push(format!("{}: note: {asks}", wanted.device.value));
        }
        let device = &wanted.device.value;
        lines.extend(self.notes.iter().map(|note| format!("{device}: note: {note}")));
        if let Some(line) = self.queues.first().map(|queue| queue.first_line_report()) {
            lines.push(format!("{device}: first line: {line}"));
        }
        lines.push(format!("{device}: the kernel's half: {}", self.placement.words));
        let lacks = self.placement.lacks.iter();
        lines.extend(lacks.map(|lack| format!("{device}: warning: {lack}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_about_few_queues_is_a_sentence() {
        for (queues, workers, said) in [
            (
                1,
                2,
                "1 of 2 workers can have a queue: worker 0 alone is called by the device, \
                 and passes on",
            ),
            (
                2,
                4,
                "2 of 4 workers can have a queue: workers 0 and 1 are called by the device, \
                 and pass on",
            ),
            (
                3,
                4,
                "3 of 4 workers can have a queue: workers 0 to 2 are called by the device, \
                 and pass on",
            ),
        ] {
            assert!(
                few_queues(queues, workers).starts_with(said),
                "{}",
                few_queues(queues, workers)
            );
        }
    }
}
