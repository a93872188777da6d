//! What was typed and what it means, as tables.

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn read(typed: Pairs<'_>, environment: Pairs<'_>) -> Result<Settings, Unreadable> {
    let find = |pairs: Pairs<'_>, name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, text)| OsString::from(text));
    Settings::read(|flag| find(typed, flag), |name| find(environment, name))
}

fn line(typed: Pairs<'_>, environment: Pairs<'_>) -> String {
    read(typed, environment).expect_err("unreadable").to_string()
}

#[test]
fn flag_beats_environment_beats_default() {
    let environment = [("MAYFLY_LEASE_S", "20"), ("QUEEN_EPHEMERAL_LEASE_S", "10")];
    let lease = |typed, environment| read(typed, environment).map(|settings| settings.lease_seconds);
    assert_eq!(lease(&[("lease-s", "40")], &environment), Ok(40));
    assert_eq!(lease(&[], &environment), Ok(20));
    assert_eq!(lease(&[], &environment[1..]), Ok(10));
    assert_eq!(lease(&[], &[]), Ok(30));
}

#[test]
fn an_empty_variable_is_unset_and_an_empty_flag_is_not() {
    assert_eq!(read(&[], &[("QUEEN_EPHEMERAL_RATE", ""), ("PORT", ""), ("MAYFLY_LISTEN", "")]), Ok(Settings::default()));
    assert_eq!(line(&[("rate", "")], &[]), "--rate: cannot read \"\"; expected a whole number of messages a second, 0 for unlimited");
}

#[test]
fn every_published_name_is_read() {
    let environment = [
        ("QUEEN_EPHEMERAL_MAX_BYTES", "1000000"),
        ("QUEEN_EPHEMERAL_QUEUE_MAX_BYTES", "1MiB"),
        ("QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH", "7"),
        ("QUEEN_EPHEMERAL_LEASE_S", "9"),
        ("QUEEN_EPHEMERAL_RETRY_LIMIT", "2"),
        ("QUEEN_EPHEMERAL_IMPLICIT_IDLE_S", "1.5"),
        ("QUEEN_EPHEMERAL_RATE", "5000"),
        ("QUEEN_EPHEMERAL_BURST", "10001"),
        ("QUEEN_TENANCY_HEADER", "true"),
        ("QUEEN_EPHEMERAL_REQUIRE_GRANT", "false"),
        ("QUEEN_MAX_BODY_BYTES", "1024"),
        ("PORT", "7000"),
        ("QUEEN_BIND_ADDR", "::1"),
    ];
    let settings = read(&[], &environment).expect("readable");
    assert_eq!(settings.node_bytes_max, 1_000_000);
    assert_eq!((settings.queue_bytes_max, settings.queue_length_max), (1 << 20, 7));
    assert_eq!((settings.lease_seconds, settings.retry_limit), (9, 2));
    assert_eq!(settings.implicit_idle, Duration::from_millis(1500));
    assert_eq!(settings.rate(), Some(Rate { messages_per_second: 5000, burst_messages: 10_001 }));
    assert!(settings.tenancy_header && settings.require_grant == Some(false));
    assert_eq!(settings.body_bytes_max, 1024);
    assert_eq!(settings.listen_address().to_string(), "[::1]:7000");
}

#[test]
fn listen_beats_the_published_halves_and_they_are_then_not_even_read() {
    let halves = [("PORT", "tcp://10.0.0.1:80"), ("QUEEN_BIND_ADDR", "10.0.0.1")];
    let listen = |typed, environment| read(typed, environment).map(|settings| settings.listen_address().to_string());
    assert_eq!(listen(&[("listen", "[::]:6632")], &halves), Ok("[::]:6632".to_owned()));
    assert_eq!(listen(&[], &halves[1..]), Ok("10.0.0.1:6632".to_owned()));
    assert_eq!(listen(&[], &[]), Ok("0.0.0.0:6632".to_owned()));
    assert_eq!(line(&[], &halves), "PORT: cannot read \"tcp://10.0.0.1:80\"; expected a TCP port, 0 to 65535");
}

