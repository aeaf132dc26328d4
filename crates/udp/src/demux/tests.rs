//! The demux against a list that is searched from end to end.
