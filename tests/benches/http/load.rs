//! The clients: `wrk` on connections that stay, `ab` with a new one for each request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::server::Server;
use crate::talk::{BODIES, Pages};
use crate::{clients, network};

/// The report of `wrk` at its end, in one line.
const SCRIPT: &str = "done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(\"COUNT %d %d %d %d\\n\", summary.requests, summary.bytes,
    e.connect + e.read + e.write + e.timeout, e.status))
end
";
/// Requests of `ab` at most.
const REQUESTS_MAX: u32 = 1_000_000;

/// What is requested, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    /// A page on connections that stay.
    Stays(usize),
    /// A page on a new connection for each request.
    New(usize),
}

impl Load {
    pub(crate) fn name(self) -> String {
        let (what, page) = match self {
            Self::Stays(page) => ("keep-alive", page),
            Self::New(page) => ("new connections", page),
        };
        format!("{what}, {} B", BODIES[page])
    }

    /// Sends requests for so many seconds; returns how many were answered, each one correctly.
    pub(crate) fn run(self, server: &Server, v6: bool, seconds: u32) -> u64 {
        match self {
            Self::Stays(page) => wrk(server, v6, page, seconds),
            Self::New(page) => ab(server, v6, page, seconds),
        }
    }
}

fn url(server: &Server, v6: bool, page: usize) -> String {
    format!("http://{}/{}", server.addr(v6), ["", "large"][page])
}

/// Runs a client on its core, for a bounded time; what it printed.
fn client(words: &[String], seconds: u32) -> String {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", &(seconds + 20).to_string()]);
    if let Some([_, core]) = network::cores() {
        command.args(["taskset", "-c", &core.to_string()]);
    }
    let output = command.args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {text}{errors}");
    text
}

fn wrk(server: &Server, v6: bool, page: usize, seconds: u32) -> u64 {
    let script = std::env::temp_dir().join(format!("floodwall-http-{}.lua", std::process::id()));
    std::fs::write(&script, SCRIPT).unwrap();
    let words = format!(
        "wrk -t1 -c{} -d{seconds}s -s {} {}",
        clients(),
        script.display(),
        url(server, v6, page)
    );
    let text = client(&words.split(' ').map(str::to_owned).collect::<Vec<_>>(), seconds);
    let _ = std::fs::remove_file(script);
    let line = text.lines().find_map(|line| line.strip_prefix("COUNT ")).unwrap();
    let counts: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
    let [requests, bytes, 0, 0] = counts[..] else { panic!("{}: {text}", server.name) };
    // Of those that the end cut short, some bytes came.
    let each = Pages::new().answer(page).len() as u64;
    let whole = requests * each..=(requests + clients() as u64) * each;
    assert!(whole.contains(&bytes), "{}: {text}", server.name);
    requests
}

fn ab(server: &Server, v6: bool, page: usize, seconds: u32) -> u64 {
    let words =
        format!("ab -q -t {seconds} -n {REQUESTS_MAX} -c {} {}", clients(), url(server, v6, page));
    let text = client(&words.split(' ').map(str::to_owned).collect::<Vec<_>>(), seconds);
    let of = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |line| line.split_whitespace().next().unwrap().parse().unwrap())
    };
    let wrong = of("Failed requests:") + of("Non-2xx responses:") + of("Write errors:");
    assert_eq!(wrong, 0, "{}: {text}", server.name);
    assert_eq!(of("Document Length:"), BODIES[page] as u64, "{}: {text}", server.name);
    let requests = of("Complete requests:");
    let whole =
        requests * BODIES[page] as u64..=(requests + clients() as u64) * BODIES[page] as u64;
    assert!(whole.contains(&of("HTML transferred:")), "{}: {text}", server.name);
    requests
}

/// Requests every page in both ways, and compares all bytes.
pub(crate) fn compare_bytes(server: &Server) {
    let pages = Pages::new();
    for v6 in [false, true] {
        let mut stays = TcpStream::connect(server.addr(v6)).unwrap();
        stays.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for (page, path) in ["/", "/large", "/"].into_iter().enumerate() {
            let answer = pages.answer(page % 2);
            write!(stays, "GET {path} HTTP/1.1\r\nHost: there\r\n\r\n").unwrap();
            let mut got = vec![0; answer.len()];
            stays.read_exact(&mut got).unwrap();
            assert!(got == answer, "{}: {path} is as it should be", server.name);
            let mut leaves = TcpStream::connect(server.addr(v6)).unwrap();
            leaves.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            write!(leaves, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
            let mut got = Vec::new();
            leaves.read_to_end(&mut got).unwrap();
            assert!(got == answer, "{}: {path} by HTTP/1.0", server.name);
        }
    }
}
