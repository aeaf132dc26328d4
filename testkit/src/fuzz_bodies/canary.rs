//! A planted fault, to see that the fuzzer finds one.

/// Panics for bytes that begin with the words `FLOO` and `DWAL`, compared one after the other. A
/// fuzzer that is guided by coverage and comparisons finds them within seconds; one that is not
/// never would. Not part of the replayed bodies.
///
/// # Panics
/// As said.
pub fn canary(data: &[u8]) {
    let (words, _) = data.as_chunks::<4>();
    let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
    if words.next() == Some(0x464c_4f4f) {
        assert_ne!(words.next(), Some(0x4457_414c), "the canary is dead: the fuzzer works");
    }
}
