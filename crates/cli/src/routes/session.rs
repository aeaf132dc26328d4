//! The instance's end: lines are read, carried out in slices at the worker's desk, and answered.
//!
//! Called by the thread of the control socket. Invariants: nothing is carried out before every line
//! has been read without a fault, unless it is forced; where a line is refused by the table, those
//! before it are taken back in reverse order; the worker is kept for [`SLICE_LINES`] lines at a
//! time, so that packets wait no longer than for those.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use floodwall_base::{Address, Family as Which, IfIndex, Instant};
use floodwall_dispatch::{Control, Shown};
use floodwall_fib::exceptions::{Exceptions, FirstHop};
use floodwall_fib::lpm::LpmFamily;
use floodwall_fib::{Fib, Found, Query, RouteKind};
use floodwall_ip::{Interface, source_address};
use floodwall_stack::{Host, Stack};
use serde_json::{Value, json};

use super::apply::{self, RouteContext, RouteUndo};
use super::document;
use super::parse::{self, RouteFilter, RouteQuestion, RouteRequest};
use super::rule_words::RuleWish;

/// Lines that are carried out before packets are looked at again.
const SLICE_LINES: usize = 256;
/// Maximum of faults of a forced batch that are reported one by one.
const FAULTS_MAX: usize = 100;
/// How long the worker may take for a slice.
const SLICE_PATIENCE: Duration = Duration::from_secs(5);

/// What takes a line back, of either family.
enum RouteRestore {
    V4(RouteUndo<Ipv4Addr>),
    V6(RouteUndo<Ipv6Addr>),
}

/// A line's number and the request in it.
type Numbered = (usize, RouteRequest);

/// Answers `BYTES MODE` and the lines behind it.
pub(crate) fn serve(control: &Control<Shown<Host>>, batch: &str) -> Value {
    let Some((head, text)) = batch.split_once('\n') else {
        return json!({ "error": "a batch without lines: it is of another version" });
    };
    let force = head.ends_with("force");
    let (wishes, faults) = read(text);
    if let ([(_, wish)], []) = (&*wishes, &*faults)
        && asks(wish)
    {
        let wish = wish.clone();
        let asked = control
            .ask(SLICE_PATIENCE, move |desk| look(desk.engine.engine.stack(), &wish, desk.now));
        return asked.unwrap_or_else(|error| json!({ "error": error.to_string() }));
    }
    if let (Some((line, why)), false) = (faults.first(), force) {
        let many = wishes.len() + faults.len() > 1;
        return refusal(many, *line, why);
    }
    carry_out(control, wishes, faults, force)
}

fn refusal(many: bool, line: usize, why: &str) -> Value {
    match many {
        true => json!({ "error": format!("line {line}: {why}; nothing was applied") }),
        false => json!({ "error": why }),
    }
}

const fn asks(wish: &RouteRequest) -> bool {
    matches!(
        wish,
        RouteRequest::Show(_) | RouteRequest::Get(_) | RouteRequest::Rule(RuleWish::Show(_))
    )
}

/// Lines with a meaning, and those with none, by number. Empty ones and remarks are passed over.
pub(crate) fn read(text: &str) -> (Vec<Numbered>, Vec<(usize, String)>) {
    let (mut wishes, mut faults) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        match parse::line(&words, None) {
            Ok(wish) => wishes.push((at + 1, wish)),
            Err(wrong) => faults.push((at + 1, format!("{}; {}", wrong.what, wrong.remedy))),
        }
    }
    (wishes, faults)
}

fn carry_out(
    control: &Control<Shown<Host>>,
    wishes: Vec<Numbered>,
    mut faults: Vec<(usize, String)>,
    force: bool,
) -> Value {
    let many = wishes.len() + faults.len() > 1;
    let (mut done, mut applied) = (Vec::new(), 0);
    let mut wishes = wishes.into_iter();
    loop {
        let slice: Vec<Numbered> = wishes.by_ref().take(SLICE_LINES).collect();
        if slice.is_empty() {
            break;
        }
        let asked = control.ask(SLICE_PATIENCE, move |desk| {
            change(desk.engine.engine.stack_mut(), slice, force, desk.now)
        });
        let (backs, failed) = match asked {
            Ok(answer) => answer,
            Err(error) => return json!({ "error": error.to_string() }),
        };
        applied += backs.len();
        if !force {
            done.extend(backs);
            if let Some((line, why)) = failed.first() {
                return match take_back(control, done) {
                    Ok(()) => refusal(many, *line, why),
                    Err(error) => json!({ "error": format!("line {line}: {why}; and {error}") }),
                };
            }
        }
        faults.extend(failed);
    }
    faults.sort_unstable();
    let told: Vec<Value> = faults
        .iter()
        .take(FAULTS_MAX)
        .map(|(line, why)| json!({ "line": line, "error": why }))
        .collect();
    json!({ "applied": applied, "refused": faults.len(), "faults": told })
}

