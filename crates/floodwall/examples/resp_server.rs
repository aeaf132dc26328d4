//! A small server for the Redis protocol: `resp_server tap:fw0 192.0.2.1/24`, then `redis-benchmark
//! -h 192.0.2.1 -t ping,set,get`. It supports PING, SET, GET and the clients' initial queries; keys
//! are in one map.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use floodwall::net::{Network, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Keys = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;
/// Longer requests are refused.
const REQUEST_MAX: usize = 1 << 20;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or("tap:fw0".to_owned());
    let address = args.next().unwrap_or("192.0.2.1/24".to_owned());
    let network = Network::builder().device(&device).address(&address).start().await?;
    let listener = TcpListener::bind(&network, "[::]:6379").await?;
    let keys = Keys::default();
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream, Arc::clone(&keys)));
    }
}

async fn serve(mut stream: TcpStream, keys: Keys) -> std::io::Result<()> {
    let (mut bytes, mut buffer, mut answers) = (Vec::new(), vec![0; 65_536], Vec::new());
    loop {
        let mut rest = &bytes[..];
        while let Some(words) = command(&mut rest) {
            answer(&words, &keys, &mut answers);
        }
        let eaten = bytes.len() - rest.len();
        bytes.drain(..eaten);
        stream.write_all(&answers).await?;
        answers.clear();
        let len = stream.read(&mut buffer).await?;
        if len == 0 || bytes.len() > REQUEST_MAX {
            return Ok(());
        }
        bytes.extend_from_slice(&buffer[..len]);
    }
}

/// One command as an array of bulk strings; `None` where not all of it is there.
fn command<'a>(rest: &mut &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let mut at = *rest;
    let count: usize = number(&mut at, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count.min(1024) {
        let len: usize = number(&mut at, b'$')?;
        words.push(at.get(..len)?);
        at = at.get(len + 2..)?;
    }
    *rest = at;
    Some(words)
}

fn number(at: &mut &[u8], kind: u8) -> Option<usize> {
    let end = at.iter().position(|byte| *byte == b'\n')?;
    let line = at.get(..end)?.strip_prefix(&[kind])?.trim_ascii();
    *at = at.get(end + 1..)?;
    std::str::from_utf8(line).ok()?.parse().ok().filter(|n| *n <= REQUEST_MAX)
}

fn answer(words: &[&[u8]], keys: &Keys, out: &mut Vec<u8>) {
    let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
    match (name.as_slice(), &words[words.len().min(1)..]) {
        (b"PING", []) => out.extend_from_slice(b"+PONG\r\n"),
        (b"SET", [key, value, ..]) => {
            keys.insert(key.to_vec(), value.to_vec());
            out.extend_from_slice(b"+OK\r\n");
        }
        (b"GET", [key]) => match keys.get(*key) {
            Some(value) => {
                out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            None => out.extend_from_slice(b"$-1\r\n"),
        },
        (b"CONFIG" | b"COMMAND", _) => out.extend_from_slice(b"*0\r\n"),
        _ => out.extend_from_slice(b"-ERR unknown command\r\n"),
    }
}
