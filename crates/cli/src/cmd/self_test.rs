//! `floodwall self-test`: what a device does here, end to end, one line each.
//!
//! The table, or with `--json` one document, goes to standard output. Its exit codes are its own,
//! as a drill's are: what does not work is a result, not a refusal.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use floodwall_device::DeviceSpec;
use floodwall_drill::{SelfTest, SelfTestOptions, self_test as prove};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::output;

const EXIT_CODES: &str = "\
A TUN or TAP, and with --in-namespaces every device, is proved on a cable of its own: in a network
namespace without a name, which goes with the process, the kernel pings us, sends datagrams and
TCP in both families, and the link falls and rises. Needs root.

An interface that is there is only looked at: it is opened as `run` would open it, nothing is sent,
and it is left as it was. (Some drivers restart their link when a program is attached.)

--capacity floods a cable of its own, for 3 s, and tells how many packets a second this machine
takes in and judges by that path: what is guaranteed under flood holds up to 0.8 of it.

Exit codes:
  0  all that is claimed works; what cannot be had here is said, and is no failure
  1  something does not work
  2  it could not be run, or these words make no sense

Example:
  floodwall self-test xdp:eth1                    what eth1 can do
  floodwall self-test xdp:fw0 --in-namespaces     both modes, 1 and 4 queues, on a cable
  floodwall self-test xdp:eth1 --capacity         and what this machine takes in by that path
  floodwall self-test tap:fw0 --json";

/// Something does not work.
const EXIT_FAILED: u8 = 1;
/// It could not be run, for a usage error too.
const NOT_RUN: u8 = 2;

/// `floodwall self-test`
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SelfTestArgs {
    /// The device, as `floodwall run --device` takes it: tun:NAME, tap:NAME, packet:INTERFACE, or
    /// xdp:INTERFACE[,queues=N][,mode=native|generic]
    #[arg(value_name = "DEVICE")]
    device: String,
    /// On a cable of its own, also where the interface exists
    #[arg(long)]
    in_namespaces: bool,
    /// Also measure how many packets a second the path takes in and judges, on a cable of its own
    #[arg(long)]
    capacity: bool,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

/// Runs the self-test and reports.
pub(crate) fn self_test(args: &SelfTestArgs) -> ExitCode {
    let report = read(args).and_then(|options| {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends it at once.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
                .and_then(|_| flag::register(signal, Arc::clone(&stop)))
                .map_err(|error| format!("cannot catch signals: {error}"))?;
        }
        let report = prove(&options, &stop).map_err(|error| error.to_string())?;
        tell(args, &report)?;
        Ok(report)
    });
    match report {
        Ok(report) if report.works => ExitCode::SUCCESS,
        Ok(_) => EXIT_FAILED.into(),
        Err(words) => {
            eprintln!("floodwall self-test: {words}");
            NOT_RUN.into()
        }
    }
}

fn read(args: &SelfTestArgs) -> Result<SelfTestOptions, String> {
    let device: DeviceSpec = args
        .device
        .parse()
        .map_err(|error: floodwall_device::InvalidDeviceSpec| error.to_string())?;
    let (in_namespaces, capacity) = (args.in_namespaces, args.capacity);
    Ok(SelfTestOptions { device, in_namespaces, capacity })
}

fn tell(args: &SelfTestArgs, report: &SelfTest) -> Result<(), String> {
    let text = match args.json {
        true => report.to_json().map_err(|error| error.to_string())? + "\n",
        false => report.to_string(),
    };
    output::try_print(&text)
}
