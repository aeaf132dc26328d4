//! `floodwall explain`: two looks at a running instance, and what is wrong between them.

use std::fmt::Write as _;

use crate::args::ExplainArgs;
use crate::cmd::stat::wait;
use crate::exit::Exit;
use crate::explain::{self, Explanation, TroubleKind};
use crate::first_line;
use crate::output;
use crate::rates::ReportDifference;
use crate::socket::{client, path};
use crate::sources::{self, SourceShare};
use floodwall_dispatch::Clock;

/// Looks twice, and explains.
pub(crate) fn explain(args: &ExplainArgs) -> Exit {
    let socket = match path::find(args.ask.socket.as_deref()) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    let look = || client::report(&socket);
    let looks = look().and_then(|before| {
        wait(args.seconds);
        look().map(|after| (before, after))
    });
    let (before, after) = match looks {
        Ok(looks) => looks,
        Err(error) => {
            eprintln!("floodwall: {error}");
            return error.exit();
        }
    };
    let Some(between) = ReportDifference::new(&before, &after) else {
        eprintln!("floodwall: the instance was restarted between the two looks; ask again");
        return Exit::Refused;
    };
    let findings = explain::findings(&between);
    let verdict = explain::verdict(&findings);
    // At rest there is nothing to be sampled.
    let is_attack = findings.iter().any(|finding| finding.kind == TroubleKind::Attack);
    let sources = if is_attack { client::sources(&socket) } else { Vec::new() };
    if args.ask.json {
        let document = serde_json::json!({
            "verdict": verdict,
            "findings": findings,
            "sources": sources,
            "first_line": first_line::by_interface(after.first_lines()),
        });
        return output::print_document(&document);
    }
    let now = Clock::new().unix_time().as_secs_f64();
    let mut text = text(&verdict, &findings, &sources, now);
    if is_attack {
        for (ifname, parts) in first_line::by_interface(after.first_lines()) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\nfirst line: {ifname}\n  {}", first_line::line(&parts));
        }
    }
    output::print_folded(&text, "  evidence  ".len())
}

/// `sources` are of all that arrives; `now` is seconds since 1970.
fn text(verdict: &str, findings: &[Explanation], sources: &[SourceShare], now: f64) -> String {
    let mut out = format!("{verdict}\n");
    for finding in findings {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\n{}: {}", finding.kind.words(), finding.name);
        if !finding.place.is_empty() {
            let _ = writeln!(out, "  where     {}", finding.place);
        }
        let _ = writeln!(out, "  what      {}", finding.sentence);
        if let Some(attack) = &finding.attack {
            let _ = writeln!(out, "  since     {}", attack.since(now));
            let _ = writeln!(out, "  from      {}", sources::line(sources));
            let _ = writeln!(out, "  costs     {}", attack.costs);
            let _ = writeln!(out, "  clients   {}", attack.clients);
        }
        let _ = writeln!(out, "  evidence  {}", finding.evidence.join(", "));
        if !finding.remedy.is_empty() {
            let _ = writeln!(out, "  remedy    {}", finding.remedy);
        }
    }
    out
}
