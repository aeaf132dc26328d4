//! The command-line grammar.
//!
//! Called by `main`. Words of the network (devices, addresses) stay text here: `settings` reads
//! them, so that flags and file are judged by the same code in the same words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

#[cfg(feature = "lab")]
use crate::cmd::cost::CostArgs;
use crate::cmd::drill::DrillArgs;
use crate::cmd::guard::GuardArgs;
#[cfg(feature = "lab")]
use crate::cmd::lab::LabArgs;
use crate::cmd::pktgen::PktgenArgs;
use crate::cmd::self_test::SelfTestArgs;
use crate::exit::EXIT_CODES;
use crate::log::{LogFormat, LogLevel};

/// A network stack in user space that keeps serving under flood.
#[derive(Debug, Parser)]
#[command(name = "floodwall", version, about, after_help = EXIT_CODES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a host on one or more devices, until SIGINT or SIGTERM
    Run(Box<RunArgs>),
    /// Show what a running instance has counted
    Stat(StatArgs),
    /// Add, remove or show addresses of a running instance, in the words of ip(8)
    #[command(visible_aliases = ["addr", "a"])]
    Address(AddressArgs),
    /// Show links of a running instance, or set them up or down, in the words of ip(8)
    #[command(visible_aliases = ["l"])]
    Link(LinkArgs),
    /// Add, remove or show routes of a running instance, in the words of ip(8)
    #[command(visible_aliases = ["r"])]
    Route(RouteArgs),
    /// Add, remove or show rules of a running instance, in the words of ip(8)
    Rule(RouteArgs),
    /// Show neighbours of a running instance, keep, forget or flush them, in the words of ip(8)
    #[command(visible_aliases = ["neighbor", "neighbour", "n"])]
    Neigh(NeighArgs),
    /// Send the traffic of a classic packet generator's script, and count what comes back
    Pktgen(PktgenArgs),
    /// Show what a running instance does, live, until `q`: rates, services, refusals, a verdict
    Top(TopArgs),
    /// Say what is wrong with a running instance: an attack, a slow application, a bound, the path
    Explain(ExplainArgs),
    /// Show sockets of a running instance, in the columns of ss(8)
    #[command(visible_aliases = ["ss"])]
    Socket(SocketArgs),
    /// Write packets of a running instance, or only dropped ones with their reason, to a pcapng
    /// file
    Capture(CaptureArgs),
    /// Have a running instance read its configuration file again: all of it, or nothing
    Reload(AskArgs),
    /// Repair what an instance that was killed has left behind: sockets, settings of interfaces
    Cleanup(CleanupArgs),
    /// Validate a configuration file, without starting anything
    Check(CheckArgs),
    /// Put SYN cookies in front of services of the kernel's own stack, until SIGINT or SIGTERM
    Guard(GuardArgs),
    /// Test a device end to end, and report what works
    SelfTest(SelfTestArgs),
    /// Flood a host of its own, and judge whether its guarantees hold: no root, no device
    Drill(DrillArgs),
    /// Run an experiment beside historic designs, and judge what is claimed: no root, no device
    #[cfg(feature = "lab")]
    Lab(LabArgs),
    /// Measure what work costs on this machine, for simulated time: no root, no device
    #[cfg(feature = "lab")]
    Cost(CostArgs),
    /// Write the man page to standard output
    #[command(hide = true)]
    Man,
    /// Write a shell's completions to standard output
    #[command(hide = true)]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

const RUN_EXAMPLE: &str = "\
Example:
  floodwall run --device tap:fw0 --mac 02:00:00:00:00:02 \\
    --address 10.0.0.2/24 --address fd00::2/64 --gateway 10.0.0.1 --gateway fd00::1 \\
    --service udp-echo:7001 --cpu 2

