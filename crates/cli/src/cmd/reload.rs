//! `floodwall reload`: has a running instance read its file again.

use serde_json::Value;

use crate::args::AskArgs;
use crate::exit::Exit;
use crate::output;
use crate::socket::request::ControlRequest;
use crate::socket::{client, path};

/// Asks for it, and says what changed.
pub(crate) fn reload(args: &AskArgs) -> Exit {
    let socket = match path::find(args.socket.as_deref()) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    let answer = match client::ask_slowly(&socket, &ControlRequest::Reload.to_string()) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("floodwall: {error}");
            return error.exit();
        }
    };
    if args.json {
        return output::print_document(&answer);
    }
    let lines = |key: &str| -> Vec<String> {
        let all = answer.get(key).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (changed, restart) = (lines("changed"), lines("needs_restart"));
    let mut text = String::new();
    for line in &changed {
        text.push_str(&format!("{line}\n"));
    }
    for key in &restart {
        text.push_str(&format!("needs a restart: {key}\n"));
    }
    if changed.is_empty() && restart.is_empty() {
        text.push_str("nothing has changed\n");
    }
    output::print(&text)
}
