//! Lists of `floodwall top`: tables that give up columns and rows where the terminal is small.
//!
//! Called by `picture.rs`; drawn by ratatui's table, which cuts what is too wide. Here is the
//! choice before that. Invariants: a number or a name is whole or not there; what is left out is
//! said.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Constraint, Rect};
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use ratatui_core::widgets::Widget;
use ratatui_widgets::table::{Cell, Row, Table};

use super::look::Look;

/// What separates two columns.
const GAP: u16 = 2;
/// So much of a line is kept for names, of which a longer one has a line of its own.
const NAME_MIN: u16 = 16;
/// A bar of fewer columns says nothing.
const BAR_WIDTHS: (u16, u16) = (12, 50);

/// A column of a list.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) cells: Vec<(String, Style)>,
    /// The higher, the earlier it goes where the terminal is narrow.
    pub(super) rank: u8,
}

impl Column {
    fn width(&self) -> u16 {
        let cells = self.cells.iter().map(|(cell, _)| width_of(cell));
        cells.chain([width_of(self.title)]).max().unwrap_or(0)
    }
}

fn width_of(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// A table no wider than a given width.
pub(super) struct List {
    columns: Vec<Column>,
    widths: Vec<u16>,
    /// Of each row the parts of a whole, drawn as a bar where there is room.
    bars: Vec<[f64; 2]>,
    width: u16,
}

impl List {
    /// Columns go by their rank; the first one, with names, stays, and the one after it too. A name
    /// that leaves no room for its numbers has a line of its own.
    pub(super) fn new(mut columns: Vec<Column>, width: u16) -> Self {
        let others =
            |columns: &[Column]| columns.iter().skip(1).map(|c| c.width() + GAP).sum::<u16>();
        let longest = columns.first().map_or(0, Column::width);
        while columns.len() > 2
            && width.saturating_sub(others(&columns)) < longest.min(NAME_MIN)
            && let Some((at, _)) =
                columns.iter().enumerate().skip(1).max_by_key(|(at, c)| (c.rank, *at))
        {
            columns.remove(at);
        }
        let mut widths: Vec<_> = columns.iter().map(Column::width).collect();
        let room = width.saturating_sub(others(&columns));
        if let (Some(first), Some(name)) = (columns.first(), widths.first_mut()) {
            let fits = first.cells.iter().map(|(cell, _)| width_of(cell)).filter(|w| *w <= room);
            *name = fits.chain([width_of(first.title)]).max().unwrap_or(0);
        }
        Self { columns, widths, bars: Vec::new(), width }
    }

    /// Adds a bar to each row.
    pub(super) fn bars(self, bars: Vec<[f64; 2]>) -> Self {
        Self { bars, ..self }
    }

    /// Rows that there are.
    pub(super) fn rows(&self) -> usize {
        self.columns.first().map_or(0, |names| names.cells.len())
    }

    /// The name of a row, where it has lines of its own, cut into these.
    fn long_name(&self, row: usize) -> Vec<String> {
        let name = self.columns.first().and_then(|names| names.cells.get(row));
        let Some((name, _)) = name else { return Vec::new() };
        if self.widths.first().is_none_or(|width| width_of(name) <= *width) {
            return Vec::new();
        }
        let all: Vec<char> = name.chars().collect();
        all.chunks(usize::from(self.width.max(1))).map(|part| part.iter().collect()).collect()
    }

    /// Rows that are shown of so many places, and rows that are left out.
    fn shown(&self, places: usize) -> (usize, usize) {
        let all = self.rows();
        let whole = if places < all { places.saturating_sub(1) } else { all };
        (whole, all - whole)
    }

    /// Lines that it takes with so many places for rows.
    pub(super) fn height(&self, places: usize) -> u16 {
        let (whole, left_out) = self.shown(places);
        let names: usize = (0..whole).map(|row| self.long_name(row).len()).sum();
        u16::try_from(1 + whole + names + usize::from(left_out > 0)).unwrap_or(u16::MAX)
    }

    /// Draws it with so many places for rows.
    pub(super) fn draw(&self, places: usize, look: Look, area: Rect, buf: &mut Buffer) {
        let (whole, left_out) = self.shown(places);
        let rows = (0..whole).map(|row| {
            let names = self.long_name(row).len();
            let cell = |(at, column): (usize, &Column)| {
                let (text, style) = match column.cells.get(row) {
                    Some((text, style)) if at > 0 || names == 0 => (text.as_str(), *style),
                    _ => ("", Style::new()),
                };
                let text = format!("{}{text}", "\n".repeat(names));
                Cell::from(aligned(at, text)).style(style)
            };
            let height = u16::try_from(1 + names).unwrap_or(1);
            Row::new(self.columns.iter().enumerate().map(cell).collect::<Vec<_>>()).height(height)
        });
        let title = |(at, column): (usize, &Column)| aligned(at, column.title.to_owned());
        let head = Row::new(self.columns.iter().enumerate().map(title).collect::<Vec<_>>());
        let widths = self.widths.iter().map(|width| Constraint::Length(*width));
        Table::new(rows, widths)
            .column_spacing(GAP)
            .header(head.style(look.title()))
            .render(area, buf);
        let mut at = area.y + 1;
        for row in 0..whole {
            for part in self.long_name(row) {
                Line::raw(part).render(line(area, at), buf);
                at += 1;
            }
            self.draw_bar(row, look, line(area, at), buf);
            at += 1;
        }
        if !self.bars.is_empty() {
            self.draw_legend(look, line(area, area.y), buf);
        }
        if left_out > 0 {
            let said = format!("... and {left_out} more");
            Line::styled(said, look.faint()).render(line(area, at), buf);
        }
    }

    /// The place of the bars in a line, where there is room for them.
    fn bar_place(&self, line: Rect) -> Option<Rect> {
        let used = self.widths.iter().map(|width| width + GAP).sum();
        let width = self.width.checked_sub(used).filter(|width| *width >= BAR_WIDTHS.0)?;
        let width = width.min(BAR_WIDTHS.1);
        Some(Rect { x: line.x + used, width, ..line }.intersection(line))
    }

    fn draw_bar(&self, row: usize, look: Look, line: Rect, buf: &mut Buffer) {
        let (Some(place), Some(parts)) = (self.bar_place(line), self.bars.get(row)) else { return };
        let whole = f64::from(place.width);
        let mut left = usize::from(place.width);
        let mut spans = Vec::new();
        for (share, (symbol, style)) in parts.iter().chain([&1.0]).zip(look.shares()) {
            // The least part is seen, too.
            let least = usize::from(*share * 100.0 >= 1.0);
            let columns = ((share * whole).round() as usize).max(least).min(left);
            left -= columns;
            spans.push(Span::styled(symbol.repeat(columns), style));
        }
        Line::from(spans).render(place, buf);
    }

    fn draw_legend(&self, look: Look, line: Rect, buf: &mut Buffer) {
        let Some(place) = self.bar_place(line) else { return };
        let named = ["busy", "left", "idle"].into_iter().zip(look.shares());
        let spans = named.flat_map(|(name, (symbol, style))| {
            [Span::styled(symbol, style), Span::styled(format!(" {name}  "), look.faint())]
        });
        let legend = Line::from(spans.collect::<Vec<_>>());
        if legend.width() <= usize::from(place.width) + 2 {
            legend.render(place, buf);
        }
    }
}

/// Names stand to the left, numbers to the right.
fn aligned(column: usize, text: String) -> ratatui_core::text::Text<'static> {
    let text = ratatui_core::text::Text::from(text);
    if column == 0 { text } else { text.right_aligned() }
}

