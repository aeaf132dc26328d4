//! A drill with the progress on standard error and the table on standard output.

use floodwall_drill::{DrillOptions, drill, to_stderr};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let mut options = match (has("--sim"), has("--tap")) {
        (true, _) => DrillOptions::simulated(1),
        (_, true) => DrillOptions::on_tap(1),
        _ => DrillOptions::new(1),
    };
    if let Some(at) = words.iter().position(|word| word == "--workers") {
        options.server.workers = words.get(at + 1).ok_or("--workers needs a number")?.parse()?;
    }
    let report = drill(&options, to_stderr().as_mut())?;
    if has("--json") {
        println!("{}", report.to_json()?);
    } else {
        println!("{report}");
    }
    Ok(())
}