The same as a file, for --config and `floodwall check`:
  cpu = 2
  [[interface]]
  device = \"tap:fw0\"
  mac = \"02:00:00:00:00:02\"
  address = [\"10.0.0.2/24\", \"fd00::2/64\"]
  gateway = [\"10.0.0.1\", \"fd00::1\"]
  [[service]]
  kind = \"udp-echo\"
  port = 7001

On several cores, instead of cpu:
  floodwall run --device tap:fw0 --cores 0,1
  cores = \"0,1\"         # or workers = 2

Behind a packet:INTERFACE the kernel works first. Its half is given a place behind the worker, and
the interface is set back at the end; what that needs and what lacks is said at the start:
  floodwall run --device packet:eth1 --cpu 2 --kernel-half auto
  kernel_half = \"auto\" # in [[interface]]; or busy-poll, napi-thread, leave

Without an address, DHCP servers and IPv6 routers of the link are asked:
  floodwall run --device tap:fw0
  [[interface]]
  device = \"tap:fw0\"   # dhcp, dhcpv6, accept_ra and autoconf = true or false

A router of two networks passes packets for others on:
  forwarding = true      # or \"ipv4\", \"ipv6\"; martians = \"registry\" for RFC 6890's whole list
  [[interface]]
  device = \"packet:eth0\"
  address = [\"10.0.0.1/24\", \"fd00::1/64\"]
  rp_filter = \"strict\" # or loose, off; forwarding and send_redirects = true or false
  access = [\"deny udp from 10.0.0.0/8 dport 53\"] # first match decides, else it passes
  advertise = { prefix = [\"fd00::/64\"] } # route, dns, mtu, interval and lifetime beside it
  [[interface]]
  device = \"packet:eth1\"
  address = [\"10.1.0.1/24\", \"fd01::1/64\"]
  route = [\"192.0.2.0/24 via 10.1.0.2\", \"default via fd01::2\"] # more: `floodwall route add`

Where both are given, the file is read first; flags replace its single values and add to its
lists. Flags of an interface mean the one that --device names, or the file's only one.";

/// `floodwall run`
#[derive(Clone, Debug, Default, Args)]
#[command(after_long_help = RUN_EXAMPLE)]
pub(crate) struct RunArgs {
    /// Configuration file (TOML), read before the flags
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where packets come from: tun:NAME, tap:NAME, packet:INTERFACE, or
    /// xdp:INTERFACE[,queues=N][,mode=native|generic]
    #[arg(long, value_name = "KIND:NAME")]
    pub(crate) device: Option<String>,
    /// Link address of our station; by default one of our own making that stays the same on this
    /// machine
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<String>,
    /// An address of ours with its prefix length; repeat for more
    #[arg(long, value_name = "ADDRESS/LENGTH")]
    pub(crate) address: Vec<String>,
    /// A router on the link, for a default route; repeat for the other family. With `onlink` it
    /// may be outside of every prefix
    #[arg(long, value_name = "ADDRESS [onlink]", num_args = 1..=2)]
    pub(crate) gateway: Vec<String>,
    /// Destinations behind this link: PREFIX via ROUTER, or a prefix alone; repeat for more
    #[arg(long, value_name = "PREFIX [via ADDRESS [onlink]]")]
    pub(crate) route: Vec<String>,
    /// Query DHCP servers for an IPv4 address, routes and DNS; by default where no address is given
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    pub(crate) dhcp: Option<bool>,
    /// Query IPv6 routers for routes and DNS, and accept them; by default where no address is given
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    pub(crate) accept_ra: Option<bool>,
    /// Make IPv6 addresses of the prefixes that routers advertise; by default where no address is
    /// given
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    pub(crate) autoconf: Option<bool>,
    /// Query DHCPv6 servers for an address and DNS where a router says that there are any; by
    /// default where addresses are made of prefixes (autoconf)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    pub(crate) dhcpv6: Option<bool>,
    /// Largest IP packet of the link in bytes; by default the device's own
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(i64))]
    pub(crate) mtu: Option<i64>,
    /// Queues of a TUN, TAP or XDP device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64))]
    pub(crate) queues: Option<i64>,
    /// Do not let GSO frames and unfinished checksums cross the device
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// Where the kernel's half of a packet: or xdp:INTERFACE runs: auto (the best that can be had),
    /// busy-poll (within the worker), napi-thread (beside it, behind in rank) or leave
    #[arg(long, value_name = "PLACE")]
    pub(crate) kernel_half: Option<String>,
    /// What the program at an xdp: or packet: interface does before a packet reaches a worker: off
    /// (steering alone), filter (under pressure what is not wanted or not known is dropped),
    /// cookies (besides, SYNs are answered and ACKs checked there) or auto (as much as kernel and
    /// driver allow)
    #[arg(long, value_name = "MODE")]
    pub(crate) first_line: Option<String>,
    /// Before it begins, measure on a cable of its own how many packets a second this machine takes
    /// in and judges by such a device; takes some seconds, needs root
    #[arg(long)]
    pub(crate) capacity: bool,
    /// Of workers with a core each (--cpu, --cores, --workers): on leaves other programs half of
    /// the core while they want it, the kernel's half of xdp: devices counted, and a flood beyond
    /// the rest is dropped; off leaves them what no packet needs
    #[arg(long, value_enum, value_name = "WHETHER", default_value = "on")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub(crate) share_core: OnOff,
    /// A service to offer: http:PORT, bulk:PORT, tcp-echo:PORT, tcp-discard:PORT,
    /// tcp-chargen:PORT, udp-echo:PORT, udp-discard:PORT or
    /// udp-chargen:PORT, the last three with @GROUP,GROUP
    /// for the multicast groups that it joins on every interface; repeat for more
    #[arg(long, value_name = "KIND:PORT[@GROUP]")]
    pub(crate) service: Vec<String>,
    /// Core to run on, with one worker; by default the system's choice
    #[arg(long, value_name = "CORE", value_parser = clap::value_parser!(i64))]
    pub(crate) cpu: Option<i64>,
    /// Workers, each pinned to a core of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64))]
    pub(crate) workers: Option<i64>,
    /// Routes of each family that there is room for; a full Internet table wants 1100000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64))]
    pub(crate) routes: Option<i64>,
    /// The workers' cores, one each, as in 0,2-3; by default the first that may be used
    #[arg(long, value_name = "CORES")]
    pub(crate) cores: Option<String>,
    /// What a worker that panics does: end (everything) or isolate (close its flows, begin it
    /// again, the others go on; of several the first cannot begin again, and its panic ends all)
    #[arg(long, value_name = "POLICY")]
    pub(crate) panic: Option<String>,
    /// At SIGTERM or SIGINT, let connections end within so many seconds, and reset what is left
    /// then; by default 5. A second signal ends at once
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) drain: Option<i64>,
    /// Record every packet to a pcapng file; several devices or queues get one each, named after
    /// them
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Keep DNS servers and search list, as they are learnt, in a file of resolv.conf's form
    #[arg(long, value_name = "FILE")]
    pub(crate) dns_file: Option<PathBuf>,
    /// Secret of SYN cookies: a file of 32 or more random bytes, readable by its owner only, which
    /// is watched; instances that have the same take over each other's handshakes
    #[arg(long, value_name = "FILE")]
    pub(crate) cookie_secret: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, on the host's own kernel; give
    /// an address that only the collector reaches
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<String>,
    /// Form of the messages on standard error: text (the default), or json with one object a line
    #[arg(long, value_name = "FORM", value_enum)]
    pub(crate) log_format: Option<LogFormat>,
    /// The least important messages that are written; info by default
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) log_level: Option<LogLevel>,
    /// Control socket, for `floodwall stat`; by default $XDG_RUNTIME_DIR/floodwall/DEVICE.sock, or
    /// /run/floodwall/DEVICE.sock; in another network namespace than the system's first,
    /// DEVICE@NUMBER.sock
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Which instance, and in which form.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Control socket of the instance; by default the only one that is found
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,
    /// One JSON document on standard output, with the keys of `ip -j`
    #[arg(long, short = 'j', global = true)]
    pub(crate) json: bool,
}

const ADDRESS_EXAMPLE: &str = "\
Examples:
  floodwall address show
  floodwall address add 10.0.0.9/24 dev fw0
  floodwall address add fd00::9/64 dev fw0 valid_lft 3600 preferred_lft 1800
  floodwall address del 10.0.0.9/24 dev fw0";

/// `floodwall address`
#[derive(Debug, Args)]
#[command(after_help = ADDRESS_EXAMPLE)]
pub(crate) struct AddressArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// add ADDRESS/LENGTH dev IFACE [valid_lft SECONDS] [preferred_lft SECONDS], del
    /// ADDRESS[/LENGTH] dev IFACE, or show [dev IFACE]
    #[arg(value_name = "WORDS")]
    pub(crate) words: Vec<String>,
}

const LINK_EXAMPLE: &str = "\
Examples:
  floodwall link show
  floodwall link set fw0 down
  floodwall link set dev fw0 up";

/// `floodwall link`
#[derive(Debug, Args)]
#[command(after_help = LINK_EXAMPLE)]
pub(crate) struct LinkArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// set [dev] IFACE up|down, or show [dev IFACE]
    #[arg(value_name = "WORDS")]
    pub(crate) words: Vec<String>,
}

const NEIGH_EXAMPLE: &str = "\
Examples:
  floodwall neigh show
  floodwall neigh -6 show dev fw0 nud reachable
  floodwall neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev fw0
  floodwall neigh replace fd00::7 lladdr 02:00:00:00:00:08 dev fw0 nud permanent
  floodwall neigh del 10.0.0.7 dev fw0
  floodwall neigh flush dev fw0          # all but permanent ones; nud all: these, too";

/// `floodwall neigh`
#[derive(Debug, Args)]
#[command(after_help = NEIGH_EXAMPLE)]
pub(crate) struct NeighArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    pub(crate) v4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    pub(crate) v6: bool,
    /// add|replace|change ADDRESS lladdr MAC dev IFACE [nud permanent], del ADDRESS dev IFACE,
    /// show [ADDRESS] [dev IFACE] [nud STATE], or flush dev IFACE [nud all]
    #[arg(value_name = "WORDS")]
    pub(crate) words: Vec<String>,
}

const ROUTE_EXAMPLE: &str = "\
Examples:
  floodwall route show
  floodwall route add 192.0.2.0/24 via 10.0.0.1 metric 50 expires 600
  floodwall route add default nexthop via 10.0.0.1 weight 3 nexthop via 10.0.0.9
  floodwall route add blackhole 198.51.100.0/24
  floodwall route get 192.0.2.1
  floodwall route -6 show table all
  floodwall route -batch FILE            # all lines, or none; -force: as many as can be
  floodwall route load prefixes.txt via 10.0.0.1
  floodwall route import                 # the kernel's routes of interfaces that we have
  floodwall rule add from 10.0.0.0/8 iif fw0 priority 100 table 7";

/// `floodwall route`, `floodwall rule`
#[derive(Debug, Args)]
#[command(after_help = ROUTE_EXAMPLE)]
pub(crate) struct RouteArgs {
    /// Control socket of the instance; by default the only one that is found
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// One JSON document on standard output, with the keys of `ip -j`
    #[arg(long, short = 'j')]
    pub(crate) json: bool,
    /// [-4|-6] add|replace|append|del PREFIX …, show …, get ADDRESS, -batch FILE [-force],
    /// load FILE [via ADDRESS] [dev IFACE], import [table TABLE]; of rules: add, del, show
    #[arg(value_name = "WORDS", allow_hyphen_values = true, trailing_var_arg = true)]
    pub(crate) words: Vec<String>,
}

/// `floodwall stat`
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// Control socket of the instance; by default the only one that is found
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// One JSON document on standard output; words for humans go to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// Counters that stand at zero, too
    #[arg(long)]
    pub(crate) all: bool,
    /// One column a worker for what the loops count of themselves
    #[arg(long)]
    pub(crate) workers: bool,
    /// Instead of showing them, write the counters into FOLDER as snmp, snmp6 and netstat, in the
    /// form of /proc/net, which nstat reads where PROC_NET_SNMP, PROC_NET_SNMP6 and
    /// PROC_NET_NETSTAT name these files
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["json", "all", "workers"])]
    pub(crate) proc_net: Option<PathBuf>,
    /// Everything as metrics in Prometheus' text format
    #[arg(long, conflicts_with_all = ["json", "all", "workers", "proc_net", "watch"])]
    pub(crate) prometheus: bool,
    /// Again and again, until interrupted: what changed, per second; with --json whole documents
    #[arg(long)]
    pub(crate) watch: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, requires = "watch")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) interval: u64,
}

