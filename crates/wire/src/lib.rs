//! Checked views and builders for network headers; never allocates.
