//! TCP options, read one after another and written as a set.
//!
//! Called by `tcp`, `syncache`, `guard` and `show`. Invariant: the iterator moves at least one
//! byte per item and ends at the first error, so at most 40 bytes of options give at most 40
//! items. Read first: RFC 9293 section 3.2, RFC 7323 (scale, timestamps), RFC 2018 (SACK).

use floodwall_checksum::{InternetSum, sum};
use thiserror::Error;

use crate::BufferTooShort;
use crate::field::{self, FieldWriter};

/// The most SACK blocks that fit into 40 bytes of options.
pub const SACK_BLOCKS_MAX: usize = 4;

/// The most bytes of options.
pub const OPTIONS_LEN_MAX: usize = 40;
/// The option that does nothing.
const NOP: u8 = 1;
/// Two of them, and kind and length of timestamps.
pub(crate) const TIMESTAMPS_HEAD: u32 = 0x0101_080a;

/// Bytes of the options that a SYN usually has: segment size, SACK permitted, timestamps, scale.
pub(crate) const SYN_OPTIONS_LEN: usize = 20;
/// Their kinds and lengths, with the no-operation before the scale, in the first, second and last
/// word, and where the first and the last have them.
const SYN_OPTIONS: [(u32, u32); 3] =
    [(0x0204_0000, 0xffff_0000), (0x0402_080a, u32::MAX), (0x0103_0300, 0xffff_ff00)];

/// The numbers in the options that a SYN usually has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynNumbers {
    pub(crate) mss: u16,
    pub(crate) window_scale: u8,
    pub(crate) timestamps: Timestamps,
}

impl SynNumbers {
    /// The options as numbers of four, eight and eight bytes.
    #[inline]
    pub(crate) fn lanes(&self) -> (u32, [u64; 2]) {
        let [(size, _), (stamps, _), (scale, _)] = SYN_OPTIONS;
        let Timestamps { value, echo } = self.timestamps;
        let last = u64::from(echo) << 32 | u64::from(scale | u32::from(self.window_scale));
        (size | u32::from(self.mss), [u64::from(stamps) << 32 | u64::from(value), last])
    }
}

/// One option of a TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TcpOption<'a> {
    /// One byte of padding.
    Nop,
    /// The largest segment the sender takes, in bytes.
    Mss(u16),
    /// The shift of the sender's windows; above 14 means 14 (RFC 7323 section 2.3).
    WindowScale(u8),
    /// Selective acknowledgments are welcome.
    SackPermitted,
    /// What has arrived out of order.
    Sack(SackBlocks<'a>),
    /// Timestamps.
    Timestamps(Timestamps),
    /// Anything else.
    Unknown {
        /// The option's kind.
        kind: u8,
        /// What follows kind and length.
        data: &'a [u8],
    },
}

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timestamps {
    /// The sender's clock, TSval.
    pub value: u32,
    /// The receiver's clock given back, TSecr.
    pub echo: u32,
}

/// One block of a SACK option: `[left, right)` as the sender wrote it, not yet checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBlock {
    /// The first sequence number of the block.
    pub left: u32,
    /// The sequence number after the last of the block.
    pub right: u32,
}

/// The blocks of a SACK option; one to four.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SackBlocks<'a>(&'a [[u8; 8]]);

impl<'a> SackBlocks<'a> {
    /// The blocks in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SackBlock> + use<'a> {
        self.0.iter().map(|block| SackBlock {
            left: field::long::<0, _>(block),
            right: field::long::<4, _>(block),
        })
    }
}

/// An option that cannot be read, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("bad TCP option at byte {offset} of the header: {reason}")]
pub struct TcpOptionError {
    /// The offset of the option from the header's first byte.
    pub offset: usize,
    /// What is wrong with it.
    pub reason: TcpOptionReason,
}

/// What is wrong with a TCP option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TcpOptionReason {
    /// The length byte is missing, under 2, or reaches past the header.
    #[error("its length is malformed")]
    Length,
    /// The length is possible, but not for this kind.
    #[error("its length does not suit its kind")]
    LengthForKind,
}

/// The options of a TCP header; stops at the end marker and at the first error.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> TcpOptions<'a> {
    /// The options in `bytes`, which follow the 20 bytes of the fixed header.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: crate::tcp::HEADER_LEN }
    }

    fn read(&mut self) -> Result<Option<TcpOption<'a>>, TcpOptionReason> {
        let (kind, len) = match *self.rest {
            [] | [0, ..] => return Ok(None),
            [1, ref rest @ ..] => {
                self.rest = rest;
                self.offset += 1;
                return Ok(Some(TcpOption::Nop));
            }
            [kind, len, ..] => (kind, usize::from(len)),
            [_] => return Err(TcpOptionReason::Length),
        };
        let data = self.rest.get(2..len).ok_or(TcpOptionReason::Length)?;
        let option = decode(kind, data).ok_or(TcpOptionReason::LengthForKind)?;
        self.rest = self.rest.get(len..).unwrap_or_default();
        self.offset += len;
        Ok(Some(option))
    }
}