/// `floodwall top`
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) interval: u64,
    /// End after so many looks; by default when interrupted
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
}

/// `floodwall explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Seconds between the two looks that are compared
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
}

const SOCKET_EXAMPLE: &str = "\
Examples:
  floodwall socket show -tan
  floodwall socket show -ti state established dport 443
  floodwall socket show -ul
  floodwall socket show -t src 192.0.2.0/24 --json";

/// `floodwall socket`
#[derive(Debug, Args)]
#[command(after_help = SOCKET_EXAMPLE)]
pub(crate) struct SocketArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// TCP only
    #[arg(short = 't', long)]
    pub(crate) tcp: bool,
    /// UDP only
    #[arg(short = 'u', long)]
    pub(crate) udp: bool,
    /// Listening sockets, too
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Listening sockets only
    #[arg(short = 'l', long)]
    pub(crate) listening: bool,
    /// Numbers instead of names: always so
    #[arg(short = 'n', long)]
    pub(crate) numeric: bool,
    /// Details of TCP connections
    #[arg(short = 'i', long)]
    pub(crate) info: bool,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    pub(crate) v4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    pub(crate) v6: bool,
    /// show [state STATE] [sport PORT] [dport PORT] [src PREFIX] [dst PREFIX]
    #[arg(value_name = "WORDS")]
    pub(crate) words: Vec<String>,
}

