//! What outlives its process: links and maps in a folder of a BPF file system.
//!
//! Used by `guard.rs` and by `--status` and `--unpin`. A guard that starts with the same folder
//! takes the place of what is pinned: its programs are put behind the links, tc first, and its maps
//! replace the old ones. Removing the folder ends the guard. A guard that ends on purpose and
//! leaves its pins notes that beside them, so that `floodwall cleanup` tells them from those of a
//! process that was killed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floodwall_bpf::cookie::host::{HostSettings, PORT_ENTRIES, RANK_WORDS, SETTING_WORDS, Tally};
use floodwall_device::host_bpf::{
    HostLink, HostLinkInfo, HostMap, HostMapKind, boot_nanos, ingress_links, interface,
};

use crate::loaded::Loaded;
use crate::status::{self, PortStatus, Status};

/// Where guards are pinned, unless it is said.
pub const FOLDER: &str = "/sys/fs/bpf/floodwall";

const CLASSIFY: &str = "xdp";
const ADOPT: &str = "tc";
const SETTINGS: &str = "settings";
const PORTS: &str = "ports";
const TALLIES: &str = "tallies";
const RANKED: &str = "ranked";
const PROGRAMS: &str = "programs";
/// A folder: the guard has ended on purpose.
const KEPT: &str = "kept";

/// What is pinned of an interface.
#[derive(Debug)]
pub(crate) struct Pins {
    pub(crate) folder: PathBuf,
    pub(crate) classify: HostLink,
    pub(crate) adopt: HostLink,
    settings: HostMap,
}

fn settings(folder: &Path) -> io::Result<HostMap> {
    HostMap::open(&folder.join(SETTINGS), HostMapKind::Array, 4, SETTING_WORDS * 8)
}

impl Pins {
    /// Opens it; `None` where there is nothing, or not all of it.
    pub(crate) fn open(folder: &Path) -> Option<Self> {
        Some(Self {
            folder: folder.to_owned(),
            classify: HostLink::open(&folder.join(CLASSIFY)).ok()?,
            adopt: HostLink::open(&folder.join(ADOPT)).ok()?,
            settings: settings(folder).ok()?,
        })
    }

    /// Where its links are, seen from the interface with that number of this network namespace.
    pub(crate) fn place(&self, index: u32) -> io::Result<PinPlace> {
        place(&self.adopt, Some(index))
    }

    /// Secret and clock in force.
    pub(crate) fn keys(&self) -> io::Result<[(u64, u64); 2]> {
        Ok(HostSettings::keys_of(&words(&self.settings)?))
    }
}

/// Where what is pinned is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PinPlace {
    /// At the interface of that name of this network namespace.
    Here,
    /// At one of another namespace, or one that has another name by now.
    Elsewhere,
    /// Nowhere: its interface has gone.
    Nowhere,
}

fn place(link: &HostLink, index: Option<u32>) -> io::Result<PinPlace> {
    let HostLinkInfo { id, interface } = link.info()?;
    Ok(match index {
        _ if interface == 0 => PinPlace::Nowhere,
        // Interfaces of two namespaces may have one number; links have their own.
        Some(index) if ingress_links(index)?.contains(&id) => PinPlace::Here,
        _ => PinPlace::Elsewhere,
    })
}

fn words(settings: &HostMap) -> io::Result<[u64; SETTING_WORDS]> {
    let bytes = settings.get(&0_u32.to_ne_bytes())?;
    let mut words = [0; SETTING_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    }
    Ok(words)
}

/// Pins all of it.
pub(crate) fn keep(
    folder: &Path,
    loaded: &Loaded,
    classify: &HostLink,
    adopt: &HostLink,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    keep_maps(folder, loaded)?;
    adopt.pin(&folder.join(ADOPT))?;
    classify.pin(&folder.join(CLASSIFY))
}

/// Pins the maps, in the place of others.
pub(crate) fn keep_maps(folder: &Path, loaded: &Loaded) -> io::Result<()> {
    let maps = [
        (SETTINGS, &loaded.settings),
        (PORTS, &loaded.ports),
        (TALLIES, &loaded.tallies),
        (RANKED, &loaded.ranked),
        // The kernel empties a map of programs that user space no longer holds.
        (PROGRAMS, &loaded.programs),
    ];
    for (name, map) in maps {
        let path = folder.join(name);
        gone(fs::remove_file(&path))?;
        map.pin(&path)?;
    }
    Ok(())
}

