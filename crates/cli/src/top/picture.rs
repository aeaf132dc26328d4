//! The picture of `floodwall top`: which parts a terminal of a given size has room for, and how
//! each of them is drawn, by ratatui.
//!
//! Called by `cmd/top.rs` once a look and where the size changes. Pure: values and a size in, cells
//! out. Invariants: names and numbers are whole or not there; what is left out is said; at the same
//! size the parts stand at the same places.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Constraint, Layout, Rect};
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use ratatui_core::widgets::Widget;
use ratatui_widgets::paragraph::{Paragraph, Wrap};
use ratatui_widgets::sparkline::{RenderDirection, Sparkline};

use super::history::History;
use super::list::{Column, List};
use super::look::Look;
use super::view::{SERIES, TopInterface, TopRefusal, TopService, TopView, TopWorker};
use crate::explain;
use crate::rates::short;
use crate::sources;

/// Two lists, or three charts, stand side by side in terminals of this width.
const PAIR_WIDTH: u16 = 78;
/// Lines of a chart beside others.
const CHART_LINES: (usize, usize) = (2, 6);
/// Columns for name and rate beside a chart.
const NAMED_WIDTH: u16 = 17;
/// Columns between charts or lists side by side.
const CHART_GAP: u16 = 2;
/// Lines and columns of a text that goes to no terminal.
const TEXT_SIZE: (u16, u16) = (1000, 160);
/// Between a number and its unit.
const NO_BREAK: &str = "\u{a0}";
const UNITS: [&str; 2] = ["ms", "%"];
/// Lists keep so many rows, for as long as a section of this rank or more can go instead.
const ROWS_KEPT: usize = 3;
const SPARED_RANK: u8 = 7;
const MORE: &str = "(a larger terminal shows more)";

/// A part of the picture.
struct Section<'a> {
    body: Body<'a>,
    /// The higher, the earlier it goes where the terminal is low.
    rank: u8,
    /// Places for rows that it has.
    rows: usize,
}

enum Body<'a> {
    /// Lines of text.
    Text(Box<Paragraph<'a>>, u16),
    /// The rates of the last looks, and how many these are.
    Charts(u16),
    /// Lists side by side.
    Lists(Vec<List>),
}

/// One look with those before, ready to be drawn.
pub(crate) struct Picture<'a> {
    pub(crate) view: &'a TopView,
    pub(crate) history: &'a History,
    pub(crate) look: Look,
}

