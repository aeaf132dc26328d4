//! A drill with the progress on standard error and the table on standard output.

use floodwall_drill::{Options, drill, to_stderr};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let sim = words.iter().any(|word| word == "--sim");
    let options = if sim { Options::simulated(1) } else { Options::new(1) };
    let report = drill(&options, to_stderr().as_mut())?;
    if words.iter().any(|word| word == "--json") {
        println!("{}", report.to_json()?);
    } else {
        println!("{report}");
    }
    Ok(())
}
