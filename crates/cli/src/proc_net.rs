//! Counters in the form of `/proc/net/snmp`, `snmp6` and `netstat`, for programs that read those.
//!
//! Written by `floodwall stat --proc-net`. nstat takes them by the environment's `PROC_NET_SNMP`,
//! `PROC_NET_SNMP6` and `PROC_NET_NETSTAT`, and finds each counter under its name here. Invariant:
//! every counter stands in exactly one of the files. Each file is there whole or not at all.
//! Reading: Linux's `net/ipv4/proc.c` and `net/ipv6/proc.c` for the forms, iproute2's `nstat.c`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// Tables of `netstat`, then those of `snmp`; of two that fit a name the longer stands first.
const PROC_TABLES: [(&str, ProcFile); 6] = [
    ("TcpExt", ProcFile::Netstat),
    ("Floodwall", ProcFile::Netstat),
    ("Icmp", ProcFile::Snmp),
    ("Ip", ProcFile::Snmp),
    ("Tcp", ProcFile::Snmp),
    ("Udp", ProcFile::Snmp),
];
/// What counters of IPv6 begin with: they stand in a file without tables.
const IPV6_PREFIXES: [&str; 3] = ["Icmp6", "Ip6", "Udp6"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProcFile {
    Snmp,
    Netstat,
}

/// Writes the three files into a folder, which is made where it is missing.
///
/// # Errors
/// The error of the system.
pub(crate) fn write(folder: &Path, counters: &BTreeMap<String, u64>) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let files = [
        ("snmp", tables(counters, ProcFile::Snmp)),
        ("snmp6", lines(counters)),
        ("netstat", tables(counters, ProcFile::Netstat)),
    ];
    for (name, text) in files {
        let unfinished = folder.join(format!(".{name}"));
        std::fs::write(&unfinished, text)?;
        std::fs::rename(unfinished, folder.join(name))?;
    }
    Ok(())
}

/// The table of a counter without a family of its own, and its name in there.
fn place(name: &str) -> Option<(&'static str, &str)> {
    if IPV6_PREFIXES.iter().any(|start| name.starts_with(start)) {
        return None;
    }
    PROC_TABLES.iter().find_map(|(table, _)| Some((*table, name.strip_prefix(table)?)))
}

/// Two lines a table: names, then values.
fn tables(counters: &BTreeMap<String, u64>, file: ProcFile) -> String {
    let mut text = String::new();
    for (table, _) in PROC_TABLES.iter().filter(|(_, of)| *of == file) {
        let (mut names, mut values) = (format!("{table}:"), format!("{table}:"));
        let mut is_empty = true;
        for (name, value) in counters {
            if let Some((_, rest)) = place(name).filter(|(of, _)| of == table) {
                // To a text that grows in memory nothing fails to be written.
                let _ = write!(names, " {rest}");
                let _ = write!(values, " {value}");
                is_empty = false;
            }
        }
        if !is_empty {
            let _ = writeln!(text, "{names}\n{values}");
        }
    }
    text
}

/// One line a counter.
fn lines(counters: &BTreeMap<String, u64>) -> String {
    let of_v6 = counters
        .iter()
        .filter(|(name, _)| IPV6_PREFIXES.iter().any(|start| name.starts_with(start)));
    of_v6.map(|(name, value)| format!("{name:32}\t{value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use floodwall_base::Counter;

    use super::*;

    /// As nstat reads them: all counters of the two kinds of files, under their full names.
    fn read(texts: [&str; 3]) -> BTreeMap<String, u64> {
        let [snmp, snmp6, netstat] = texts;
        let mut all = BTreeMap::new();
        let mut put = |name: String, value: &str| {
            let again = all.insert(name, value.parse().unwrap());
            assert_eq!(again, None, "it stands there twice");
        };
        for line in snmp6.lines() {
            let (name, value) = line.split_once('\t').unwrap();
            put(name.trim().to_owned(), value);
        }
        for text in [snmp, netstat] {
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.chunks(2) {
                let [names, values] = [0, 1].map(|n| pair[n].split_once(": ").unwrap());
                assert_eq!(names.0, values.0);
                assert_eq!(names.1.split(' ').count(), values.1.split(' ').count());
                for (name, value) in names.1.split(' ').zip(values.1.split(' ')) {
                    put(format!("{}{name}", names.0), value);
                }
            }
        }
        all
    }

    #[test]
    fn every_counter_stands_in_one_of_the_files_under_its_name() {
        let counters: BTreeMap<String, u64> =
            (Counter::ALL.iter().zip(1..)).map(|(c, n)| (c.name().to_owned(), n)).collect();
        let [snmp, netstat] =
            [ProcFile::Snmp, ProcFile::Netstat].map(|file| tables(&counters, file));
        assert_eq!(read([&snmp, &lines(&counters), &netstat]), counters);
        assert!(snmp.contains("\nUdp: ") && netstat.starts_with("TcpExt: "), "{snmp}{netstat}");
    }
}