#[test]
fn the_published_parts_make_a_postgres_and_a_url_beats_them() {
    let parts = [("PG_HOST", "db"), ("PG_PORT", "5433"), ("PG_USER", "u"), ("PG_PASSWORD", "secret"), ("PG_DATABASE", "q")];
    let target = |typed, environment| {
        let settings = read(typed, environment).expect("readable");
        settings.postgres.map(|target| (target.to_string(), target.config().get_password().map(<[u8]>::to_vec)))
    };
    assert_eq!(target(&[], &parts), Some(("db:5433/q".to_owned(), Some(b"secret".to_vec()))));
    assert_eq!(target(&[], &parts[..1]), Some(("db:5432/postgres".to_owned(), None)));
    assert_eq!(target(&[], &parts[1..]), None);
    assert_eq!(target(&[("postgres", "postgres://h/p")], &parts), Some(("h:5432/p".to_owned(), None)));
    assert_eq!(line(&[], &[("PG_HOST", "db"), ("PG_PORT", "0")]), "PG_PORT: cannot read \"0\"; expected a TCP port, 1 to 65535");
}

#[test]
fn a_password_is_in_no_line() {
    assert!(!line(&[("postgres", "postgres://u:hunter2@h:port/q")], &[]).contains("hunter2"));
    let settings = read(&[("postgres", "postgres://u:hunter2@h/q")], &[]).expect("readable");
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[test]
fn a_burst_without_a_rate_means_nothing_and_defaults_to_twice_the_rate() {
    assert_eq!(read(&[("burst", "5")], &[]).map(|settings| settings.rate()), Ok(None));
    let doubled = Some(Rate { messages_per_second: 10, burst_messages: 20 });
    assert_eq!(read(&[("rate", "10")], &[]).map(|settings| settings.rate()), Ok(doubled));
}

#[test]
fn what_cannot_be_read_is_one_line_naming_setting_text_and_expectation() {
    for setting in settings() {
        let environment_name = setting.environment_name();
        let text = "no\nsuch thing";
        let shown = if SECRETS.contains(&setting.flag) { format!("{HIDDEN:?}") } else { "\"no\\nsuch thing\"".to_owned() };
        let by_flag = line(&[(setting.flag, text)], &[]);
        let by_environment = line(&[], &[(&environment_name, text)]);
        assert_eq!(by_flag, format!("--{}: cannot read {shown}; expected {}", setting.flag, setting.expected));
        assert_eq!(by_environment, format!("{environment_name}: cannot read {shown}; expected {}", setting.expected));
    }
    let long = "x".repeat(10_000);
    assert!(line(&[("log", &long)], &[]).len() < 200);
}

#[test]
fn out_of_range_is_unreadable() {
    let table: &[(&str, &[&str])] = &[
        ("shards", &["0", "257", "-1", "1.5"]),
        ("lease-s", &["0", "86401"]),
        ("retry-limit", &["1001"]),
        ("header-timeout", &["0", "-1"]),
        ("max-body-bytes", &["0", "2GiB"]),
        ("max-connections", &["0"]),
        ("burst", &["0"]),
        ("queue-max-length", &["0", "4294967296"]),
        ("spin-us", &["1000001"]),
        ("node-id", &["0", "-1"]),
        ("peers", &["1", "0=a:1", "1=a"]),
        ("member-ttl-ms", &["499", "1.5"]),
        ("jwt-algorithm", &["", "none", "ES256", "HS256,none", "HS256,", "HS256 RS256"]),
        ("jwt-jwks-url", &["ftp://h/", "h/keys", "https://", "http:///keys", "http://h/a b"]),
        ("jwt-jwks-refresh-s", &["0", "0.5"]),
        ("jwt-skip-paths", &["health", "/a,,/b"]),
        ("jwt-secret", &[""]),
        ("jwt-clock-skew", &["-1", "3601", "1.5"]),
    ];
    for (flag, texts) in table {
        for text in *texts {
            assert!(line(&[(flag, text)], &[]).contains(flag), "{flag} {text}");
        }
    }
}

#[test]
fn a_text_that_is_not_utf8_is_unreadable() {
    use std::os::unix::ffi::OsStringExt as _;
    let refused = Settings::read(|flag| (flag == "log").then(|| OsString::from_vec(vec![0xff])), |_| None);
    assert!(refused.is_err_and(|unreadable| unreadable.name == "--log"));
}

#[test]
fn every_published_name_of_tokens_is_read() {
    use crate::identity::settings::{RoleNames, Secret};
    use jsonwebtoken::Algorithm;
    let environment = [
        ("JWT_ENABLED", "true"),
        ("JWT_ALGORITHM", "RS256, eddsa"),
        ("JWT_SECRET", "s"),
        ("JWT_PUBLIC_KEY", "-----BEGIN PUBLIC KEY-----\nx"),
        ("JWT_JWKS_URL", "https://h/keys"),
        ("JWT_ISSUER", "i"),
        ("JWT_AUDIENCE", "a"),
        ("JWT_CLOCK_SKEW", "7"),
        ("JWT_SKIP_PATHS", "/a, /b/"),
        ("JWT_ROLES_CLAIM", "realm_access.roles"),
        ("JWT_ROLE_ADMIN", "1"),
        ("JWT_ROLE_READ_WRITE", "2"),
        ("JWT_ROLE_READ_ONLY", "3"),
        ("JWT_ROLE_WRITE_ONLY", "4"),
        ("JWT_TENANT_CLAIM", "t"),
    ];
    let text = |text: &str| text.to_owned();
    let wanted = TokenSettings {
        is_enabled: true,
        algorithms: vec![Algorithm::RS256, Algorithm::EdDSA],
        secret: Some(Secret(text("s"))),
        public_key: Some(text("-----BEGIN PUBLIC KEY-----\nx")),
        jwks_url: Some(text("https://h/keys")),
        issuer: Some(text("i")),
        audience: Some(text("a")),
        clock_skew: Duration::from_secs(7),
        skip_paths: vec![text("/a"), text("/b/")],
        roles_claims: vec![text("realm_access.roles")],
        role_names: RoleNames { admin: text("1"), read_write: text("2"), read_only: text("3"), write_only: text("4") },
        tenant_claim: text("t"),
        ..TokenSettings::default()
    };
    assert_eq!(read(&[], &environment).map(|settings| settings.jwt), Ok(wanted));
    assert_eq!(read(&[("jwt-algorithm", "auto")], &environment).map(|settings| settings.jwt.algorithms), Ok(Vec::new()));
}

#[test]
fn the_help_shows_the_true_defaults() {
    for setting in settings() {
        let mut settings = Settings::default();
        let in_words = setting.default.contains(' ');
        if !in_words && setting.flag != "listen" {
            assert_eq!((setting.set)(&mut settings, setting.default), Some(()), "{}", setting.flag);
        }
        assert_eq!(settings, Settings::default(), "{}", setting.flag);
    }
}

#[test]
fn names_are_given_once() {
    let mut names: Vec<String> = settings().map(Setting::environment_name).collect();
    names.extend(settings().filter_map(|setting| setting.published.map(str::to_owned)));
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn the_readme_lists_every_setting_and_the_overheads() {
    let readme = include_str!("../../README.md");
    for setting in settings() {
        let published = setting.published.map(|name| format!(", `{name}`")).unwrap_or_default();
        let (flag, value_name) = (setting.flag, setting.value_name.replace('|', "/"));
        let row =
            format!("| `--{flag} {value_name}` | `{}`{published} | {} | {} |", setting.environment_name(), setting.default, setting.help);
        assert!(readme.contains(&row), "the README lacks this row:\n{row}");
    }
    let overheads = format!(
        "{} bytes a message, {} a queue, {} a parked pop",
        mayfly_shards::MESSAGE_OVERHEAD_BYTES,
        mayfly_shards::QUEUE_OVERHEAD_BYTES,
        mayfly_shards::WAITER_OVERHEAD_BYTES
    );
    assert!(readme.contains(&overheads), "{overheads}");
}
