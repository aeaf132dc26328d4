//! HTTP beside its rivals: requests per second of server CPU, of Floodwall and smoltcp over a TUN
//! each and of the kernel over a veth, in one run.
//!
//! `cargo bench -p floodwall-tests --bench http`, as root; `wrk` and `ab` are needed (Debian's wrk
//! and apache2-utils). `-- --json` is for programs, `-- --test` runs each once and shortly, a word
//! picks contestants by name. The servers are processes of one thread each (Floodwall's on tokio
//! has a worker beside the runtime's thread), alike but for the sockets under them (`talk.rs`), and
//! wait side by side while another is asked. Load: `wrk` on 32 connections that stay (or as many as
//! FLOODWALL_HTTP_CLIENTS says), `ab` with as many at a time and a new one for each request, both
//! families, bodies of 128 B and 16 KiB. Every server's bytes are compared first; then the counts
//! of `wrk` and `ab` must report no error and of exactly so many bytes.
//!
//! What counts as a server's CPU is the time of all its threads on a core, as the scheduler counts
//! it. The kernel does the receiving half of its own work in whichever context is at hand, for the
//! client's side as a rule in the *server's* system call. So that each side pays for its own, what
//! a TUN's writer hands to the kernel is received on the client's core (RPS); and over the veth
//! both ends are received by kernel threads of their own (threaded NAPI, with GRO); their time is
//! added to the server's at its end. Rounds are interleaved, medians reported. The namespaces have
//! no name and go with this process.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench waits, and uses the kernel's sockets")]

mod kernel;
mod load;
mod network;
mod ours;
mod report;
mod server;
mod smoltcp_server;
mod talk;

use std::path::Path;
use std::process::{Command, ExitCode};

use load::Load;
use report::Row;

/// Clients at a time, unless [`CLIENTS_NAME`] says otherwise.
const CLIENTS: usize = 32;
/// The variable of the environment that sets their number, for the servers too.
const CLIENTS_NAME: &str = "FLOODWALL_HTTP_CLIENTS";
/// Interleaved rounds.
const ROUNDS: usize = 5;

/// What the command line requests.
#[derive(Default)]
struct Asked {
    quick: bool,
    json: bool,
    inside: bool,
    /// Contestants with names that contain this.
    word: String,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, what @ ..] = &args[..]
        && first == "--serve"
    {
        server::serve(what);
        return ExitCode::SUCCESS;
    }
    let mut asked = Asked::default();
    for arg in &args {
        match arg.as_str() {
            "--test" => asked.quick = true,
            "--json" => asked.json = true,
            "--inside" => asked.inside = true,
            word if !word.starts_with('-') => word.clone_into(&mut asked.word),
            _ => {}
        }
    }
    if asked.inside {
        run(&asked);
        return ExitCode::SUCCESS;
    }
    match missing() {
        Some(what) => println!("SKIPPED: HTTP beside smoltcp and the kernel needs {what}"),
        None => return go_inside(&args),
    }
    ExitCode::SUCCESS
}

/// Clients at a time.
pub(crate) fn clients() -> usize {
    let set = std::env::var(CLIENTS_NAME).ok().and_then(|number| number.parse().ok());
    set.unwrap_or(CLIENTS)
}

/// What this machine lacks.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root");
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("/dev/net/tun");
    }
    let has = |program: &str| {
        ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
            .iter()
            .any(|d| Path::new(d).join(program).exists())
    };
    let needed = ["ip", "unshare", "nsenter", "taskset", "timeout", "ethtool", "wrk", "ab"];
    needed.into_iter().find(|program| !has(program))
}

/// Runs this program again in a network namespace of its own, which sees its own `/sys`.
fn go_inside(args: &[String]) -> ExitCode {
    let myself = std::env::current_exe().unwrap();
    let mut inside = network::apart(&myself);
    match inside.args(args).arg("--inside").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("SKIPPED: no network namespace of its own ({error})");
            ExitCode::SUCCESS
        }
    }
}

fn run(asked: &Asked) {
    network::prepare();
    let servers = server::contestants(&asked.word);
    for server in &servers {
        server.wait_until_it_serves();
        load::compare_bytes(server);
    }
    let loads = [Load::Stays(0), Load::New(0), Load::Stays(1), Load::New(1)];
    let mut rows = Vec::new();
    for load in loads {
        for v6 in [false, true] {
            let of_load = servers.iter().filter(|server| server.takes(load));
            rows.extend(of_load.map(|server| Row::new(server, load, v6)));
        }
    }
    let rounds = if asked.quick { 1 } else { ROUNDS };
    for _ in 0..rounds {
        for row in &mut rows {
            let seconds = if asked.quick { 1 } else { 2 };
            row.measure(seconds);
        }
    }
    if asked.json { report::json(&rows) } else { report::table(&rows) }
}

/// Runs a command and returns whether it succeeded.
pub(crate) fn run_words(words: &str) -> bool {
    let mut words = words.split_whitespace();
    let Some(program) = words.next() else { return false };
    Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
}
