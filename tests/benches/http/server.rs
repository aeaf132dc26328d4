//! The servers as processes: started, addressed, and their time on a core read.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::load::Load;
use crate::{clients, kernel, network, ours, smoltcp_server};

/// One server process, its addresses, and the CPU time that it has used.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    process: Child,
    /// The number in its addresses.
    net: usize,
    /// Threads of the kernel that work for it.
    helpers: Vec<u32>,
    /// Which loads it takes, if not all: with connections that stay, or new ones.
    only: Option<bool>,
}

/// The name, the argument that selects a server's kind, and which loads it takes if not all.
const KINDS: &[(&str, &str, Option<bool>)] = &[
    ("Floodwall", "ours", None),
    ("Floodwall, plain TUN", "plain", None),
    ("Floodwall, tokio", "tokio", None),
    ("smoltcp", "smoltcp", Some(true)),
    ("smoltcp", "smoltcp-new", Some(false)),
    ("kernel, veth", "kernel", None),
];

/// All contestants with names that contain `word`.
pub(crate) fn contestants(word: &str) -> Vec<Server> {
    let all = KINDS.iter().enumerate().filter(|(_, (name, ..))| name.contains(word));
    all.map(|(net, (name, kind, only))| Server::start(name, kind, net, *only)).collect()
}

/// Runs as the server that these words name.
pub(crate) fn serve(words: &[String]) {
    // Its parent may be killed: no process is left behind.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let [kind, device, addresses @ ..] = words else { panic!("--serve KIND DEVICE ADDRESS...") };
    match kind.as_str() {
        "ours" => ours::in_slices(device, addresses, true),
        "plain" => ours::in_slices(device, addresses, false),
        "tokio" => ours::on_tokio(device, addresses),
        // One beside the clients' for the probe for a listener, and one to close.
        "smoltcp" => smoltcp_server::serve(device, addresses, clients() + 2),
        // A socket that still waits for its last ACK has no owner yet.
        "smoltcp-new" => smoltcp_server::serve(device, addresses, 2 * clients()),
        _ => kernel::serve(),
    }
}

impl Server {
    fn start(name: &'static str, kind: &str, net: usize, only: Option<bool>) -> Self {
        let myself = std::env::current_exe().unwrap();
        let is_kernel = kind == "kernel";
        let device = format!("h{net}");
        let program = if is_kernel { network::apart(&myself) } else { Command::new(&myself) };
        // On its core from the start: it may ask how many it has.
        let mut command = match network::cores() {
            Some([core, _]) => network::bound(core, &program),
            None => program,
        };
        command.args(["--serve", kind, &device]);
        command.arg(format!("10.77.{net}.2/24")).arg(format!("fd77:{net}::2/64"));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = process.stdout.take().unwrap();
        if !is_kernel {
            // It waits for addresses, and they for the device.
            wait_for_device(&device);
            network::give_addresses(&device, net);
            network::receive_on_clients_core(&device);
        }
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "serving", "{name} serves");
        let mut server = Self { name, process, net, helpers: Vec::new(), only };
        if is_kernel {
            server.connect_veth(&device);
        }
        server
    }

    /// The kernel's server is in a namespace of its own.
    fn connect_veth(&mut self, near_end: &str) {
        // The names of kernel threads are the whole system's.
        let far_end = format!("s{}", std::process::id());
        network::cable(near_end, &far_end, self.net, self.process.id());
        self.helpers = network::receivers(&far_end);
        assert!(!self.helpers.is_empty(), "the veth's receiving threads are found");
        let clients_end = network::receivers(near_end);
        if let Some([server, clients]) = network::cores() {
            self.helpers.iter().for_each(|thread| network::bind(*thread, server));
            clients_end.iter().for_each(|thread| network::bind(*thread, clients));
        }
    }

    pub(crate) fn takes(&self, load: Load) -> bool {
        self.only.is_none_or(|stays| stays == matches!(load, Load::Stays(_)))
    }

    pub(crate) fn addr(&self, v6: bool) -> SocketAddr {
        let net = self.net;
        let text = if v6 { format!("[fd77:{net}::2]:80") } else { format!("10.77.{net}.2:80") };
        text.parse().unwrap()
    }

    pub(crate) fn wait_until_it_serves(&self) {
        for v6 in [false, true] {
            let end = Instant::now() + Duration::from_secs(10);
            let addr = self.addr(v6);
            while TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_err() {
                assert!(Instant::now() < end, "{} listens at {addr}", self.name);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Its threads, and those of the kernel that work for it.
    fn threads(&self) -> Vec<u32> {
        let own = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let own = own.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        own.chain(self.helpers.iter().copied()).collect()
    }

    /// Time on a core so far.
    pub(crate) fn cpu(&self) -> Duration {
        let time = |thread: u32| {
            let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
            text.split_whitespace().next().unwrap().parse().unwrap()
        };
        self.threads().into_iter().map(time).map(Duration::from_nanos).sum()
    }
}

fn wait_for_device(device: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    while !std::path::Path::new(&format!("/sys/class/net/{device}")).exists() {
        assert!(Instant::now() < end, "{device} comes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
