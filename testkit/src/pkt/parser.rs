//! From text to a [`Script`].

use std::time::Duration;

use super::expand::{Defines, define, expand};
use super::icmp::Icmp;
use super::lexer::Lexer;
use super::options;
use super::script::{
    ACK, AE, ANY_STAMP, Arg, CWR, ECE, Event, FIN, Opt, PSH, RST, SYN, Script, Segment, SocketCall,
    URG, What, When,
};

/// Why a script cannot be played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The word at which reading stopped.
    pub near: String,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, at `{}`: {}", self.line, self.near, self.what)
    }
}

impl std::error::Error for SyntaxError {}

/// Reads a script.
///
/// # Errors
/// The first thing that is wrong or not supported, with line and word.
pub fn parse(text: &str) -> Result<Script, SyntaxError> {
    parse_with(text, &[])
}

/// Reads a script, with options of the command line (`--name=value`, `-D NAME=VALUE`), which
/// override its own.
///
/// # Errors
/// The first thing that is wrong or not supported, with line and word; line 0 is the command line.
pub fn parse_with(text: &str, words: &[String]) -> Result<Script, SyntaxError> {
    let (options, defines) = command_line(words)?;
    let text = expand(text, &defines)?;
    let mut lexer = Lexer::new(&text);
    let mut script = Script::default();
    while lexer.eat("--") {
        let before = lexer.clone();
        let name = lexer.word();
        let value = if lexer.eat("=") { lexer.value() } else { "" };
        options::set(&mut script, name, value).map_err(|what| before.error(what))?;
    }
    for (name, value) in options {
        script.mtu_is_final |= name == "mtu";
        let wrong = |what: &str| command_line_error(&format!("--{name}={value}"), what);
        options::set(&mut script, name, value).map_err(wrong)?;
    }
    if lexer.eat("`") {
        script.init = Some(lexer.until("`")?.to_owned());
    }
    while !lexer.is_at_end() {
        if lexer.eat("`") {
            script.cleanup = Some(lexer.until("`")?.to_owned());
            if !lexer.is_at_end() {
                return Err(lexer.error("a command without a time is the last thing of a script"));
            }
            break;
        }
        let event = event(&mut lexer)?;
        check_order(&script, &event, &lexer)?;
        script.events.push(event);
    }
    Ok(script)
}

fn check_order(script: &Script, event: &Event, lexer: &Lexer<'_>) -> Result<(), SyntaxError> {
    let is_wrong = match (event.when, &event.what) {
        (When::At(at), _) => script.events.iter().any(|e| matches!(e.when, When::At(b) if b > at)),
        (When::After(_), _) => false,
        (_, What::Outbound(_)) => false,
        _ => true,
    };
    if is_wrong {
        return Err(lexer.error("the time of this event goes back, or is none for its kind"));
    }
    Ok(())
}

fn command_line_error(near: &str, what: &str) -> SyntaxError {
    SyntaxError { line: 0, near: near.to_owned(), what: what.to_owned() }
}

/// Names of options and their values.
type Options<'a> = Vec<(&'a str, &'a str)>;

/// Options, and definitions, of the command line.
fn command_line(words: &[String]) -> Result<(Options<'_>, Defines), SyntaxError> {
    let (mut options, mut defines) = (Vec::new(), Defines::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let definition = word.strip_prefix("-D").or_else(|| word.strip_prefix("--define"));
        match (definition, word.strip_prefix("--")) {
            (Some(""), _) => {
                let next = words.next();
                let next = next.ok_or_else(|| command_line_error(word, "NAME=VALUE is missing"))?;
                define(next, &mut defines)?;
            }
            (Some(rest), _) => define(rest.strip_prefix('=').unwrap_or(rest), &mut defines)?,
            (None, Some(option)) => options.push(match option.split_once('=') {
                Some(both) => both,
                // As packetdrill has it, the value may also be the next word.
                None if options::takes_value(option) => {
                    let missing = || command_line_error(word, "its value is missing");
                    (option, words.next().ok_or_else(missing)?.as_str())
                }
                None => (option, ""),
            }),
            (None, None) if word == "-v" => {}
            (None, None) => return Err(command_line_error(word, "this option is not supported")),
        }
    }
    Ok((options, defines))
}

