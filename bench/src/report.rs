//! Results as JSON lines, one a run, and as a Markdown table of medians over the runs of the same shape and parameters.

use std::fmt::Write;

/// A named number; the name ends in its unit.
pub type Figure = (&'static str, f64);

/// One run of one shape.
#[derive(Clone, Debug)]
pub struct Row {
    /// The shape's name.
    pub shape: &'static str,
    /// What distinguishes it from other runs of the shape; plain text without quotes.
    pub parameters: String,
    /// What was measured, in the order of the table.
    pub figures: Vec<Figure>,
}

impl Row {
    /// The row as one JSON object. `context` is the inside of an object: date, server, machine.
    #[must_use]
    pub fn json(&self, context: &str) -> String {
        let mut line = format!("{{{context},\"shape\":\"{}\",\"parameters\":\"{}\"", self.shape, self.parameters);
        for (name, value) in &self.figures {
            let value = if value.is_finite() { *value } else { 0.0 };
            let _ = write!(line, ",\"{name}\":{value:.3}");
        }
        line.push('}');
        line
    }
}

/// The medians of `rows`, in the order in which shapes first appear: closed loops in one table, everything else in another.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut kinds: Vec<&Row> = Vec::new();
    for row in rows {
        if !kinds.iter().any(|kind| is_same(kind, row)) {
            kinds.push(row);
        }
    }
    let mut loops = String::from(
        "| closed loop | operations/s | p50 µs | p90 µs | p99 µs | p99.9 µs | max µs | server CPU µs/op | server CPU % | refused |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut others = String::from("| other | figure | median | lowest | highest |\n|---|---|---|---|---|\n");
    for kind in kinds {
        let runs: Vec<&Row> = rows.iter().filter(|row| is_same(kind, row)).collect();
        let is_loop = kind.figures.iter().any(|(name, _)| *name == "p50_us");
        if is_loop {
            let _ = write!(loops, "| {} {} |", kind.shape, kind.parameters);
        }
        for (index, (name, _)) in kind.figures.iter().enumerate() {
            let mut values: Vec<f64> = runs.iter().map(|row| row.figures[index].1).collect();
            values.sort_by(f64::total_cmp);
            let (low, middle, high) = (values[0], values[values.len() / 2], values[values.len() - 1]);
            let _ = if is_loop {
                write!(loops, " {} |", number(middle))
            } else {
                let (low, middle, high) = (number(low), number(middle), number(high));
                writeln!(others, "| {} {} | {name} | {middle} | {low} | {high} |", kind.shape, kind.parameters)
            };
        }
        if is_loop {
            loops.push('\n');
        }
    }
    format!("{loops}\n{others}")
}

fn is_same(one: &Row, other: &Row) -> bool {
    one.shape == other.shape && one.parameters == other.parameters
}

/// Three digits that count.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 10.0 => format!("{value:.2}"),
        small if small < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_medians_of_equal_runs() {
        let row = |parameters: &str, value| Row { shape: "s", parameters: parameters.into(), figures: vec![("x_bytes", value)] };
        let text = table(&[row("a", 3.0), row("b", 9.0), row("a", 1.0), row("a", 200.0)]);
        assert!(text.contains("| s a | x_bytes | 3.00 | 1.00 | 200 |\n| s b | x_bytes | 9.00 | 9.00 | 9.00 |"), "{text}");
        assert_eq!(row("a", 1.0).json("\"date\":\"d\""), r#"{"date":"d","shape":"s","parameters":"a","x_bytes":1.000}"#);
    }
}