impl Picture<'_> {
    /// Draws it.
    pub(crate) fn draw(&self, area: Rect, buf: &mut Buffer) {
        let (sections, is_spaced, is_cut) = fit(self.sections(area), area);
        let mut heights: Vec<_> =
            sections.iter().map(|section| Constraint::Length(section.height(area.width))).collect();
        heights.extend(is_cut.then_some(Constraint::Length(1)));
        let places = Layout::vertical(heights).spacing(u16::from(is_spaced)).split(area);
        for (section, place) in sections.iter().zip(places.iter()) {
            self.draw_section(section, *place, buf);
        }
        if let (true, Some(place)) = (is_cut, places.get(sections.len())) {
            Line::styled(MORE, self.look.faint()).render(*place, buf);
        }
        // It has done its work.
        for cell in buf.content.iter_mut().filter(|cell| cell.symbol() == NO_BREAK) {
            cell.set_symbol(" ");
        }
    }

    fn draw_section(&self, section: &Section<'_>, area: Rect, buf: &mut Buffer) {
        match &section.body {
            Body::Text(text, _) => text.as_ref().render(area, buf),
            Body::Charts(_) => self.draw_charts(area, buf),
            Body::Lists(lists) => {
                let parts = Layout::horizontal(vec![Constraint::Fill(1); lists.len()]).split(area);
                for (list, place) in lists.iter().zip(parts.iter()) {
                    list.draw(section.rows, self.look, *place, buf);
                }
            }
        }
    }

    fn sections(&self, area: Rect) -> Vec<Section<'_>> {
        let (view, width) = (self.view, area.width);
        let list = |list, rank| Section::lists(vec![list], rank);
        let mut all = vec![self.head(width), self.verdict(area)];
        if !self.history.is_empty() {
            let charts = Body::Charts(u16::try_from(self.series().count()).unwrap_or(0));
            all.push(Section { body: charts, rank: 2, rows: CHART_LINES.0 });
        }
        all.push(list(self.interfaces(width), 1));
        all.push(list(self.services(width), 3));
        all.push(list(self.workers(width), 5));
        let facts = format!(
            "connections {} of {}, {} opened/s; datagrams read {}/s; grace period p99 {:.3} ms",
            view.connections,
            view.connections_limit,
            short(view.opened_per_second),
            short(view.datagrams_per_second),
            view.grace_period_p99_seconds * 1e3
        );
        all.push(Section::text(facts, Style::new(), width, 7));
        if !view.sources.is_empty() {
            let sources = format!("sources: {}", sources::line(&view.sources));
            all.push(Section::text(sources, Style::new(), width, 6));
        }
        let is_pair = !view.refusals.is_empty() && !view.first_line.is_empty();
        if width >= PAIR_WIDTH && is_pair {
            let half = width / 2 - CHART_GAP;
            let refused = self.refusals("REFUSED", &view.refusals, half);
            let before = self.refusals("AT THE INTERFACE", &view.first_line, half);
            all.push(Section::lists(vec![refused, before], 4));
        } else {
            all.push(list(self.refusals("REFUSED", &view.refusals, width), 4));
            all.push(list(self.refusals("AT THE INTERFACE", &view.first_line, width), 8));
        }
        all.retain(|section| section.rows > 0);
        all
    }

    /// The line at the top.
    fn head(&self, width: u16) -> Section<'_> {
        let up = format!("floodwall top, up {:.1} s", self.view.uptime_seconds);
        let keys = "q ends, space looks";
        let line = match usize::from(width).checked_sub(up.len() + keys.len()) {
            Some(gap) if gap > 1 => format!("{up}{}{keys}", " ".repeat(gap)),
            _ => format!("{up:<0$}", usize::from(width)),
        };
        let line = Paragraph::new(line).style(self.look.head());
        Section { body: Body::Text(Box::new(line), 1), rank: 0, rows: 1 }
    }

    /// What is wrong, whole where it takes three lines at most.
    fn verdict(&self, area: Rect) -> Section<'_> {
        let findings = &self.view.findings;
        let style = self.look.verdict(findings.first().map(|finding| finding.kind));
        let whole = Section::text(self.view.verdict.clone(), style, area.width, 0);
        if whole.rows <= 3 && whole.rows * 6 <= usize::from(area.height) {
            return whole;
        }
        Section::text(explain::short_verdict(findings), style, area.width, 0)
    }

    /// The rates that have a chart, by number: SYNs that are answered at an interface only once
    /// there were any.
    fn series(&self) -> impl Iterator<Item = usize> {
        (0..SERIES).filter(|which| which + 1 < SERIES || self.history.has(*which))
    }

    fn draw_charts(&self, area: Rect, buf: &mut Buffer) {
        let series: Vec<_> = self.series().collect();
        let is_wide = area.width >= PAIR_WIDTH;
        let places = match is_wide {
            true => Layout::horizontal(vec![Constraint::Fill(1); series.len()])
                .spacing(CHART_GAP)
                .split(area),
            false => Layout::vertical(vec![Constraint::Length(1); series.len()]).split(area),
        };
        for (which, place) in series.into_iter().zip(places.iter()) {
            self.draw_chart(which, is_wide, *place, buf);
        }
    }

    /// Name, rate and the looks before: below the name, or beside it.
    fn draw_chart(&self, which: usize, is_wide: bool, place: Rect, buf: &mut Buffer) {
        let rate = self.view.rates().get(which).copied().unwrap_or(0.0);
        let (name, style) = match which {
            0 => ("in", self.look.arrived()),
            1 => ("out", self.look.sent()),
            2 => ("refused", self.look.refused(rate)),
            _ => ("answered", self.look.answered()),
        };
        let mut text = format!(" {}", short(rate));
        let mut at = Rect { y: place.y + 1, height: place.height.saturating_sub(1), ..place };
        if is_wide {
            let bytes = self.view.bytes().get(which).map(|it| format!("  {} B/s", short(*it)));
            for more in [Some(" pkt/s".to_owned()), bytes].into_iter().flatten() {
                if name.len() + text.len() + more.len() > place.width.into() {
                    break;
                }
                text += &more;
            }
        } else {
            let width = NAMED_WIDTH.min(place.width);
            text =
                format!("{:>1$}", short(rate), usize::from(width).saturating_sub(name.len() + 1));
            at = Rect { x: place.x + width, width: place.width - width, ..place };
        }
        let name = Span::styled(name, self.look.title());
        Line::from(vec![name, Span::styled(text, style)]).render(place, buf);
        let at = at.intersection(place);
        Sparkline::default()
            .data(self.history.rates(which, at.width))
            .direction(RenderDirection::RightToLeft)
            .bar_set(self.look.bars())
            .style(style)
            .render(at, buf);
    }

    fn interfaces(&self, width: u16) -> List {
        let of = |title, rank, cell: &dyn Fn(&TopInterface) -> String| {
            column(title, rank, &self.view.interfaces, |it| (cell(it), Style::new()))
        };
        let all = vec![
            of("INTERFACE", 0, &|i| i.name.clone()),
            of("IN pkt/s", 0, &|i| short(i.in_packets)),
            of("IN B/s", 2, &|i| short(i.in_bytes)),
            of("OUT pkt/s", 1, &|i| short(i.out_packets)),
            of("OUT B/s", 4, &|i| short(i.out_bytes)),
            of("FIRST LINE", 3, &|i| i.first_line.clone()),
        ];
        List::new(all, width)
    }

    fn services(&self, width: u16) -> List {
        let of = |title, rank, cell: &dyn Fn(&TopService) -> String| {
            column(title, rank, &self.view.services, |it| (cell(it), Style::new()))
        };
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), short);
        let queue = |s: &TopService| {
            let limit = s.queue_limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            format!("{}{limit}", s.queue)
        };
        let refused = |s: &TopService| {
            let all = s.refused + s.refused_at_interface;
            (short(all), self.look.refused(all))
        };
        let all = vec![
            of("SERVICE", 0, &|s| format!("{} {}", s.kind, s.local)),
            of("CONN/s", 1, &|s| rate(s.opened)),
            of("DGRAM/s", 2, &|s| rate(s.datagrams)),
            column("REFUSED/s", 0, &self.view.services, refused),
            of("COOKIES/s", 4, &|s| rate(s.cookies.map(|sent| sent + s.answered_at_interface))),
            of("QUEUE", 3, &queue),
        ];
        List::new(all, width)
    }

    fn workers(&self, width: u16) -> List {
        let workers = &self.view.workers;
        let of = |title, rank, cell: &dyn Fn(&TopWorker) -> String| {
            column(title, rank, workers, |it| (cell(it), Style::new()))
        };
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let numbers = (0..workers.len()).map(|n| (n.to_string(), Style::new()));
        let all = vec![
            Column { title: "WORKER", cells: numbers.collect(), rank: 0 },
            of("CORE", 4, &|w| w.core.map_or_else(|| "any".to_owned(), |core| core.to_string())),
            of("BUSY", 0, &|w| percent(w.busy)),
            of("LEFT", 5, &|w| w.left.map_or_else(|| "-".to_owned(), percent)),
            of("pkt/s", 1, &|w| short(w.packets)),
            of("BACKLOG", 3, &|w| w.backlog.to_string()),
            of("WAITING", 2, &|w| w.waiting.to_string()),
        ];
        // Where it shares its core, what it left counts of the rest.
        let parts = |w: &TopWorker| [w.busy, w.left.unwrap_or(0.0).min(1.0 - w.busy).max(0.0)];
        List::new(all, width).bars(workers.iter().map(parts).collect())
    }

    fn refusals(&self, title: &'static str, all: &[TopRefusal], width: u16) -> List {
        let reasons = column(title, 0, all, |it| (it.reason.clone(), Style::new()));
        let rates =
            column("pkt/s", 0, all, |it| (short(it.per_second), self.look.refused(it.per_second)));
        List::new(vec![reasons, rates], width)
    }
}

