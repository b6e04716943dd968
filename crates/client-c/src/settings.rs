//! Settings by name and value, as text. A new setting needs no new function.

use crate::status::Problem;
use paritas_client_io::{Decode, Encode, Settings};

/// The longest time that a setting may have: an hour, in milliseconds.
const MS_MAX: u64 = 3_600_000;

/// Each name, what it may be, and what it sets.
const NAMES: [Setting; 14] = [
    Setting::text("decode", "server, client or auto"),
    Setting::text("encode", "server, client or auto"),
    Setting::text("user", "the name of a user"),
    Setting::text("password", "the password of clients"),
    Setting::number("deadline_ms", 1, MS_MAX),
    Setting::number("retry_ms", 1, MS_MAX),
    Setting::number("late_min_ms", 1, MS_MAX),
    Setting::number("encode_bytes_min", 1, 512 << 20),
    Setting::number("ops_max", 1, 65_536),
    Setting::number("bytes_max", 1, 1 << 40),
    Setting::number("value_bytes_max", 1, 512 << 20),
    Setting::number("reply_bytes_max", 1, 1 << 40),
    Setting::number("hedge_per_mille", 0, 1_000),
    Setting::number("seed", 0, u64::MAX),
];

struct Setting {
    name: &'static str,
    /// What a text may be; empty for a number.
    what: &'static str,
    least: u64,
    most: u64,
}

impl Setting {
    const fn text(name: &'static str, what: &'static str) -> Self {
        Self {
            name,
            what,
            least: 0,
            most: 0,
        }
    }

    const fn number(name: &'static str, least: u64, most: u64) -> Self {
        Self {
            name,
            what: "",
            least,
            most,
        }
    }
}

/// Settings from pairs of name and value.
pub(crate) fn read(pairs: &[(&str, &str)]) -> Result<Settings, Problem> {
    let mut settings = Settings::default();
    let (mut user, mut password) = (None, None);
    for (name, value) in pairs {
        let Some(setting) = NAMES.iter().find(|setting| setting.name == *name) else {
            let names: Vec<&str> = NAMES.iter().map(|setting| setting.name).collect();
            let text = format!("there is no setting {name:?}: the settings are {}", names.join(", "));
            return Err(Problem::bad(text));
        };
        let number = if setting.what.is_empty() {
            number(setting, value)?
        } else {
            0
        };
        match *name {
            "decode" => settings.decode = one_of(setting, value, [Decode::Server, Decode::Client, Decode::Auto])?,
            "encode" => settings.encode = one_of(setting, value, [Encode::Server, Encode::Client, Encode::Auto])?,
            "user" => user = Some((*value).to_owned()),
            "password" => password = Some((*value).to_owned()),
            "deadline_ms" => settings.deadline = span(number),
            "retry_ms" => settings.retry = span(number),
            "late_min_ms" => settings.late_min = span(number),
            "encode_bytes_min" => settings.encode_bytes_min = number,
            "ops_max" => settings.ops_max = number as usize,
            "bytes_max" => settings.bytes_max = number,
            "value_bytes_max" => settings.value_bytes_max = number,
            "reply_bytes_max" => settings.reply_bytes_max = number,
            "hedge_per_mille" => settings.hedge_per_mille = number,
            _ => settings.seed = number,
        }
    }
    settings.password = match (user, password) {
        (Some(_), None) => return Err(Problem::bad("the setting user needs the setting password beside it")),
        (user, password) => password.map(|password| (user, password)),
    };
    Ok(settings)
}

fn span(ms: u64) -> paritas_client_io::Span {
    paritas_client_io::Span::from_ms(ms)
}

fn number(setting: &Setting, value: &str) -> Result<u64, Problem> {
    let number = value.parse().ok();
    let within = number.filter(|number| (setting.least..=setting.most).contains(number));
    within.ok_or_else(|| {
        let Setting { name, least, most, .. } = setting;
        Problem::bad(format!(
            "the setting {name} is a number from {least} to {most}, not {value:?}"
        ))
    })
}

/// What `server`, `client` and `auto` stand for.
fn one_of<T>(setting: &Setting, value: &str, [server, client, auto]: [T; 3]) -> Result<T, Problem> {
    match value {
        "server" => Ok(server),
        "client" => Ok(client),
        "auto" => Ok(auto),
        _ => {
            let Setting { name, what, .. } = setting;
            Err(Problem::bad(format!("the setting {name} is {what}, not {value:?}")))
        }
    }
}

/// Addresses from `host:port,host:port`.
pub(crate) fn addresses(text: &str) -> Result<Vec<String>, Problem> {
    let all: Vec<String> = text.split(',').map(|address| address.trim().to_owned()).collect();
    let is_address = |address: &String| {
        let parts = address.rsplit_once(':');
        parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
    };
    match all.iter().find(|address| !is_address(address)) {
        Some(wrong) => Err(Problem::bad(format!(
            "{wrong:?} is no address: give host:port of a node, and several with commas between them"
        ))),
        None => Ok(all),
    }
}