fn event(lexer: &mut Lexer<'_>) -> Result<Event, SyntaxError> {
    lexer.skip();
    let line = lexer.line();
    let (when, until) = time(lexer)?;
    let what = if lexer.eat("<") {
        match quote(lexer)? {
            Some(quoted) => {
                lexer.expect("icmp")?;
                What::Icmp(icmp(lexer, Some(quoted))?)
            }
            None if lexer.eat("icmp") => What::Icmp(icmp(lexer, None)?),
            None => What::Inbound(segment(lexer, true)?),
        }
    } else if lexer.eat(">") {
        What::Outbound(segment(lexer, false)?)
    } else if lexer.eat("`") {
        What::Command(lexer.until("`")?.to_owned())
    } else if lexer.eat("%{") {
        What::Code(lexer.until("}%")?.to_owned())
    } else {
        What::Call(call(lexer)?)
    };
    if until.is_some() && !matches!(what, What::Call(_)) {
        return Err(lexer.error("only a call can last"));
    }
    Ok(Event { line, when, until, what })
}

fn time(lexer: &mut Lexer<'_>) -> Result<(When, Option<Duration>), SyntaxError> {
    if lexer.eat("*") {
        return Ok((When::Any, None));
    }
    let is_relative = lexer.eat("+");
    let first = lexer.seconds()?;
    if lexer.eat("~") {
        if !is_relative {
            return Ok((When::BetweenTimes(first, lexer.seconds()?), None));
        }
        lexer.eat("+");
        return Ok((When::Between(first, lexer.seconds()?), None));
    }
    let until = if lexer.eat("...") { Some(lexer.seconds()?) } else { None };
    Ok((if is_relative { When::After(first) } else { When::At(first) }, until))
}

fn segment(lexer: &mut Lexer<'_>, is_inbound: bool) -> Result<Segment, SyntaxError> {
    for unsupported in ["icmp", "udp", "gre", "mpls", "ipv4", "ipv6", "encap"] {
        if lexer.sees(unsupported) {
            return Err(lexer.error("this kind of packet is not supported yet"));
        }
    }
    let mut segment = Segment::default();
    if lexer.eat("(") {
        ip_info(lexer, &mut segment, ")")?;
    } else if lexer.eat("[") {
        ip_info(lexer, &mut segment, "]")?;
    }
    segment.flags = flags(lexer)?;
    place(lexer, &mut segment, is_inbound)?;
    if lexer.eat("ack") {
        segment.ack = Some(lexer.number()?);
    }
    if lexer.eat("win") {
        segment.win = Some(lexer.number()?);
    } else if is_inbound {
        return Err(lexer.error("an inbound segment must state its window"));
    }
    if lexer.eat("urg") {
        segment.urgent = lexer.number()?;
    }
    // A `<` here may also begin the next event, but then a time would stand before it.
    if lexer.eat("<...>") {
        if is_inbound {
            return Err(lexer.error("an inbound segment must state its options"));
        }
        segment.any_options = true;
    } else if lexer.eat("<") {
        segment.options = options(lexer)?;
    }
    Ok(segment)
}

/// `start:end(length)`, or `...(length)`.
fn place(
    lexer: &mut Lexer<'_>,
    segment: &mut Segment,
    is_inbound: bool,
) -> Result<(), SyntaxError> {
    segment.any_start = lexer.eat("...");
    if segment.any_start && is_inbound {
        return Err(lexer.error("an inbound segment must state its first sequence number"));
    }
    let end = if segment.any_start {
        None
    } else {
        segment.start = lexer.number()?;
        lexer.expect(":")?;
        Some(lexer.number::<u32>()?)
    };
    lexer.expect("(")?;
    segment.len = lexer.number()?;
    let is_wrong = end.is_some() && segment.start.checked_add(segment.len) != end;
    if is_wrong || segment.len > 65_535 {
        return Err(lexer.error("the end is not the start and the length"));
    }
    lexer.expect(")")?;
    segment.raw_start = lexer.eat("!");
    Ok(())
}

/// A script's conditions on the IP header.
fn ip_info(lexer: &mut Lexer<'_>, segment: &mut Segment, end: &str) -> Result<(), SyntaxError> {
    loop {
        let before = lexer.clone();
        match lexer.word() {
            "noecn" => segment.ecn = Some(1),
            "ect1" => segment.ecn = Some(2),
            "ect0" => segment.ecn = Some(4),
            "ect01" => segment.ecn = Some(6),
            "ce" => segment.ecn = Some(8),
            "tos" | "class" => segment.class = Some(lexer.number()?),
            "ttl" | "hlim" => segment.ttl = Some(lexer.number()?),
            _ => return Err(before.error("this field of the IP header is not supported")),
        }
        if lexer.eat(end) {
            break;
        }
        lexer.eat(",");
    }
    if let Some(ecn) = segment.ecn {
        let low = ecn.trailing_zeros() as u8;
        segment.class = Some(segment.class.unwrap_or(0) & !3 | low);
    } else if segment.ttl.is_some() {
        segment.class.get_or_insert(0);
    }
    Ok(())
}

