//! What a client may do without the password.

use paritas_wire::resp::{Password, USER, encode, errors};

/// What becomes of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    /// It may run.
    Open,
    /// It was about the password, and is answered.
    Answered,
    /// It is refused, and the answer says why.
    Denied,
}

/// Lets a command pass, or answers it. `is_in` says whether the client has given the password; without one everybody
/// has.
pub(crate) fn gate(out: &mut Vec<u8>, words: &[&[u8]], password: Option<&Password>, is_in: &mut bool) -> Gate {
    let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match (name.as_slice(), words) {
        (b"AUTH", [_, given]) => match password {
            None => {
                encode::error(out, errors::AUTH_WITHOUT_PASSWORD);
                Gate::Answered
            }
            Some(_) => check(out, USER, given, password, is_in),
        },
        (b"AUTH", [_, user, given]) => check(out, user, given, password, is_in),
        (b"AUTH", _) => {
            encode::error(out, errors::SYNTAX);
            Gate::Answered
        }
        // Another version is refused anyway.
        (b"HELLO", [_, version, ..]) if *version != b"2" => Gate::Open,
        (b"HELLO", _) => {
            let mut options = words.iter().skip(2);
            let asked = options.any(|word| word.eq_ignore_ascii_case(b"AUTH"));
            if asked {
                let (user, given) = (options.next().copied(), options.next().copied());
                let mut answer = Vec::new();
                let user = user.unwrap_or_default();
                if check(&mut answer, user, given.unwrap_or_default(), password, is_in) == Gate::Denied {
                    out.append(&mut answer);
                    return Gate::Denied;
                }
            }
            if *is_in {
                return Gate::Open;
            }
            encode::error(out, errors::NOAUTH_HELLO);
            Gate::Denied
        }
        _ if *is_in => Gate::Open,
        _ => {
            let noauth = errors::NOAUTH;
            let text = format!(
                "{noauth} This steward has a password_file: give its password \
                 (fs.paritas.steward.password of Hadoop clients, --password-file of paritas files status)"
            );
            encode::error(out, &text);
            Gate::Denied
        }
    }
}

fn check(out: &mut Vec<u8>, user: &[u8], given: &[u8], password: Option<&Password>, is_in: &mut bool) -> Gate {
    if user == USER && password.is_none_or(|password| password.is(given)) {
        *is_in = true;
        encode::ok(out);
        return Gate::Answered;
    }
    let text = format!(
        "{} It must be the line of this steward's password_file",
        errors::WRONGPASS
    );
    encode::error(out, &text);
    Gate::Denied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(password: Option<&str>, is_in: &mut bool, text: &str) -> (Gate, String) {
        let password = password.map(|text| Password::of_file(text.as_bytes()).unwrap());
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let mut out = Vec::new();
        let gate = gate(&mut out, &words, password.as_ref(), is_in);
        (gate, String::from_utf8(out).unwrap())
    }

    #[test]
    fn only_the_password_opens() {
        for (text, start) in [
            (
                "PING",
                "-NOAUTH Authentication required. This steward has a password_file",
            ),
            ("FILES.STATUS", "-NOAUTH"),
            ("AUTH wrong", "-WRONGPASS"),
            ("AUTH secre", "-WRONGPASS"),
            ("AUTH secrets", "-WRONGPASS"),
            ("AUTH other secret", "-WRONGPASS"),
            ("HELLO", "-NOAUTH HELLO"),
            ("HELLO 2", "-NOAUTH HELLO"),
            ("HELLO 2 AUTH", "-WRONGPASS"),
            ("HELLO 2 AUTH default wrong", "-WRONGPASS"),
            ("HELLO 2 SETNAME x AUTH default", "-WRONGPASS"),
        ] {
            let mut is_in = false;
            let (gate, answer) = ask(Some("secret"), &mut is_in, text);
            assert!(
                gate == Gate::Denied && !is_in && answer.starts_with(start),
                "{text}: {answer}"
            );
            assert!(!answer.contains("secret"));
        }
        for (text, expected) in [
            ("auth secret", (Gate::Answered, "+OK\r\n".to_owned())),
            ("AUTH default secret", (Gate::Answered, "+OK\r\n".to_owned())),
            ("HELLO 2 AUTH default secret", (Gate::Open, String::new())),
            ("HELLO 2 SETNAME x AUTH default secret", (Gate::Open, String::new())),
        ] {
            let mut is_in = false;
            assert_eq!(ask(Some("secret"), &mut is_in, text), expected);
            assert!(is_in);
            assert_eq!(ask(Some("secret"), &mut is_in, "PING").0, Gate::Open);
            // As in Redis, a wrong password later takes nothing away.
            assert_eq!(ask(Some("secret"), &mut is_in, "AUTH wrong").0, Gate::Denied);
            assert!(is_in);
        }
    }

    #[test]
    fn without_a_password_everybody_is_in() {
        let mut is_in = true;
        assert_eq!(ask(None, &mut is_in, "PING").0, Gate::Open);
        assert_eq!(ask(None, &mut is_in, "HELLO 2").0, Gate::Open);
        let (gate, answer) = ask(None, &mut is_in, "AUTH any");
        assert!(gate == Gate::Answered && answer.contains("without any password configured"));
    }
}
