//! A reader of BTF, the kernel's description of its own types and functions.
//!
//! Called by loaders of programs that call kernel functions or read fields of its structures:
//! both are named by numbers that every kernel has its own of. It reads a slice, usually the bytes
//! of `/sys/kernel/btf/vmlinux`. Invariant: bytes that are not BTF, or end early, give an error or
//! nothing, never a panic; every look-up is one walk over the types. Reading: the kernel's
//! `Documentation/bpf/btf.rst`.

use thiserror::Error;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;
/// Structures within structures that are looked through.
const NESTED_MAX: usize = 8;

/// Kinds of types that are looked at.
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const FUNCTION: u32 = 12;

/// Why bytes are no BTF.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BtfError {
    /// The magic number of this machine's byte order is missing.
    #[error("these bytes are no BTF of this machine's byte order")]
    Magic,
    /// A section or a type reaches beyond the end.
    #[error("the BTF ends early")]
    Short,
    /// A kind of type that is not known, so that nothing behind it can be found.
    #[error("the BTF has a type of unknown kind {0}")]
    Kind(u32),
}

/// One type as it lies there.
#[derive(Clone, Copy, Debug)]
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Whether members say their size in bits along with their offset.
    has_bit_fields: bool,
    /// Size, or the type that it refers to.
    target: u32,
    /// What follows: members of a structure.
    rest: &'a [u8],
}

/// Types and functions by number; the first has number 1.
#[derive(Debug)]
pub struct Btf<'a> {
    types: Vec<Type<'a>>,
    strings: &'a [u8],
}