/// One line of an area; an empty one where the area ends before it.
fn line(area: Rect, y: u16) -> Rect {
    Rect { y, height: 1, ..area }.intersection(area)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(list: &List, places: usize) -> Vec<String> {
        let area = Rect::new(0, 0, list.width, list.height(places));
        let mut buf = Buffer::empty(area);
        list.draw(places, Look::PLAIN, area, &mut buf);
        super::super::picture::lines(&buf)
    }

    fn columns() -> Vec<Column> {
        let column = |title, cells: [&str; 2], rank| Column {
            title,
            cells: cells.map(|cell| (cell.to_owned(), Style::new())).into(),
            rank,
        };
        vec![
            column("SERVICE", ["tcp 80", "udp [2001:db8::1]:7"], 0),
            column("CONN/s", ["12.3k", "1"], 1),
            column("QUEUE", ["1 of 9", "1"], 2),
        ]
    }

    #[test]
    fn a_narrow_list_gives_up_columns_and_then_the_line_of_a_long_name() {
        let wide = drawn(&List::new(columns(), 80), 9);
        assert_eq!(wide[0], "SERVICE              CONN/s   QUEUE");
        assert_eq!(wide[2], "udp [2001:db8::1]:7       1       1");
        let own_line = drawn(&List::new(columns(), 33), 9);
        assert_eq!(own_line[0], "SERVICE  CONN/s   QUEUE");
        assert_eq!(own_line[2..], ["udp [2001:db8::1]:7", "              1       1"]);
        let narrow = drawn(&List::new(columns(), 25), 9);
        assert_eq!(narrow[..2], ["SERVICE  CONN/s", "tcp 80    12.3k"]);
        assert_eq!(narrow[2..], ["udp [2001:db8::1]:7", "              1"]);
        let narrowest = drawn(&List::new(columns(), 17), 9);
        assert_eq!(narrowest[2..], ["udp [2001:db8::1]", ":7", "              1"]);
    }

    #[test]
    fn a_low_list_says_what_it_leaves_out() {
        let list = List::new(columns(), 80);
        assert_eq!((list.height(9), list.height(2), list.height(1)), (3, 3, 2));
        assert_eq!(drawn(&list, 1)[1..], ["... and 2 more"]);
    }

    #[test]
    fn bars_show_the_parts_of_a_core_where_there_is_room() {
        let bars = || vec![[0.25, 0.5], [2.0, 0.0]];
        let wide = drawn(&List::new(columns(), 57).bars(bars()), 2);
        assert_eq!(wide[1], "tcp 80                12.3k  1 of 9  #####==========.....");
        assert_eq!(wide[2], "udp [2001:db8::1]:7       1       1  ####################");
        let narrow = drawn(&List::new(columns(), 40).bars(bars()), 2);
        assert!(narrow.iter().all(|line| !line.contains(['#', '='])), "{narrow:?}");
    }
}
