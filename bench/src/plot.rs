//! The plot of the README: rates as bars, one panel a shape, as SVG text.

use std::fmt::Write as _;

use crate::verdict::Runs;

/// Panels, where there are runs of them: shape and title.
const PANELS: [(&str, &str); 8] = [
    ("rpc 32x4", "RPC, 32 callers, 4 responders: calls/s"),
    ("rpc 256x4", "RPC, 256 callers, 4 responders: calls/s"),
    ("oneway b1 64", "one-way, 64 B, one at a time: messages/s"),
    ("oneway b100 64", "one-way, 64 B, batches of 100: messages/s"),
    ("leased b100 64", "the same, leased and acked: messages/s"),
    ("fanout x8 b100", "fan-out to 8, batches of 100: deliveries/s"),
    ("inboxes 100000", "inboxes used once: inboxes/s"),
    ("leased b1 64", "one-way, leased and acked, one at a time: messages/s"),
];
/// Not brokers: left out, as they would squeeze the rest.
const LIMITS: [&str; 2] = ["relay", "echo"];

const PANEL_WIDTH: usize = 420;
const BAR_STEP: usize = 20;
const LABEL_WIDTH: usize = 130;
const VALUE_WIDTH: usize = 70;
const TITLE_HEIGHT: usize = 34;

/// The plot; None: no panel has runs.
#[must_use]
pub fn svg(runs: &Runs, caption: &str) -> Option<String> {
    let panels: Vec<Panel> = PANELS.iter().filter_map(|(shape, title)| Panel::new(runs, shape, title)).collect();
    let rows: Vec<usize> = panels.chunks(2).map(|pair| pair.iter().map(Panel::height).max().unwrap_or(0)).collect();
    let (width, height) = (2 * PANEL_WIDTH + 20, rows.iter().sum::<usize>() + 40);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    let mut top = 0;
    for (pair, row_height) in panels.chunks(2).zip(&rows) {
        for (column, panel) in pair.iter().enumerate() {
            panel.draw(&mut text, 10 + column * PANEL_WIDTH, top);
        }
        top += row_height;
    }
    let _ = write!(text, "<text x=\"10\" y=\"{}\" fill=\"#666666\" font-size=\"11\">{}</text>\n</svg>\n", height - 14, escaped(caption));
    (!panels.is_empty()).then_some(text)
}

#[derive(Debug)]
struct Panel {
    title: &'static str,
    bars: Vec<(String, f64)>,
}

impl Panel {
    fn new(runs: &Runs, shape: &str, title: &'static str) -> Option<Self> {
        let peers = runs.peers_of(shape).filter(|peer| !LIMITS.contains(peer));
        let bars: Vec<_> = peers.filter_map(|peer| Some((peer.to_owned(), runs.median(shape, peer, "rate_per_s")?))).collect();
        (!bars.is_empty()).then_some(Self { title, bars })
    }

    fn height(&self) -> usize {
        TITLE_HEIGHT + self.bars.len() * BAR_STEP + 10
    }

    fn draw(&self, text: &mut String, left: usize, top: usize) {
        let most = self.bars.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
        let room = (PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH) as f64;
        let _ = writeln!(text, "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\" fill=\"#222222\">{}</text>", top + 22, self.title);
        for (index, (peer, rate)) in self.bars.iter().enumerate() {
            let (y, x) = (top + TITLE_HEIGHT + index * BAR_STEP, left + LABEL_WIDTH);
            let (width, color) = (rate / most * room, if peer.starts_with("mayfly") { "#1f77b4" } else { "#b5bcc4" });
            let _ = writeln!(text, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#222222\">{}</text>", x - 6, y + 12, escaped(peer));
            let _ = writeln!(text, "<rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"15\" fill=\"{color}\"/>");
            let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{}\" fill=\"#222222\">{}</text>", x as f64 + width + 5.0, y + 12, short(*rate));
        }
    }
}

/// A rate in few characters.
fn short(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0} k", rate / 1e3),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        _ => format!("{rate:.0}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_limits_are_left_out() {
        let line = |peer: &str, rate: f64| {
            format!("{{\"pinned\":true,\"round\":1,\"shape\":\"rpc 32x4\",\"parameters\":\"{peer}\",\"rate_per_s\":{rate}}}\n")
        };
        let runs = Runs::read(&(line("mayfly", 40_000.0) + &line("nats", 10_000.0) + &line("echo", 900_000.0)), true);
        let text = svg(&runs, "a < b").expect("a panel");
        assert!(text.contains("width=\"220.0\"") && text.contains("width=\"55.0\"") && !text.contains("echo"), "{text}");
        assert!(text.contains(">40 k<") && text.contains("a &lt; b"), "{text}");
        assert!(svg(&Runs::default(), "").is_none());
    }
}