const CAPTURE_EXAMPLE: &str = "\
Examples:
  floodwall capture -w all.pcapng
  floodwall capture --dropped -w dropped.pcapng      # each with its reason as a comment
  floodwall capture tcp dst port 80 and src net 192.0.2.0/24 -c 1000 -w web.pcapng
  floodwall capture udp -w - | tshark -r - -T fields -e frame.comment

The filter: ip, ip6, arp, tcp, udp, icmp, icmp6; [src|dst] host ADDRESS, net PREFIX, port PORT;
joined by `and`.";

/// `floodwall capture`
#[derive(Debug, Args)]
#[command(after_help = CAPTURE_EXAMPLE)]
pub(crate) struct CaptureArgs {
    /// Control socket of the instance; by default the only one that is found
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Where the packets go; - for standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only packets that the stack drops
    #[arg(long)]
    pub(crate) dropped: bool,
    /// End after so many packets
    #[arg(short = 'c', long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) count: u64,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Bytes of each packet at most
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 2048)]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=65_600))]
    pub(crate) snaplen: u32,
    /// Which packets; by default all
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
}

/// The value of a flag that is on by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum OnOff {
    #[default]
    On,
    Off,
}

/// `floodwall cleanup`
#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// A control socket besides those of the usual folders
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Only these interfaces; by default all of this network namespace
    #[arg(value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,
}

/// `floodwall check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Configuration file (TOML)
    pub(crate) file: PathBuf,
}