fn decode(kind: u8, data: &[u8]) -> Option<TcpOption<'_>> {
    Some(match (kind, data) {
        (2, &[high, low]) => TcpOption::Mss(u16::from_be_bytes([high, low])),
        (3, &[shift]) => TcpOption::WindowScale(shift),
        (4, []) => TcpOption::SackPermitted,
        (5, _) => match data.as_chunks::<8>() {
            (blocks @ [_, ..], []) => TcpOption::Sack(SackBlocks(blocks)),
            _ => return None,
        },
        (8, _) => {
            let data: &[u8; 8] = data.try_into().ok()?;
            let (value, echo) = (field::long::<0, _>(data), field::long::<4, _>(data));
            TcpOption::Timestamps(Timestamps { value, echo })
        }
        (2..=4, _) => return None,
        _ => TcpOption::Unknown { kind, data },
    })
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, TcpOptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let item = self.read().map_err(|reason| TcpOptionError { offset, reason }).transpose();
        if !matches!(item, Some(Ok(_))) {
            self.rest = &[];
        }
        item
    }
}

/// The options that this stack supports, as values, of a parsed header or for a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpOptionSet {
    /// The largest segment the sender takes, in bytes.
    pub mss: Option<u16>,
    /// The shift of the sender's windows.
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgments are welcome.
    pub sack_permitted: bool,
    /// What has arrived out of order; the first `None` ends the list.
    pub sack: [Option<SackBlock>; SACK_BLOCKS_MAX],
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
}

