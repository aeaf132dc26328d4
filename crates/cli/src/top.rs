//! `floodwall top`: one look as a value (`view.rs`), for JSON, and its picture (`picture.rs`).

mod history;
mod list;
mod look;
mod picture;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use self::history::History;
pub(crate) use self::look::Look;
pub(crate) use self::picture::Picture;
pub(crate) use self::view::TopView;