/// `[start:end(length)]`: what an ICMP error quotes. An IP header may begin alike.
fn quote(lexer: &mut Lexer<'_>) -> Result<Option<(u32, u32)>, SyntaxError> {
    let before = lexer.clone();
    if !lexer.eat("[") || !lexer.starts_a_time() {
        *lexer = before;
        return Ok(None);
    }
    let start = lexer.number()?;
    lexer.expect(":")?;
    let _end: u32 = lexer.number()?;
    lexer.expect("(")?;
    let len = lexer.number()?;
    lexer.expect(")")?;
    lexer.expect("]")?;
    Ok(Some((start, len)))
}

/// An ICMP error: type, code, MTU, and what it quotes.
fn icmp(lexer: &mut Lexer<'_>, before_it: Option<(u32, u32)>) -> Result<Icmp, SyntaxError> {
    let before = lexer.clone();
    let kind = lexer.word().to_owned();
    let mut code = String::new();
    let mut mtu = 0;
    let mut quoted = before_it.unwrap_or((0, 0));
    let ends = |lexer: &mut Lexer<'_>| {
        lexer.skip();
        lexer.is_at_end() || lexer.sees("+") || lexer.sees("*") || lexer.sees("`")
    };
    while !ends(lexer) && !lexer.starts_a_time() {
        if let Some(it) = quote(lexer)? {
            quoted = it;
        } else if lexer.eat("mtu") {
            mtu = lexer.number()?;
        } else {
            code = lexer.word().to_owned();
            if code.is_empty() {
                return Err(lexer.error("this part of an ICMP error is not supported"));
            }
        }
    }
    let is_known = |is_ipv6| super::icmp::numbers(&kind, &code, is_ipv6).is_some();
    if !is_known(false) && !is_known(true) {
        return Err(before.error("this ICMP type or code is not supported"));
    }
    Ok(Icmp { kind, code, mtu, quoted })
}

fn flags(lexer: &mut Lexer<'_>) -> Result<u16, SyntaxError> {
    let before = lexer.clone();
    let word = lexer.flags();
    let mut flags = 0;
    for letter in word.chars() {
        flags |= match letter {
            'F' => FIN,
            'S' => SYN,
            'R' => RST,
            'P' => PSH,
            'U' => URG,
            'E' => ECE,
            'W' => CWR,
            'A' => AE,
            // The three bits of accurate ECN as a number.
            '0'..='7' => (u16::from(letter as u8) & 7) << 6,
            '.' => ACK,
            '-' => 0,
            _ => return Err(before.error("a flag is none of F S R P U E W A . - 0 to 7")),
        };
    }
    if word.is_empty() { Err(before.error("flags are missing")) } else { Ok(flags) }
}

fn options(lexer: &mut Lexer<'_>) -> Result<Vec<Opt>, SyntaxError> {
    let mut options = Vec::new();
    let mut bytes = 0;
    loop {
        let before = lexer.clone();
        let option = match lexer.word() {
            "nop" => Opt::Nop,
            "eol" => Opt::Eol,
            "mss" => Opt::Mss(lexer.number()?),
            "wscale" => Opt::Wscale(lexer.number()?),
            "sackOK" => Opt::SackOk,
            "TS" => {
                lexer.expect("val")?;
                let value = if lexer.eat("...") { ANY_STAMP } else { lexer.number()? };
                lexer.expect("ecr")?;
                Opt::Ts(value, lexer.number()?)
            }
            "sack" => Opt::Sack(blocks(lexer)?),
            "FO" => Opt::Raw(34, hex(lexer, &[])?),
            "FOEXP" => Opt::Raw(254, hex(lexer, &[0xf9, 0x89])?),
            "md5" if lexer.sees("valid") => {
                return Err(before.error("keys for MD5 are not supported"));
            }
            "md5" => Opt::Raw(19, hex(lexer, &[])?),
            "ECN" => counters(lexer)?,
            _ => return Err(before.error("this option is not supported yet")),
        };
        bytes += super::segment::option_len(&option);
        options.push(option);
        if lexer.eat(">") {
            break;
        }
        lexer.expect(",")?;
    }
    if bytes % 4 != 0 || bytes > 40 {
        let why = "the options fill no whole words, or more than 40 bytes: write the nops";
        return Err(lexer.error(&format!("{why} ({bytes} bytes)")));
    }
    Ok(options)
}