impl TcpOptionSet {
    /// No option at all.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        sack: [None; SACK_BLOCKS_MAX],
        timestamps: None,
    };

    /// Reads the options of a header; of an option given twice, the later counts.
    ///
    /// # Errors
    /// The first option that cannot be read; whether to drop the segment or to go on without
    /// options is the caller's decision.
    pub fn read(options: TcpOptions<'_>) -> Result<Self, TcpOptionError> {
        let mut set = Self::NONE;
        set.add(options)?;
        Ok(set)
    }

    /// Adds the options of a header to those that are there, the later of two counting.
    ///
    /// # Errors
    /// The first option that cannot be read; those before it are added.
    pub fn add(&mut self, options: TcpOptions<'_>) -> Result<(), TcpOptionError> {
        // Nearly every segment has these, and no others (RFC 7323 appendix A).
        if let Ok(bytes) = <&[u8; 12]>::try_from(options.rest)
            && field::long::<0, _>(bytes) == TIMESTAMPS_HEAD
        {
            let (value, echo) = (field::long::<4, _>(bytes), field::long::<8, _>(bytes));
            self.timestamps = Some(Timestamps { value, echo });
            return Ok(());
        }
        // Nor a SYN than these, which are Linux's and ours.
        if let Ok(bytes) = <&[u8; SYN_OPTIONS_LEN]>::try_from(options.rest)
            && field::long::<0, _>(bytes) & SYN_OPTIONS[0].1 == SYN_OPTIONS[0].0
            && field::long::<4, _>(bytes) == SYN_OPTIONS[1].0
            && field::long::<16, _>(bytes) & SYN_OPTIONS[2].1 == SYN_OPTIONS[2].0
        {
            let (value, echo) = (field::long::<8, _>(bytes), field::long::<12, _>(bytes));
            self.mss = Some(field::long::<0, _>(bytes) as u16);
            self.sack_permitted = true;
            self.timestamps = Some(Timestamps { value, echo });
            self.window_scale = Some(field::long::<16, _>(bytes) as u8);
            return Ok(());
        }
        for option in options {
            match option? {
                TcpOption::Mss(mss) => self.mss = Some(mss),
                TcpOption::WindowScale(shift) => self.window_scale = Some(shift),
                TcpOption::SackPermitted => self.sack_permitted = true,
                TcpOption::Sack(blocks) => {
                    self.sack = [None; SACK_BLOCKS_MAX];
                    self.sack.iter_mut().zip(blocks.iter()).for_each(|(to, b)| *to = Some(b));
                }
                TcpOption::Timestamps(timestamps) => self.timestamps = Some(timestamps),
                TcpOption::Nop | TcpOption::Unknown { .. } => {}
            }
        }
        Ok(())
    }

    /// As [`TcpOptionSet::add`], but a malformed option is no error, so that one peer's mistake
    /// costs it an option and not the segment (RFC 9293 section 3.1, MUST-7): one with a length
    /// that does not suit its kind is skipped by its length, and one with an impossible length ends
    /// the list. Linux reads options in the same way.
    pub fn add_readable(&mut self, options: TcpOptions<'_>) {
        let mut rest = options;
        while let Err(TcpOptionError { offset, reason: TcpOptionReason::LengthForKind }) =
            self.add(rest)
        {
            let start = options.rest.get(offset - options.offset..).unwrap_or_default();
            let len = start.get(1).map_or(0, |len| usize::from(*len));
            let behind = start.get(len..).unwrap_or_default();
            rest = TcpOptions { rest: behind, offset: offset + len };
        }
    }

    /// The numbers in these options, where they are those that a SYN usually has: segment size,
    /// SACK permitted, timestamps and window scale.
    #[must_use]
    #[inline]
    pub fn of_usual_syn(&self) -> Option<SynNumbers> {
        let Self { mss: Some(mss), window_scale: Some(window_scale), sack_permitted: true, .. } =
            *self
        else {
            return None;
        };
        let timestamps = self.timestamps.filter(|_| self.sack[0].is_none())?;
        Some(SynNumbers { mss, window_scale, timestamps })
    }

    /// The bytes these options take in a header, padding included: a multiple of four, at most
    /// 40. SACK blocks that would not fit are left out.
    #[must_use]
    pub fn emitted_len(&self) -> usize {
        self.bare_len().next_multiple_of(4)
    }

    /// Each option with the no-operations before it that put its numbers on whole words (RFC 7323
    /// appendix A): receivers know these shapes and read them at once.
    fn bare_len(&self) -> usize {
        let sack = self.sack_count();
        self.len_without_sack() + if sack > 0 { 4 + 8 * sack } else { 0 }
    }

    fn len_without_sack(&self) -> usize {
        let times = match (self.sack_permitted, self.timestamps.is_some()) {
            (_, true) => 12,
            (true, false) => 4,
            (false, false) => 0,
        };
        4 * usize::from(self.mss.is_some()) + times + 4 * usize::from(self.window_scale.is_some())
    }

    fn sack_count(&self) -> usize {
        let room = (OPTIONS_LEN_MAX - 4).saturating_sub(self.len_without_sack()) / 8;
        self.sack.iter().take_while(|block| block.is_some()).count().min(room)
    }

    /// As [`TcpOptionSet::emit_into`], and their sum. Of timestamps alone, which segments behind
    /// the handshake have, it is that of the numbers.
    ///
    /// # Errors
    /// As [`TcpOptionSet::emit_into`].
    #[inline]
    pub(crate) fn emit_summed(&self, out: &mut [u8]) -> Result<InternetSum, BufferTooShort> {
        let alone = self.mss.is_none()
            && self.window_scale.is_none()
            && !self.sack_permitted
            && self.sack[0].is_none();
        match (alone, self.timestamps, out.first_chunk_mut::<12>()) {
            (true, None, _) => Ok(InternetSum::ZERO),
            (true, Some(Timestamps { value, echo }), Some(out)) => {
                let numbers = u64::from(value) << 32 | u64::from(echo);
                field::put_long::<0, _>(out, TIMESTAMPS_HEAD);
                field::put::<4, 8, _>(out, numbers.to_be_bytes());
                Ok(InternetSum::of_u32(TIMESTAMPS_HEAD).add(InternetSum::of_u64(numbers)))
            }
            _ => {
                let len = self.emit_into(out)?;
                Ok(sum(out.get(..len).unwrap_or_default()))
            }
        }
    }

    /// Writes the options at the front of `out`, each on whole words by no-operations before it;
    /// returns their length, a multiple of four.
    ///
    /// # Errors
    /// If `out` cannot hold [`TcpOptionSet::emitted_len`] bytes.
    pub fn emit_into(&self, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        if let Some(numbers) = self.of_usual_syn()
            && let Some(out) = out.first_chunk_mut::<SYN_OPTIONS_LEN>()
        {
            let (first, [second, last]) = numbers.lanes();
            field::put_long::<0, _>(out, first);
            field::put::<4, 8, _>(out, second.to_be_bytes());
            field::put::<12, 8, _>(out, last.to_be_bytes());
            return Ok(SYN_OPTIONS_LEN);
        }
        let mut writer = FieldWriter::new(out);
        if let Some(mss) = self.mss {
            writer.put(&[2, 4]);
            writer.put(&mss.to_be_bytes());
        }
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => writer.put(&[4, 2]),
            (true, false) => writer.put(&[NOP, NOP, 4, 2]),
            (false, true) => writer.put(&[NOP, NOP]),
            (false, false) => {}
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            writer.put(&[8, 10]);
            writer.put(&value.to_be_bytes());
            writer.put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            writer.put(&[NOP, 3, 3, shift]);
        }
        let count = self.sack_count();
        if count > 0 {
            writer.put(&[NOP, NOP, 5, 2 + 8 * count as u8]);
        }
        for block in self.sack.iter().take(count).flatten() {
            writer.put(&block.left.to_be_bytes());
            writer.put(&block.right.to_be_bytes());
        }
        writer.finish()
    }
}
