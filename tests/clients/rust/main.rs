//! Client libraries for Rust, each by the name of its file: what `make clients` runs.

mod memcache;
mod redis_rs;
mod trial;

fn main() -> trial::Work<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    trial::begin(&words[1..]);
    match words[0].as_str() {
        "redis_rs" => redis_rs::run(),
        "memcache" => memcache::run(),
        other => Err(format!("no such client: {other}").into()),
    }
}
