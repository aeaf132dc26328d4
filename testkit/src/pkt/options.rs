//! Options of a script, as its head or the command line gives them.
//!
//! Called by the parser. Invariant: an option that changes what is checked is carried out; one of
//! packetdrill that describes its own machine (`gateway_ip`, `speed`, `mss`: how it cuts what it
//! injects) needs nothing here; any other is refused.

use std::net::IpAddr;
use std::time::Duration;

use super::script::Script;

/// Options that need nothing: both back ends make a network of their own.
const NEED_NOTHING: &[&str] =
    &["gateway_ip", "netmask_ip", "speed", "verbose", "debug", "mss", "send_omit_free"];

/// Whether an option has a value, which on a command line may be a word of its own.
#[must_use]
pub fn takes_value(name: &str) -> bool {
    let of_others = ["gateway_ip", "netmask_ip", "speed", "mss"];
    let ours = [
        "ip_version",
        "mtu",
        "local_ip",
        "remote_ip",
        "bind_port",
        "connect_port",
        "tolerance_usecs",
        "tolerance_percent",
        "tcp_ts_tick_usecs",
        "non_fatal",
    ];
    ours.contains(&name) || of_others.contains(&name)
}

/// Carries out an option.
///
/// # Errors
/// It is not supported, or its value is not.
pub(super) fn set(script: &mut Script, name: &str, value: &str) -> Result<(), &'static str> {
    const NUMBER: &str = "a number is missing";
    let is_on = !matches!(value, "0" | "false");
    match (name, value) {
        ("ip_version", "ipv4") => (script.ipv6, script.mapped) = (false, false),
        ("ip_version", "ipv4-mapped-ipv6") => (script.ipv6, script.mapped) = (false, true),
        ("ip_version", "ipv6") => (script.ipv6, script.mapped) = (true, false),
        ("mtu", bytes) => {
            let bytes = bytes.parse().ok().filter(|bytes| (68..=65_535).contains(bytes));
            script.mtu = Some(bytes.ok_or("an MTU from 68 to 65535")?);
        }
        ("local_ip", addr) => {
            let (addr, bits) = match addr.split_once('/') {
                Some((addr, bits)) => (addr, Some(bits.parse().map_err(|_| NUMBER)?)),
                None => (addr, None),
            };
            script.local = Some((address(addr)?, bits));
        }
        ("remote_ip", addr) => {
            script.remote = Some(address(addr.split('/').next().unwrap_or_default())?);
        }
        ("bind_port", port) => script.ports.0 = port.parse().map_err(|_| NUMBER)?,
        ("connect_port", port) => script.ports.1 = port.parse().map_err(|_| NUMBER)?,
        ("strict_segments", _) => script.strict_segments = is_on,
        ("tolerance_usecs", micros) => {
            script.tolerance = Some(Duration::from_micros(micros.parse().map_err(|_| NUMBER)?));
        }
        ("tolerance_percent", percent) => {
            let percent: f64 = percent.parse().map_err(|_| NUMBER)?;
            if !(0.0..=100.0).contains(&percent) {
                return Err("a percentage from 0 to 100");
            }
            script.tolerance_part = percent / 100.0;
        }
        ("tcp_ts_tick_usecs", micros) => script.tick = micros.parse().map_err(|_| NUMBER)?,
        ("tcp_ts_ecr_scaled", _) => script.scaled_echoes = is_on,
        ("non_fatal", kinds) => {
            let mut kinds = kinds.split(',').map(str::to_owned);
            if kinds.clone().any(|kind| kind != "packet" && kind != "syscall") {
                return Err("only `packet` and `syscall` can fail without failing the script");
            }
            script.non_fatal.extend(&mut kinds);
        }
        (name, _) if NEED_NOTHING.contains(&name) => {}
        _ => return Err("this option or its value is not supported"),
    }
    Ok(())
}

fn address(text: &str) -> Result<IpAddr, &'static str> {
    text.parse().map_err(|_| "an IP address is missing")
}
