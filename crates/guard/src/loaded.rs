//! `Loaded`: the programs in the kernel, and their maps.
//!
//! Made by `guard.rs`. Composes what `floodwall_bpf::cookie::host` has, for the kernel's own
//! numbers of functions and fields.

use std::io;

use floodwall_bpf::btf::Btf;
use floodwall_bpf::cookie::host::{
    BUCKETS, HostMaps, ListenerFields, PORT_ENTRIES, PORTS_MAX, PROOFS, Program, RANK_WORDS,
    RANKED, SCRATCH_BYTES, SETTING_WORDS, SOURCES, Tally, adopt, answer_syn, challenge_source,
    classify, prove_ack, rank_source, remember_source, share_datagrams,
};
use floodwall_bpf::cookie::{KEY_ENTRIES, KEY_WORDS};
use floodwall_bpf::{Assembler, NoProgram};
use floodwall_device::host_bpf::{HostMap, HostMapKind, HostProgram, HostProgramKind};

use crate::addresses::ADDRESSES_MAX;
use crate::error::GuardError;

const BTF: &str = "/sys/kernel/btf/vmlinux";
const ASSIGN: &str = "bpf_sk_assign_tcp_reqsk";

/// The programs as the kernel has loaded them, with their maps.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) ports: HostMap,
    pub(crate) settings: HostMap,
    pub(crate) tallies: HostMap,
    pub(crate) ranked: HostMap,
    pub(crate) addresses: HostMap,
    /// Attached to the interface.
    pub(crate) classify: HostProgram,
    /// Attached to traffic control.
    pub(crate) adopt: HostProgram,
    /// What is behind the first.
    pub(crate) programs: HostMap,
    /// What only the programs use.
    _kept: [HostMap; 5],
    _behind: Vec<HostProgram>,
}

impl Loaded {
    /// Has the kernel load all of them; those of challenges only where there are some. Nothing is
    /// attached.
    pub(crate) fn load(challenges: bool) -> Result<Self, GuardError> {
        let bytes = std::fs::read(BTF).map_err(|error| GuardError::NoBtf(error.to_string()))?;
        let btf = Btf::parse(&bytes).map_err(|error| GuardError::NoBtf(error.to_string()))?;
        let assign = btf.function(ASSIGN).ok_or(GuardError::NoFunction(ASSIGN))?;
        let fields = ListenerFields::read(&btf)
            .ok_or(GuardError::NoFunction("struct tcp_sock of a known shape"))?;
        let create = |kind, key, value, entries| {
            HostMap::create(kind, key, value, entries).map_err(permission)
        };
        let ports = create(HostMapKind::Array, 4, 8, PORT_ENTRIES as u32)?;
        let settings = create(HostMapKind::Array, 4, SETTING_WORDS * 8, 1)?;
        let scratch = create(HostMapKind::PerCoreArray, 4, SCRATCH_BYTES, 1)?;
        let keys = create(HostMapKind::PerCoreArray, 4, KEY_WORDS * 8, KEY_ENTRIES as u32)?;
        let tallies = create(HostMapKind::PerCoreArray, 4, Tally::WORDS * 8, PORTS_MAX as u32)?;
        let proofs = create(HostMapKind::Array, 4, 8, PROOFS as u32)?;
        let buckets = create(HostMapKind::Array, 4, 8, BUCKETS as u32)?;
        let sources = create(HostMapKind::Array, 4, 8, SOURCES as u32)?;
        let ranked = create(HostMapKind::Array, 4, RANK_WORDS * 8, RANKED as u32)?;
        let addresses = create(HostMapKind::Hash, 16, 8, ADDRESSES_MAX)?;
        let programs = create(HostMapKind::Programs, 4, 4, Program::COUNT as u32)?;
        let maps = HostMaps {
            ports: ports.fd(),
            settings: settings.fd(),
            scratch: scratch.fd(),
            keys: keys.fd(),
            tallies: tallies.fd(),
            proofs: proofs.fd(),
            buckets: buckets.fd(),
            sources: sources.fd(),
            ranked: ranked.fd(),
            addresses: addresses.fd(),
            programs: programs.fd(),
        };
        let xdp = HostProgramKind::Xdp;
        let answer = load("answer", xdp, |a| answer_syn(a, &maps))?;
        let prove = load("prove", xdp, |a| prove_ack(a, &maps))?;
        let share = load("share", xdp, |a| share_datagrams(a, &maps))?;
        let classify = load("classify", xdp, |a| classify(a, &maps, &fields))?;
        let adopt = load("adopt", HostProgramKind::TcIngress, |a| adopt(a, &maps, assign))?;
        let rank = load("rank", xdp, |a| rank_source(a, &maps))?;
        let mut behind = vec![
            (Program::Answer, answer),
            (Program::Prove, prove),
            (Program::Share, share),
            (Program::Rank, rank),
        ];
        if challenges {
            let challenge = load("challenge", xdp, |a| challenge_source(a, &maps))?;
            let remember = load("remember", xdp, |a| remember_source(a, &maps))?;
            behind.extend([(Program::Challenge, challenge), (Program::Remember, remember)]);
        }
        for (number, program) in &behind {
            programs.set_program(*number as u32, program)?;
        }
        Ok(Self {
            ports,
            settings,
            tallies,
            ranked,
            addresses,
            classify,
            adopt,
            programs,
            _kept: [scratch, keys, proofs, buckets, sources],
            _behind: behind.into_iter().map(|(_, program)| program).collect(),
        })
    }
}

fn permission(error: io::Error) -> GuardError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => GuardError::NoPrivilege(error),
        _ => GuardError::Map(error),
    }
}

fn load(
    name: &'static str,
    kind: HostProgramKind,
    compose: impl FnOnce(&mut Assembler),
) -> Result<HostProgram, GuardError> {
    let mut a = Assembler::new();
    compose(&mut a);
    let code = a
        .finish()
        .map_err(|NoProgram| GuardError::Program(name, io::Error::other("a jump to nowhere")))?;
    HostProgram::load(&code, kind).map_err(|error| match error.raw_os_error() {
        // EPERM; what the verifier refuses for want of a capability comes as EACCES with words.
        Some(1) => GuardError::NoPrivilege(error),
        _ => GuardError::Program(name, error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_programs_where_it_can() {
        match Loaded::load(true) {
            Ok(_) => {}
            Err(
                error @ (GuardError::NoPrivilege(_)
                | GuardError::NoBtf(_)
                | GuardError::NoFunction(_)),
            ) => eprintln!("SKIPPED: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}
