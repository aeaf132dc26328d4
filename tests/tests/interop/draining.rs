//! SIGINT during a hundred downloads by curl, of both families: what can be finished within the
//! time is whole, what cannot is reset, and nothing hangs.

use std::time::Duration;

use crate::command::Process;
use crate::instance::{Folder, Instance};
use crate::link::Kind;
use crate::namespace::{inside, set};
use crate::site::Site;

/// Downloads of each family that take three seconds, and such that take half a minute.
const QUICK: u32 = 45;
const SLOW: u32 = 5;
/// Bytes of the smallest; every one has another size.
const BYTES: u32 = 150_000;
const PORT: u16 = 8080;
const OURS: [&str; 2] = ["10.77.0.1", "[fd77::1]"];
/// Longer than any client may still need afterwards.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts one curl with `count` downloads at once, each at this rate. It writes a line for each:
/// its exit code and the bytes that arrived.
fn downloads(ours: &str, count: u32, rate: &str, folder: &Folder) -> Option<Process> {
    let config = folder.file("curl");
    std::fs::write(&config, "write-out = \"%{exitcode} %{size_download}\\n\"").unwrap();
    let last = BYTES + count - 1;
    let url = format!("http://{ours}:{PORT}/bytes/[{BYTES}-{last}]");
    let words = format!(
        "-s -Z --parallel-immediate --parallel-max {count} --limit-rate {rate} -K {config} \
         -o /dev/null {}{url}",
        if ours.starts_with('[') { "-6 " } else { "" }
    );
    Process::start("curl", &words, b"")
}

/// Of each download its exit code and its bytes, in order of bytes.
fn outcomes(process: Process) -> Vec<(u32, u32)> {
    let said = process.wait(PATIENCE);
    let number = |word: &str| word.parse().unwrap();
    let line = |line: &str| line.split_once(' ').map(|(code, bytes)| (number(code), number(bytes)));
    let mut all: Vec<(u32, u32)> = said.text.lines().filter_map(line).collect();
    all.sort_by_key(|(_, bytes)| *bytes);
    all
}

#[test]
fn downloads_are_whole_or_reset_when_it_is_told_to_end() {
    inside(|| {
        let (site, folder) = (Site::new(1500), Folder::new());
        let flags =
            format!("--address 10.77.0.1/24 --address fd77::1/64 --service http:{PORT} --drain 8");
        let Some(instance) = Instance::start(&site, Kind::Tap, &flags) else { return };
        let client = site.host(2);
        let started = client.inside(|| {
            // What is on its way is not yet in a client's buffer.
            set("net/ipv4/tcp_rmem", "4096 32768 65536");
            let start = |ours| {
                let quick = downloads(ours, QUICK, "50k", &folder)?;
                Some((quick, downloads(ours, SLOW, "3k", &folder)?))
            };
            Some([start(OURS[0])?, start(OURS[1])?])
        });
        let Some(clients) = started else { return };
        let all = u64::from(2 * (QUICK + SLOW));
        let opens = |stat: &serde_json::Value| stat["counters"]["TcpPassiveOpens"].as_u64();
        instance.wait_for(PATIENCE, |stat| opens(stat).is_some_and(|opens| opens >= all));
        let (_, said) = instance.end();
        // Some may have been whole before the signal.
        let told = said.split("connections at the end: ").nth(1).unwrap_or_default();
        assert!(told.contains(&format!(" closed, {} reset", 2 * SLOW)), "{said}");
        for (quick, slow) in clients {
            let whole: Vec<_> = (BYTES..BYTES + QUICK).map(|bytes| (0, bytes)).collect();
            assert_eq!(outcomes(quick), whole);
            // 56: failure in receiving; what had arrived before is there.
            let slow = outcomes(slow);
            assert_eq!(slow.len(), SLOW as usize);
            assert!(slow.iter().all(|(code, bytes)| *code == 56 && *bytes < BYTES), "{slow:?}");
        }
    });
}