impl<'a> Btf<'a> {
    /// Reads all types. Some ten milliseconds for a kernel's.
    ///
    /// # Errors
    /// See [`BtfError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let magic = bytes.first_chunk().ok_or(BtfError::Short)?;
        if u16::from_ne_bytes(*magic) != MAGIC {
            return Err(BtfError::Magic);
        }
        let header = bytes.get(..HEADER_BYTES).ok_or(BtfError::Short)?;
        let start = word(header, 4)?;
        let types = section(bytes, start, word(header, 8)?, word(header, 12)?)?;
        let strings = section(bytes, start, word(header, 16)?, word(header, 20)?)?;
        let (mut all, mut rest) = (Vec::new(), types);
        while !rest.is_empty() {
            let (found, behind) = read_type(rest)?;
            all.push(found);
            rest = behind;
        }
        Ok(Self { types: all, strings })
    }

    /// How many types there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The number of a function, for [`Assembler::call_kernel`](crate::Assembler::call_kernel).
    #[must_use]
    pub fn function(&self, name: &str) -> Option<u32> {
        self.find(FUNCTION, name).map(|(number, _)| number)
    }

    /// The offset in bytes of a field of a structure; `path` names it, with dots into structures
    /// that it lies in. Members without a name are looked through. `None` where there is no such
    /// field, or it does not begin at a whole byte.
    #[must_use]
    pub fn field(&self, structure: &str, path: &str) -> Option<usize> {
        let (_, first) = self.find(STRUCT, structure)?;
        let (mut at, mut bits) = (Some(first), 0);
        for name in path.split('.') {
            let (offset, target) = self.member(at?, name, NESTED_MAX)?;
            bits += offset;
            at = self.resolve(target);
        }
        bits.is_multiple_of(8).then_some(bits as usize / 8)
    }

    fn find(&self, kind: u32, name: &str) -> Option<(u32, &Type<'a>)> {
        (1..).zip(&self.types).find(|(_, it)| it.kind == kind && self.is_called(it.name, name))
    }

    fn is_called(&self, at: u32, name: &str) -> bool {
        let bytes =
            self.strings.get(at as usize..).and_then(|rest| rest.strip_prefix(name.as_bytes()));
        bytes.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The structure that a type is, by any of its names.
    fn resolve(&self, number: u32) -> Option<&Type<'a>> {
        let mut number = number;
        for _ in 0..NESTED_MAX {
            let it = self.types.get((number as usize).checked_sub(1)?)?;
            match it.kind {
                STRUCT | UNION => return Some(it),
                // Qualifiers and other names.
                TYPEDEF..=11 => number = it.target,
                _ => return None,
            }
        }
        None
    }

    /// Where a member begins, in bits, and its type.
    fn member(&self, of: &Type<'a>, name: &str, depth: usize) -> Option<(u32, u32)> {
        for member in of.rest.chunks_exact(TYPE_BYTES) {
            let (label, target) = (word(member, 0).ok()?, word(member, 4).ok()?);
            let offset = word(member, 8).ok()?;
            let offset = if of.has_bit_fields { offset & 0xff_ffff } else { offset };
            if self.is_called(label, name) {
                return Some((offset, target));
            }
            let nested = (depth > 0 && self.is_called(label, "")).then(|| self.resolve(target));
            if let Some(inner) = nested.flatten()
                && let Some((within, target)) = self.member(inner, name, depth - 1)
            {
                return Some((offset + within, target));
            }
        }
        None
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(BtfError::Short)?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn section(bytes: &[u8], start: u32, at: u32, len: u32) -> Result<&[u8], BtfError> {
    let from = start as usize + at as usize;
    bytes.get(from..from + len as usize).ok_or(BtfError::Short)
}

fn read_type(bytes: &[u8]) -> Result<(Type<'_>, &[u8]), BtfError> {
    let (name, info, target) = (word(bytes, 0)?, word(bytes, 4)?, word(bytes, 8)?);
    let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
    let len = match kind {
        1 | 14 | 17 => 4,
        ARRAY => 12,
        STRUCT | UNION | 15 | 19 => 12 * count,
        6 | 13 => 8 * count,
        2 | 7..=FUNCTION | 16 | 18 => 0,
        _ => return Err(BtfError::Kind(kind)),
    };
    let all = bytes.get(TYPE_BYTES..TYPE_BYTES + len).ok_or(BtfError::Short)?;
    let rest = if matches!(kind, STRUCT | UNION) { all } else { &[] };
    let found = Type { name, kind, has_bit_fields: info >> 31 == 1, target, rest };
    Ok((found, bytes.get(TYPE_BYTES + len..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer of what the reader reads.
    #[derive(Default)]
    struct Maker {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    impl Maker {
        fn name(&mut self, name: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if name.is_empty() {
                return 0;
            }
            let at = self.strings.len() as u32;
            self.strings.extend(name.bytes().chain([0]));
            at
        }

        fn push(&mut self, name: &str, info: u32, target: u32, rest: &[u32]) {
            let name = self.name(name);
            for word in [name, info, target].iter().chain(rest) {
                self.types.extend(word.to_ne_bytes());
            }
        }

        fn bytes(&self) -> Vec<u8> {
            let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
            let mut bytes = MAGIC.to_ne_bytes().to_vec();
            bytes.extend([1, 0]);
            for word in [24, 0, types, types, strings] {
                bytes.extend(u32::to_ne_bytes(word));
            }
            bytes.extend(&self.types);
            bytes.extend(&self.strings);
            bytes
        }
    }

    fn sample() -> Vec<u8> {
        let mut maker = Maker::default();
        maker.push("int", 1 << 24, 4, &[0x20]);
        let (a, b) = (maker.name("first"), maker.name("second"));
        maker.push("inner", STRUCT << 24 | 2, 8, &[a, 1, 0, b, 1, 32]);
        maker.push("", UNION << 24 | 1, 8, &[a, 1, 0]);
        maker.push("alias", TYPEDEF << 24, 2, &[]);
        let (c, d) = (maker.name("held"), maker.name("flag"));
        let bits = STRUCT << 24 | 1 << 31 | 4;
        maker.push("outer", bits, 32, &[d, 1, 1 << 24 | 3, 0, 3, 64, c, 4, 128, b, 1, 192]);
        maker.push("call_me", FUNCTION << 24 | 1, 1, &[]);
        maker.bytes()
    }

    #[test]
    fn functions_and_fields_are_found_by_name() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!((btf.len(), btf.function("call_me"), btf.function("call")), (6, Some(6), None));
        assert_eq!(btf.field("inner", "second"), Some(4));
        assert_eq!(btf.field("outer", "first"), Some(8), "in a member without a name");
        assert_eq!(btf.field("outer", "held.second"), Some(20), "by another name of its type");
        assert_eq!(btf.field("outer", "second"), Some(24));
        assert_eq!(btf.field("outer", "flag"), None, "it begins within a byte");
        assert_eq!(btf.field("outer", "none"), None);
        assert_eq!(btf.field("inner", "first.second"), None, "a number has no fields");
    }

    #[test]
    fn bytes_that_end_early_or_are_changed_give_an_error_or_nothing() {
        let bytes = sample();
        for end in 0..bytes.len() {
            let _ = Btf::parse(&bytes[..end]).map(|btf| btf.field("outer", "held.second"));
        }
        assert_eq!(Btf::parse(&bytes[..10]).unwrap_err(), BtfError::Short);
        assert_eq!(Btf::parse(&[0; 24]).unwrap_err(), BtfError::Magic);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                if let Ok(btf) = Btf::parse(&other) {
                    let _ = (btf.function("call_me"), btf.field("outer", "held.second"));
                }
            }
        }
    }

    #[test]
    fn the_kernel_of_this_machine_is_read_where_it_shows_its_types() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            eprintln!("SKIPPED: this kernel shows no BTF");
            return;
        };
        let btf = Btf::parse(&bytes).unwrap();
        assert!(btf.function("bpf_xdp_metadata_rx_hash").is_some() || btf.len() > 1000);
        assert_eq!(btf.field("sk_buff_head", "qlen").map(|at| at % 4), Some(0));
    }
}