fn take_back(control: &Control<Shown<Host>>, mut done: Vec<RouteRestore>) -> Result<(), String> {
    while !done.is_empty() {
        let slice = done.split_off(done.len().saturating_sub(SLICE_LINES));
        let asked = control.ask(SLICE_PATIENCE, move |desk| {
            let (stack, now) = (desk.engine.engine.stack_mut(), desk.now);
            for back in slice.into_iter().rev() {
                match back {
                    RouteRestore::V4(undo) => apply::take_back(stack.routes_v4_mut(), undo, now),
                    RouteRestore::V6(undo) => apply::take_back(stack.routes_v6_mut(), undo, now),
                }
            }
            stack.routes_changed();
        });
        asked.map_err(|error| format!("not all could be taken back: {error}"))?;
    }
    Ok(())
}

/// Changes the tables, up to the first refusal or, where it is forced, to the end.
fn change(
    stack: &mut Stack,
    slice: Vec<Numbered>,
    force: bool,
    now: Instant,
) -> (Vec<RouteRestore>, Vec<(usize, String)>) {
    let interfaces = stack.interfaces().to_vec();
    let context = RouteContext { interfaces: &interfaces, now };
    let (mut done, mut failed) = (Vec::with_capacity(slice.len()), Vec::new());
    for (line, wish) in slice {
        match one(stack, context, &wish) {
            Ok(back) => done.push(back),
            Err(why) => failed.push((line, why)),
        }
        if !failed.is_empty() && !force {
            break;
        }
    }
    stack.routes_changed();
    (done, failed)
}

fn one(
    stack: &mut Stack,
    context: RouteContext<'_>,
    wish: &RouteRequest,
) -> Result<RouteRestore, String> {
    let v4 = match wish {
        RouteRequest::Put(_, words) | RouteRequest::Delete(words) => words.prefix.addr().is_ipv4(),
        RouteRequest::Rule(RuleWish::Add(words) | RuleWish::Delete(words)) => {
            words.family == Which::V4
        }
        RouteRequest::Show(_) | RouteRequest::Get(_) | RouteRequest::Rule(RuleWish::Show(_)) => {
            return Err("a batch changes routes and rules; ask for them by themselves".to_owned());
        }
    };
    match v4 {
        true => on(stack.routes_v4_mut(), context, wish).map(RouteRestore::V4),
        false => on(stack.routes_v6_mut(), context, wish).map(RouteRestore::V6),
    }
}

fn on<A: LpmFamily>(
    fib: &mut Fib<A>,
    context: RouteContext<'_>,
    wish: &RouteRequest,
) -> Result<RouteUndo<A>, String> {
    // A batch has the time: else the line behind a prefix with much below it would be refused.
    fib.complete(context.now);
    match wish {
        RouteRequest::Put(how, words) => apply::put(fib, context, *how, words),
        RouteRequest::Delete(words) => apply::delete(fib, context, words),
        RouteRequest::Rule(RuleWish::Add(words)) => apply::add_rule(fib, context, words),
        RouteRequest::Rule(RuleWish::Delete(words)) => apply::delete_rule(fib, context, words),
        _ => Err("it changes nothing".to_owned()),
    }
}

/// What is to be seen.
fn look(stack: &Stack, wish: &RouteRequest, now: Instant) -> Value {
    let context = RouteContext { interfaces: stack.interfaces(), now };
    match wish {
        RouteRequest::Show(filter) => shown(stack, context, filter),
        RouteRequest::Get(question) => match got(stack, context, question) {
            Ok(route) => json!({ "routes": [route] }),
            Err(why) => json!({ "error": why }),
        },
        RouteRequest::Rule(RuleWish::Show(family)) => {
            let rules: Vec<Value> = match family {
                Some(Which::V6) => rules(stack.routes_v6(), context),
                _ => rules(stack.routes_v4(), context),
            };
            json!({ "rules": rules })
        }
        _ => json!({ "error": "it changes something" }),
    }
}

