//! Plots: lines over an axis, drawn as SVG that needs nothing else.
//!
//! Called by experiments, which give the data, and by `keep.rs`, which writes both the picture and
//! its data, so that a kept result can be drawn again. No line is told apart by colour alone: each
//! has a marker of its own. The picture follows the reader's light or dark scheme.

mod draw;
mod scale;

use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// One line: its name and its points, in order.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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
    /// Below, with the unit.
    pub x: &'a str,
    /// Over the vertical axis, with the unit.
    pub y: &'a str,
    /// The greatest x; the least is 0. The axis ends at the next tick.
    pub x_max: f64,
    /// The greatest y; the least is 0. The axis ends at the next tick.
    pub y_max: f64,
    /// Upright dashed lines at these x, with a label each.
    pub marks: &'a [(f64, &'a str)],
}

/// A plot's data, before it is drawn.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Plot {
    /// Above.
    pub title: String,
    /// Below, with the unit.
    pub x: String,
    /// Over the vertical axis, with the unit.
    pub y: String,
    /// The greatest x; the least is 0.
    pub x_max: f64,
    /// The greatest y; the least is 0.
    pub y_max: f64,
    /// Upright dashed lines at these x, with a label each.
    pub marks: Vec<(f64, String)>,
    /// The lines.
    pub series: Vec<Series>,
}

/// A plot of these lines.
#[must_use]
pub fn lines(axes: &Axes<'_>, series: &[Series]) -> Plot {
    Plot {
        title: axes.title.to_owned(),
        x: axes.x.to_owned(),
        y: axes.y.to_owned(),
        x_max: axes.x_max,
        y_max: axes.y_max,
        marks: axes.marks.iter().map(|&(x, label)| (x, label.to_owned())).collect(),
        series: series.to_vec(),
    }
}

impl Plot {
    /// The picture.
    ///
    /// # Errors
    /// The plot library refuses the data: an axis without a finite positive end is drawn up to 1
    /// instead, so that none is known.
    pub fn svg(&self) -> Result<String, LabError> {
        draw::svg(self).map_err(LabError::Plot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(x_max: f64, points: Vec<(f64, f64)>) -> Plot {
        let axes = Axes { title: "a < b & c", x: "x", y: "y", x_max, y_max: 1.0, marks: &[] };
        lines(&axes, &[Series { name: "first".to_owned(), points }])
    }

    #[test]
    fn labels_are_escaped_and_both_schemes_are_there() {
        let svg = plot(10.0, vec![(0.0, 0.0), (10.0, 1.0)]).svg().expect("drawn");
        assert!(svg.contains("a &lt; b &amp; c") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
        assert!(svg.contains("first"), "the legend names the line: {svg}");
    }

    #[test]
    fn odd_data_is_drawn_without_odd_numbers() {
        for x_max in [0.0, f64::NAN, f64::INFINITY, -3.0, 1e-9, 1e12] {
            let points = vec![(f64::NAN, 1.0), (0.0, f64::INFINITY), (5.0, -1.0), (1e300, 0.5)];
            let svg = plot(x_max, points).svg().expect("drawn");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{x_max}: {svg}");
        }
        assert!(plot(1.0, Vec::new()).svg().expect("drawn").contains("</svg>"));
    }

    #[test]
    fn data_outlives_a_round_of_json() {
        let plot = plot(4.0, vec![(0.0, 0.25), (4.0, 1.0)]);
        let text = serde_json::to_string(&plot).expect("JSON");
        assert_eq!(serde_json::from_str::<Plot>(&text).expect("the same"), plot);
    }
}
