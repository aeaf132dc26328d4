//! Draws a plot with `plotters`, and makes its colours follow the reader's scheme.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale::Scale;
use super::{Plot, Series};

/// Width of the picture in its own units: at 400 pixels a label is still 10 pixels high.
const WIDTH: u32 = 560;
/// Height of title, axes and frame; the legend adds its rows.
const CHART_HEIGHT: u32 = 340;
const ROW_HEIGHT: u32 = 24;
const FONT: u32 = 17;
/// A letter's mean width.
const LETTER: usize = 8;
/// Markers on a line: more hide it.
const MARKERS_MAX: usize = 9;

const BACK: RGBColor = RGBColor(255, 255, 255);
const INK: RGBColor = RGBColor(31, 35, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);
/// The colours of the lines, which readers with any colour vision tell apart (Okabe and Ito, 2008),
/// and what takes their place on a dark ground.
const LINES: [(RGBColor, &str); 8] = [
    (RGBColor(0, 114, 178), "#56b4e9"),
    (RGBColor(213, 94, 0), "#ff8c3a"),
    (RGBColor(0, 130, 95), "#2fd3a4"),
    (RGBColor(160, 70, 130), "#e29ac9"),
    (RGBColor(178, 120, 0), "#f0b429"),
    (RGBColor(90, 90, 90), "#b8b8b8"),
    (RGBColor(80, 60, 160), "#a79bf0"),
    (RGBColor(150, 20, 40), "#ff7b86"),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Refusal = DrawingAreaErrorKind<std::io::Error>;

/// The picture as text.
pub(super) fn svg(plot: &Plot) -> Result<String, String> {
    let columns = columns(&plot.series);
    let rows = (plot.series.len() as u32).div_ceil(columns);
    let height = CHART_HEIGHT + rows * ROW_HEIGHT + 8;
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    paint(plot, columns, &area).map_err(|refusal| refusal.to_string())?;
    drop(area);
    Ok(themed(text))
}

/// Two columns where all names fit.
fn columns(series: &[Series]) -> u32 {
    let longest = series.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    if longest * LETTER + 40 < WIDTH as usize / 2 { 2 } else { 1 }
}

fn paint(plot: &Plot, columns: u32, area: &Area<'_>) -> Result<(), Refusal> {
    area.fill(&BACK)?;
    let (chart, legend) = area.split_vertically(CHART_HEIGHT);
    let font = |size: u32| ("sans-serif", size).into_font().color(&INK);
    chart.draw(&Text::new(plot.title.clone(), (12, 8), font(FONT + 2)))?;
    chart.draw(&Text::new(plot.y.clone(), (12, 34), font(FONT)))?;
    let (x, y) = (Scale::up_to(plot.x_max), Scale::up_to(plot.y_max));
    let mut lines = ChartBuilder::on(&chart)
        .margin_top(60)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, 62)
        .set_label_area_size(LabelAreaPosition::Bottom, 54)
        .build_cartesian_2d(0.0..x.end, 0.0..y.end)?;
    lines
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(font(FONT))
        .x_desc(plot.x.clone())
        .x_label_formatter(&|value| x.label(*value))
        .y_label_formatter(&|value| y.label(*value))
        .x_labels(x.steps() + 1)
        .y_labels(y.steps() + 1)
        .draw()?;
    for (at, label) in plot.marks.iter().filter(|(at, _)| (0.0..=x.end).contains(at)) {
        let line = vec![(*at, 0.0), (*at, y.end)];
        lines.draw_series(DashedLineSeries::new(line, 4, 4, INK.stroke_width(1)))?;
        let anchor = Pos::new(HPos::Left, VPos::Top);
        lines.draw_series([EmptyElement::at((*at, y.end))
            + Text::new(label.clone(), (5, 4), font(FONT).pos(anchor))])?;
    }
    for (number, series) in plot.series.iter().enumerate() {
        let (style, points) = (colour(number), clipped(&series.points, x.end, y.end));
        lines.draw_series(LineSeries::new(points.iter().copied(), style.stroke_width(2)))?;
        let every = points.len().div_ceil(MARKERS_MAX).max(1);
        let marked = points.iter().copied().step_by(every);
        lines.draw_series(marked.map(|at| EmptyElement::at(at) + marker(number, (0, 0))))?;
    }
    names(plot, columns, &legend)
}

/// The legend: a line with its marker before each name.
fn names(plot: &Plot, columns: u32, area: &Area<'_>) -> Result<(), Refusal> {
    for (number, series) in plot.series.iter().enumerate() {
        let (row, column) = (number as u32 / columns, number as u32 % columns);
        let x = (16 + column * (WIDTH / columns)) as i32;
        let y = (row * ROW_HEIGHT + ROW_HEIGHT / 2) as i32;
        let line = vec![(x, y), (x + 26, y)];
        area.draw(&PathElement::new(line, colour(number).stroke_width(2)))?;
        area.draw(&(EmptyElement::at((x + 13, y)) + marker(number, (0, 0))))?;
        let anchor = Pos::new(HPos::Left, VPos::Center);
        let style = ("sans-serif", FONT).into_font().color(&INK).pos(anchor);
        area.draw(&Text::new(series.name.clone(), (x + 34, y), style))?;
    }
    Ok(())
}

fn colour(number: usize) -> RGBColor {
    LINES.get(number % LINES.len()).map_or(INK, |(colour, _)| *colour)
}

/// The marker of a line: four shapes, so that lines of like colours differ as well.
fn marker<'a>(number: usize, at: (i32, i32)) -> DynElement<'static, SVGBackend<'a>, (i32, i32)> {
    let style = colour(number).filled();
    match number % 4 {
        0 => Circle::new(at, 4, style).into_dyn(),
        1 => TriangleMarker::new(at, 5, style).into_dyn(),
        2 => Rectangle::new([(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)], style).into_dyn(),
        _ => Cross::new(at, 4, colour(number).stroke_width(2)).into_dyn(),
    }
}

/// The points within the axes: a line that leaves them on the right ends at the edge.
fn clipped(points: &[(f64, f64)], x_max: f64, y_max: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for &(x, y) in points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
        let y = y.clamp(0.0, y_max);
        if x <= x_max {
            kept.push((x.max(0.0), y));
            continue;
        }
        if let Some(&(before, level)) = kept.last() {
            let part = (x_max - before) / (x - before);
            kept.push((x_max, level + (y - level) * part));
        }
        break;
    }
    kept
}

/// Adds the dark scheme: the library writes each colour as an attribute, and a style rule outranks
/// an attribute.
fn themed(svg: String) -> String {
    let hex = |colour: &RGBColor| format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
    let pairs = [(BACK, "#0d1117"), (INK, "#e6edf3"), (GRID, "#30363d")];
    let rules: String = pairs
        .iter()
        .chain(&LINES)
        .map(|(light, dark)| {
            let light = hex(light);
            format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
        })
        .collect();
    let style = format!("<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n");
    match svg.find(">\n") {
        Some(end) => {
            let (head, rest) = svg.split_at(end + 2);
            format!("{head}{style}{rest}")
        }
        None => svg,
    }
}
