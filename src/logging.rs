//! The process's log: one line an entry on standard error, behind the crate `log`.
//!
//! Text: `2026-11-30T13:35:00.123Z INFO  mayfly::runtime: listening address=127.0.0.1:6632 cores=2`; JSON: the same as one object. Times are
//! UTC. Whatever a message or a value holds, a line stays one line and sends no control code to a terminal: control characters, line
//! and paragraph separators and bidirectional overrides are escaped.
//!
//! An entry is written with one `write`; a reader that does not keep up slows the writer down, so nothing is logged per request.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::SystemTime;

pub use log::LevelFilter as Level;
use log::kv::{Key, Value, VisitSource, VisitValue};
use log::{Log, Metadata, Record};

/// The shape of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Words and `key=value` fields.
    Text,
    /// One JSON object: `time`, `level`, `target`, `message`, then the fields.
    Json,
}

/// Makes this the process's logger. A second call changes nothing.
pub fn start(level: Level, format: Format) {
    if log::set_boxed_logger(Box::new(StderrLog { format })).is_ok() {
        log::set_max_level(level);
    }
}

struct StderrLog {
    format: Format,
}

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // What the libraries of the log tell as news is none to whoever runs a node.
        let is_news = metadata.level() > log::Level::Warn && metadata.target().starts_with("raft_engine");
        metadata.level() <= log::max_level() && !is_news
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let mut line = render(self.format, SystemTime::now(), record);
            line.push('\n');
            // There is nowhere left to say that the log cannot be written.
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// One entry without its line break.
fn render(format: Format, now: SystemTime, record: &Record<'_>) -> String {
    let time = humantime::format_rfc3339_millis(now);
    let mut line = String::with_capacity(160);
    match format {
        Format::Text => {
            let _ = write!(line, "{time} {:<5} {}: ", record.level(), record.target());
            escape(&record.args().to_string(), TEXT, &mut line);
            let _ = record.key_values().visit(&mut TextFields(&mut line));
        }
        Format::Json => {
            let _ = write!(line, r#"{{"time":"{time}","level":"{}","target":"#, record.level().as_str().to_ascii_lowercase());
            json_string(record.target(), &mut line);
            line.push_str(r#","message":"#);
            json_string(&record.args().to_string(), &mut line);
            let _ = record.key_values().visit(&mut JsonFields(&mut line));
            line.push('}');
        }
    }
    line
}

/// Appends ` key=value`, the value in quotes when it would not read as one word.
struct TextFields<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for TextFields<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        let text = value.to_string();
        let is_word = !text.is_empty() && !text.contains([' ', '"', '=', '\\']) && !text.contains(is_unprintable);
        self.0.push(' ');
        escape(key.as_str(), TEXT, self.0);
        self.0.push('=');
        if is_word {
            self.0.push_str(&text);
        } else {
            self.0.push('"');
            escape(&text, QUOTED_TEXT, self.0);
            self.0.push('"');
        }
        Ok(())
    }
}

/// Appends `,"key":value`: numbers and booleans as such, everything else as a string.
struct JsonFields<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for JsonFields<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        self.0.push(',');
        json_string(key.as_str(), self.0);
        self.0.push(':');
        value.visit(JsonValue(self.0))
    }
}

struct JsonValue<'a>(&'a mut String);

impl<'v> VisitValue<'v> for JsonValue<'_> {
    fn visit_any(&mut self, value: Value<'_>) -> Result<(), log::kv::Error> {
        json_string(&value.to_string(), self.0);
        Ok(())
    }

    fn visit_u64(&mut self, value: u64) -> Result<(), log::kv::Error> {
        Ok(write!(self.0, "{value}")?)
    }

    fn visit_i64(&mut self, value: i64) -> Result<(), log::kv::Error> {
        Ok(write!(self.0, "{value}")?)
    }

    fn visit_f64(&mut self, value: f64) -> Result<(), log::kv::Error> {
        if value.is_finite() { Ok(write!(self.0, "{value}")?) } else { self.visit_any(Value::from(value)) }
    }

    fn visit_bool(&mut self, value: bool) -> Result<(), log::kv::Error> {
        Ok(write!(self.0, "{value}")?)
    }
}

fn json_string(text: &str, out: &mut String) {
    out.push('"');
    escape(text, JSON, out);
    out.push('"');
}

/// Characters that end a line, move a terminal's cursor or turn the direction of what follows.
fn is_unprintable(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How a character is escaped, when it is.
type Escape = fn(char, &mut String);

/// Text outside quotes: only what is unprintable.
const TEXT: Escape = |character, out| {
    if is_unprintable(character) {
        out.extend(character.escape_default());
    } else {
        out.push(character);
    }
};

/// Text between quotes: quotes and backslashes too.
const QUOTED_TEXT: Escape = |character, out| {
    if matches!(character, '"' | '\\') {
        out.push('\\');
    }
    TEXT(character, out);
};

/// A JSON string: every unprintable character lies in the basic plane, so four hexadecimal digits name it.
const JSON: Escape = |character, out| {
    if is_unprintable(character) {
        let _ = write!(out, "\\u{:04x}", u32::from(character));
    } else {
        QUOTED_TEXT(character, out);
    }
};

fn escape(text: &str, how: Escape, out: &mut String) {
    text.chars().for_each(|character| how(character, out));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn entry(format: Format, message: &str, fields: &[(&str, Value<'_>)]) -> String {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_796_045_700_123);
        let mut builder = Record::builder();
        builder.level(log::Level::Info).target("mayfly::test").key_values(&fields);
        render(format, now, &builder.args(format_args!("{message}")).build())
    }

    #[test]
    fn text_lines_carry_time_level_target_message_and_fields() {
        let fields = [("rings", Value::from(4_u64)), ("name", Value::from("two words")), ("empty", Value::from(""))];
        let line = entry(Format::Text, "rings handed over", &fields);
        assert_eq!(line, r#"2026-11-30T13:35:00.123Z INFO  mayfly::test: rings handed over rings=4 name="two words" empty="""#);
    }

    #[test]
    fn json_lines_keep_numbers_and_booleans() {
        let fields =
            [("rings", Value::from(4_u64)), ("ready", Value::from(true)), ("share", Value::from(0.5)), ("odd", Value::from(f64::NAN))];
        let line = entry(Format::Json, "done", &fields);
        let expected = concat!(
            r#"{"time":"2026-11-30T13:35:00.123Z","level":"info","target":"mayfly::test","message":"done","#,
            r#""rings":4,"ready":true,"share":0.5,"odd":"NaN"}"#
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn nothing_logged_can_forge_a_line_or_reach_the_terminal() {
        let hostile = "a\nINFO forged\r\u{1b}[2J\u{9b}31m\u{7f}\u{2028}\u{202e}\0\t\"\\";
        for format in [Format::Text, Format::Json] {
            let line = entry(format, hostile, &[("name", Value::from(hostile))]);
            assert!(!line.contains(is_unprintable), "{line:?}");
        }
        let text = entry(Format::Text, "x", &[("name", Value::from("a\" forged=\"1"))]);
        assert!(text.ends_with(r#"name="a\" forged=\"1""#), "{text}");
        let json = entry(Format::Json, hostile, &[]);
        assert!(json.ends_with(r#""message":"a\u000aINFO forged\u000d\u001b[2J\u009b31m\u007f\u2028\u202e\u0000\u0009\"\\"}"#), "{json}");
    }
}