fn column<T>(
    title: &'static str,
    rank: u8,
    all: &[T],
    cell: impl Fn(&T) -> (String, Style),
) -> Column {
    Column { title, cells: all.iter().map(cell).collect(), rank }
}

impl Section<'_> {
    fn lists(lists: Vec<List>, rank: u8) -> Self {
        let rows = lists.iter().map(List::rows).max().unwrap_or(0);
        Self { body: Body::Lists(lists), rank, rows }
    }

    /// Text in as many lines as it takes.
    fn text(text: String, style: Style, width: u16, rank: u8) -> Self {
        let text = UNITS.iter().fold(text, |text, unit| {
            text.replace(&format!(" {unit}"), &format!("{NO_BREAK}{unit}"))
        });
        let text = Paragraph::new(text).style(style).wrap(Wrap { trim: true });
        let mut trial = Buffer::empty(Rect::new(0, 0, width, 12));
        (&text).render(trial.area, &mut trial);
        let height = lines(&trial).len().max(1);
        let lines = u16::try_from(height).unwrap_or(1);
        Self { body: Body::Text(Box::new(text), lines), rank, rows: height }
    }

    fn height(&self, width: u16) -> u16 {
        match &self.body {
            Body::Text(_, lines) => *lines,
            Body::Charts(series) if width < PAIR_WIDTH => *series,
            Body::Charts(_) => u16::try_from(1 + self.rows).unwrap_or(1),
            Body::Lists(lists) => {
                lists.iter().map(|list| list.height(self.rows)).max().unwrap_or(0)
            }
        }
    }
}

