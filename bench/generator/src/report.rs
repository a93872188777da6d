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
    fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(figure, _)| *figure == name).map(|(_, value)| *value)
    }

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

/// Columns of the table of loops: a figure's name and its title.
const COLUMNS: [(&str, &str); 10] = [
    ("rate_per_s", "operations/s"),
    ("p50_us", "p50 µs"),
    ("p90_us", "p90 µs"),
    ("p99_us", "p99 µs"),
    ("p999_us", "p99.9 µs"),
    ("max_us", "max µs"),
    ("server_cpu_us", "server CPU µs/op"),
    ("server_cpu_percent", "server CPU %"),
    ("load_cpu_percent", "load CPU %"),
    ("refused", "refused"),
];

/// The medians of `rows`, in the order in which shapes first appear: loops in one table, everything else in another.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut kinds: Vec<&Row> = Vec::new();
    for row in rows {
        if !kinds.iter().any(|kind| is_same(kind, row)) {
            kinds.push(row);
        }
    }
    let (loops, others): (Vec<&Row>, Vec<&Row>) = kinds.into_iter().partition(|row| row.figure("p50_us").is_some());
    let tables = [loop_table(&loops, rows), other_table(&others, rows)];
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

fn loop_table(kinds: &[&Row], rows: &[Row]) -> Option<String> {
    let has = |figure: &str| kinds.iter().any(|kind| kind.figure(figure).is_some());
    let columns: Vec<_> = COLUMNS.iter().filter(|(figure, _)| has(figure)).collect();
    let mut text = String::from("| loop |");
    columns.iter().for_each(|(_, title)| text.push_str(&format!(" {title} |")));
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(columns.len()));
    for kind in kinds {
        let _ = write!(text, "| {} {} |", kind.shape, kind.parameters);
        for (figure, _) in &columns {
            let middle = spread(kind, rows, figure).map_or_else(String::new, |(_, middle, _)| number(middle));
            let _ = write!(text, " {middle} |");
        }
        text.push('\n');
    }
    (!kinds.is_empty()).then_some(text)
}

fn other_table(kinds: &[&Row], rows: &[Row]) -> Option<String> {
    let mut text = String::from("| other | figure | median | lowest | highest |\n|---|---|---|---|---|\n");
    for kind in kinds {
        for (figure, _) in &kind.figures {
            let Some((low, middle, high)) = spread(kind, rows, figure) else { continue };
            let (low, middle, high) = (number(low), number(middle), number(high));
            let _ = writeln!(text, "| {} {} | {figure} | {middle} | {low} | {high} |", kind.shape, kind.parameters);
        }
    }
    (!kinds.is_empty()).then_some(text)
}

/// The lowest, the median and the highest of a figure over the runs that are like `kind`.
fn spread(kind: &Row, rows: &[Row], figure: &str) -> Option<(f64, f64, f64)> {
    let runs = rows.iter().filter(|row| is_same(kind, row));
    let mut values: Vec<f64> = runs.filter_map(|row| row.figure(figure)).collect();
    values.sort_by(f64::total_cmp);
    Some((*values.first()?, *values.get(values.len() / 2)?, *values.last()?))
}

fn is_same(one: &Row, other: &Row) -> bool {
    one.shape == other.shape && one.parameters == other.parameters
}

/// Three digits that count.
#[must_use]
pub fn number(value: f64) -> String {
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
        assert!(!text.contains("| loop |"), "{text}");
        let run = |rate| Row { shape: "rpc", parameters: "plain".into(), figures: vec![("rate_per_s", rate), ("p50_us", 2.0), ("x", 1.0)] };
        let text = table(&[run(1.0), run(5.0), run(4.0)]);
        assert_eq!(text, "| loop | operations/s | p50 µs |\n|---|---|---|\n| rpc plain | 4.00 | 2.00 |\n");
        assert_eq!(row("a", 1.0).json("\"date\":\"d\""), r#"{"date":"d","shape":"s","parameters":"a","x_bytes":1.000}"#);
    }
}
