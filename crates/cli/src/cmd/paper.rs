//! `floodwall man` and `floodwall completions`: what a package ships besides the binary.
//!
//! Generated from the very arguments, so that they cannot lag behind.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::Exit;
use crate::output;

/// Writes the man page: the command itself, then each subcommand as sections of the same page.
pub(crate) fn man() -> Exit {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    // Writing to a vector cannot fail.
    let _ = render(&command, &mut page);
    output::print(&String::from_utf8_lossy(&page))
}

fn render(command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        if sub.get_name() == "help" {
            continue;
        }
        writeln!(page, ".SH {}", sub.get_name().to_uppercase())?;
        let man = Man::new(sub.clone());
        let mut part = Vec::new();
        man.render_description_section(&mut part)?;
        man.render_synopsis_section(&mut part)?;
        man.render_options_section(&mut part)?;
        man.render_extra_section(&mut part)?;
        // Sections of the part become subsections of the page.
        page.extend_from_slice(String::from_utf8_lossy(&part).replace(".SH ", ".SS ").as_bytes());
    }
    man.render_extra_section(page)?;
    man.render_version_section(page)
}

/// Writes a shell's completions.
pub(crate) fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "floodwall", &mut script);
    output::print_styled(&String::from_utf8_lossy(&script))
}
