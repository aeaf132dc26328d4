//! Round ticks: the steps at which an axis is labelled.

/// About so many steps have an axis.
const STEPS: f64 = 5.0;

/// An axis from 0 to a round end, and its step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scale {
    pub(super) end: f64,
    pub(super) step: f64,
}

impl Scale {
    /// The least round axis that holds `max`; up to 1 where `max` is no positive number.
    pub(super) fn up_to(max: f64) -> Self {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let raw = max / STEPS;
        let power = 10_f64.powf(raw.log10().floor());
        let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
        let step = factors.iter().map(|factor| factor * power).find(|step| *step >= raw * 0.999);
        let step = step.unwrap_or(10.0 * power);
        Self { end: (max / step * 0.999).ceil() * step, step }
    }

    /// How many steps it has.
    pub(super) fn steps(self) -> usize {
        (self.end / self.step).round() as usize
    }

    /// A tick's label: as many decimals as the step needs, thousands and millions by letter.
    pub(super) fn label(self, value: f64) -> String {
        let (unit, letter) = match self.end {
            end if end >= 1e6 => (1e6, " M"),
            end if end >= 1e4 => (1e3, " k"),
            _ => (1.0, ""),
        };
        let (value, step) = (value / unit, self.step / unit);
        let decimals = (0..6).find(|n| {
            let scaled = step * 10_f64.powi(*n);
            (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1.0)
        });
        let decimals = decimals.unwrap_or(6) as usize;
        let text = format!("{value:.decimals$}");
        if text.trim_start_matches(['0', '.']).is_empty() { "0".to_owned() } else { text + letter }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        for (max, end, step) in [
            (1.0, 1.0, 0.2),
            (1.2, 1.25, 0.25),
            (8.689_973, 10.0, 2.0),
            (499.0, 500.0, 100.0),
            (1300.0, 1500.0, 500.0),
            (64.0, 80.0, 20.0),
            (0.0, 1.0, 0.2),
        ] {
            let scale = Scale::up_to(max);
            assert!((scale.end - end).abs() < 1e-9, "{max}: {scale:?}");
            assert!((scale.step - step).abs() < 1e-9, "{max}: {scale:?}");
        }
    }

    #[test]
    fn labels_have_the_decimals_of_their_step() {
        assert_eq!(Scale::up_to(1.2).label(0.5), "0.50");
        assert_eq!(Scale::up_to(1.0).label(0.6), "0.6");
        assert_eq!(Scale::up_to(2_000_000.0).label(500_000.0), "0.5 M");
        assert_eq!(Scale::up_to(60_000.0).label(20_000.0), "20 k");
        assert_eq!(Scale::up_to(60_000.0).label(0.0), "0");
    }
}