/// Bytes that may follow an option's name, behind those that always do.
fn hex(lexer: &mut Lexer<'_>, first: &[u8]) -> Result<Vec<u8>, SyntaxError> {
    let mut bytes = first.to_vec();
    if lexer.sees(",") || lexer.sees(">") {
        return Ok(bytes);
    }
    let before = lexer.clone();
    // The cookie that the server's key gives, which only fast open has.
    if lexer.eat("TFO_COOKIE") {
        bytes.extend([0; 8]);
        return Ok(bytes);
    }
    let digits = lexer.word().as_bytes();
    for pair in digits.chunks(2) {
        let text = std::str::from_utf8(pair).unwrap_or_default();
        let byte = u8::from_str_radix(text, 16).ok().filter(|_| pair.len() == 2);
        bytes.push(byte.ok_or_else(|| before.error("pairs of hexadecimal digits are missing"))?);
    }
    Ok(bytes)
}

/// Counters of accurate ECN (RFC 9768 section 3.2.3): the order of the first two gives the kind.
fn counters(lexer: &mut Lexer<'_>) -> Result<Opt, SyntaxError> {
    let (kind, names) = match lexer.sees("e1b") {
        true => (174, ["e1b", "ceb", "e0b"]),
        false => (172, ["e0b", "ceb", "e1b"]),
    };
    let mut bytes = Vec::new();
    for name in names {
        if lexer.eat(name) {
            let count: u32 = lexer.number()?;
            bytes.extend(count.to_be_bytes().get(1..).unwrap_or_default());
        }
    }
    Ok(Opt::Raw(kind, bytes))
}

fn blocks(lexer: &mut Lexer<'_>) -> Result<Vec<(u32, u32)>, SyntaxError> {
    let mut blocks = Vec::new();
    loop {
        let left = lexer.number()?;
        lexer.expect(":")?;
        blocks.push((left, lexer.number()?));
        if lexer.sees(",") || lexer.sees(">") {
            return Ok(blocks);
        }
    }
}

fn call(lexer: &mut Lexer<'_>) -> Result<SocketCall, SyntaxError> {
    let before = lexer.clone();
    let name = lexer.word().to_owned();
    if !super::calls::CALLS.contains(&name.as_str()) {
        return Err(before.error("this call is not supported yet"));
    }
    lexer.expect("(")?;
    let mut args = Vec::new();
    while !lexer.eat(")") {
        args.push(argument(lexer)?);
        if !lexer.eat(",") {
            lexer.expect(")")?;
            break;
        }
    }
    lexer.expect("=")?;
    let result = lexer.integer()?;
    // A failed call without an errno may fail for any reason.
    let errno = (result < 0 && lexer.starts_a_word()).then(|| lexer.word().to_owned());
    while lexer.eat("(") {
        lexer.until(")")?;
    }
    Ok(SocketCall { name, args, result, errno })
}

fn argument(lexer: &mut Lexer<'_>) -> Result<Arg, SyntaxError> {
    if lexer.eat("...") {
        return Ok(Arg::Fill);
    }
    if lexer.eat("[") {
        let mut list = Vec::new();
        while !lexer.eat("]") {
            list.push(argument(lexer)?);
            if !lexer.eat(",") && !lexer.sees("]") {
                return Err(lexer.error("`]` is missing"));
            }
        }
        return Ok(Arg::List(list));
    }
    if lexer.eat("{") {
        return structure(lexer);
    }
    if lexer.sees("\"") {
        return lexer.text().map(Arg::Text);
    }
    let before = lexer.clone();
    let word = lexer.word();
    if word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit()) {
        *lexer = before;
        return lexer.integer().map(Arg::Int);
    }
    let mut word = word.to_owned();
    while lexer.eat("|") {
        word.push('|');
        word.push_str(lexer.word());
    }
    Ok(Arg::Word(word))
}

/// `{name=value, name(n)=value, value}`.
fn structure(lexer: &mut Lexer<'_>) -> Result<Arg, SyntaxError> {
    let mut fields = Vec::new();
    while !lexer.eat("}") {
        let before = lexer.clone();
        let mut name = lexer.word().to_owned();
        if lexer.eat("(") {
            lexer.until(")")?;
        }
        if name.is_empty() || !lexer.eat("=") {
            *lexer = before;
            name = String::new();
        }
        fields.push((name, argument(lexer)?));
        if !lexer.eat(",") && !lexer.sees("}") {
            return Err(lexer.error("`}` is missing"));
        }
    }
    Ok(Arg::Struct(fields))
}