fn rules<A: LpmFamily>(fib: &Fib<A>, context: RouteContext<'_>) -> Vec<Value> {
    fib.rules().iter().map(|rule| document::of_rule(rule, context)).collect()
}

/// As `ip route show`: IPv4, unless the words are of the other family.
fn shown(stack: &Stack, context: RouteContext<'_>, filter: &RouteFilter) -> Value {
    if let Some(dev) = &filter.dev
        && let Err(why) = context.named(dev)
    {
        return json!({ "error": why });
    }
    let said = filter.prefix.map(|prefix| prefix.addr()).or(filter.via).map(Which::of);
    let (routes, more) = match filter.family.or(said) {
        Some(Which::V6) => document::routes(stack.routes_v6(), context, filter),
        _ => document::routes(stack.routes_v4(), context, filter),
    };
    json!({ "routes": routes, "more": more })
}

fn got(
    stack: &Stack,
    context: RouteContext<'_>,
    question: &RouteQuestion,
) -> Result<Value, String> {
    match question.to {
        IpAddr::V4(to) => way(stack.routes_v4(), stack.exceptions_v4(), context, to, question),
        IpAddr::V6(to) => way(stack.routes_v6(), stack.exceptions_v6(), context, to, question),
    }
}

/// Where a packet would go, and what was learnt of the path.
fn way<A: LpmFamily>(
    fib: &Fib<A>,
    exceptions: &Exceptions<A>,
    context: RouteContext<'_>,
    to: A,
    question: &RouteQuestion,
) -> Result<Value, String> {
    let RouteContext { interfaces, now } = context;
    let iif = question.iif.as_deref().map(|iif| context.named(iif)).transpose()?;
    let wanted = to.to_string();
    if interfaces.iter().any(|i| i.owns(to.to_ip()).is_some()) {
        return Ok(
            json!({ "type": "local", "dst": wanted, "dev": "lo", "flags": [], "cache": [] }),
        );
    }
    let src_addr = question.from.and_then(A::from_ip);
    let query = Query { dst_addr: to, src_addr, iif, flow: None };
    let found = fib.lookup_query(&query, now);
    let Some(found) = found.filter(|found| found.kind == RouteKind::Unicast) else {
        let why = found.map_or("no route leads there", |found| found.kind.name());
        return Err(format!("{to}: {why}; `floodwall route show` names what there is"));
    };
    let hop = FirstHop { iface: found.iface, via: found.gateway };
    let learnt = exceptions.iter(now).find(|e| e.dst_addr == to && e.hop == hop);
    let target_addr = learnt.and_then(|e| e.target_addr);
    let gateway = target_addr.map(|(addr, _)| addr).or(found.gateway).filter(|via| *via != to);
    let mut route = json!({ "dst": wanted, "dev": name(interfaces, found.iface) });
    let Some(out) = route.as_object_mut() else { return Ok(route) };
    if let Some(from) = question.from {
        out.insert("from".to_owned(), json!(from.to_string()));
    }
    if let Some(gateway) = gateway {
        out.insert("gateway".to_owned(), json!(gateway.to_string()));
    }
    if let Some(src) = source(&found, to, interfaces).filter(|_| question.from.is_none()) {
        out.insert("prefsrc".to_owned(), json!(src.to_string()));
    }
    out.insert("flags".to_owned(), json!([]));
    out.insert("cache".to_owned(), json!([]));
    if let Some((mtu, until)) = learnt.and_then(|e| e.mtu) {
        out.insert("expires".to_owned(), json!(document::seconds_left(until, now)));
        out.insert("metrics".to_owned(), json!([{ "mtu": mtu }]));
    }
    Ok(route)
}

fn name(interfaces: &[Interface], iface: IfIndex) -> &str {
    interfaces.iter().find(|i| i.index == iface).map_or("?", |i| i.name.as_str())
}

fn source<A: Address>(found: &Found<A>, to: A, interfaces: &[Interface]) -> Option<IpAddr> {
    let preferred = found.src_addr.map(Address::to_ip);
    preferred.or_else(|| source_address(to.to_ip(), found.iface, interfaces))
}
