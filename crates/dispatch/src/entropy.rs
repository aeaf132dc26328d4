//! Where real randomness enters: once, at the start (decision C12).
//!
//! Called by programs before they make an engine. The system is queried here only.

use floodwall_base::Randomness;
use thiserror::Error;

/// The system gave no randomness.
#[derive(Debug, Error)]
#[error("the system gives no randomness ({0}): is /dev/urandom there, and getrandom(2) allowed?")]
pub struct NoEntropy(getrandom::Error);

/// Both generators of one shard, seeded with 32 bytes from the system.
///
/// # Errors
/// The system call fails, as in a sandbox.
pub fn randomness() -> Result<Randomness, NoEntropy> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(NoEntropy)?;
    Ok(Randomness::from_seed(seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_starts_differ() {
        let (mut a, mut b) = (randomness().unwrap(), randomness().unwrap());
        assert_ne!(a.secret.next_u64(), b.secret.next_u64());
    }
}
