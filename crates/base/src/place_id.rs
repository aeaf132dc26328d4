//! `place_id!`: ids for the items of a slab: an index and a generation.
//!
//! Called by `udp` and `tcp` for the ids that programs hold. Invariant: an id of a closed owner
//! matches no later owner of its place: each place has a generation count that every look-up by id
//! compares. Not here: the slab.

/// Declares an id: a place, and its generation. Its fields are the declaring crate's.
///
/// ```
/// floodwall_base::place_id! {
///     /// A seat.
///     pub struct SeatId: "seat";
/// }
///
/// let id = SeatId::from_u64(7 | 3 << 32);
/// assert_eq!((id.index(), SeatId::from_u64(id.to_u64())), (7, id));
/// assert_eq!(format!("{id:?}"), "seat7.3");
/// ```
#[macro_export]
macro_rules! place_id {
    ($(#[$meta:meta])* $vis:vis struct $name:ident : $prefix:literal;) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name {
            pub(crate) index: u32,
            pub(crate) generation: u32,
        }

        impl $name {
            /// The place, below the number of places: for side tables of the caller.
            #[must_use]
            pub const fn index(self) -> usize {
                self.index as usize
            }

            /// The id as one number.
            #[must_use]
            pub const fn to_u64(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }

            /// The id of a number that [`Self::to_u64`] gave. A made-up number matches an owner or
            /// none; it is harmless.
            #[must_use]
            pub const fn from_u64(id: u64) -> Self {
                Self { index: id as u32, generation: (id >> 32) as u32 }
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::write!(f, ::core::concat!($prefix, "{}.{}"), self.index, self.generation)
            }
        }
    };
}
