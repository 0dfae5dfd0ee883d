//! A figure as a drawing: its series by the points of the axis.

use std::path::Path;

use plotters::prelude::*;

use super::spec::{Figure, Kind};
use super::value::{Measured, Value};

/// The size of a drawing, in pixels.
const SIZE: (u32, u32) = (760, 480);

/// Draws a figure into a file.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(figure: &Figure, measured: &Measured, path: &Path) -> anyhow::Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    // An axis of logarithms has no nought.
    let (first, last) = (measured.at[0].max(1) as f64, measured.at[measured.at.len() - 1] as f64);
    let rates = measured.values.iter().flatten();
    let shown = |value: &Value| match figure.kind {
        Kind::Queueing => value.mean,
        _ => value.rate,
    };
    let positive = rates.map(shown).filter(|rate| *rate > 0.0);
    let (low, high) =
        positive.fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(rate), high.max(rate)));
    anyhow::ensure!(low <= high, "there is nothing to draw");
    let (what, of) = match figure.kind {
        Kind::Bench => (figure.axis.as_deref().unwrap_or("clients"), "acquisitions a second"),
        Kind::Queueing => ("clients", "mean wait for a core, in nanoseconds"),
        Kind::FalseConflicts => ("units of a range", "false conflicts, of all pairs"),
        Kind::Held => ("ranges held", "nanoseconds of one more and its release"),
        Kind::Fs => ("clients", "operations, or bytes, a second"),
        Kind::Spreading => ("units, as a power of two", "acquisitions a second"),
        #[cfg(feature = "ycsb")]
        Kind::Ycsb => (figure.axis.as_deref().unwrap_or("clients"), "operations a second"),
    };
    let x = (first..last.max(first + 1.0)).log_scale().base(2.0);
    let y = (low / 2.0..high * 2.0).log_scale();
    let mut chart = ChartBuilder::on(&root)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(x, y)?;
    chart.configure_mesh().x_desc(what).y_desc(of).draw()?;
    for (number, (series, values)) in figure.series.iter().zip(&measured.values).enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let points = measured.at.iter().map(|&at| at.max(1) as f64).zip(values.iter().map(shown));
        let points = points.filter(|(_, rate)| *rate > 0.0);
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .position(SeriesLabelPosition::LowerRight)
        .draw()?;
    Ok(root.present()?)
}
