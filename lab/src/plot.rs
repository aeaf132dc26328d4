//! Pictures: lines over an axis, as SVG that needs nothing else. No line is distinguished by colour
//! alone.
//!
//! Called by experiments. One function; the text of the picture is escaped, the numbers are clamped
//! to the axes, and no series is too short to be drawn.

use std::fmt::Write as _;

/// One line: its name and its points, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// What stands round the lines.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Axes<'a> {
    /// Above.
    pub title: &'a str,
    /// Below.
    pub x: &'a str,
    /// At the side.
    pub y: &'a str,
    /// The greatest x; the least is 0.
    pub x_max: f64,
    /// The greatest y; the least is 0.
    pub y_max: f64,
    /// Upright dashed lines at these x, with a word each.
    pub marks: &'a [(f64, &'a str)],
}

/// Width and height of the picture, and of the frame within it.
const SIZE: (f64, f64) = (860.0, 460.0);
const FRAME: (f64, f64, f64, f64) = (64.0, 40.0, 560.0, 360.0);
/// Dark enough on white, and distinguished by their dashes as well.
const COLOURS: &[&str] =
    &["#1f5fa8", "#b3460e", "#2c7a3f", "#7a3f98", "#8a6d00", "#a3264b", "#3d3d3d", "#007a87"];
const DASHES: &[&str] = &["none", "7 3", "2 3", "9 3 2 3"];

/// Draws lines.
#[must_use]
pub fn lines(axes: &Axes<'_>, series: &[Series]) -> String {
    let (width, height) = SIZE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    grid(&mut svg, axes);
    for (number, one) in series.iter().enumerate() {
        line(&mut svg, axes, number, one);
    }
    svg.push_str("</svg>\n");
    svg
}

/// A point of the data as a point of the picture.
fn place(axes: &Axes<'_>, (x, y): (f64, f64)) -> (f64, f64) {
    let (left, top, wide, high) = FRAME;
    let part = |value: f64, max: f64| if max > 0.0 { (value / max).clamp(0.0, 1.0) } else { 0.0 };
    (left + wide * part(x, axes.x_max), top + high * (1.0 - part(y, axes.y_max)))
}

/// Title, frame, ticks and marks.
fn grid(svg: &mut String, axes: &Axes<'_>) {
    let (left, top, wide, high) = FRAME;
    let (bottom, middle) = (top + high, left + wide / 2.0);
    text(svg, (middle, 22.0), "middle", "", axes.title);
    text(svg, (middle, bottom + 44.0), "middle", "", axes.x);
    text(svg, (16.0, top + high / 2.0), "middle", &turned(16.0, top + high / 2.0), axes.y);
    for tick in 0..=4 {
        let part = f64::from(tick) / 4.0;
        let (x, _) = place(axes, (axes.x_max * part, 0.0));
        let (_, y) = place(axes, (0.0, axes.y_max * part));
        rule(svg, (x, top), (x, bottom), "#ddd", "none");
        rule(svg, (left, y), (left + wide, y), "#ddd", "none");
        text(svg, (x, bottom + 18.0), "middle", "", &format!("{}", axes.x_max * part));
        text(svg, (left - 8.0, y + 4.0), "end", "", &format!("{}", axes.y_max * part));
    }
    for &(x, word) in axes.marks {
        let (x, _) = place(axes, (x, 0.0));
        rule(svg, (x, top), (x, bottom), "#999", "4 4");
        text(svg, (x + 4.0, top + 12.0), "start", "", word);
    }
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"{high}\" fill=\"none\" \
         stroke=\"#333\"/>"
    );
}

fn turned(x: f64, y: f64) -> String {
    format!(" transform=\"rotate(-90 {x} {y})\"")
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, dash: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
         stroke-dasharray=\"{dash}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, at: (f64, f64), anchor: &str, more: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\"{more}>{words}</text>",
        at.0, at.1
    );
}

/// One series and its row of the legend.
fn line(svg: &mut String, axes: &Axes<'_>, number: usize, series: &Series) {
    let colour = COLOURS.get(number % COLOURS.len()).copied().unwrap_or("#000");
    let dash = DASHES.get(number % DASHES.len()).copied().unwrap_or("none");
    let mut points = String::new();
    for point in &series.points {
        let (x, y) = place(axes, *point);
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" \
         stroke-dasharray=\"{dash}\"/>",
        points.trim_end()
    );
    let (left, top, wide, _) = FRAME;
    let (x, y) = (left + wide + 14.0, top + 10.0 + 20.0 * number as f64);
    rule(svg, (x, y), (x + 24.0, y), colour, dash);
    text(svg, (x + 30.0, y + 4.0), "start", "", &series.name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_in_the_frame_and_words_are_escaped() {
        let axes = Axes { title: "a < b & c", x: "x", y: "y", x_max: 10.0, y_max: 1.0, marks: &[] };
        let points = vec![(0.0, 0.0), (10.0, 1.0), (20.0, -5.0)];
        let svg = lines(&axes, &[Series { name: "s".to_owned(), points }]);
        assert!(svg.contains("points=\"64.0,400.0 624.0,40.0 624.0,400.0\""), "{svg}");
        assert!(svg.contains("a &lt; b &amp; c") && svg.ends_with("</svg>\n"));
        assert_eq!(lines(&Axes { x_max: 0.0, ..axes }, &[]).matches("NaN").count(), 0);
    }
}