/// What is not there need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Ends a guard that is pinned: XDP first, so that no cookie is made that is not redeemed.
///
/// # Errors
/// A file cannot be removed.
pub fn remove(folder: &Path) -> io::Result<()> {
    for name in [CLASSIFY, ADOPT, SETTINGS, PORTS, TALLIES, RANKED, PROGRAMS] {
        gone(fs::remove_file(folder.join(name)))?;
    }
    gone(fs::remove_dir(folder.join(KEPT)))?;
    gone(fs::remove_dir(folder))
}

/// Notes that what is pinned was left on purpose, or no longer.
pub(crate) fn set_kept(folder: &Path, is_kept: bool) -> io::Result<()> {
    let note = folder.join(KEPT);
    match is_kept {
        true => fs::create_dir_all(note),
        false => gone(fs::remove_dir(note)),
    }
}

/// What pins in a folder are to a process that finds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinState {
    /// Of a process that runs, by its number.
    Held(u32),
    /// A guard has ended on purpose, and left them in force.
    Kept,
    /// At an interface of another network namespace, or of another name.
    Elsewhere,
    /// A guard that was killed has left them in force.
    InForce,
    /// They guard nothing: their interface has gone, or they are not complete.
    Dead,
}

/// Looks at the pins in a folder, which were made for the interface of that name. `None` where
/// there is no such folder.
///
/// # Errors
/// They cannot be read: no privilege.
pub fn state(folder: &Path, name: &str) -> io::Result<Option<PinState>> {
    if !folder.try_exists()? {
        return Ok(None);
    }
    let link = |name: &str| match HostLink::open(&folder.join(name)) {
        Ok(link) => link.info().map(|info| Some((link, info))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let (classify, adopt) = (link(CLASSIFY)?, link(ADOPT)?);
    let numbers: Vec<u32> = [&classify, &adopt].into_iter().flatten().map(|it| it.1.id).collect();
    if let Some(process) = holder(&numbers) {
        return Ok(Some(PinState::Held(process)));
    }
    let (Some(_), Some((adopt, _))) = (classify, adopt) else { return Ok(Some(PinState::Dead)) };
    let index = interface(name).ok().map(|(index, _)| index);
    Ok(Some(match place(&adopt, index)? {
        PinPlace::Nowhere => PinState::Dead,
        PinPlace::Elsewhere => PinState::Elsewhere,
        PinPlace::Here if folder.join(KEPT).is_dir() => PinState::Kept,
        PinPlace::Here => PinState::InForce,
    }))
}

/// Another process that holds one of these links open.
fn holder(links: &[u32]) -> Option<u32> {
    let wanted: Vec<String> = links.iter().map(|id| format!("link_id:\t{id}")).collect();
    let holds = |process: &Path| {
        let Ok(open) = fs::read_dir(process.join("fd")) else { return false };
        open.flatten().any(|open| {
            let is_link = fs::read_link(open.path())
                .is_ok_and(|to| to.to_string_lossy().starts_with("anon_inode:bpf"));
            is_link
                && fs::read_to_string(process.join("fdinfo").join(open.file_name()))
                    .is_ok_and(|text| text.lines().any(|line| wanted.iter().any(|it| it == line)))
        })
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbers = processes.filter_map(|it| it.file_name().to_string_lossy().parse().ok());
    let own = std::process::id();
    numbers.find(|process| *process != own && holds(&PathBuf::from(format!("/proc/{process}"))))
}

/// What a pinned guard has counted after the end of its process.
///
/// # Errors
/// Nothing is pinned there.
pub fn status(folder: &Path, interface: &str) -> io::Result<Status> {
    let ports = HostMap::open(&folder.join(PORTS), HostMapKind::Array, 4, 8)?;
    let bytes = Tally::WORDS * 8;
    let tallies = HostMap::open(&folder.join(TALLIES), HostMapKind::PerCoreArray, 4, bytes)?;
    let [_, _, mode, ..] = words(&settings(folder)?)?;
    let (mut found, mut numbers, now) = (Vec::new(), BTreeMap::new(), boot_nanos());
    for port in 0..PORT_ENTRIES as u32 {
        let value = ports.get(&port.to_ne_bytes())?;
        for (number, protocol) in value.iter().zip(["tcp", "udp"]).filter(|(n, _)| **n != 0) {
            let values = tallies.get(&u32::from(*number).to_ne_bytes())?;
            found.push(PortStatus::of(protocol, port as u16, &values, now));
            numbers.insert(*number, (protocol, port as u16));
        }
    }
    let refused = HostMap::open(&folder.join(RANKED), HostMapKind::Array, 4, RANK_WORDS * 8)
        .and_then(|ranked| status::refused(&ranked, now, |number| numbers.get(&number).copied()))?;
    let (interface, paused) = (interface.to_owned(), mode & 2 != 0);
    Ok(Status { interface, paused, ports: found, refused })
}