/// The sections that an area has room for, whether empty lines separate them, and whether any was
/// left out. Empty lines go first, then rows of the longest list, then whole sections by their
/// rank, and those of the highest ranks before lists become very short. What remains of the room is
/// the charts'.
fn fit(mut sections: Vec<Section<'_>>, area: Rect) -> (Vec<Section<'_>>, bool, bool) {
    let (mut is_spaced, mut is_cut) = (true, false);
    loop {
        let parts = sections.len() + usize::from(is_cut);
        let gaps = if is_spaced { parts.saturating_sub(1) } else { 0 };
        let used = sections.iter().map(|it| usize::from(it.height(area.width))).sum::<usize>()
            + gaps
            + usize::from(is_cut);
        let room = usize::from(area.height);
        if used <= room {
            for charts in sections.iter_mut().filter(|it| matches!(it.body, Body::Charts(_))) {
                charts.rows = (charts.rows + room - used).min(CHART_LINES.1);
            }
            return (sections, is_spaced, is_cut);
        }
        if std::mem::take(&mut is_spaced) {
            continue;
        }
        let can_spare = sections.iter().any(|it| it.rank >= SPARED_RANK);
        let kept = if can_spare { ROWS_KEPT } else { 2 };
        let is_long = |it: &&mut Section<'_>| matches!(it.body, Body::Lists(_)) && it.rows > kept;
        if let Some(longest) = sections.iter_mut().filter(is_long).max_by_key(|it| it.rows) {
            longest.rows -= 1;
            continue;
        }
        let last = sections.iter().enumerate().filter(|(_, it)| it.rank > 0);
        let Some((at, _)) = last.max_by_key(|(at, it)| (it.rank, *at)) else {
            return (sections, is_spaced, false);
        };
        sections.remove(at);
        is_cut = true;
    }
}

/// The lines of a buffer as text, without what is empty behind them.
pub(super) fn lines(buf: &Buffer) -> Vec<String> {
    let rows = (buf.area.top()..buf.area.bottom()).map(|y| {
        let cell = |x| buf.cell((x, y)).map_or(" ", |cell| cell.symbol());
        let row: String = (buf.area.left()..buf.area.right()).map(cell).collect();
        row.trim_end().to_owned()
    });
    let mut rows: Vec<_> = rows.collect();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows
}

impl TopView {
    /// As text, for what is no terminal, or of this size.
    pub(crate) fn text(&self, size: Option<(u16, u16)>) -> String {
        let (height, width) = size.unwrap_or(TEXT_SIZE);
        let area = Rect::new(0, 0, width.max(1), height.max(1));
        let mut buf = Buffer::empty(area);
        let history = History::default();
        Picture { view: self, history: &history, look: Look::PLAIN }.draw(area, &mut buf);
        lines(&buf).join("\n") + "\n"
    }
}
