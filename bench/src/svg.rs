//! Line charts as SVG, below each other.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
/// The margins of the plotted area: left, right, top, bottom.
const MARGINS: [f64; 4] = [70.0, 150.0, 34.0, 46.0];
const COLORS: [&str; 4] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"];
/// Marks on a linear axis, about.
const TICKS: f64 = 6.0;

/// One chart.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// Vertical lines with their labels.
    pub(crate) marks: Vec<(f64, String)>,
}

/// An axis with its label.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) scale: Scale,
}

/// How values are placed on an axis; a linear one begins at 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
}

/// A named line through points.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The charts as one document.
pub(crate) fn document(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.iter().map(|_| 1.0).sum::<f64>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let mut top = 0.0;
    for chart in charts {
        let _infallible = write!(svg, "<g transform=\"translate(0 {top})\">\n{}</g>\n", chart.draw());
        top += HEIGHT;
    }
    svg + "</svg>\n"
}

/// An axis with the range of its values and where it begins and ends.
struct Span {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Span {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, [from, to]: [f64; 2]) -> Self {
        let values = values.filter(|value| scale == Scale::Linear || *value > 0.0);
        let (least, most) = values.fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
        let [least, most] = match scale {
            Scale::Linear => [0.0, most.max(f64::MIN_POSITIVE)],
            Scale::Logarithmic if least <= most => {
                let [low, high] = [least.log10().floor(), most.log10().ceil()];
                [low, high.max(low + 1.0)].map(|exponent| 10_f64.powf(exponent))
            }
            Scale::Logarithmic => [1.0, 10.0],
        };
        Self { scale, least, most, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => value / self.most,
            Scale::Logarithmic => {
                (value.max(self.least) / self.least).log10() / (self.most / self.least).log10()
            }
        };
        self.from + (self.to - self.from) * part
    }

    fn ticks(&self) -> Vec<f64> {
        let step = match self.scale {
            Scale::Linear => {
                let rough = self.most / TICKS;
                let power = 10_f64.powf(rough.log10().floor());
                [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough)
            }
            Scale::Logarithmic => None,
        };
        let next = |value: &f64| Some(step.map_or(value * 10.0, |step| value + step));
        let end = self.most * 1.000_001;
        std::iter::successors(Some(self.least), next).take_while(|value| *value <= end).collect()
    }
}

impl Chart {
    fn draw(&self) -> String {
        let [left, right, above, below] = MARGINS;
        let [end, base] = [WIDTH - right, HEIGHT - below];
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Span::new(self.x.scale, points().map(|point| point.0), [left, end]);
        let y = Span::new(self.y.scale, points().map(|point| point.1), [base, above]);
        let [center, middle] = [f64::midpoint(left, end), f64::midpoint(above, base)];
        let mut out = format!(
            "<text x=\"{left}\" y=\"18\" font-weight=\"bold\">{}</text>\n\
             <text x=\"{center}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"14\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle})\">{}</text>\n",
            self.title,
            HEIGHT - 10.0,
            self.x.label,
            self.y.label,
        );
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        for value in x.ticks() {
            let at = x.place(value);
            line(format!("<path d=\"M{at:.1} {above}V{base}\" stroke=\"#e4e4e4\"/>"));
            line(format!(
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                base + 16.0,
                number(value)
            ));
        }
        for value in y.ticks() {
            let at = y.place(value);
            line(format!("<path d=\"M{left} {at:.1}H{end}\" stroke=\"#e4e4e4\"/>"));
            let below = at + 4.0;
            line(format!(
                "<text x=\"{}\" y=\"{below:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                number(value)
            ));
        }
        for (value, label) in &self.marks {
            let at = x.place(*value);
            line(format!("<path d=\"M{at:.1} {above}V{base}\" stroke=\"#888\" stroke-dasharray=\"3 3\"/>"));
            line(format!(
                "<text x=\"{:.1}\" y=\"{}\" font-size=\"9\" fill=\"#555\">{label}</text>",
                at + 2.0,
                above - 4.0
            ));
        }
        let mut legend = above + 10.0;
        for (Line { name, points }, color) in self.lines.iter().zip(COLORS.iter().cycle()) {
            let path = points.iter().map(|(a, b)| format!("{:.1},{:.1}", x.place(*a), y.place(*b)));
            let path = path.collect::<Vec<_>>().join(" ");
            line(format!(
                "<polyline points=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
            ));
            for (a, b) in points {
                let [a, b] = [x.place(*a), y.place(*b)];
                line(format!("<circle cx=\"{a:.1}\" cy=\"{b:.1}\" r=\"2.5\" fill=\"{color}\"/>"));
            }
            line(format!("<text x=\"{}\" y=\"{legend}\" fill=\"{color}\">{name}</text>", end + 10.0));
            legend += 18.0;
        }
        out
    }
}

/// A number at a mark, with a thousands separator.
fn number(value: f64) -> String {
    if value != 0.0 && value < 1.0 {
        return format!("{value:.3}").trim_end_matches('0').to_owned();
    }
    let digits = format!("{value:.0}");
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_are_equally_far_apart() {
        let span = Span::new(Scale::Logarithmic, [1.0, 9_000.0].into_iter(), [0.0, 400.0]);
        assert_eq!(
            span.ticks().into_iter().map(|value| number(span.place(value))).collect::<Vec<_>>(),
            ["0", "100", "200", "300", "400"]
        );
    }

    #[test]
    fn linear_axis_begins_at_zero_with_round_steps() {
        let span = Span::new(Scale::Linear, [30.0, 47.0].into_iter(), [100.0, 6.0]);
        assert_eq!(span.ticks().into_iter().map(number).collect::<Vec<_>>(), ["0", "10", "20", "30", "40"]);
        assert_eq!([0.0, 23.5, 47.0].map(|value| number(span.place(value))), ["100", "53", "6"]);
    }

    #[test]
    fn every_line_has_its_points_and_its_name() {
        let axis = |scale| Axis { label: "label", scale };
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(1.0, 2.0), (10.0, 4.0)] };
        let chart = Chart {
            title: "title",
            x: axis(Scale::Logarithmic),
            y: axis(Scale::Linear),
            lines: vec![line("first"), line("second")],
            marks: vec![(10.0, "mark".to_owned())],
        };
        let svg = document(&[chart]);
        assert_eq!(svg.matches("points=\"70.0,144.0 570.0,34.0\"").count(), 2, "{svg}");
        assert!(svg.contains("rotate(-90 14 144)"), "{svg}");
        assert!(
            ["first", "second", "mark", "1", "10"].iter().all(|text| svg.contains(&format!(">{text}<"))),
            "{svg}"
        );
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0.0, 0.05, 999.0, 12_345.0].map(number), ["0", "0.05", "999", "12,345"]);
    }
}
