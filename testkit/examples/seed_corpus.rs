//! Writes seeds for the fuzz targets: packets of the vendored captures, and programs.
//!
//! `cargo run -p floodwall-testkit --example seed_corpus -- fuzz/corpus`, once; from then on the
//! corpora grow by what the fuzzers find. Each file is named by a hash of what is in it.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::{env, fs, io};

use floodwall_testkit::{Seeded, captures};

/// Bytes of a seed: what is behind says nothing new.
const SEED_BYTES_MAX: usize = 300;
/// Packets of one capture that become seeds.
const PACKETS_MAX: usize = 2;

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".into());
    let folder = Path::new(&folder);
    let mut shapes = HashSet::new();
    for path in captures::vendored() {
        let mut taken = 0;
        for captured in captures::read(&path)? {
            let Some(frame) = captured.frame().filter(|_| taken < PACKETS_MAX) else { continue };
            // One seed for each kind of header chain: the first bytes without addresses.
            let packet = frame.get(14..).unwrap_or_default();
            let shape = [frame.get(12..14), packet.get(..1), packet.get(6..10), packet.get(40..46)];
            if shapes.insert(shape.map(|part| part.unwrap_or_default().to_vec())) {
                let frame = &frame[..frame.len().min(SEED_BYTES_MAX)];
                write(folder, "wire", &[&[taken as u8 * 13], frame].concat())?;
                taken += 1;
            }
        }
    }
    let mut random = Seeded::new(7);
    for len in (8..=256).step_by(8) {
        let program: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        write(folder, "pulldown", &program)?;
    }
    Ok(())
}

fn write(folder: &Path, target: &str, seed: &[u8]) -> io::Result<()> {
    let mut hash = DefaultHasher::new();
    seed.hash(&mut hash);
    let folder = folder.join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("{:016x}", hash.finish())), seed)
}
